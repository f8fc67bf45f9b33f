"""Proofs that threads may share a kernel in phases: they meet behind each parallel loop.

In: a kernel in phases (`graphflow/tir/checks/parallel_phases.py`).  Out: the proofs; ScheduleError
where one is missing.

What is proven: the iterations of each parallel loop are independent; and what all threads execute
before a parallel loop reads nothing that an iteration of the loop writes, as one thread may be in
the loop when another one has not come to it yet.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphflow import arith, tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule.facts.dependence import independent, ordered_commute


def phase_proofs(func: tir.PrimFunc) -> tuple[arith.Proof, ...]:
    """Proofs that threads that share the parallel loops of `func`, and meet behind each of them,
    compute what one thread does; ScheduleError where that is not proven."""
    fault = tir.fault_in_phases(func)
    if fault is not None:
        raise ScheduleError(f"{func.name} cannot be shared in phases: {fault[0]}")
    shared = {s.buffer for s in tir.writes_in(func.body)} - tir.replicated(func)
    return tuple(dict.fromkeys(_proofs(func, func.body, arith.ANYWHERE, shared)))


def _proofs(
    func: tir.PrimFunc, body: tir.Body, domain: arith.Domain, shared: set[tir.Buffer]
) -> Iterator[arith.Proof]:
    for position, stmt in enumerate(body):
        if _is_phase(stmt):
            assert isinstance(stmt, tir.For)
            yield from independent(stmt, domain)
        elif any(map(_is_phase, tir.loops_of((stmt,)))):
            inner = domain
            if isinstance(stmt, tir.For):
                inner = domain.inside(stmt.var, stmt.start, stmt.stop)
            for below in tir.sub_bodies(stmt):
                yield from _proofs(func, below, inner, shared)
        elif read := {load.buffer for load in tir.loads_in((stmt,))} & shared:
            names = ", ".join(sorted(buffer.name for buffer in read))
            condition = f"what all threads read of {names} is not written in the phase behind it"
            following = _until_they_meet(body[position + 1 :])
            if not following:
                raise ScheduleError(f"{condition}: {func.name} has no phase behind it in its loop")
            own = tir.replicated(func)
            yield from ordered_commute(
                (stmt,), following, domain, (), arith.TRUE, condition, private=own
            )


def _until_they_meet(body: tir.Body) -> tir.Body:
    """The statements of a body up to the first phase; none where it has none."""
    ends = (position for position, stmt in enumerate(body) if _is_phase(stmt))
    return body[: next(ends, -1) + 1]


def _is_phase(stmt: tir.Stmt) -> bool:
    return isinstance(stmt, tir.For) and stmt.kind is tir.LoopKind.PARALLEL
