"""When two pieces of a kernel may change their order.

Two accesses conflict if they may touch the same element and at least one writes it; two
reductions with the same operator never conflict, because iterations of a reduction commute by
declaration.  Each question is answered by the form of the indices first (they fix the loop
variable, so that two different iterations cannot meet), and by integer sets where that is open.
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
    """Pairs of accesses, one of each body, to one buffer of which at least one writes.

    A buffer allocated inside belongs to its iteration alone.  `at_once` asks about iterations that
    run at the same time: then reductions with the same operator conflict too.
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
    """Loads in claims of `Assume`: what is claimed of an element ends where it is written."""
    if not any(isinstance(stmt, Assume) for stmt in walk(body)):
        return  # as mostly: no domains are needed
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
    """Whether equal elements imply the same `var`: some axis is `k·var + shared` in both."""
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
    """Refuses unless no iteration of `first` conflicts with a primed one of `second` in `order`.

    `domain` ends with the axes in `moving`; those and all inside them are primed in `second`, and
    `order` says which pairs of iterations change their order, over `v` and `v'`.  It must differ in
    each of the moving variables, or be the statement that any of them differs.
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
    # Where only some variable must differ, the element has to fix all of them.
    if all(fixed) if isinstance(order, Or) and len(moving) > 1 else any(fixed):
        return structural(claim)
    inner = tuple(axis for axis in b.domain.axes if axis.var not in shared)
    copy, fresh = Domain(inner, b.domain.where).renamed("'")
    same = [equal(x, substitute(y, fresh)) for x, y in zip(a.indices, b.indices, strict=True)]
    both = joined(Domain(a.domain.axes, a.domain.where), copy)
    both = both.given(conjunction((*same, order)))
    return require(prove_empty(both, claim), condition)


def independent(stmt: For, domain: Domain) -> tuple[Proof, ...]:
    """Refuses unless the iterations of a loop may run at once; `domain` is the one around it.

    Reductions into one element must not meet in two threads.  Lanes of a loop of that kind may: the
    emitter folds them, or takes one after another.
    """
    inner = domain.inside(stmt.var, stmt.start, stmt.stop)
    primed = Var(stmt.var.name + "'")
    order = disjunction((less_than(stmt.var, primed), less_than(primed, stmt.var)))
    condition = f"the iterations of {stmt.var} are independent"
    at_once = stmt.kind is not LoopKind.VECTORIZED
    return ordered_commute(stmt.body, stmt.body, inner, (stmt.var,), order, condition, at_once)


def still_independent(func: PrimFunc, place: str) -> tuple[Proof, ...]:
    """Proves again what parallel and vectorized loops need, those around `place` and inside it."""
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
