"""A kernel of one row in phases: threads share what a step computes for each element of the state.

In: a kernel of one row, such as a recurrent layer of one sequence: a loop over time steps, in which
a state is multiplied by weights.  Out: its schedule in which the loops around the sums are
parallel, with what follows of their results:

    for t:                                 for t:
        for p:                                 for p in parallel:
            S                                      S
            for k: z[p] += h[t, k] * w[p, k]  →     for k: z[p] += h[t, k] * w[p, k]
        for p: h[t + 1, p] = tanh(z[p])            h[t + 1, p] = tanh(z[p])
                                               # threads meet

Sums are memory of the iteration that computes them.  Statements beside these loops are executed by
every thread, in memory of its own: they take less time than a meeting does.

What always holds: each step proves what it needs; the lowered kernel is proven as a whole
(`graphflow/schedule/facts/phase_independence.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from graphflow import schedule, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.kernels.recipes.analysis.jammable_rows import loops_around_sums
from graphflow.kernels.recipes.analysis.parallel_loops import has_effect
from graphflow.kernels.recipes.analysis.shared_loops import intermediates
from graphflow.schedule import Handle, Rewrite, Schedule


def row_in_phases(s: Schedule) -> Schedule:
    """The schedule of a kernel of one row with its loops around sums parallel.

    ScheduleError where a step is refused, and where something else writes what threads share.
    """
    s = s.apply(schedule.simplify)
    shared = s.handles(loops_around_sums(s.func))
    for place in shared:
        s = _with_sums(_with_results(s, place), place)
    places = s.names(shared)
    inside = (loop for loop in tir.loops_of(s.func.body) if loop.var.name in places)
    written = {stmt.buffer for loop in inside for stmt in tir.writes_in((loop,))}
    common = written.union(s.func.outputs)
    beside = [x for x in _beside(s.func.body, places) if common & set(_written(x))]
    extent = s.loop(shared[0]).extent
    if not all(isinstance(x, tir.For) and x.extent == extent for x in beside):
        raise ScheduleError(f"what threads share is written beside loops of {extent} iterations")
    starts_and_ends = s.handles(stmt for stmt in beside if isinstance(stmt, tir.For))
    for place in (*shared, *starts_and_ends):
        s = s.apply(schedule.parallelize_loop, s[place])
    for buffer in intermediates(s.func):
        if buffer.scope == "global" and buffer not in common:
            s = s.apply(schedule.set_memory, buffer.name, "scratch")
    return s.apply(share_phases)


def share_phases(func: tir.PrimFunc) -> Rewrite:
    """The same kernel, with the proofs that threads may share its phases."""
    return Rewrite(replace(func), schedule.phase_proofs(func))


def _with_results(s: Schedule, place: Handle) -> Schedule:
    """A loop joined with those behind it that have as many iterations and sum nothing."""
    while (following := _following(s, place)) is not None:
        s = s.apply(schedule.fuse, s[place], following.var.name)
    return s


def _following(s: Schedule, place: Handle) -> tir.For | None:
    """The loop behind this one, if it can be a part of its iterations."""
    loop, sums = s.loop(place), loops_around_sums(s.func)
    bodies = (below for stmt in tir.walk(s.func.body) for below in tir.sub_bodies(stmt))
    body = next(body for body in bodies if loop in body)
    behind = body[body.index(loop) + 1 :][:1]
    fits = [x for x in behind if isinstance(x, tir.For) and x.extent == loop.extent]
    return next((x for x in fits if x not in sums), None)


def _with_sums(s: Schedule, place: Handle) -> Schedule:
    """A loop with what its iterations alone touch as memory of theirs."""
    loop = s.loop(place)
    touched = {
        access.buffer
        for x in _beside(s.func.body, {loop.var.name})
        for access in tir.accesses((x,))
    }
    for buffer in intermediates(s.func):
        if buffer not in touched and any(a.buffer == buffer for a in tir.accesses((loop,))):
            s = s.apply(schedule.sink_alloc, buffer.name, s[place], "scratch")
    return s


def _written(stmt: tir.Stmt) -> Iterator[tir.Buffer]:
    return (write.buffer for write in tir.writes_in((stmt,)))


def _beside(body: tir.Body, places: Collection[str]) -> Iterator[tir.Stmt]:
    """The statements in none of these loops and around none of them."""
    for stmt in filter(has_effect, body):
        if isinstance(stmt, tir.For) and stmt.var.name in places:
            continue
        if any(loop.var.name in places for loop in tir.loops_of((stmt,))):
            for below in tir.sub_bodies(stmt):
                yield from _beside(below, places)
        else:
            yield stmt
