"""Parallel loops that threads cannot share, because they are not all that their kernel does.

Every thread runs the whole kernel on its share of the parallel loop, so what stands beside the loop
would run once in each.  In: a kernel that a user scheduled.  Out: whether that is so, and the same
kernel with these loops serial, for a parallel loop is only a permission.
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
    """Whether `func` has no parallel loop, or a single one that is all it does.

    Blocks may stand around that loop, and beside it what lowering takes away: allocations,
    assumptions, stores of undef.
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
    return any(not isinstance(write.value, Undef) for write in writes_in((stmt,)))
