"""A greedy assignment for an integer program that found none in its time.

In: a `ResidualIlp`.  Out: an `IlpSolution`, decided node by node in the order of the graph.
"""

from __future__ import annotations

from graphflow.flow.copies import Copy, clashing
from graphflow.flow.prices import NEVER
from graphflow.flow.residual_ilp import IlpSolution, ResidualIlp
from graphflow.flow.terms import Term
from graphflow.plan import CopyKind


def greedy(ilp: ResidualIlp) -> IlpSolution | None:
    """An assignment in which each variable takes the cheapest option production those before it.

    A requirement that the production does not satisfy is paid for with a conversion.  None where
    every option of some node is excluded by aliasings already decided.
    """
    chosen: dict[int, int] = {}
    for variable in ilp.variables:
        prices: list[int] = []
        for k, price in enumerate(ilp.own[variable]):
            chosen[variable] = k
            prices.append(int(price) + _ahead(ilp, chosen, variable))
        if min(prices) >= NEVER:
            return None
        chosen[variable] = prices.index(min(prices))
    copies: dict[str, tuple[Copy, ...]] = {}
    for term in ilp.terms:
        made = _copies(term, chosen, ilp)
        if made is None:
            return None
        copies[term.value] = made
    return ilp.outcome(chosen, copies, ilp.floor())


def _ahead(ilp: ResidualIlp, chosen: dict[int, int], variable: int) -> int:
    """The price of the conversions around a variable, for the readers that are decided."""
    made = [_copies(term, chosen, ilp) for term in ilp.around[variable]]
    if any(copies is None for copies in made):
        return NEVER
    return sum(ilp.prices.copy(c) for copies in made for c in copies or ())


def _copies(term: Term, chosen: dict[int, int], ilp: ResidualIlp) -> tuple[Copy, ...] | None:
    """The conversions for all decided readers that the production does not satisfy.

    None if aliasings exclude each other, or no conversion satisfies a requirement.
    """
    pattern = term.pattern
    production = term.production(chosen)
    requirements = list(pattern.output)
    for reader, classes, wanted in zip(
        term.readers, term.reader_classes, pattern.readers, strict=True
    ):
        if len(wanted) == 1:
            requirements += wanted[0]
        elif reader in chosen:
            requirements += wanted[int(classes[chosen[reader]])]
    if clashing(requirements):
        return None
    made: dict[Copy, None] = {}
    for requirement in requirements:
        if production in pattern.direct(requirement) or any(
            copy.serves(requirement) for copy in made
        ):
            continue
        serving = [
            c
            for c in pattern.made(production)
            if c.kind == CopyKind.CONVERT and c.serves(requirement) and pattern.makes(production, c)
        ]
        if not serving:
            return None
        made[min(serving, key=ilp.prices.copy)] = None
    return tuple(made)
