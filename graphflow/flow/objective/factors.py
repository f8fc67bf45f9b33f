"""The terms of a graph as factors of elimination.

In: the prices of each node's candidates, and terms.  Out: an `Encoding`: variables and factors.  A
term is the factor of its table, or, where that would be large, the network over its nodes and the
hidden variables of its pattern.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import prod

from msgspec import Struct

from graphflow.flow.elimination.elimination import Factor
from graphflow.flow.elimination.prices import Prices, Table
from graphflow.flow.objective.patterns import Pattern
from graphflow.flow.objective.terms import Term

TERM_LIMIT = 1 << 15
"""The most entries of the table of a term; larger ones get hidden variables if these are few."""

HIDDEN_LIMIT = 1024
"""The most choices of hidden variables of a term that is split though its table is within limits.
"""


class Encoding(Struct, frozen=True):
    """Variables, first the nodes and then hidden ones, with their prices, and the factors."""

    own: list[Table]
    factors: list[Factor]


def encode(
    own: Sequence[Table],
    terms: Iterable[Term],
    prices: Prices,
    shared: dict[Pattern, Table],
    limit: int,
) -> Encoding:
    """The terms as factors; `shared` caches the tables of patterns."""
    encoding = Encoding(list(own), [])
    for term in terms:
        if split(own, term, limit):
            hidden, factors = term.split(len(encoding.own), prices)
            encoding.own.extend(hidden)
            encoding.factors.extend(factors)
        else:
            load = partial(term.table, prices, shared)
            encoding.factors.append(Factor(term.scope, load))
    return encoding


def split(own: Sequence[Table], term: Term, limit: int) -> bool:
    """Whether a term is split: its table has more than `limit` entries, or more than `TERM_LIMIT`
    and at most `HIDDEN_LIMIT` choices of hidden variables.
    """
    if not term.scope:
        return False
    entries = prod(len(own[node]) for node in term.scope)
    if entries <= min(limit, TERM_LIMIT):
        return False
    return entries > limit or term.pattern.combinations <= HIDDEN_LIMIT
