"""What a kernel states about the padding of its buffers, read from its padding stages.

In: a kernel with stages marked `padding_of`, which `transform_layout` makes.  Out: when an access
touches padding, whether it may, and what the padding holds at a given statement of the kernel.

What always holds: an element is padding only if a statement of a padding stage names it by its
indices.  So stages that were simplified, shifted or divided mean the same, and the names of loops
and blocks do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import TypeGuard, cast

from msgspec import Struct

from graphflow import arith, layout, tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule.facts.claims import claims, forbids_access
from graphflow.schedule.places import obligations, place_names


class KnownElements(Struct, frozen=True):
    """The elements of a buffer at `indices` for the points of `domain`, and the fact of them.

    `value` is what a stage stores there, None where it only assumes the fact.
    """

    indices: tuple[arith.IndexExpr, ...]
    domain: arith.Domain
    fact: layout.Fact
    value: tir.Expr | None = None

    def holds(self, at: Sequence[arith.IndexExpr]) -> arith.Predicate:
        """The predicate that the element `at` is one of these.

        ScheduleError where the indices have no inverse.
        """
        probe = layout.physical_vars(len(self.indices))
        known = layout.solve_indices(
            dict(zip(probe, self.indices, strict=True)), self.domain.ranges()
        )
        places: dict[arith.Var, arith.IndexExpr] = dict(zip(probe, at, strict=True))
        values: dict[arith.Var, arith.IndexExpr] = {}
        for axis in self.domain.axes:
            if axis.var in known:
                values[axis.var] = arith.substitute(known[axis.var], places)
            elif axis.var in self._used() or not _runs(axis):
                raise ScheduleError(f"the loop {axis.var} of a padding stage cannot be inverted")
        inside = [
            arith.within(
                values[a.var], arith.substitute(a.start, values), arith.substitute(a.stop, values)
            )
            for a in self.domain.axes
            if a.var in values
        ]
        same = [
            arith.equal(arith.substitute(e, values), i)
            for e, i in zip(self.indices, at, strict=True)
        ]
        return arith.conjunction((*inside, *same, arith.substitute_in(self.domain.where, values)))

    def _used(self) -> frozenset[arith.Var]:
        found = frozenset().union(*(arith.variables(e) for e in self.indices))
        return found | arith.predicate_variables(self.domain.where)


def _runs(axis: arith.Axis) -> bool:
    """Whether a loop is known to have an iteration."""
    extent = arith.constant_value(axis.stop - axis.start)
    return extent is not None and extent > 0


def padding_stages(func: tir.PrimFunc, buffer: tir.Buffer) -> tuple[tir.Block, ...]:
    """The stages that state the padding of `buffer`, in program order."""
    return tuple(
        stage
        for stmt in func.body
        for stage in (_stages_of(stmt) if isinstance(stmt, tir.Block) else _stages_in((stmt,)))
        if stage.note(tir.BlockNote.PADDING_OF) == buffer.name
    )


@tir.kept_by_node
def _stages_of(block: tir.Block) -> tuple[tir.Block, ...]:
    return _stages_in((block,))


def _stages_in(body: tir.Body) -> tuple[tir.Block, ...]:
    """The blocks with annotations, in program order."""
    return tuple(
        stmt for stmt in tir.walk(body) if isinstance(stmt, tir.Block) and stmt.annotations
    )


class PaddingKind(StrEnum):
    """What a padding stage states of the elements that it names: the text of its mark `padding`."""

    NONE = "none"
    """Nothing may access them."""
    UNDEF = "undef"
    """They may be read, and hold anything."""
    VALUE = "value"
    """They hold what the stage stores."""


def padding_kind(stage: tir.Block) -> PaddingKind:
    """The kind of a padding stage; ScheduleError where its mark is missing or unknown."""
    kind = stage.note(tir.BlockNote.PADDING)
    if kind not in tuple(PaddingKind):
        raise ScheduleError(
            f'the stage {stage.name} is marked padding_of, so it needs padding="none", "undef" or '
            f'"value" too, and has {kind!r}'
        )
    return PaddingKind(kind)


def stated_elements(stage: tir.Block, buffer: tir.Buffer) -> tuple[KnownElements, ...]:
    """The padding that one stage states; ScheduleError where it locates none."""
    found: list[KnownElements] = []
    for site in tir.sites(stage.body):
        stmt = site.stmt
        if isinstance(stmt, tir.Store) and stmt.buffer == buffer and not site.guards:
            found.append(KnownElements(stmt.indices, site.domain, _stored(stmt.value), stmt.value))
        elif isinstance(stmt, tir.Assume):
            found.append(_assumed_by_stage(stage, buffer, site))
    if not found:
        raise ScheduleError(f"the stage {stage.name} does not say where the padding lies")
    return tuple(found)


def _stored(value: tir.Expr) -> layout.Fact:
    return layout.Constant(value) if isinstance(value, tir.Literal) else layout.Undefined()


def _assumed_by_stage(stage: tir.Block, buffer: tir.Buffer, site: tir.Site) -> KnownElements:
    stmt = cast(tir.Assume, site.stmt)
    if not tir.is_predicate(stmt.unless):
        raise ScheduleError(f"the stage {stage.name} assumes under a condition on data")
    where = site.domain.given(arith.negation(cast(arith.Predicate, stmt.unless)))
    for load, fact in claims(stmt.claim):
        if load.buffer == buffer:
            return KnownElements(load.indices, where, fact)
    for node in tir.walk_expr(stmt.claim):
        if isinstance(node, tir.Load) and node.buffer == buffer:
            return KnownElements(node.indices, where, layout.Undefined())
    raise ScheduleError(f"the stage {stage.name} assumes nothing about {buffer.name}")


def constant_stage(func: tir.PrimFunc, buffer: tir.Buffer) -> tuple[tir.Block, tir.Expr]:
    """The only padding stage of a buffer, and the constant or `undef` that it stores."""
    stages = padding_stages(func, buffer)
    if len(stages) != 1 or stages[0] not in func.body:
        raise ScheduleError(f"{buffer.name} has no padding stage of its own, or more than one")
    values = {one.value for one in stated_elements(stages[0], buffer)}
    value = next(iter(values))
    if len(values) != 1 or not isinstance(value, tir.Literal | tir.Undef):
        raise ScheduleError(f"the stage {stages[0].name} does not store one constant")
    if (
        len(
            {
                id(s.stmt)
                for s in tir.sites(stages[0].body)
                if isinstance(s.stmt, tir.Store | tir.Reduce)
            }
        )
        > 1
    ):
        raise ScheduleError(f"the stage {stages[0].name} has more than one store")
    return stages[0], value


def is_padding(
    stages: Sequence[tir.Block], buffer: tir.Buffer, at: Sequence[arith.IndexExpr]
) -> arith.Predicate:
    """The predicate that the element `at` is padding by any of `stages`."""
    return arith.disjunction(
        one.holds(at) for stage in stages for one in stated_elements(stage, buffer)
    )


def forbidden_elements(func: tir.PrimFunc, buffer: tir.Buffer) -> tuple[KnownElements, ...]:
    """The elements of a buffer that nothing may access.

    ScheduleError where the kernel forbids elements without locating them.
    """
    found: list[KnownElements] = []
    for site in tir.sites(func.body):
        stmt = site.stmt
        if not isinstance(stmt, tir.Assume) or not forbids_access(stmt.claim):
            continue
        where = _assumed_where(site, stmt)
        if where is None:
            raise ScheduleError(f"{func.name} forbids elements under a condition on data")
        found += [
            KnownElements(load.indices, where, fact)
            for load, fact in claims(stmt.claim)
            if load.buffer == buffer
        ]
    if not found and any(padding_kind(s) is PaddingKind.NONE for s in padding_stages(func, buffer)):
        raise ScheduleError(f"{func.name} does not say where the padding of {buffer.name} lies")
    return tuple(found)


def require_away_from_forbidden(func: tir.PrimFunc, access: tir.Access) -> arith.Proof:
    """A proof that an access, which a rewrite adds, touches no forbidden padding.

    ScheduleError where that is not proven, or the kernel does not locate the forbidden elements.
    """
    name = access.buffer.name
    forbidden = forbidden_elements(func, access.buffer)
    if not forbidden:
        return obligations.structural(f"{name} has no padding that may not be accessed")
    away = arith.conjunction(arith.negation(one.holds(access.indices)) for one in forbidden)
    place = f"{name}[{', '.join(map(str, access.indices))}]"
    return obligations.require(
        arith.prove(away, access.domain), f"{place} stays away from forbidden padding"
    )


def in_bounds(access: tir.Access) -> arith.Predicate:
    """The predicate that an access is to an element that its buffer has."""
    sides = zip(access.indices, access.buffer.shape, strict=True)
    return arith.conjunction(arith.within(index, 0, extent) for index, extent in sides)


def may_load(func: tir.PrimFunc, access: tir.Access, condition: str) -> tuple[arith.Proof, ...]:
    """Proofs that an access, which a rewrite adds, is in bounds and of no forbidden padding."""
    inside = obligations.require(arith.prove(in_bounds(access), access.domain), condition)
    return inside, require_away_from_forbidden(func, access)


# What is known of elements ------------------------------------------------------------------------


def top_level(func: tir.PrimFunc, place: str) -> int:
    """The position in the kernel's body of the statement that contains `place`."""
    for position, stmt in enumerate(func.body):
        if place_names.has_name(stmt, place):
            return position
    raise ScheduleError(f"{func.name} has no place {place}")


