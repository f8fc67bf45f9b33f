"""Dependence: whether two pieces of a kernel may change their order, or run at once.

In: two bodies, the domain around them, and which pairs of their iterations change order.  Out: a
proof for each pair of accesses that could conflict.

Two accesses conflict if they may touch the same element and at least one writes it.  Reductions
with the same operator do not conflict with each other in sequence: the iterations of a reduction
commute by declaration.  The form of the indices decides first, where equal elements imply equal
iterations; integer sets decide what that leaves open.  Here a pair is about two bodies and not
about a kernel, so that its proof is found again for every kernel that has it.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphflow import arith, tir
from graphflow.effects.statements import claimed_loads


def conflicting(
    first: tir.Body,
    second: tir.Body,
    domain: arith.Domain,
    at_once: bool = False,
    private: frozenset[tir.Buffer] = frozenset(),
) -> Iterator[tuple[tir.Access, tir.Access]]:
    """Pairs of accesses, one of each body, to the same buffer, at least one of which writes.

    Buffers allocated in the bodies are left out, for each iteration has its own, and so are those
    in `private`, of which each body has its own.  With `at_once`, for iterations that run at the
    same time, reductions with the same operator conflict too.
    """
    bodies = (first,) if second is first else (first, second)
    inside = {s.buffer for body in bodies for s in tir.walk(body) if isinstance(s, tir.Allocate)}
    found = [(*tir.accesses(body, domain), *claimed_loads(body, domain)) for body in bodies]
    # To hash an access takes longer than to find it, and most have no partner: they are reads of
    # what no body writes, or, where a wide body meets one more statement, in one body alone.
    written = {a.buffer for accesses in found for a in accesses if a.writes} - private - inside
    written.intersection_update(*({a.buffer for a in accesses} for accesses in found))
    touched = [dict.fromkeys(a for a in accesses if a.buffer in written) for accesses in found]
    others: dict[tir.Buffer, list[tir.Access]] = {}
    for b in touched[-1]:
        others.setdefault(b.buffer, []).append(b)
    for a in touched[0]:
        for b in others.get(a.buffer, ()):
            if a.kind is b.kind is tir.AccessKind.READ:
                continue
            if at_once or a.op is None or a.op is not b.op:
                yield a, b


def fixes(
    indices_a: tuple[arith.IndexExpr, ...],
    indices_b: tuple[arith.IndexExpr, ...],
    var: arith.Var,
    shared: frozenset[arith.Var],
) -> bool:
    """Whether equal indices imply equal values of `var`.

    So it is where some index is `k·var + e` in both, e over the `shared` variables alone.
    """
    for a, b in zip(indices_a, indices_b, strict=True):
        if a is not b:
            continue
        others = [atom for atom, _ in arith.terms_of(a)[0] if atom is not var]
        has_var = len(others) < len(arith.terms_of(a)[0])
        if has_var and all(arith.variables(atom) <= shared for atom in others):
            return True
    return False


def commuting(
    first: tir.Body,
    second: tir.Body,
    domain: arith.Domain,
    moving: tuple[arith.Var, ...],
    order: arith.Predicate,
    at_once: bool = False,
    private: frozenset[tir.Buffer] = frozenset(),
) -> Iterator[arith.Proof]:
    """For each conflicting pair: whether none of its iterations that change their order meet.

    `domain` ends with the axes in `moving`.  In `second` these variables, and those of loops inside
    them, are primed; `order` is the predicate over `v` and `v'` for the pairs that change their
    order.  It must imply that every moving variable differs, or be the disjunction that any does.
    The witness of a refuted proof has two iterations that meet, unless a condition on data keeps
    one of them from its access.  Each body has its own of the buffers in `private`.  No proof:
    neither body writes a buffer that the other touches.
    """
    shared = frozenset(axis.var for axis in domain.axes if axis.var not in moving)
    for a, b in conflicting(first, second, domain, at_once, private):
        yield _never_meet(a, b, moving, shared, order)


def _never_meet(
    a: tir.Access,
    b: tir.Access,
    moving: tuple[arith.Var, ...],
    shared: frozenset[arith.Var],
    order: arith.Predicate,
) -> arith.Proof:
    claim = f"{a.buffer.name}[{_text(a)}] and [{_text(b)}] do not meet"
    fixed = (fixes(a.indices, b.indices, var, shared) for var in moving)
    # An order by which any one variable may differ is empty only if the element fixes them all.
    if all(fixed) if isinstance(order, arith.Or) and len(moving) > 1 else any(fixed):
        return arith.Proof(arith.Verdict.PROVEN, claim, "structure")
    inner = tuple(axis for axis in b.domain.axes if axis.var not in shared)
    copy, fresh = arith.Domain(inner, b.domain.where).renamed("'")
    same = [
        arith.equal(x, arith.substitute(y, fresh))
        for x, y in zip(a.indices, b.indices, strict=True)
    ]
    both = arith.joined_domains(arith.Domain(a.domain.axes, a.domain.where), copy)
    both = both.given(arith.conjunction((*same, order)))
    return arith.prove_empty(both, claim)


def independent_iterations(stmt: tir.For, domain: arith.Domain) -> Iterator[arith.Proof]:
    """For each conflicting pair: whether the iterations of a loop may run at once.

    `domain` is that around the loop.  Two threads may not reduce into one element; two lanes of a
    vectorized loop may, for the emitter folds the lanes or handles them one by one.
    """
    inner = domain.inside(stmt.var, stmt.start, stmt.stop)
    primed = arith.Var(stmt.var.name + "'")
    order = arith.disjunction(
        (arith.less_than(stmt.var, primed), arith.less_than(primed, stmt.var))
    )
    at_once = stmt.kind is not tir.LoopKind.VECTORIZED
    return commuting(stmt.body, stmt.body, inner, (stmt.var,), order, at_once)


def _text(access: tir.Access) -> str:
    return ", ".join(map(str, access.indices))
