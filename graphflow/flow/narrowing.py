"""Exact elimination of a part of the graph in which each node keeps only some candidates.

In: a part that is too large for elimination, and the candidates that may be in a plan cheaper than
one that is known, by a bound.  Out: the cheapest choice of these.  Fewer candidates have fewer
layouts between them, fewer sets of copies and smaller tables, so parts that are solved this way are
much larger than those that elimination solves alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graphflow.flow.copies import Copy
from graphflow.flow.elimination import CORE_WORK, eliminate
from graphflow.flow.factors import encode, split
from graphflow.flow.highs import OutOfTime
from graphflow.flow.orders import best_order
from graphflow.flow.patterns import Classes
from graphflow.flow.prices import NEVER, Prices, Table
from graphflow.flow.terms import Term

Narrowed = tuple[dict[int, int], dict[str, tuple[Copy, ...]]]
"""The number of the chosen candidate of each node, and the copies of each value."""


def narrowed(
    own: Mapping[int, Table],
    terms: Sequence[Term],
    kept: Mapping[int, Classes],
    prices: Prices,
    limit: int,
) -> Narrowed | None:
    """The cheapest choice of the `kept` candidates of each node in `own`; None if there is none.

    Raises OutOfTime if tables of at most `limit` entries do not solve it.
    """
    if any(len(found) == 0 for found in kept.values()):
        return None
    every = [*own, *(n for t in terms for n in (*t.readers, t.producer or 0))]
    tables = [np.zeros(1, np.int64) for _ in range(max(every) + 1)]
    for node, numbers in kept.items():
        tables[node] = own[node][numbers]
    smaller = [term.restricted(kept) for term in terms]
    if not _narrow(tables, smaller, limit):
        raise OutOfTime
    encoding = encode(tables, smaller, prices, {}, limit)
    reduced = eliminate(encoding.own, encoding.factors, limit)
    if reduced.left() or any(f.scope or not f.tabled for f in reduced.remaining):
        raise OutOfTime
    if any(int(root.load()) >= NEVER for root in reduced.roots()):
        return None
    chosen = [0] * len(encoding.own)
    reduced.complete(chosen)
    copies = {t.value: t.copies(chosen, prices) for t in smaller}
    return {node: int(kept[node][chosen[node]]) for node in kept}, copies


def _narrow(own: Sequence[Table], terms: Sequence[Term], limit: int) -> bool:
    """Whether there is an order of elimination within limits; found before any table is made."""
    sizes = list(map(len, own))
    scopes: list[Sequence[int]] = []
    for term in terms:
        if split(own, term, limit):
            scopes += [(node, len(sizes)) for node in term.scope]
            sizes.append(term.pattern.states)
        elif not term.pattern.compared:
            return False
        else:
            scopes.append(term.scope)
    return best_order(sizes, range(len(sizes)), scopes, limit, CORE_WORK) is not None
