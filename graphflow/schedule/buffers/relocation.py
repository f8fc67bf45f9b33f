"""Elements of a private buffer moved to other indices, or to another buffer.

In: a kernel, a buffer that it allocates, and where each element goes.  Out: the kernel with each
access at the new place.  What always holds: accesses are the same in number and order, so whether
reads still see the same writes is one question to the effect analysis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.facts.dependence import independent
from graphflow.schedule.places import obligations, places
from graphflow.schedule.steps.frame import require_instances

Indices = tuple[arith.IndexExpr, ...]


def relocated(
    body: tir.Body, old: tir.Buffer, new: tir.Buffer, place: Callable[[Indices], Indices]
) -> tir.Body:
    """`body` with each access to `old` made one to `new` at the indices that `place` gives for its
    own, and with `new` allocated where `old` was."""

    def allocated(stmt: tir.Stmt) -> tir.Stmt:
        return tir.Allocate(new) if isinstance(stmt, tir.Allocate) and stmt.buffer == old else stmt

    found: list[tir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tir.Block) and old not in tir.mentioned(stmt):
            found.append(stmt)
        else:
            found += tir.map_body(tir.redirect_accesses((stmt,), old, new, place), allocated)
    return tuple(found)


def moved_buffer(
    func: tir.PrimFunc, old: tir.Buffer, new: tir.Buffer, place: Callable[[Indices], Indices]
) -> tir.PrimFunc:
    """A kernel with a buffer that it allocates relocated.

    ScheduleError where a call that is given the buffer would do something else.
    """
    moved = replace(func, body=relocated(func.body, old, new, place))
    require_instances(func, moved)
    return moved


def private_buffer(func: tir.PrimFunc, name: str) -> tir.Buffer:
    """The buffer called `name`, which the kernel allocates and of which no stage states padding.

    ScheduleError for a parameter, whose layout callers see, and for a padded buffer.
    """
    buffer = places.find_buffer(func, name)
    if any(buffer == param.buffer for param in func.params):
        raise ScheduleError(f"{name} is a parameter, which others see; it must be allocated here")
    for stmt in tir.walk(func.body):
        if isinstance(stmt, tir.Block) and stmt.note(tir.BlockNote.PADDING_OF) == name:
            raise ScheduleError(f"{name} has padding that {stmt.name} states")
    return buffer


def flat_buffer(func: tir.PrimFunc, name: str) -> tir.Buffer:
    """A `private_buffer` whose axes may be changed: it has no separators between them."""
    buffer = private_buffer(func, name)
    if buffer.separators:
        raise ScheduleError(f"{name} has separators between its axes, which would move")
    return buffer


def axis_of(buffer: tir.Buffer, dim: int) -> int:
    """`dim` itself; ScheduleError where the buffer has no such axis."""
    if not 0 <= dim < len(buffer.shape):
        raise ScheduleError(f"{buffer.name} has {len(buffer.shape)} axes, and none is {dim}")
    return dim


def touching(func: tir.PrimFunc, buffer: tir.Buffer) -> tuple[effects.StatementAccess, ...]:
    """The accesses to a buffer, claims of assumptions included."""
    return effects.statements_of(func).of(buffer)


def allocation_of(func: tir.PrimFunc, buffer: tir.Buffer) -> effects.Statement:
    """The statement that allocates a private buffer."""
    return next(
        one
        for one in effects.statements_of(func).statements
        if isinstance(one.stmt, tir.Allocate) and one.stmt.buffer == buffer
    )


def require_within(
    access: effects.StatementAccess, index: arith.IndexExpr, extent: int, condition: str
) -> arith.Proof:
    """A proof that `index` is one of `extent` positions at every instance of an access."""
    return obligations.require(
        arith.prove(arith.within(index, 0, extent), access.domain), condition
    )


def require_same_sources(
    before: tir.PrimFunc,
    after: tir.PrimFunc,
    old: Sequence[tir.Buffer],
    new: Sequence[tir.Buffer],
    condition: str,
) -> tuple[arith.Proof, ...]:
    """Proofs that reads see the same writes after a relocation, in loops of every kind.

    ScheduleError, which begins with `condition`, where one is not proven.
    """
    return obligations.require(
        effects.same_sources(before, after, old, new), condition
    ), *still_at_once(after)


def still_at_once(func: tir.PrimFunc) -> tuple[arith.Proof, ...]:
    """Proofs that the iterations of parallel and vectorized loops may still run at once."""
    found = (site for site in tir.sites(func.body) if isinstance(site.stmt, tir.For))
    return tuple(
        proof
        for site in found
        if isinstance(site.stmt, tir.For) and site.stmt.kind in tir.AT_ONCE
        for proof in independent(site.stmt, site.domain)
    )
