"""Lowering one kernel: from its definition, placements and recipe to what the emitter takes.

In: a `KernelTask`.  Out: a `LoweredKernel`.  What always holds: nothing here knows a graph or a
plan, so worker processes can run it on any task.
"""

from graphflow.kernels.lowering.appending import Repeated, appending, repeats, writes_behind
from graphflow.kernels.lowering.filled_axes import FilledAxis, Fills, filled_axes, fills_of
from graphflow.kernels.lowering.remove_assumptions import remove_assume, remove_undef
from graphflow.kernels.lowering.size_conditions import SizeParam, with_size_conditions
from graphflow.kernels.lowering.sized_rows import (
    SizedAxis,
    SizedRows,
    axes_with_sizes,
    rows_of,
)
from graphflow.kernels.lowering.task import KernelTask, LoweredKernel, make_here, make_kernel
from graphflow.kernels.lowering.unread_rows import reads_below

__all__ = [
    "FilledAxis",
    "Fills",
    "KernelTask",
    "LoweredKernel",
    "Repeated",
    "SizeParam",
    "SizedAxis",
    "SizedRows",
    "appending",
    "axes_with_sizes",
    "filled_axes",
    "fills_of",
    "make_here",
    "make_kernel",
    "reads_below",
    "remove_assume",
    "remove_undef",
    "repeats",
    "rows_of",
    "with_size_conditions",
    "writes_behind",
]
