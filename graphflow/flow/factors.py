"""The terms of a graph as factors of elimination.

In: the prices of each node's candidates, and terms.  Out: an `Encoding`: variables and factors.  A
term is the factor of its table; one whose table would be large is split over a variable of its own,
the state of its value, where it can be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from graphflow.flow.elimination import Factor
from graphflow.flow.patterns import Pattern
from graphflow.flow.prices import Prices, Table
from graphflow.flow.terms import Term

TERM_LIMIT = 1 << 15
"""The most entries of the table of a term; larger ones are split into states where they can be."""

MOST_STATES = 1024
"""The most choices of hidden variables of a term that is split though its table is within limits.
"""


@dataclass(frozen=True)
class Encoding:
    """Variables, first the nodes and then states of values, with their prices, and the factors.

    `term_of` has the term of each factor that is the table of one.
    """

    own: list[Table]
    factors: list[Factor]


def encode(
    own: Sequence[Table],
    terms: Iterable[Term],
    prices: Prices,
    shared: dict[Pattern, Table],
    limit: int,
) -> Encoding:
    """The terms as factors; those at nodes in `whole` are not split.

    `shared` caches the tables of patterns.
    """
    found = Encoding(list(own), [])
    for term in terms:
        if split(own, term, limit):
            hidden, factors = term.split(len(found.own), prices)
            found.own.extend(hidden)
            found.factors.extend(factors)
        else:
            load = partial(term.table, prices, shared)
            found.factors.append(Factor(term.scope, load))
    return found


def split(own: Sequence[Table], term: Term, limit: int) -> bool:
    """Whether a term is split: its table has more than `limit` entries, or more than `TERM_LIMIT`
    and more than its hidden variables together.
    """
    if not term.scope:
        return False
    entries = prod(len(own[node]) for node in term.scope)
    if entries <= min(limit, TERM_LIMIT):
        return False
    return entries > limit or term.pattern.combinations <= MOST_STATES
