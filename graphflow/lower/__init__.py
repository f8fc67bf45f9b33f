"""Lowering: from physical calls to kernels that the emitter takes, and to a memory plan."""

from graphflow.lower.assumptions import remove_assume, remove_undef
from graphflow.lower.kernels import LoweredKernel, in_bounds, kernel_key, lower_call, scheduled
from graphflow.lower.program import Lowered, assemble, lower

__all__ = [
    "Lowered",
    "LoweredKernel",
    "assemble",
    "in_bounds",
    "kernel_key",
    "lower",
    "lower_call",
    "remove_assume",
    "remove_undef",
    "scheduled",
]
