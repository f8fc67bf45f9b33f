"""What a kernel says about the padding of its buffers, and a producer that writes it itself.

In: a kernel with stages marked `padding_of`, which `transform_layout` makes.  Out: when an access
touches padding, what padding holds at a given stage of the kernel, and `absorb_padding`.  What
always holds: an element counts as padding only if a padding stage names it, found from the
statements of the stage as they are now, so that simplified or divided stages mean the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from typing import TypeGuard, cast

from graphflow.arith import (
    TRUE,
    Domain,
    Image,
    IndexExpr,
    Predicate,
    Var,
    conjunction,
    const,
    disjunction,
    equal,
    negation,
    predicate_variables,
    prove,
    prove_injective,
    substitute,
    substitute_in,
    variables,
    within,
)
from graphflow.errors import ScheduleError
from graphflow.layout import (
    MIRRORED,
    Constant,
    Fact,
    NoAccess,
    Range,
    Undefined,
    physical_vars,
    solve,
)
from graphflow.schedule.frame import Rewrite, require
from graphflow.schedule.places import find, name_of, names_in, rewrite_at
from graphflow.tir import (
    FLOATS,
    Assume,
    Binary,
    Block,
    Body,
    Buffer,
    Comparison,
    Expr,
    If,
    Literal,
    Load,
    PrimFunc,
    Reduce,
    Select,
    Site,
    Stmt,
    Store,
    Unary,
    Undef,
    accesses,
    is_predicate,
    loads_in,
    map_body,
    sites,
    walk_expr,
)


@dataclass(frozen=True, slots=True)
class Part:
    """Elements `indices` of a buffer for the points of `domain`, and what is known of them."""

    indices: tuple[IndexExpr, ...]
    domain: Domain
    fact: Fact
    value: Expr | None = None

    def holds(self, at: Sequence[IndexExpr]) -> Predicate:
        """When the element `at` is one of these; ScheduleError where that cannot be said."""
        probe = physical_vars(len(self.indices))
        known = solve(dict(zip(probe, self.indices, strict=True)), self.domain.ranges())
        places: dict[Var, IndexExpr] = dict(zip(probe, at, strict=True))
        values: dict[Var, IndexExpr] = {}
        for axis in self.domain.axes:
            if axis.var in known:
                values[axis.var] = substitute(known[axis.var], places)
            elif axis.var in self._used():
                raise ScheduleError(f"the loop {axis.var} of a padding stage cannot be inverted")
        inside = [
            within(values[a.var], substitute(a.start, values), substitute(a.stop, values))
            for a in self.domain.axes
            if a.var in values
        ]
        same = [equal(substitute(e, values), i) for e, i in zip(self.indices, at, strict=True)]
        return conjunction((*inside, *same, substitute_in(self.domain.where, values)))

    def _used(self) -> frozenset[Var]:
        found = frozenset().union(*(variables(e) for e in self.indices))
        return found | predicate_variables(self.domain.where)


def padding_stages(func: PrimFunc, buffer: Buffer) -> tuple[Block, ...]:
    """The stages that state the padding of `buffer`, in program order."""
    return tuple(
        site.stmt
        for site in sites(func.body)
        if isinstance(site.stmt, Block) and ("padding_of", buffer.name) in site.stmt.annotations
    )


def padding_kind(stage: Block) -> str:
    """`none` (nobody may touch it), `undef` or `value`."""
    return dict(stage.annotations)["padding"]


def parts_of(stage: Block, buffer: Buffer) -> tuple[Part, ...]:
    """The padding that one stage states; ScheduleError where it does not say where that lies."""
    found: list[Part] = []
    for site in sites(stage.body):
        stmt = site.stmt
        if isinstance(stmt, Store) and stmt.buffer == buffer and not site.guards:
            found.append(Part(stmt.indices, site.domain, _stored(stmt.value), stmt.value))
        elif isinstance(stmt, Assume):
            found.append(_assumed_part(stage, buffer, site))
    if not found:
        raise ScheduleError(f"the stage {stage.name} does not say where the padding lies")
    return tuple(found)


def _stored(value: Expr) -> Fact:
    return Constant(value) if isinstance(value, Literal) else Undefined()


def _assumed_part(stage: Block, buffer: Buffer, site: Site) -> Part:
    stmt = cast(Assume, site.stmt)
    if not is_predicate(stmt.unless):
        raise ScheduleError(f"the stage {stage.name} assumes under a condition on data")
    where = site.domain.given(negation(cast(Predicate, stmt.unless)))
    for load, fact in claims(stmt.claim):
        if load.buffer == buffer:
            return Part(load.indices, where, fact)
    for node in walk_expr(stmt.claim):
        if isinstance(node, Load) and node.buffer == buffer:
            return Part(node.indices, where, Undefined())
    return Part(_named_axes(stage, buffer, where), where, NoAccess())


def _named_axes(stage: Block, buffer: Buffer, domain: Domain) -> tuple[IndexExpr, ...]:
    """Physical axes by the names that `transform_layout` gave them; loops that run once are gone.

    Forbidden padding is stated without a load, so names are all there is.
    """
    present = {axis.var for axis in domain.axes}
    indices: list[IndexExpr] = []
    for axis, extent in enumerate(buffer.shape):
        var = Var(f"{stage.name}_{axis}")
        if var not in present and extent != 1:
            raise ScheduleError(f"the stage {stage.name} lost its loop over axis {axis}")
        indices.append(var if var in present else const(0))
    return tuple(indices)


def is_padding(stages: Sequence[Block], buffer: Buffer, at: Sequence[IndexExpr]) -> Predicate:
    """When the element `at` lies in the padding that any of `stages` states."""
    return disjunction(part.holds(at) for stage in stages for part in parts_of(stage, buffer))


# What is known of elements ------------------------------------------------------------------------


def claims(claim: Expr) -> Iterator[tuple[Load, Fact]]:
    """What a claim says of single elements: `==`, `<=` and `>=` with a constant, and `abs`.

    `x == 0.0` holds for both zeros, so it says less than a constant does.
    """
    ends: dict[Load, list[float | int | bool | None]] = {}
    for comparison in _all_of(claim):
        left, right = comparison.left, comparison.right
        op = comparison.op
        if isinstance(left, Literal):
            left, right, op = right, left, MIRRORED[op]
        if not isinstance(right, Literal) or isnan(right.value):
            continue
        value = right.value
        if isinstance(left, Unary) and left.op == "abs" and isinstance(left.operand, Load):
            if op in ("lt", "le") and (isfinite(value) or op == "lt"):
                high = value if isfinite(value) else _largest_finite(right.dtype)
                yield left.operand, Range(-high, high)
        elif isinstance(left, Load) and op == "eq":
            zero = right.dtype in FLOATS and value == 0
            yield left, Range(-0.0, 0.0) if zero else Constant(right)
        elif isinstance(left, Load) and op in ("lt", "le", "gt", "ge") and isfinite(value):
            low_high = ends.setdefault(left, [None, None])
            zero = right.dtype in FLOATS and value == 0
            if op in ("lt", "le"):
                low_high[1] = 0.0 if zero else value
            else:
                low_high[0] = -0.0 if zero else value
    for load, (least, most) in ends.items():
        if least is not None and most is not None and least <= most:
            yield load, Range(least, most)


def _largest_finite(dtype: str) -> float:
    return {"float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}[dtype]


def _all_of(claim: Expr) -> Iterator[Comparison]:
    match claim:
        case Comparison():
            yield claim
        case Binary(op="and"):
            yield from _all_of(claim.left)
            yield from _all_of(claim.right)
        case _:
            return


def top_level(func: PrimFunc, place: str) -> int:
    """The position in the kernel's body of the statement that holds `place`."""
    for position, stmt in enumerate(func.body):
        if name_of(stmt) == place or place in names_in((stmt,)):
            return position
    raise ScheduleError(f"{func.name} has no place {place}")


