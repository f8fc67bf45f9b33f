"""Conditioning: the problem in which each node keeps only some of its candidates.

In: prices and terms, and the candidates to keep.  Out: a `Conditioned`, which elimination solves if
its tables are within limits.  Fewer candidates have fewer layouts between them, fewer sets of
copies and smaller tables, so problems that are solved this way are much larger than those that
elimination solves alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from graphflow.flow.elimination.elimination import CORE_WORK, Reduced, eliminate_in_order
from graphflow.flow.elimination.orders import best_order
from graphflow.flow.elimination.prices import Prices, Table
from graphflow.flow.objective.factors import encode
from graphflow.flow.objective.patterns import Classes, Pattern
from graphflow.flow.objective.terms import Term


class TablesTooLarge(Exception):
    """Elimination would need larger tables than it may make."""


class Conditioned(Struct, frozen=True, eq=False, dict=True):
    """Prices and terms of the candidates that are kept, by node.

    `kept` has their numbers among all candidates of the node; all else counts kept ones only.
    """

    own: tuple[Table, ...]
    terms: tuple[Term, ...]
    kept: tuple[Classes, ...]

    @classmethod
    def whole(cls, own: Sequence[Table], terms: Sequence[Term]) -> Conditioned:
        """The problem with all candidates."""
        return cls(tuple(own), tuple(terms), tuple(np.arange(len(prices)) for prices in own))

    def restricted(self, kept: Mapping[int, Classes]) -> Conditioned:
        """The problem with the `kept` candidates of some nodes; the others keep what they have."""
        kept = {node: some for node, some in kept.items() if len(some) < len(self.own[node])}
        own, numbers = list(self.own), list(self.kept)
        for node, some in kept.items():
            own[node], numbers[node] = own[node][some], numbers[node][some]
        terms = [
            term if kept.keys().isdisjoint(term.nodes) else term.restricted(kept)
            for term in self.terms
        ]
        return Conditioned(tuple(own), tuple(terms), tuple(numbers))

    @cached_property
    def possible(self) -> bool:
        """Whether every node has a candidate."""
        return all(len(prices) for prices in self.own)

    @cached_property
    def choices(self) -> int:
        """How many candidates there are in all."""
        return sum(map(len, self.own))

    def eliminated(self, prices: Prices, shared: dict[Pattern, Table], limit: int) -> Reduced:
        """The problem solved by elimination.

        Raises TablesTooLarge where a table would have more than `limit` entries, or all together
        more than `CORE_WORK`.
        """
        encoding = encode(self.own, self.terms, prices, shared, limit)
        sizes, scopes = list(map(len, encoding.own)), [f.scope for f in encoding.factors]
        order = best_order(sizes, range(len(sizes)), scopes, limit, CORE_WORK)
        if order is None:
            raise TablesTooLarge
        return eliminate_in_order(encoding.own, encoding.factors, order.variables)
