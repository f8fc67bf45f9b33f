"""Lowering: from physical calls to kernels that the emitter takes, and to a memory plan."""

from graphflow.lower.called_kernels import kernel_task, lower_call
from graphflow.lower.limit import check_program, check_values
from graphflow.lower.program_tables import Lowered, assemble, lower

__all__ = [
    "Lowered",
    "assemble",
    "check_program",
    "check_values",
    "kernel_task",
    "lower",
    "lower_call",
]
