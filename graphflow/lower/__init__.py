"""Lowering: from physical calls to kernels that the emitter takes, and to a memory plan."""

from graphflow.lower.assumptions import remove_assume, remove_undef
from graphflow.lower.kernels import (
    KernelTask,
    LoweredKernel,
    kernel_key,
    kernel_task,
    lower_call,
    make_kernel,
    scheduled,
)
from graphflow.lower.limit import available_memory, check_program, check_values
from graphflow.lower.program import Lowered, assemble, lower

__all__ = [
    "KernelTask",
    "Lowered",
    "LoweredKernel",
    "assemble",
    "available_memory",
    "check_program",
    "check_values",
    "kernel_key",
    "kernel_task",
    "lower",
    "lower_call",
    "make_kernel",
    "remove_assume",
    "remove_undef",
    "scheduled",
]
