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

from graphflow import arith, layout, tir
from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.schedule.facts.claims import claimed, common
from graphflow.schedule.facts.dependence import independent
from graphflow.schedule.facts.index_words import require_index_words


@lru_cache(maxsize=4096)
def require_sound(func: tir.PrimFunc) -> tuple[arith.Proof, ...]:
    """Proofs that a kernel is well formed, its loop kinds are safe and its assumptions consistent.

    VerifyError where a name, a type or a scope is wrong, where index arithmetic may leave 64 bits,
    where the iterations of a parallel or vectorized loop are not proven independent, and where an
    assumption is provably false.
    """
    tir.verify(func, "scheduled")
    require_index_words(func)
    require_consistent(func)
    return tuple(_loop_kinds(func))


def _loop_kinds(func: tir.PrimFunc) -> Iterator[arith.Proof]:
    """Proofs that parallel and vectorized loops have independent iterations."""
    for site in tir.sites(func.body):
        stmt = site.stmt
        if not isinstance(stmt, tir.For) or stmt.kind not in tir.AT_ONCE:
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


def require_in_bounds(func: tir.PrimFunc) -> tuple[arith.Proof, ...]:
    """A proof for each access of a kernel that it stays in its buffer; else a VerifyError.

    The windows of a call that performs nothing, which makes no access, stay in theirs as well.
    """
    proofs: dict[arith.Proof, None] = {}
    for buffer, indices, domain in (
        *((access.buffer, access.indices, access.domain) for access in tir.accesses(func.body)),
        *_ends_of_hints(func),
    ):
        sides = zip(indices, buffer.shape, strict=True)
        inside = arith.conjunction(
            side for e, n in sides for side in (arith.at_least_zero(e), arith.less_than(e, n))
        )
        proof = arith.prove(inside, domain)
        if not proof.proven:
            where = ", ".join(map(str, indices))
            raise VerifyError(
                f"{func.name}: {buffer.name}[{where}] is not proven to stay in "
                f"{list(buffer.shape)}: {proof.reason}\nin\n{tir.to_text(func)}"
            )
        proofs[proof] = None
    return tuple(proofs)


def _ends_of_hints(
    func: tir.PrimFunc,
) -> Iterator[tuple[tir.Buffer, tuple[arith.IndexExpr, ...], arith.Domain]]:
    """The first and the last element of each window of a call that performs nothing."""
    if all(tir.performed(call) for call in tir.calls_in(func.body)):
        return
    for site in tir.sites(func.body):
        if isinstance(site.stmt, tir.Call) and not tir.performed(site.stmt):
            for window, param in zip(site.stmt.windows, site.stmt.definition.params, strict=True):
                for end in window_ends(window, param.buffer.shape):
                    yield window.buffer, end, site.domain


def window_ends(
    window: tir.BufferWindow, shape: tuple[int, ...]
) -> tuple[tuple[arith.IndexExpr, ...], tuple[arith.IndexExpr, ...]]:
    """The indices of the first and of the last element of a window of this shape."""
    first, last = (tuple(arith.const(k * max(n - 1, 0)) for n in shape) for k in (0, 1))
    return window.place(first), window.place(last)


def require_consistent(func: tir.PrimFunc) -> None:
    """VerifyError where an assumption of a kernel is provably false, or contradicts another one."""
    stated: list[_Stated] = []
    domain = arith.ANYWHERE
    for stmt in func.body:
        alone = isinstance(stmt, tir.Block) and domain is arith.ANYWHERE
        stated += _stated_in(cast(tir.Block, stmt)) if alone else _stated((stmt,), domain)
        domain = tir.after(stmt, domain)
    for one in stated:
        if one.is_false:
            raise _wrong(func, one.stmt, f"no value makes `{tir.stmt_text(one.stmt)}` true")
    about: dict[tir.Buffer, list[_Stated]] = {}
    for one in stated:
        for buffer in one.buffers:
            about.setdefault(buffer, []).append(one)
    for buffer, together in about.items():
        _require_common_values(func, buffer, together)


