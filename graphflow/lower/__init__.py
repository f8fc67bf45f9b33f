"""Lowering: from the physical graph to kernels, program steps and a memory plan.

In: a `PhysicalGraph`.  Out: `Lowered`, and with the object code of its kernels a `ProgramSpec`.
"""

from graphflow.lower.called_kernels import kernel_task, lower_call
from graphflow.lower.limit import check_program, check_values
from graphflow.lower.lowered import Lowered
from graphflow.lower.program_tables import ArenaPart, arena_parts, assemble, lower
from graphflow.lower.states import StatePair

__all__ = [
    "ArenaPart",
    "Lowered",
    "StatePair",
    "arena_parts",
    "assemble",
    "check_program",
    "check_values",
    "kernel_task",
    "lower",
    "lower_call",
]
