"""Kernels whose outermost loop runs serial loops of its own, with sums that share a factor.

In: a kernel, such as a recurrent layer: for each sequence a loop over time steps, in which a state
is multiplied by weights.  Out: the loop over the rows of which several may run together, the sums
inside of it, and these as the problem of a register tile.

What always holds: nothing is proven here; each step of the schedule proves what it needs.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphflow import cost, tir
from graphflow.arith import variables
from graphflow.base.target import Target
from graphflow.kernels.recipes.analysis.byte_sums import sums_terms_in_lanes
from graphflow.kernels.recipes.analysis.parallel_loops import has_effect

LOADS = cost.BroadcastRows()
"""What the rows of a block load: vectors that all of them use, and an element for each."""


def jammable_rows(func: tir.PrimFunc) -> tir.For | None:
    """The outermost loop of a kernel whose iterations could be jammed; None where it has none.

    That is the only loop of the kernel that is not inside of another one, and there is a sum inside
    of it whose terms have a factor that is the same for all iterations.
    """
    work = _work(func)
    if len(work) != 1 or not isinstance(work[0], tir.For):
        return None
    loop = work[0]
    if tir.matched_variables(func.body) or (loop.extent or 0) < 2 or len(loop.body) < 2:
        return None
    return loop if any(shared_by_rows(nest, loop) for nest in sums_in(loop)) else None


def is_one_row(func: tir.PrimFunc) -> bool:
    """Whether a kernel is such a row alone: several statements, one of them a loop around others
    and sums, which a run may leave out."""
    work = _work(func)
    if len(work) < 2 or tir.matched_variables(func.body):
        return False
    loops = (stmt for stmt in work if isinstance(stmt, tir.For) and len(_guarded(stmt)) > 1)
    return any(nest is not loop for loop in loops for nest in sums_in(loop))


def _guarded(loop: tir.For) -> tir.Body:
    """What a loop does, under a condition that is all of its body."""
    only = loop.body[0] if len(loop.body) == 1 else None
    return only.then if isinstance(only, tir.If) and not only.orelse else loop.body


def _work(func: tir.PrimFunc) -> list[tir.Stmt]:
    """The statements of a kernel that compute, inside blocks and loops of one iteration around all
    of them."""
    work = [stmt for stmt in func.body if has_effect(stmt)]
    while len(work) == 1 and (
        isinstance(work[0], tir.Block) or (isinstance(work[0], tir.For) and work[0].extent == 1)
    ):
        work = [stmt for stmt in work[0].body if has_effect(stmt)]
    return work


def sums_in(stmt: tir.For) -> Iterator[tir.For]:
    """The loops over the terms of sums: those with no loops inside but some that run along what is
    summed."""
    for loop in tir.loops_of((stmt,)):
        lines = [inner for inner in loop.body if isinstance(inner, tir.For)]
        if lines and all(map(_is_line, lines)) and len(lines) == len(loop.body):
            yield loop


def loops_around_sums(func: tir.PrimFunc) -> list[tir.For]:
    """The loops directly around the terms of sums of which each iteration has its own."""
    return [
        loop
        for loop in tir.loops_of(func.body)
        if any(nest in loop.body and _are_own(nest, loop) for nest in sums_in(loop))
    ]


def _are_own(nest: tir.For, loop: tir.For) -> bool:
    """Whether iterations of a loop add to different elements in a nest inside of it."""
    return all(any(loop.var in variables(i) for i in w.indices) for w in tir.writes_in((nest,)))


def _is_line(loop: tir.For) -> bool:
    """Whether each iteration of a loop adds a term to a sum of its own, or several neighbours."""
    return sums_terms_in_lanes(loop) or all(
        isinstance(stmt, tir.Reduce) and loop.var in variables(stmt.indices[-1])
        for stmt in loop.body
    )


def shared_by_rows(nest: tir.For, rows: tir.For | None) -> frozenset[tir.Buffer]:
    """What the sums of a nest load that is the same for all rows; all of it for the only row."""
    return frozenset(
        access.buffer
        for access in tir.accesses((nest,))
        if not access.writes
        and not any(rows is not None and rows.var in variables(i) for i in access.indices)
    )


def sum_problem(nest: tir.For, rows: int, target: Target) -> tuple[cost.TileProblem, int]:
    """The sums of `rows` rows as the problem of a register tile, and the vectors of one row."""
    loops = [x for x in nest.body if isinstance(x, tir.For)]
    updates = [(x, s) for x in loops for s in tir.walk(x.body) if isinstance(s, tir.Reduce)]
    dtypes = {update.buffer.dtype for _, update in updates}
    dtype = min(dtypes, key=target.computed_lanes)
    lanes = target.computed_lanes(dtype)
    vectors = sum(-(-(line.extent or 1) // lanes) for line, _ in updates)
    steps = nest.extent or 1
    columns = vectors * lanes
    size = columns * steps * tir.DTYPES[dtype].itemsize
    return cost.TileProblem(columns, rows, 1, steps, size, LOADS, dtype=dtype), vectors


def fit_registers(nest: tir.For, rows: int, target: Target) -> bool:
    """Whether registers hold the sums of so many rows."""
    problem, vectors = sum_problem(nest, rows, target)
    return LOADS.most_rows(problem.plane, vectors, target) >= rows
