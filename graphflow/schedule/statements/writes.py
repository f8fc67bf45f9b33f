"""Primitives on writes: merge two to one element, and inline what one assigns.

In: a kernel and the places of writes.  Out: the kernel with fewer of them.  What always holds: each
read that stays sees the value that it saw before.
"""

from __future__ import annotations

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.buffers.relocation import still_at_once
from graphflow.schedule.places import addresses, obligations
from graphflow.schedule.places.places import find, rewrite_around
from graphflow.schedule.statements.expressions import map_values, unchanged
from graphflow.schedule.steps.frame import Rewrite

Indices = tuple[arith.IndexExpr, ...]


def merge_writes(func: tir.PrimFunc, first: str, second: str) -> Rewrite:
    """`x = a; x = b` → `x = b`; `x ⊕= a; x = b` → `x = b`; `x = a; x ⊕= b` → `x = a ⊕ b`;
    `x ⊕= a; x ⊕= b` → `x ⊕= a ⊕ b`.

    The second of two writes to one element stands directly behind the first.

    Conditions: *neighbours*: both are writes, and the second follows the first directly.
    *destination*: they write the same element in every instance.  *operator*: two reductions have
    one operator.  *reads*: `b` does not read `x`.
    """
    *around, (position, _) = addresses.path_of(func, first)
    if addresses.path_of(func, second) != (*around, (position + 1, False)):
        raise ScheduleError(f"neighbours: {second} does not follow {first} directly")
    proofs: list[arith.Proof] = []

    def change(body: tir.Body, at: int, domain: arith.Domain) -> tir.Body:
        one, other = body[at], body[at + 1]
        if not isinstance(one, tir.Store | tir.Reduce) or not isinstance(
            other, tir.Store | tir.Reduce
        ):
            raise ScheduleError(f"neighbours: {first} and {second} are not two writes")
        proofs.extend(_mergeable(one, other, domain))
        return (*body[:at], _merged(one, other), *body[at + 2 :])

    new = rewrite_around(func, first, change)
    return Rewrite(new, tuple(proofs))


def _mergeable(
    one: tir.Store | tir.Reduce, other: tir.Store | tir.Reduce, domain: arith.Domain
) -> list[arith.Proof]:
    places = [tir.element_text(stmt.buffer, stmt.indices) for stmt in (one, other)]
    if one.buffer != other.buffer:
        raise ScheduleError(f"destination: {places[0]} and {places[1]} are of two buffers")
    same = _same(one.indices, other.indices)
    proofs = [
        obligations.require(
            arith.prove(same, domain), f"destination: {places[0]} and {places[1]} are one"
        )
    ]
    if isinstance(one, tir.Reduce) and isinstance(other, tir.Reduce) and one.op is not other.op:
        raise ScheduleError(f"operator: {one.op.value} and {other.op.value} are two")
    value = tir.Store(tir.Buffer("value", (), other.value.dtype), (), other.value)
    for access in tir.accesses((value,), domain):
        if access.buffer == one.buffer:
            apart = arith.prove(arith.negation(_same(access.indices, one.indices)), access.domain)
            proofs.append(
                obligations.require(apart, f"reads: the second value does not read {places[0]}")
            )
    return proofs


def _same(one: Indices, other: Indices) -> arith.Predicate:
    return arith.conjunction(arith.equal(a, b) for a, b in zip(one, other, strict=True))


def _merged(one: tir.Store | tir.Reduce, other: tir.Store | tir.Reduce) -> tir.Stmt:
    if isinstance(other, tir.Store):
        return other
    # The operators of reductions are called as those of expressions are.
    return replace(one, value=tir.Binary(other.op.value, one.value, other.value))


def inline_assign(func: tir.PrimFunc, place: str) -> Rewrite:
    """`x[e] = v; S` → `S[x[e] → v]`, in all statements behind the store in its body.

    Conditions: *store*: the place is a store to a buffer that the kernel allocates.  *element*:
    each load of `x` in S is of this element always, or never.  *written*: S does not write the
    element before the last such load.  *unchanged*: nor what `v` loads.  *unread*: nothing behind S
    sees the store.
    """
    stmt, domain = find(func, place)
    params = {param.buffer for param in func.params}
    if not isinstance(stmt, tir.Store) or stmt.buffer in params:
        raise ScheduleError(f"store: {place} is no store to a buffer that is allocated here")
    proofs: list[arith.Proof] = []

    def change(body: tir.Body, at: int, _: arith.Domain) -> tir.Body:
        inlined = _inlined(stmt, body[at + 1 :], domain, place, proofs)
        return (*body[: at + 1], *inlined)

    used = rewrite_around(func, place, change)
    text = tir.element_text(stmt.buffer, stmt.indices)
    proofs.append(
        obligations.require(
            effects.overwritten_unread(used, addresses.path_of(func, place)), f"unread: {text}"
        )
    )
    new = rewrite_around(used, place, lambda body, at, _: (*body[:at], *body[at + 1 :]))
    proofs += still_at_once(new)
    return Rewrite(new, tuple(dict.fromkeys(proofs)))


def _inlined(
    stmt: tir.Store, rest: tir.Body, domain: arith.Domain, place: str, proofs: list[arith.Proof]
) -> tir.Body:
    """The statements behind a store with its value for each load of its element."""
    reads = [a for a in tir.accesses(rest, domain) if a.buffer == stmt.buffer and not a.writes]
    ours: dict[Indices, bool] = {}
    for access in reads:
        is_ours = _is_element(access, stmt, proofs)
        if ours.setdefault(access.indices, is_ours) != is_ours:
            text = tir.element_text(stmt.buffer, access.indices)
            raise ScheduleError(f"element: {text} is that of {place} in some statements alone")
    for claim in effects.claimed_loads(rest, domain):
        if claim.buffer == stmt.buffer:
            raise ScheduleError(f"element: {stmt.buffer.name} is in an assumption behind {place}")
    if any(ours.values()):
        last = max(k for k, one in enumerate(rest) if _loads(one, stmt.buffer, ours))
        alone = isinstance(rest[last], tir.Store | tir.Reduce)
        before = rest[:last] if alone else rest[: last + 1]
        text = tir.element_text(stmt.buffer, stmt.indices)
        held = tir.Load(stmt.buffer, stmt.indices)
        proofs += unchanged(held, before, domain, f"written: {text} is not written before its use")
        condition = f"unchanged: the value of {text} is the same at each use"
        proofs += unchanged(stmt.value, before, domain, condition)

    def value(node: tir.Expr) -> tir.Expr:
        is_ours = (
            isinstance(node, tir.Load) and node.buffer == stmt.buffer and ours.get(node.indices)
        )
        return stmt.value if is_ours else node

    return map_values(rest, value)


def _is_element(access: tir.Access, stmt: tir.Store, proofs: list[arith.Proof]) -> bool:
    """Whether a load is of the element that is stored; ScheduleError where only sometimes."""
    same = _same(access.indices, stmt.indices)
    always = arith.prove(same, access.domain)
    if always.proven:
        proofs.append(always)
        return True
    never = arith.prove(arith.negation(same), access.domain)
    if never.proven:
        proofs.append(never)
        return False
    texts = [tir.element_text(stmt.buffer, e) for e in (access.indices, stmt.indices)]
    raise obligations.Unproven(f"element: {texts[0]} is {texts[1]} at some points alone", always)


def _loads(stmt: tir.Stmt, buffer: tir.Buffer, ours: dict[Indices, bool]) -> bool:
    found = tir.accesses((stmt,))
    return any(a.buffer == buffer and not a.writes and ours.get(a.indices) for a in found)
