"""The tasks of a worker process: it lowers one kernel and makes its object code.

In: a `KernelTask`.  Out: its `LoweredKernel` and object code.  Both are made in one call, so that
no kernel is sent twice, and no process waits until the last kernel of a model is lowered.  Before
there are such tasks, it makes steps that kernels will likely need.
"""

from __future__ import annotations

from collections.abc import Callable

from graphflow.base.errors import GraphflowError
from graphflow.base.trace import Trace
from graphflow.codegen import ObjectTask
from graphflow.kernels.lowering import KernelTask, LoweredKernel, make_kernel
from graphflow.kernels.recipes import FilteredTiles, remember_bands
from graphflow.tir import PrimFunc


def make_kernel_and_object(
    make: Callable[[ObjectTask, Trace], bytes], task: KernelTask, trace: Trace
) -> tuple[LoweredKernel, bytes | None]:
    """The kernel of a task, and the result of `make` for it; None if `make` raises GraphflowError.

    The error is not kept: the codegen stage calls `make` again, and raises it there.
    """
    kernel = make_kernel(task, trace)
    try:
        return kernel, make((kernel.func, kernel.symbol, task.target), trace)
    except GraphflowError:
        return kernel, None


def remember_steps(likely: tuple[PrimFunc, FilteredTiles], _: Trace) -> None:
    """Make the steps of a likely kernel that no layout decides, which it finds when it is made."""
    remember_bands(*likely)
