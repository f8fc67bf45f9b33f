"""The terms of a graph as factors of elimination.

In: the prices of each node's candidates, and terms.  Out: an `Encoding`: variables and factors.  A
term is the factor of its table; one whose table would be large is split over a variable of its own,
the state of its value, where it can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from math import prod

from graphflow.flow.elimination import Factor
from graphflow.flow.patterns import Pattern
from graphflow.flow.prices import Prices, Table
from graphflow.flow.terms import Term

TERM_LIMIT = 1 << 15
"""The most entries of the table of a term; larger ones are split into states where they can be."""


@dataclass(frozen=True)
class Encoding:
    """Variables, first the nodes and then states of values, with their prices, and the factors.

    `term_of` has the term of each factor that is the table of one.
    """

    own: list[Table]
    factors: list[Factor]
    term_of: dict[Factor, Term]


def encode(
    own: Sequence[Table],
    terms: Iterable[Term],
    prices: Prices,
    shared: dict[Pattern, Table],
    limit: int,
    whole: Set[int] = frozenset(),
) -> Encoding:
    """The terms as factors; those at nodes in `whole` are not split.

    `shared` caches the tables of patterns.
    """
    found = Encoding(list(own), [], {})
    for term in terms:
        if whole.isdisjoint(term.scope) and split(own, term, limit):
            found.factors.extend(term.split(len(found.own)))
            found.own.append(term.pattern.state_prices(prices))
        else:
            load = partial(term.table, prices, shared)
            found.factors.append(Factor(term.scope, load, term.pattern.compared))
            found.term_of[found.factors[-1]] = term
    return found


def split(own: Sequence[Table], term: Term, limit: int) -> bool:
    """Whether a term is split: its table has more than `limit` or `TERM_LIMIT` entries."""
    entries = prod(len(own[node]) for node in term.scope)
    return bool(term.scope) and entries > min(limit, TERM_LIMIT) and term.splittable
