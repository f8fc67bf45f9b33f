"""Whether threads can share the parallel loop of a kernel.

In: a kernel that a user scheduled, or a definition.  Out: the parallel loop that threads can share,
or the kernel with its parallel loops serial; the iterations that threads could share.

Every thread runs the whole kernel, on its part of the parallel loop.  So the loop has to be all
that the kernel does: with two threads, the first kernel adds one to each element once, the second
one adds one to y[0] twice.

    for i in parallel(0, 8):            for i in parallel(0, 8):
        y[i] = x[i] + 1.0                   y[i] = x[i]
                                        y[0] += 1.0
"""

from __future__ import annotations

from functools import lru_cache

from graphflow import tir
from graphflow.arith import Proof, Verdict
from graphflow.base.errors import ScheduleError
from graphflow.schedule import Rewrite, parallelize_loop


def is_shareable(func: tir.PrimFunc) -> bool:
    """Whether `func` has no parallel loop, or one that threads can share."""
    return shared_loop(func) is not None or not _parallel_loops(func)


def shared_loop(func: tir.PrimFunc) -> tir.For | None:
    """The parallel loop of `func`, if there is one, with nothing beside it that lowering keeps.

    Lowering removes allocations, assumptions and stores of undef; blocks may be around the loop.
    """
    parallel = _parallel_loops(func)
    return parallel[0] if len(parallel) == 1 and _work(func) == (parallel[0],) else None


@lru_cache(maxsize=1024)
def shareable_iterations(definition: tir.PrimFunc) -> int:
    """The iterations of the outermost loop of a single nest, if threads could share them; else 1.

    Loops of one iteration around it do not count, and matched loops are not shared.
    """
    body = _work(definition)
    while len(body) == 1 and isinstance(loop := body[0], tir.For):
        if loop.extent is None or tir.matched_value(loop) is not None:
            break
        if loop.extent > 1:
            try:
                parallelize_loop(definition, loop.var.name)
            except ScheduleError:
                break
            return loop.extent
        body = loop.body
    return 1


def _work(func: tir.PrimFunc) -> tir.Body:
    """What a kernel does, without the blocks around all of it."""
    body = tuple(filter(has_effect, func.body))
    while len(body) == 1 and isinstance(body[0], tir.Block):
        body = tuple(filter(has_effect, body[0].body))
    return body


def _parallel_loops(func: tir.PrimFunc) -> list[tir.For]:
    return [loop for loop in tir.loops_of(func.body) if loop.kind is tir.LoopKind.PARALLEL]


def run_by_one_thread(func: tir.PrimFunc) -> Rewrite:
    """`for i in parallel: S` → `for i in serial: S`, for all parallel loops.

    Nothing is to be proven: iterations that may run at once may run in order.
    """
    claim = "the parallel loop is not all that the kernel does, so one thread runs it"
    proof = Proof(Verdict.PROVEN, claim, "structure")
    return Rewrite(tir.with_serial_loops(func, (tir.LoopKind.PARALLEL,)), (proof,))


def has_effect(stmt: tir.Stmt) -> bool:
    """Whether a statement writes a defined value, or holds a hint to the processor."""
    hints = (call for call in tir.calls_in((stmt,)) if not tir.performed(call))
    writes = (w for w in tir.writes_in((stmt,)) if not isinstance(w.value, tir.Undef))
    return any(True for _ in (*hints, *writes))