def fact_at(func: PrimFunc, load: Load, domain: Domain, position: int) -> Fact:
    """What `load` finds for all of `domain` in the statement at `position` of the kernel's body.

    An input holds what was assumed of it before; an allocated buffer what its padding stage stored,
    if nothing writes the buffer from there on to the end of the statement.
    """
    found: Fact = Undefined()
    for part in _known_parts(func, load.buffer, position):
        if isinstance(part.fact, NoAccess):
            # What nobody may touch must be proven not to be touched.
            if not prove(negation(part.holds(load.indices)), domain).proven:
                return NoAccess()
        elif isinstance(part.fact, Undefined) or isinstance(found, Constant):
            continue
        elif prove(part.holds(load.indices), domain).proven:
            found = part.fact
    return found


def assumed_at(
    func: PrimFunc,
    load: Load,
    domain: Domain,
    position: int,
    says: Callable[[Expr, Load], bool],
) -> bool:
    """Whether a claim was made of an input's element for all of `domain`; `says` tells which."""
    if _writes(func.body, load.buffer):
        return False
    for site in sites(func.body[:position]):
        if not isinstance(site.stmt, Assume) or site.guards or not is_predicate(site.stmt.unless):
            continue
        where = site.domain.given(negation(cast(Predicate, site.stmt.unless)))
        for node in walk_expr(site.stmt.claim):
            if isinstance(node, Load) and node.buffer == load.buffer:
                part = Part(node.indices, where, Undefined())
                if says(site.stmt.claim, node) and prove(part.holds(load.indices), domain).proven:
                    return True
    return False


def _known_parts(func: PrimFunc, buffer: Buffer, position: int) -> Iterator[Part]:
    written = [k for k, stmt in enumerate(func.body) if _writes((stmt,), buffer)]
    for stage in padding_stages(func, buffer):
        if padding_kind(stage) == "none":
            yield from parts_of(stage, buffer)
    for k, stmt in enumerate(func.body[:position]):
        if not written:
            yield from _assumed_parts(stmt, buffer)
        elif _is_stage(stmt, buffer) and not any(k < w <= position for w in written):
            yield from parts_of(stmt, buffer)


