"""Dependence analysis: whether two pieces of a kernel may change their order, or run at once.

In: two bodies, the domain around them, and which pairs of their iterations change order.  Out:
proofs that no such pair conflicts; ScheduleError where one is not proven.

Two accesses conflict if they may touch the same element and at least one writes it.  Reductions
with the same operator do not conflict with each other in sequence: the iterations of a reduction
commute by declaration.  The form of the indices decides first, where equal elements imply equal
iterations; integer sets decide what that leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphflow.arith import (
    ANYWHERE,
    Domain,
    IndexExpr,
    Or,
    Predicate,
    Proof,
    Var,
    conjunction,
    disjunction,
    equal,
    joined,
    less_than,
    negation,
    prove_empty,
    substitute,
    terms_of,
    variables,
)
from graphflow.schedule.obligations import require, structural
from graphflow.schedule.places import has_name
from graphflow.tir import (
    Access,
    AccessKind,
    Allocate,
    Assume,
    Body,
    For,
    Load,
    LoopKind,
    PrimFunc,
    accesses,
    expressions_of,
    is_predicate,
    loops_of,
    sites,
    walk,
    walk_expr,
)

AT_ONCE = (LoopKind.PARALLEL, LoopKind.VECTORIZED)
"""Kinds of loops whose iterations run at the same time."""


def conflicting(
    first: Body, second: Body, domain: Domain, at_once: bool = False
) -> Iterator[tuple[Access, Access]]:
    """Pairs of accesses, one of each body, to the same buffer, at least one of which writes.

    Buffers allocated in the bodies are left out, for each iteration has its own.  With `at_once`,
    for iterations that run at the same time, reductions with the same operator conflict too.
    """
    private = {s.buffer for b in (first, second) for s in walk(b) if isinstance(s, Allocate)}
    others = (*accesses(second, domain), *claimed_loads(second, domain))
    for a in (*accesses(first, domain), *claimed_loads(first, domain)):
        for b in others:
            if a.buffer != b.buffer or a.kind is b.kind is AccessKind.READ or a.buffer in private:
                continue
            if at_once or a.op is None or a.op is not b.op:
                yield a, b


def claimed_loads(body: Body, domain: Domain = ANYWHERE) -> Iterator[Access]:
    """The loads in claims of `Assume`, as reads: writing an element ends a claim about it."""
    if not any(isinstance(stmt, Assume) for stmt in walk(body)):
        return  # before domains are made, which most bodies do not need
    for site in sites(body, domain):
        if not isinstance(site.stmt, Assume):
            continue
        here = site.domain
        if is_predicate(site.stmt.unless):
            here = here.given(negation(site.stmt.unless))  # type: ignore[arg-type]
        for expr in expressions_of(site.stmt):
            for node in walk_expr(expr):
                if isinstance(node, Load):
                    yield Access(node.buffer, node.indices, here, AccessKind.READ, False)


def fixes(indices_a: tuple[IndexExpr, ...], indices_b: tuple[IndexExpr, ...], var: Var,
          shared: frozenset[Var]) -> bool:  # fmt: skip
    """Whether equal indices imply equal values of `var`.

    So it is where some index is `k·var + e` in both, e over the `shared` variables alone.
    """
    for a, b in zip(indices_a, indices_b, strict=True):
        if a is not b:
            continue
        others = [atom for atom, _ in terms_of(a)[0] if atom is not var]
        has_var = len(others) < len(terms_of(a)[0])
        if has_var and all(variables(atom) <= shared for atom in others):
            return True
    return False


def ordered_commute(
    first: Body,
    second: Body,
    domain: Domain,
    moving: tuple[Var, ...],
    order: Predicate,
    condition: str,
    at_once: bool = False,
) -> tuple[Proof, ...]:
    """Proofs that no iteration of `first` conflicts with one of `second` for pairs in `order`.

    `domain` ends with the axes in `moving`.  In `second` these variables, and those of loops inside
    them, are primed; `order` is the predicate over `v` and `v'` for the pairs that change their
    order.  It must imply that every moving variable differs, or be the disjunction that any does.
    ScheduleError, which begins with `condition`, where a pair is not proven free of conflicts.
    """
    shared = frozenset(axis.var for axis in domain.axes if axis.var not in moving)
    proofs = [
        _pair_commutes(a, b, moving, shared, order, condition)
        for a, b in conflicting(first, second, domain, at_once)
    ]
    if not proofs:
        proofs = [structural(f"{condition}: no buffer is written by one and touched by the other")]
    return tuple(dict.fromkeys(proofs))


def _pair_commutes(
    a: Access,
    b: Access,
    moving: tuple[Var, ...],
    shared: frozenset[Var],
    order: Predicate,
    condition: str,
) -> Proof:
    claim = f"{condition}: {a.buffer.name}[{_text(a)}] and [{_text(b)}] do not meet"
    fixed = (fixes(a.indices, b.indices, var, shared) for var in moving)
    # An order by which any one variable may differ is empty only if the element fixes them all.
    if all(fixed) if isinstance(order, Or) and len(moving) > 1 else any(fixed):
        return structural(claim)
    inner = tuple(axis for axis in b.domain.axes if axis.var not in shared)
    copy, fresh = Domain(inner, b.domain.where).renamed("'")
    same = [equal(x, substitute(y, fresh)) for x, y in zip(a.indices, b.indices, strict=True)]
    both = joined(Domain(a.domain.axes, a.domain.where), copy)
    both = both.given(conjunction((*same, order)))
    return require(prove_empty(both, claim), condition)


def independent(stmt: For, domain: Domain) -> tuple[Proof, ...]:
    """Proofs that the iterations of a loop may run at once; `domain` is that around the loop.

    ScheduleError where that is not proven.  Two threads may not reduce into one element; two lanes
    of a vectorized loop may, for the emitter folds the lanes or handles them one by one.
    """
    inner = domain.inside(stmt.var, stmt.start, stmt.stop)
    primed = Var(stmt.var.name + "'")
    order = disjunction((less_than(stmt.var, primed), less_than(primed, stmt.var)))
    condition = f"the iterations of {stmt.var} are independent"
    at_once = stmt.kind is not LoopKind.VECTORIZED
    return ordered_commute(stmt.body, stmt.body, inner, (stmt.var,), order, condition, at_once)


def still_independent(func: PrimFunc, place: str) -> tuple[Proof, ...]:
    """Proofs that parallel and vectorized loops around `place` and in it are still independent."""
    proofs: tuple[Proof, ...] = ()
    holding = tuple(stmt for stmt in func.body if has_name(stmt, place))
    for site in sites(holding):
        stmt = site.stmt
        if not isinstance(stmt, For) or stmt.kind not in AT_ONCE:
            continue
        around = any(getattr(s, "name", None) == place for s in walk(stmt.body)) or any(
            loop.var.name == place for loop in loops_of((stmt,))
        )
        if around or any(axis.var.name == place for axis in site.domain.axes):
            proofs += independent(stmt, site.domain)
    return proofs


def _text(access: Access) -> str:
    return ", ".join(map(str, access.indices))
