"""One kernel from its definition, placements and recipe to what the emitter takes.

This is what worker processes run: it knows no graph and no plan.
"""

from graphflow.kernels.lowering.remove_assumptions import remove_assume, remove_undef
from graphflow.kernels.lowering.task import KernelTask, LoweredKernel, make_here, make_kernel

__all__ = [
    "KernelTask",
    "LoweredKernel",
    "make_here",
    "make_kernel",
    "remove_assume",
    "remove_undef",
]
