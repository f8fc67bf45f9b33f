"""Unroll and jam: some iterations of the outermost loop run together inside all serial loops.

In: a kernel of one outermost loop, its rows, whose iterations run serial loops of their own, such
as the time steps of sequences.  Out: its schedule in blocks of rows, in which each element that the
rows of a block share is loaded once for all of them:

    for b:                                 for bo:
        for t:                                 for t:
            for p:                                 for p:
                S                    →                 for bi: S
                for k:                                 for k:
                    z[b, p] += h[b, k] * w[p, k]           for bi: z[b, p] += h[b, k] * w[p, k]

The states of a block are memory of the thread that runs it.  In shared memory its lines and those
of the next block follow each other, and a processor that fetches lines ahead takes them from the
core that writes them.

What always holds: a sum stays inside its row where the registers do not hold those of all rows of a
block.  Then the rows of a block follow each other, and what they share is in a near cache.
"""

from __future__ import annotations

from graphflow import schedule, tir
from graphflow.base.target import Target
from graphflow.kernels.recipes.analysis.byte_sums import sums_terms_in_lanes
from graphflow.kernels.recipes.analysis.jammable_rows import fit_registers, jammable_rows, sums_in
from graphflow.kernels.recipes.analysis.shared_loops import intermediates
from graphflow.schedule import Handle, Schedule


def jammed(s: Schedule, rows: int, target: Target) -> Schedule:
    """The schedule in which so many iterations of the outermost loop run together.

    ScheduleError where a step is refused: iterations depend on each other.
    """
    loop = jammable_rows(s.func)
    assert loop is not None, s.func.name
    blocks = s.handle(loop.var.name)
    if rows > 1:
        names = (s.fresh("{}o", blocks), s.fresh("{}i", blocks))
        s = s.apply(schedule.divide_loop, s[blocks], rows, names, "perfect")
        blocks, row = s.made["parts"]
        s = _inward(s, row, rows, target)
    return _with_own_states(s, blocks, rows / (loop.extent or 1), target)


def _with_own_states(s: Schedule, blocks: Handle, share: float, target: Target) -> Schedule:
    """The states of a block allocated in the loop over blocks, which uses that share of them; as it
    is where they exceed the stack of a thread."""
    states = intermediates(s.func)
    if sum(buffer.bytes for buffer in states) * share > target.stack_bytes:
        return s
    for buffer in states:
        s = s.attempt(schedule.sink_alloc, buffer.name, s[blocks], "scratch")
    return s


def _inward(s: Schedule, row: Handle, rows: int, target: Target) -> Schedule:
    """The loop over the rows of a block inside all serial loops, a copy for each statement."""
    while True:
        body = s.loop(row).body
        first = body[0]
        if all(map(_is_innermost, body)):
            summed = any(isinstance(stmt, tir.Reduce) for stmt in tir.walk(body))
            return s.apply(schedule.mark_unrolled, s[row]) if summed else s
        if any(_stays(stmt, rows, target) for stmt in body):
            return s
        if len(body) > 1:
            s = s.apply(schedule.fission, s[row], 1, "_s")
            (first_row,), (row,) = s.made["first"], s.made["second"]
            s = _inward(s, first_row, rows, target)
        elif isinstance(first, tir.For):
            s = s.apply(schedule.reorder_loops, (first.var.name, s[row]))
        else:
            s = s.apply(schedule.lift_scope, f"{s[row]}[0]")


def _is_innermost(stmt: tir.Stmt) -> bool:
    """Whether a statement is no loop around another one, unless instructions sum both."""
    inside = stmt.body if isinstance(stmt, tir.For) else (stmt,)
    summed = isinstance(stmt, tir.For) and sums_terms_in_lanes(stmt)
    return summed or not any(True for _ in tir.loops_of(inside))


def _stays(stmt: tir.Stmt, rows: int, target: Target) -> bool:
    """Whether a statement is the loop over the terms of sums that registers do not hold."""
    return isinstance(stmt, tir.For) and any(
        nest is stmt and not fit_registers(nest, rows, target) for nest in sums_in(stmt)
    )