def fact_at(func: tir.PrimFunc, load: tir.Load, domain: arith.Domain, position: int) -> layout.Fact:
    """The fact of `load` for all points of `domain`, in the statement at `position` of the body.

    Of an input, what statements before assume; of a buffer that is written, what its padding stage
    stored, if nothing writes the buffer from there to the end of the statement.  `NoAccess` unless
    the element is proven not to be forbidden, `Undefined` where nothing is known.
    """
    found: layout.Fact = layout.Undefined()
    for one in _known_elements(func, load.buffer, position):
        if isinstance(one.fact, layout.NoAccess):
            # Not to touch forbidden elements must be proven.
            if not arith.prove(arith.negation(one.holds(load.indices)), domain).proven:
                return layout.NoAccess()
        elif isinstance(one.fact, layout.Undefined) or isinstance(found, layout.Constant):
            continue
        elif arith.prove(one.holds(load.indices), domain).proven:
            found = one.fact
    return found


def known_constants(func: tir.PrimFunc, load: tir.Load, position: int) -> arith.Predicate:
    """The predicate that the element of a load is known to be a constant, as `fact_at` knows it.

    A range of one value counts, such as that of both zeros.
    """
    return arith.disjunction(
        one.holds(load.indices)
        for one in _known_elements(func, load.buffer, position)
        if not isinstance(one.fact, layout.NoAccess | layout.Undefined)
    )


