"""Lowering: from physical calls to kernels that the emitter takes, and to a memory plan."""

from graphflow.lower.kernels import kernel_key, kernel_task, lower_call, scheduled
from graphflow.lower.limit import available_memory, check_program, check_values
from graphflow.lower.program_tables import Lowered, assemble, lower

__all__ = [
    "Lowered",
    "assemble",
    "available_memory",
    "check_program",
    "check_values",
    "kernel_key",
    "kernel_task",
    "lower",
    "lower_call",
    "scheduled",
]
