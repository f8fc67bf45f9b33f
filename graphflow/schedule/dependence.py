"""When two pieces of a kernel may change their order.

Two accesses conflict if they may touch the same element and at least one writes it; two
reductions with the same operator never conflict, because iterations of a reduction commute by
declaration.  Each question is answered by the form of the indices first (they fix the loop
variable, so that two different iterations cannot meet), and by integer sets where that is open.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphflow.arith import (
    Domain,
    IndexExpr,
    Predicate,
    Proof,
    Var,
    conjunction,
    equal,
    joined,
    prove_empty,
    substitute,
    terms_of,
    variables,
)
from graphflow.schedule.frame import require, structural
from graphflow.tir import Access, Allocate, Body, accesses, walk


def conflicting(
    first: Body, second: Body, domain: Domain, at_once: bool = False
) -> Iterator[tuple[Access, Access]]:
    """Pairs of accesses, one of each body, to one buffer of which at least one writes.

    A buffer allocated inside belongs to its iteration alone.  `at_once` asks about iterations that
    run at the same time: then reductions with the same operator conflict too.
    """
    private = {s.buffer for b in (first, second) for s in walk(b) if isinstance(s, Allocate)}
    for a in accesses(first, domain):
        for b in accesses(second, domain):
            if a.buffer != b.buffer or a.kind == b.kind == "read" or a.buffer in private:
                continue
            if at_once or a.op is None or a.op is not b.op:
                yield a, b


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
    `order` says which pairs of iterations change their order, over `v` and `v'`.
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
    if any(fixes(a.indices, b.indices, var, shared) for var in moving):
        return structural(claim)
    inner = tuple(axis for axis in b.domain.axes if axis.var not in shared)
    copy, fresh = Domain(inner, b.domain.where).renamed("'")
    same = [equal(x, substitute(y, fresh)) for x, y in zip(a.indices, b.indices, strict=True)]
    both = joined(Domain(a.domain.axes, a.domain.where), copy)
    both = both.given(conjunction((*same, order)))
    return require(prove_empty(both, claim), condition)


def _text(access: Access) -> str:
    return ", ".join(map(str, access.indices))