def assumed_at(
    func: tir.PrimFunc,
    load: tir.Load,
    domain: arith.Domain,
    position: int,
    says: Callable[[tir.Expr, tir.Load], bool],
) -> bool:
    """Whether a statement before `position` makes a claim of the element for all of `domain`.

    `says` tells by claim and load whether it is that claim.  False for a buffer that is written.
    """
    if writes_to(func.body, load.buffer):
        return False
    for claim, where in _assumptions(func.body[:position]):
        for node in tir.walk_expr(claim):
            if isinstance(node, tir.Load) and node.buffer == load.buffer:
                one = KnownElements(node.indices, where, layout.Undefined())
                if says(claim, node) and arith.prove(one.holds(load.indices), domain).proven:
                    return True
    return False


def _known_elements(
    func: tir.PrimFunc, buffer: tir.Buffer, position: int
) -> Iterator[KnownElements]:
    written = [k for k, stmt in enumerate(func.body) if writes_to((stmt,), buffer)]
    yield from forbidden_elements(func, buffer)
    for k, stmt in enumerate(func.body[:position]):
        if not written:
            for claim, where in _assumptions((stmt,)):
                for load, fact in claims(claim):
                    if load.buffer == buffer:
                        yield KnownElements(load.indices, where, fact)
        elif _is_stage(stmt, buffer) and not any(k < w <= position for w in written):
            yield from stated_elements(stmt, buffer)


def _is_stage(stmt: tir.Stmt, buffer: tir.Buffer) -> TypeGuard[tir.Block]:
    return isinstance(stmt, tir.Block) and stmt.note(tir.BlockNote.PADDING_OF) == buffer.name


def _assumptions(body: tir.Body) -> Iterator[tuple[tir.Expr, arith.Domain]]:
    """The claims that `body` makes, and where; not those that depend on data."""
    for site in tir.sites(body):
        if isinstance(site.stmt, tir.Assume):
            where = _assumed_where(site, site.stmt)
            if where is not None:
                yield site.stmt.claim, where


def _assumed_where(site: tir.Site, stmt: tir.Assume) -> arith.Domain | None:
    """The points at which a claim is made; None where that depends on data."""
    if site.guards or not tir.is_predicate(stmt.unless):
        return None
    return site.domain.given(arith.negation(cast(arith.Predicate, stmt.unless)))


def writes_to(body: tir.Body, buffer: tir.Buffer) -> bool:
    """Whether anything in `body` writes `buffer`."""
    return any(a.buffer == buffer and a.writes for a in tir.accesses(body))