def _require_common_values(func: tir.PrimFunc, buffer: tir.Buffer, stated: list[_Stated]) -> None:
    """VerifyError where two of the assumptions about a buffer contradict each other."""
    for one, other in combinations(stated, 2):
        for load, span, again, limit in _disjoint(one, other, buffer):
            written = any(stmt.buffer == buffer for stmt in tir.writes_in(func.body))
            if not written and _meet(load, one.domain, again, other.domain):
                raise _wrong(
                    func,
                    other.stmt,
                    f"{load.buffer.name} is assumed to hold {_span_text(span)} and "
                    f"{_span_text(limit)} at one element",
                )


@tir.kept_by_node
def _stated_in(block: tir.Block) -> tuple[_Stated, ...]:
    return _stated(block.body)


def _stated(body: tir.Body, domain: arith.Domain = arith.ANYWHERE) -> tuple[_Stated, ...]:
    """The assumptions in a body, without those under conditions on data."""
    if not any(isinstance(stmt, tir.Assume) for stmt in tir.walk(body)):
        return ()
    return tuple(
        _Stated(site.stmt, _where(site.stmt, site.domain), _no_scalars(site.stmt, site.domain))
        for site in tir.sites(body, domain)
        if isinstance(site.stmt, tir.Assume)
        and not site.guards
        and tir.is_predicate(site.stmt.unless)
    )


class _Stated:
    """An assumption, the points at which it is made, and what it says of its loads."""

    def __init__(self, stmt: tir.Assume, domain: arith.Domain, no_scalars: bool | None) -> None:
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
        fact = layout.value_fact(
            self.stmt.claim, lambda _: layout.Undefined(), ranges=self.domain.ranges()
        )
        return isinstance(fact, layout.Constant) and not fact.literal.value


def _no_scalars(stmt: tir.Stmt, domain: arith.Domain) -> bool | None:
    """Whether no scalars satisfy the condition of an assumption; None where it is about none."""
    assert isinstance(stmt, tir.Assume)
    unless = cast(arith.Predicate, stmt.unless)
    if arith.predicate_variables(unless) <= {axis.var for axis in domain.axes}:
        return None
    return arith.prove(arith.negation(unless), domain).proven


def _where(stmt: tir.Stmt, domain: arith.Domain) -> arith.Domain:
    assert isinstance(stmt, tir.Assume)
    return domain.given(arith.negation(cast(arith.Predicate, stmt.unless)))


def _has_points(domain: arith.Domain) -> bool:
    return arith.prove(arith.FALSE, domain).verdict is arith.Verdict.REFUTED


def _disjoint(
    one: _Stated, other: _Stated, buffer: tir.Buffer
) -> Iterator[tuple[tir.Load, layout.Span, tir.Load, layout.Span]]:
    """Pairs of loads of a buffer, with the spans by the two claims, that have no common value."""
    for load, span in one.spans.items():
        for again, limit in other.spans.items():
            if not load.buffer == again.buffer == buffer or span is None or limit is None:
                continue
            if common(span, limit) is None:
                yield load, span, again, limit


def _meet(a: tir.Load, here: arith.Domain, b: tir.Load, there: arith.Domain) -> bool:
    """Whether the loads provably read the same element at some points of their domains."""
    copy, fresh = there.renamed("'")
    same = [
        arith.equal(x, arith.substitute(y, fresh))
        for x, y in zip(a.indices, b.indices, strict=True)
    ]
    return _has_points(arith.joined_domains(here, copy).given(arith.conjunction(same)))


def _span_text(span: layout.Span) -> str:
    return str(span.lo) if span.is_point else f"a value in [{span.lo}, {span.hi}]"


def _wrong(func: tir.PrimFunc, stmt: tir.Stmt, message: str) -> VerifyError:
    return VerifyError(f"{func.name}: {message}\n{tir.to_text(func, stmt, 'here')}")
