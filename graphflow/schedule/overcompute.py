"""Removing conditions by overcompute: statements run more often, where nothing can observe it.

In: a kernel, and the loop or block whose index conditions are to be removed.  Out: the kernel
without them, and for each statement that runs more often a proof that this cannot be observed: it
writes elements that nothing reads, or it reduces a neutral element into its target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import assert_never, cast

from graphflow.arith import (
    ANYWHERE,
    TRUE,
    Domain,
    Predicate,
    Proof,
    Var,
    conjunction,
    conjuncts,
    disjunction,
    equal,
    joined,
    negation,
    predicate_variables,
    prove,
    prove_empty,
    substitute,
    within,
)
from graphflow.base.errors import ScheduleError
from graphflow.layout import (
    Constant,
    Equal,
    Fact,
    Range,
    Undefined,
    evaluate,
    order_key,
    reduction_demand,
    serves,
)
from graphflow.schedule.assumptions import is_reciprocal_claim
from graphflow.schedule.dependence import still_independent
from graphflow.schedule.frame import Rewrite
from graphflow.schedule.obligations import require, structural
from graphflow.schedule.padding import (
    PaddingKind,
    assumed_at,
    fact_at,
    is_written,
    padding_kind,
    padding_stages,
    require_away_from_forbidden,
    top_level,
)
from graphflow.schedule.places import find, rewrite_at
from graphflow.tir import (
    FLOATS,
    Access,
    AccessKind,
    Allocate,
    Assume,
    Block,
    Body,
    Buffer,
    Call,
    Expr,
    For,
    If,
    Literal,
    Load,
    PrimFunc,
    Reduce,
    ReduceOp,
    Stmt,
    Store,
    accesses,
    element_text,
    expr_text,
    is_predicate,
    performed,
    sites,
    walk_expr,
    with_performed,
)


def remove_branching_through_overcompute(
    func: PrimFunc, place: str, about: str | None = None
) -> Rewrite:
    """`if c: S` → `S`, for the index conditions in the loop or block `place`.

    With `about`, only conditions that mention that loop's variable are removed.

    Where c fails, running S must not be observable.  Either S writes only elements that nothing
    reads, of buffers allocated in the kernel, or padding of an output that a later stage writes or
    leaves undefined; or S reduces a value that is the neutral element of its operator there, by
    what is known of the padding it loads.  Every access of S must be in bounds, and no padding that
    nothing may access.  ScheduleError where one of these is not proven, where there is no such
    condition, or where one has an else branch.
    """
    stmt, domain = find(func, place)
    _no_else(func, place, about)
    query = OvercomputeQuery(func, place, top_level(func, place))
    proofs: list[Proof] = []
    found = False
    for extra in _extra((stmt,), domain, (), about):
        found = True
        for where in _pieces(extra):
            proofs += query.harmless(extra.stmt, where)
    if not found:
        raise ScheduleError(f"there is no index condition in {place} on {about or 'anything'}")
    new = rewrite_at(func, place, lambda s, _d: _freed((s,), TRUE, about))
    proofs += still_independent(new, place)
    return Rewrite(new, tuple(dict.fromkeys(proofs)))


def _is_about(stmt: If, loop: str | None) -> bool:
    if not is_predicate(stmt.condition):
        return False
    return loop is None or Var(loop) in predicate_variables(_predicate(stmt))


def _predicate(stmt: If) -> Predicate:
    return cast(Predicate, stmt.condition)


def _no_else(func: PrimFunc, place: str, about: str | None) -> None:
    stmt, domain = find(func, place)
    for site in sites((stmt,), domain):
        if isinstance(site.stmt, If) and _is_about(site.stmt, about) and site.stmt.orelse:
            raise ScheduleError(f"the condition {_predicate(site.stmt)} has an else branch")


@dataclass(frozen=True, slots=True)
class _Extra:
    """A statement that is to run in all of `domain`, and now runs where all of `removed` hold."""

    stmt: Stmt
    domain: Domain
    removed: tuple[Predicate, ...]


def _extra(
    body: Body, domain: Domain, removed: tuple[Predicate, ...], about: str | None
) -> Iterator[_Extra]:
    for stmt in body:
        match stmt:
            case For():
                inside = domain.inside(stmt.var, stmt.start, stmt.stop)
                yield from _extra(stmt.body, inside, removed, about)
            case Block():
                yield from _extra(stmt.body, domain, removed, about)
            case If() if _is_about(stmt, about):
                members = tuple(conjuncts(_predicate(stmt)))
                yield from _extra(stmt.then, domain, (*removed, *members), about)
            case If() if is_predicate(stmt.condition):
                condition = _predicate(stmt)
                yield from _extra(stmt.then, domain.given(condition), removed, about)
                yield from _extra(stmt.orelse, domain.given(negation(condition)), removed, about)
            case If():
                if removed:  # its condition loads more often too
                    yield _Extra(replace(stmt, then=(), orelse=()), domain, removed)
                yield from _extra(stmt.then, domain, removed, about)
                yield from _extra(stmt.orelse, domain, removed, about)
            case Call():
                yield from _extra(performed(stmt), domain, removed, about)
            case Store() | Reduce() | Allocate() | Assume():
                if removed:
                    yield _Extra(stmt, domain, removed)
            case _:
                assert_never(stmt)


def _pieces(extra: _Extra) -> Iterator[Domain]:
    """The points at which the statement will run besides, by the first condition that fails."""
    held = extra.domain
    for condition in extra.removed:
        yield held.given(negation(condition))
        held = held.given(condition)


def _freed(body: Body, condition: Predicate, about: str | None) -> Body:
    """`body` without the conditions; an assumption under one stays under it."""
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case If() if _is_about(stmt, about):
                out += _freed(stmt.then, conjunction((condition, _predicate(stmt))), about)
            case If():
                then = _freed(stmt.then, condition, about)
                out.append(replace(stmt, then=then, orelse=_freed(stmt.orelse, condition, about)))
            case For() | Block():
                out.append(replace(stmt, body=_freed(stmt.body, condition, about)))
            case Call():
                out.append(with_performed(stmt, _freed(performed(stmt), condition, about)))
            case Assume() if condition != TRUE:
                out.append(_guarded_assumption(stmt, condition))
            case Store() | Reduce() | Allocate() | Assume():
                out.append(stmt)
            case _:
                assert_never(stmt)
    return tuple(out)


def _guarded_assumption(stmt: Assume, condition: Predicate) -> Assume:
    if not is_predicate(stmt.unless):
        raise ScheduleError(f"an assumption under {condition} has a condition on data")
    unless = disjunction((cast(Predicate, stmt.unless), negation(condition)))
    return replace(stmt, unless=unless)


@dataclass(frozen=True, slots=True)
class OvercomputeQuery:
    """Queries on statements in `place`, which is in the statement at `position` of the body."""

    func: PrimFunc
    place: str
    position: int

    def harmless(self, stmt: Stmt, where: Domain) -> Iterator[Proof]:
        """Proofs that running `stmt` at the points `where` cannot be observed."""
        found = accesses((stmt,), where)
        for access in found:
            yield self.in_bounds(access)
            if access.kind is AccessKind.READ:
                yield require_away_from_forbidden(self.func, access)
        for access in found:
            if access.kind is AccessKind.READ:
                continue
            try:
                yield from self.unseen(access)
            except ScheduleError as error:
                if not isinstance(stmt, Reduce):
                    raise
                yield self.neutral(stmt, where, error)

    def in_bounds(self, access: Access) -> Proof:
        """A proof that an access stays in its buffer; else ScheduleError."""
        sides = zip(access.indices, access.buffer.shape, strict=True)
        inside = conjunction(within(e, 0, extent) for e, extent in sides)
        text = f"the overcomputed access {_text(access)} stays in bounds"
        return require(prove(inside, access.domain), text)

    def unseen(self, access: Access) -> Iterator[Proof]:
        """Proofs that what is written is never read, or overwritten before the kernel ends."""
        if access.buffer in {p.buffer for p in self.func.params}:
            yield self.overwritten_later(access)
        for other in accesses(self.func.body):
            if other.kind is AccessKind.READ and other.buffer == access.buffer:
                yield self.never_reads(other, access)

    def overwritten_later(self, access: Access) -> Proof:
        """A parameter may be overwritten only in padding that a later stage writes or leaves."""
        stages = padding_stages(self.func, access.buffer)
        open_ones = [s for s in stages if padding_kind(s) is not PaddingKind.NONE]
        if not open_ones:
            raise ScheduleError(
                f"overcompute would write {_text(access)}, a parameter without padding that may be "
                "written"
            )
        late = [s for s in open_ones if s in self.func.body[self.position + 1 :]]
        padding = is_written(late, access.buffer, access.indices)
        text = f"{_text(access)} lies in padding written later"
        return require(prove(padding, access.domain), text)

    def never_reads(self, load: Access, write: Access) -> Proof:
        """A proof that a load never reads what a write has written; else ScheduleError."""
        where = _text(write)
        copy, fresh = write.domain.renamed("'")
        same = [
            equal(a, substitute(b, fresh)) for a, b in zip(load.indices, write.indices, strict=True)
        ]
        around = _axes_around(self.func, write.buffer)
        one_instance = [equal(var, fresh[var]) for var in around]
        both = joined(load.domain, copy).given(conjunction((*same, *one_instance)))
        return require(
            prove_empty(both, f"no load reads what overcompute writes to {where}"),
            f"what overcompute writes to {where} is never read",
        )

    def neutral(self, stmt: Reduce, where: Domain, seen: ScheduleError) -> Proof:
        """A proof that the reduced value is neutral at `where`, by the facts of its loads.

        ScheduleError, which repeats the reason `seen` why the target is observed, where it is not.
        """
        target = f"{element_text(stmt.buffer, stmt.indices)}"
        try:
            (target_access,) = (a for a in accesses((stmt,), where) if a.kind is AccessKind.REDUCE)
            require_away_from_forbidden(self.func, target_access)
        except ScheduleError as error:
            raise ScheduleError(f"{seen}; and as a reduction, {error}") from None

        def known(load: Load) -> Fact:
            return fact_at(self.func, load, where, self.position)

        fact = evaluate(stmt.value, known, lambda p: _decided(p, where), where.ranges())
        claim = f"{expr_text(stmt.value)} is {fact} where overcompute adds it to {target}"
        reason = self.not_neutral(stmt, fact)
        if reason is None:
            return structural(claim)
        loads = [e for e in walk_expr(stmt.value) if isinstance(e, Load)]
        unknown = [element_text(e.buffer, e.indices) for e in loads if known(e) == Undefined()]
        nothing = f"; nothing is known of {', '.join(dict.fromkeys(unknown))}" if unknown else ""
        raise ScheduleError(f"{seen}; and as a reduction, {claim}, but {reason}{nothing}") from None

    def not_neutral(self, stmt: Reduce, fact: Fact) -> str | None:
        """Why a value with this fact may change the element that is reduced into, or None."""
        dtype = stmt.value.dtype
        demands = reduction_demand(stmt.op, dtype)
        if isinstance(fact, Range) and fact.lo == fact.hi and dtype not in FLOATS:
            fact = Constant(Literal(fact.lo, dtype))
        if stmt.op is not ReduceOp.ADD or dtype not in FLOATS:
            wanted = " or ".join(str(d) for d in demands)
            return None if any(serves(fact, d) for d in demands) else f"it must be {wanted}"
        if serves(fact, Equal(Literal(-0.0, dtype))):
            return None
        zero = isinstance(fact, Range) and fact.lo == fact.hi == 0
        if not zero and not any(serves(fact, d) for d in demands):
            return "it must be a zero (and 0.0 times a number that may be infinite or NaN is none)"
        # −0.0 + 0.0 is 0.0, so 0.0 is neutral only where the sum is not −0.0.  A sum is −0.0 only
        # if all its terms are, the first one included: one that starts at anything else never is.
        for site in sites(self.func.body[: self.position + 1]):
            other = site.stmt
            if isinstance(other, Reduce) and other.buffer == stmt.buffer and other.op != stmt.op:
                return f"a {other.op.value} on {stmt.buffer.name} may make it -0.0 before"
            if isinstance(other, Store) and other.buffer == stmt.buffer:
                start = self.started(other.value, site.domain)
                if not never_minus_zero(start) and not self.has_reciprocal(
                    other.value, site.domain
                ):
                    return (
                        f"the sum may start at -0.0, which adding 0.0 turns into 0.0: "
                        f"{expr_text(other.value)} is {start}"
                    )
        return None

    def started(self, value: Expr, where: Domain) -> Fact:
        """The fact of the value that a sum starts with at the points `where`."""
        return evaluate(value, lambda load: fact_at(self.func, load, where, self.position))

    def has_reciprocal(self, value: Expr, where: Domain) -> bool:
        """Whether `value` is an element that was assumed not to be −0.0."""
        return isinstance(value, Load) and assumed_at(
            self.func, value, where, self.position, is_reciprocal_claim
        )


def never_minus_zero(fact: Fact) -> bool:
    """Whether a fact excludes −0.0."""
    match fact:
        case Constant():
            return order_key(fact.literal.value) != order_key(-0.0)
        case Range():
            return order_key(fact.lo) > order_key(-0.0) or order_key(fact.hi) < order_key(-0.0)
        case _:
            return False


def _decided(predicate: Predicate, domain: Domain) -> bool | None:
    """Whether a predicate holds, or fails, at all points; None where neither is proven."""
    if prove(predicate, domain).proven:
        return True
    return False if prove(negation(predicate), domain).proven else None


def _axes_around(func: PrimFunc, buffer: Buffer) -> list[Var]:
    """The loops around the allocation of a buffer; each of their iterations has its own buffer."""
    for site in sites(func.body, ANYWHERE):
        if isinstance(site.stmt, Allocate) and site.stmt.buffer == buffer:
            return [axis.var for axis in site.domain.axes]
    return []


def _text(access: Access) -> str:
    return f"{access.buffer.name}[{', '.join(map(str, access.indices))}]"
