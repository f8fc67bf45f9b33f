"""Where later steps take a statement that has no name.

In: a kernel, the address of a statement, and steps.  Out: the addresses of what became of it.  The
statement gets a mark, which rewrites carry along as they carry a statement's other fields and which
nothing compares, and the steps are done again on the marked kernel.  What always holds: the steps
make the same kernel of it as before; a rewrite that makes a new statement, instead of changing the
old one, leaves no mark, and the statement counts as gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphflow import arith, effects, tir
from graphflow.base.fields import replace
from graphflow.schedule.places import addresses
from graphflow.schedule.steps.frame import ScheduleStep

_MARK = "followed"


def follow(
    func: tir.PrimFunc, address: str, steps: Sequence[ScheduleStep]
) -> tuple[tuple[str, ...], ScheduleStep | None]:
    """What became of the statement at an address after some steps, and the last step that took it
    away or made several of it, if one did."""
    places = 1
    changed = None
    now = _marked(func, address)
    for step in steps:
        now = step.primitive(now, *step.arguments, **dict(step.options)).func
        count = sum(1 for _ in _marks(now))
        if count != places:
            places, changed = count, step
        if not count:
            return (), changed
    return tuple(addresses.statement_address(now, path) for path in _marks(now)), changed


def _marked(func: tir.PrimFunc, address: str) -> tir.PrimFunc:
    def change(body: tir.Body, position: int, _domain: arith.Domain) -> tir.Body:
        stmt = body[position]
        assert isinstance(
            stmt, tir.Assume | tir.If | tir.Reduce | tir.Store
        )  # all others have names
        return (*body[:position], replace(stmt, mark=_MARK), *body[position + 1 :])

    return effects.rewrite_path(func, addresses.path_of(func, address), change)


def _marks(func: tir.PrimFunc) -> Iterator[effects.Path]:
    """The paths of the marked statements, in program order."""
    for position, stmt in enumerate(func.body):
        for path in effects.paths_below(stmt, ((position, False),)):
            if getattr(effects.statement_at(func, path), "mark", None) == _MARK:
                yield path
