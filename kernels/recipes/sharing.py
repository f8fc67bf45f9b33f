"""Parallel loops that threads cannot share, because their kernel does something beside them.

In: a kernel that a user scheduled.  Out: whether threads can share its parallel loop; and the same
kernel with its parallel loops serial.  Every thread runs the whole kernel on its share of the
parallel loop, so statements beside that loop would run once in each thread.
"""

from __future__ import annotations

from graphflow.arith import Proof, Verdict
from graphflow.schedule import Rewrite
from graphflow.tir import (
    Block,
    LoopKind,
    PrimFunc,
    Stmt,
    Undef,
    loops_of,
    with_serial_loops,
    writes_in,
)


def is_shareable(func: PrimFunc) -> bool:
    """Whether `func` has no parallel loop, or one, with nothing beside it that lowering keeps.

    Lowering removes allocations, assumptions and stores of undef; blocks may be around the loop.
    """
    parallel = [loop for loop in loops_of(func.body) if loop.kind is LoopKind.PARALLEL]
    if not parallel:
        return True
    body = tuple(filter(_has_effect, func.body))
    while len(body) == 1 and isinstance(body[0], Block):
        body = tuple(filter(_has_effect, body[0].body))
    return len(parallel) == 1 and body == (parallel[0],)


def run_by_one_thread(func: PrimFunc) -> Rewrite:
    """`for i in parallel: S` → `for i in serial: S`, for all parallel loops.

    Nothing is to be proven: iterations that may run at once may run in order.
    """
    claim = "the parallel loop is not all that the kernel does, so one thread runs it"
    proof = Proof(Verdict.PROVEN, claim, "structure")
    return Rewrite(with_serial_loops(func, (LoopKind.PARALLEL,)), (proof,))


def _has_effect(stmt: Stmt) -> bool:
    """Whether a statement writes a defined value."""
    return any(not isinstance(write.value, Undef) for write in writes_in((stmt,)))