def _is_stage(stmt: Stmt, buffer: Buffer) -> TypeGuard[Block]:
    return isinstance(stmt, Block) and ("padding_of", buffer.name) in stmt.annotations


def _assumed_parts(stmt: Stmt, buffer: Buffer) -> Iterator[Part]:
    for site in sites((stmt,)):
        if not isinstance(site.stmt, Assume) or site.guards or not is_predicate(site.stmt.unless):
            continue
        where = site.domain.given(negation(cast(Predicate, site.stmt.unless)))
        for load, fact in claims(site.stmt.claim):
            if load.buffer == buffer:
                yield Part(load.indices, where, fact)


def _writes(body: Body, buffer: Buffer) -> bool:
    return any(a.buffer == buffer and a.kind != "read" for a in accesses(body))


# Absorbing ----------------------------------------------------------------------------------------


def absorb_padding(func: PrimFunc, place: str, buffer: str) -> Rewrite:
    """`for p: if c(p): b[e(p)] = v` and later `for q: if q is padding: b[q] = k`
    → `for p: b[e(p)] = select(c(p), v, k)`; the padding stage goes.

    Where c fails, the loops of `place` must reach the padding, all of it and nothing else; each
    element must be written once, and by nothing but the two.
    """
    target = next((a.buffer for a in accesses(func.body) if a.buffer.name == buffer), None)
    if target is None:
        raise ScheduleError(f"{func.name} does not touch a buffer {buffer}")
    stage, value = _constant_stage(func, target)
    site = _guarded_store(func, place, target)
    stmt = cast(If, site.stmt)
    store = cast(Store, stmt.then[0])
    condition = cast(Predicate, stmt.condition)
    _only_these(func, place, stage, target)
    outside = site.domain.given(negation(condition))
    names = physical_vars(len(target.shape))
    where = f"where {condition} fails, {place}"
    proofs = (
        require(
            prove(is_padding((stage,), target, store.indices), outside),
            f"{where} reaches nothing but padding of {buffer}",
        ),
        require(
            Image(outside, store.indices).covers(
                is_padding((stage,), target, names), names, target.shape
            ),
            f"{where} reaches all the padding of {buffer}",
        ),
        require(
            prove_injective(store.indices, site.domain),
            f"{place} writes each element of {buffer} once",
        ),
    )
    selected = Store(target, store.indices, Select(condition, store.value, value))

    def exchanged(body: Body) -> Body:
        return map_body(body, lambda s: selected if s is stmt else s)

    new = rewrite_at(func, place, lambda s, _d: exchanged((s,)))
    new = rewrite_at(new, stage.name, lambda _s, _d: ())
    return Rewrite(new, proofs)


def _constant_stage(func: PrimFunc, buffer: Buffer) -> tuple[Block, Expr]:
    stages = padding_stages(func, buffer)
    if len(stages) != 1 or stages[0] not in func.body:
        raise ScheduleError(f"{buffer.name} has no padding stage of its own, or more than one")
    values = {part.value for part in parts_of(stages[0], buffer)}
    value = next(iter(values))
    if len(values) != 1 or not isinstance(value, Literal | Undef):
        raise ScheduleError(f"the stage {stages[0].name} does not store one constant")
    if len({id(s.stmt) for s in sites(stages[0].body) if isinstance(s.stmt, Store | Reduce)}) > 1:
        raise ScheduleError(f"the stage {stages[0].name} has more than one store")
    return stages[0], value


def _guarded_store(func: PrimFunc, place: str, buffer: Buffer) -> Site:
    stmt, domain = find(func, place)
    if domain.axes or domain.where != TRUE:
        raise ScheduleError(f"{place} stands inside another loop or condition")
    found = [
        site
        for site in sites((stmt,))
        if isinstance(site.stmt, If) and _writes(site.stmt.then, buffer)
    ]
    inner = found[0].stmt if len(found) == 1 else None
    if (
        not isinstance(inner, If)
        or not is_predicate(inner.condition)
        or inner.orelse
        or len(inner.then) != 1
        or not isinstance(inner.then[0], Store)
        or found[0].guards
    ):
        raise ScheduleError(
            f"{place} does not write {buffer.name} by one store under one index condition"
        )
    return found[0]


def _only_these(func: PrimFunc, place: str, stage: Block, buffer: Buffer) -> None:
    first, last = top_level(func, place), top_level(func, stage.name)
    if first >= last:
        raise ScheduleError(f"{stage.name} does not come after {place}")
    writes = [a for a in accesses(func.body) if a.buffer == buffer and a.kind != "read"]
    own = [a for a in accesses((func.body[first], stage)) if a.buffer == buffer]
    if len(writes) != 2 or any(a.kind == "read" for a in own):
        raise ScheduleError(
            f"{buffer.name} is not written by {place} and {stage.name} alone, once each"
        )
    for stmt in func.body[first:last]:
        if any(load.buffer == buffer for load in loads_in((stmt,))):
            raise ScheduleError(f"{buffer.name} is read before {stage.name} writes its padding")
