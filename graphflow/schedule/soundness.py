"""Soundness of a kernel, proven before anything rests on it, whoever wrote the kernel.

In: a kernel.  Out: proofs; VerifyError, which shows the wrong place, where one fails.  The verifier
of `tir` checks names, scopes and types.  Here integer sets prove that iterations of parallel and
vectorized loops are independent, that assumptions are consistent, and that accesses are in bounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations
from typing import cast

from graphflow.arith import (
    ANYWHERE,
    FALSE,
    Domain,
    IndexExpr,
    Predicate,
    Proof,
    Verdict,
    at_least_zero,
    conjunction,
    const,
    equal,
    joined,
    less_than,
    negation,
    predicate_variables,
    prove,
    substitute,
)
from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.layout import Constant, Span, Undefined, evaluate
from graphflow.schedule.claims import claimed, common
from graphflow.schedule.dependence import independent
from graphflow.schedule.index_words import require_index_words
from graphflow.tir import (
    AT_ONCE,
    Assume,
    Block,
    Body,
    Buffer,
    BufferWindow,
    Call,
    For,
    Load,
    PrimFunc,
    Stmt,
    accesses,
    after,
    calls_in,
    is_predicate,
    kept,
    performed,
    sites,
    stmt_text,
    to_text,
    verify,
    walk,
    writes_in,
)


@lru_cache(maxsize=4096)
def require_sound(func: PrimFunc) -> tuple[Proof, ...]:
    """Proofs that a kernel is well formed, its loop kinds are safe and its assumptions consistent.

    VerifyError where a name, a type or a scope is wrong, where index arithmetic may leave 64 bits,
    where the iterations of a parallel or vectorized loop are not proven independent, and where an
    assumption is provably false.
    """
    verify(func, "scheduled")
    require_index_words(func)
    require_consistent(func)
    return tuple(_loop_kinds(func))


def _loop_kinds(func: PrimFunc) -> Iterator[Proof]:
    """Proofs that parallel and vectorized loops have independent iterations."""
    for site in sites(func.body):
        stmt = site.stmt
        if not isinstance(stmt, For) or stmt.kind not in AT_ONCE:
            continue
        try:
            yield from independent(stmt, site.domain)
        except ScheduleError as error:
            raise _wrong(
                func,
                stmt,
                f"the loop {stmt.var} is marked {stmt.kind.value}, and its iterations are not "
                "proven to be independent; make it serial, or write it so that no iteration "
                f"touches what another one writes ({error})",
            ) from error


def require_in_bounds(func: PrimFunc) -> tuple[Proof, ...]:
    """A proof for each access of a kernel that it stays in its buffer; else a VerifyError.

    The windows of a call that performs nothing, which makes no access, stay in theirs as well.
    """
    proofs: dict[Proof, None] = {}
    for buffer, indices, domain in (
        *((access.buffer, access.indices, access.domain) for access in accesses(func.body)),
        *_ends_of_hints(func),
    ):
        sides = zip(indices, buffer.shape, strict=True)
        inside = conjunction(side for e, n in sides for side in (at_least_zero(e), less_than(e, n)))
        proof = prove(inside, domain)
        if not proof.proven:
            where = ", ".join(map(str, indices))
            raise VerifyError(
                f"{func.name}: {buffer.name}[{where}] is not proven to stay in "
                f"{list(buffer.shape)}: {proof.reason}\nin\n{to_text(func)}"
            )
        proofs[proof] = None
    return tuple(proofs)


def _ends_of_hints(func: PrimFunc) -> Iterator[tuple[Buffer, tuple[IndexExpr, ...], Domain]]:
    """The first and the last element of each window of a call that performs nothing."""
    if all(performed(call) for call in calls_in(func.body)):
        return
    for site in sites(func.body):
        if isinstance(site.stmt, Call) and not performed(site.stmt):
            for window, param in zip(site.stmt.windows, site.stmt.definition.params, strict=True):
                for end in window_ends(window, param.buffer.shape):
                    yield window.buffer, end, site.domain


def window_ends(
    window: BufferWindow, shape: tuple[int, ...]
) -> tuple[tuple[IndexExpr, ...], tuple[IndexExpr, ...]]:
    """The indices of the first and of the last element of a window of this shape."""
    first, last = (tuple(const(k * max(n - 1, 0)) for n in shape) for k in (0, 1))
    return window.place(first), window.place(last)


def require_consistent(func: PrimFunc) -> None:
    """VerifyError where an assumption of a kernel is provably false, or contradicts another one."""
    stated: list[_Stated] = []
    domain = ANYWHERE
    for stmt in func.body:
        alone = isinstance(stmt, Block) and domain is ANYWHERE
        stated += _stated_in(cast(Block, stmt)) if alone else _stated((stmt,), domain)
        domain = after(stmt, domain)
    for one in stated:
        if one.is_false:
            raise _wrong(func, one.stmt, f"no value makes `{stmt_text(one.stmt)}` true")
    about: dict[Buffer, list[_Stated]] = {}
    for one in stated:
        for buffer in one.buffers:
            about.setdefault(buffer, []).append(one)
    for buffer, together in about.items():
        _require_common_values(func, buffer, together)


def _require_common_values(func: PrimFunc, buffer: Buffer, stated: list[_Stated]) -> None:
    """VerifyError where two of the assumptions about a buffer contradict each other."""
    for one, other in combinations(stated, 2):
        for load, span, again, limit in _disjoint(one, other, buffer):
            written = any(stmt.buffer == buffer for stmt in writes_in(func.body))
            if not written and _meet(load, one.domain, again, other.domain):
                raise _wrong(
                    func,
                    other.stmt,
                    f"{load.buffer.name} is assumed to hold {_span_text(span)} and "
                    f"{_span_text(limit)} at one element",
                )


@kept
def _stated_in(block: Block) -> tuple[_Stated, ...]:
    return _stated(block.body)


def _stated(body: Body, domain: Domain = ANYWHERE) -> tuple[_Stated, ...]:
    """The assumptions in a body, without those under conditions on data."""
    if not any(isinstance(stmt, Assume) for stmt in walk(body)):
        return ()
    return tuple(
        _Stated(site.stmt, _where(site.stmt, site.domain), _no_scalars(site.stmt, site.domain))
        for site in sites(body, domain)
        if isinstance(site.stmt, Assume) and not site.guards and is_predicate(site.stmt.unless)
    )


class _Stated:
    """An assumption, the points at which it is made, and what it says of its loads."""

    def __init__(self, stmt: Assume, domain: Domain, no_scalars: bool | None) -> None:
        self.stmt = stmt
        self.domain = domain
        self.spans = claimed(stmt.claim)
        self.buffers = tuple(dict.fromkeys(load.buffer for load in self.spans))
        self.is_false = self._never_holds() and (
            _has_points(domain) if no_scalars is None else no_scalars
        )
        """Whether the assumption is made at some point, and no value makes it true."""

    def _never_holds(self) -> bool:
        """Whether the claim is false whatever the loads in it are."""
        if any(span is None for span in self.spans.values()):
            return True
        fact = evaluate(self.stmt.claim, lambda _: Undefined(), ranges=self.domain.ranges())
        return isinstance(fact, Constant) and not fact.literal.value


def _no_scalars(stmt: Stmt, domain: Domain) -> bool | None:
    """Whether no scalars satisfy the condition of an assumption; None where it is about none."""
    assert isinstance(stmt, Assume)
    unless = cast(Predicate, stmt.unless)
    if predicate_variables(unless) <= {axis.var for axis in domain.axes}:
        return None
    return prove(negation(unless), domain).proven


def _where(stmt: Stmt, domain: Domain) -> Domain:
    assert isinstance(stmt, Assume)
    return domain.given(negation(cast(Predicate, stmt.unless)))


def _has_points(domain: Domain) -> bool:
    return prove(FALSE, domain).verdict is Verdict.REFUTED


def _disjoint(
    one: _Stated, other: _Stated, buffer: Buffer
) -> Iterator[tuple[Load, Span, Load, Span]]:
    """Pairs of loads of a buffer, with the spans by the two claims, that have no common value."""
    for load, span in one.spans.items():
        for again, limit in other.spans.items():
            if not load.buffer == again.buffer == buffer or span is None or limit is None:
                continue
            if common(span, limit) is None:
                yield load, span, again, limit


def _meet(a: Load, here: Domain, b: Load, there: Domain) -> bool:
    """Whether the loads provably read the same element at some points of their domains."""
    copy, fresh = there.renamed("'")
    same = [equal(x, substitute(y, fresh)) for x, y in zip(a.indices, b.indices, strict=True)]
    return _has_points(joined(here, copy).given(conjunction(same)))


def _span_text(span: Span) -> str:
    return str(span.lo) if span.is_point else f"a value in [{span.lo}, {span.hi}]"


def _wrong(func: PrimFunc, stmt: Stmt, message: str) -> VerifyError:
    return VerifyError(f"{func.name}: {message}\n{to_text(func, stmt, 'here')}")
