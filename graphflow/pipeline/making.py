"""The task of a worker process: it lowers one kernel and makes its object code.

In: a `KernelTask`.  Out: its `LoweredKernel` and object code.  A kernel that stays where it was
lowered is not sent twice, and no process waits until the last kernel of a model is lowered.
"""

from __future__ import annotations

from collections.abc import Callable

from graphflow.base.errors import GraphflowError
from graphflow.base.trace import Trace
from graphflow.codegen import ObjectTask
from graphflow.kernels.lowering import KernelTask, LoweredKernel, make_kernel


def make_kernel_and_object(
    make: Callable[[ObjectTask, Trace], bytes], task: KernelTask, trace: Trace
) -> tuple[LoweredKernel, bytes | None]:
    """The kernel of a task, and what `make` gives for it; None where that raises GraphflowError.

    The error is not kept: whoever calls `make` again in the codegen stage gets it there.
    """
    kernel = make_kernel(task, trace)
    try:
        return kernel, make((kernel.func, kernel.symbol, task.target), trace)
    except GraphflowError:
        return kernel, None
