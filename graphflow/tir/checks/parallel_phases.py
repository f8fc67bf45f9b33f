"""Kernels in phases: parallel loops inside serial ones, behind each of which threads meet.

    for t in serial(0, 100):
        s[0] = x[t] * 0.5                       # each thread, into memory of its own
        for p in parallel(0, 16):               # each thread its share
            h[(t + 1) % 2, p] = h[t % 2, 15 - p] + s[0]
                                                # all threads meet

In: a lowered kernel.  Out: whether it is in phases, and the statement that threads could not
execute so.  All threads that share such a kernel execute all of its serial loops, conditions and
other statements, and of each parallel loop the same share.  That the iterations of a phase touch
nothing that others write until they meet is proven in `graphflow.schedule`.

What always holds: all parallel loops of a kernel have as many iterations, and no iteration is
inside another one.  Around them are blocks, serial loops and conditions that all threads decide
alike.  Beside them only scratch memory and registers are written, which each thread has for itself
and no iteration writes.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphflow.tir.nodes import exprs, stmts
from graphflow.tir.traversal import visit

Fault = tuple[str, stmts.Stmt]


def in_phases(func: stmts.PrimFunc) -> bool:
    """Whether threads that share a kernel meet in it: a parallel loop is not all that it does."""
    loops = _parallel(func.body)
    return bool(loops) and _whole_work(func) is not loops[0]


def replicated(func: stmts.PrimFunc) -> frozenset[exprs.Buffer]:
    """The buffers of a kernel in phases of which each thread has its own: those in scratch memory
    or registers that are allocated beside parallel loops."""
    inside = {s.buffer for loop in _parallel(func.body) for s in _allocations(loop.body)}
    return frozenset(
        s.buffer
        for s in _allocations(func.body)
        if s.buffer.scope != "global" and s.buffer not in inside
    )


def fault_in_phases(func: stmts.PrimFunc) -> Fault | None:
    """What keeps threads from sharing the parallel loops of a kernel, and where; None if nothing
    does, as where there is no parallel loop."""
    loops = _parallel(func.body)
    if not loops or (_whole_work(func) is loops[0] and len(loops) == 1):
        return None
    own, written = replicated(func), {s.buffer for s in visit.writes_in(func.body)}
    return next(_faults(func.body, loops[0], own, written), None)


def _faults(
    body: stmts.Body,
    first: stmts.For,
    own: frozenset[exprs.Buffer],
    written: set[exprs.Buffer],
) -> Iterator[Fault]:
    for stmt in body:
        if isinstance(stmt, stmts.For) and stmt.kind is stmts.LoopKind.PARALLEL:
            yield from _faults_in_phase(stmt, first, own)
        elif _parallel((stmt,)):
            yield from _faults_around(stmt, written)
            for inner in visit.sub_bodies(stmt):
                yield from _faults(inner, first, own, written)
        else:
            shared = [s for s in visit.writes_in((stmt,)) if s.buffer not in own]
            inside = {s.buffer for s in _allocations((stmt,))}
            yield from (
                (f"every thread writes {s.buffer.name}, beside the parallel loops", s)
                for s in shared
                if s.buffer not in inside
            )


def _faults_in_phase(
    loop: stmts.For, first: stmts.For, own: frozenset[exprs.Buffer]
) -> Iterator[Fault]:
    if _parallel(loop.body):
        yield "a parallel loop is inside another one", loop
    if loop.extent is None or loop.extent != first.extent:
        yield f"the parallel loops over {first.var} and {loop.var} differ in their extents", loop
    for stmt in visit.writes_in(loop.body):
        if stmt.buffer in own:
            yield f"one thread writes {stmt.buffer.name}, of which each has its own", stmt


def _faults_around(stmt: stmts.Stmt, written: set[exprs.Buffer]) -> Iterator[Fault]:
    """What keeps all threads from executing a statement around parallel loops alike."""
    match stmt:
        case stmts.Block():
            return
        case stmts.For() if stmt.kind is stmts.LoopKind.SERIAL:
            return
        case stmts.If():
            loads = (
                node
                for expr in visit.expressions_of(stmt)
                for node in exprs.walk_expr(expr)
                if isinstance(node, exprs.Load)
            )
            for load in loads:
                if load.buffer in written:
                    yield f"threads may read another {load.buffer.name} in the condition", stmt
        case _:
            yield "the parallel loop inside is not in serial loops and conditions alone", stmt


def _whole_work(func: stmts.PrimFunc) -> stmts.Stmt | None:
    """The statement that is all of a kernel, inside blocks and beside allocations."""
    body = func.body
    while True:
        working = [stmt for stmt in body if not isinstance(stmt, stmts.Allocate)]
        if len(working) != 1:
            return None
        if not isinstance(working[0], stmts.Block):
            return working[0]
        body = working[0].body


def _parallel(body: stmts.Body) -> list[stmts.For]:
    return [loop for loop in visit.loops_of(body) if loop.kind is stmts.LoopKind.PARALLEL]


def _allocations(body: stmts.Body) -> Iterator[stmts.Allocate]:
    return (stmt for stmt in visit.walk(body) if isinstance(stmt, stmts.Allocate))
