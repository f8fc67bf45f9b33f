"""A lower bound of every plan, by mini-bucket elimination with cost shifting.

In: a `Conditioned` problem that is too large for elimination.  Out: `PriceBounds`: a price that no
plan is below, and for each candidate one that no plan with it is below.  A variable whose bucket
needs too large a table is split into copies, each of which joins some of the factors; the copies
may then take different candidates, so the least price of the split problem, which elimination
finds, is a lower bound.  The price of a candidate is divided among the copies, and shifted from
those to which the candidate is cheap to those to which it is dear, which raises the bound.

For example, x joins factors f(x, a) and g(x, b), and a table over x, a and b is too large.  The
split problem has f(x1, a) and g(x2, b).  If x1 is cheapest at 0 and x2 at 1, then 0 is made dearer
to x1 and cheaper to x2 by the same amount, until both copies take 0, or both 1.

See Dechter and Rish, "Mini-buckets" (2003); Choi, Chavira and Darwiche, "Node splitting" (2007);
Ihler, Flerova, Dechter and Otten, "Join-graph based cost-shifting schemes" (2012).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import prod

import numpy as np
from msgspec import Struct

from graphflow.flow.branch_and_bound.conditioning import Conditioned
from graphflow.flow.elimination.elimination import Factor, eliminate_in_order
from graphflow.flow.elimination.marginals import extras
from graphflow.flow.elimination.prices import NEVER, Prices, Table, plus
from graphflow.flow.objective.factors import encode
from graphflow.flow.objective.patterns import Classes, Pattern


class PriceBounds(Struct, frozen=True):
    """`price` is the bound of every plan.

    By node and candidate, `extra` is how much higher the bound of plans with the candidate is, and
    `together` the sum of that over all copies of the node's variable: a node in which no candidate
    has 0 is one where the copies disagree.  `by_copy` has the same for each variable of the split
    problem, `own` the prices with which it was solved, and `shifted` how much any assignment can
    differ in price by what was shifted to that.
    """

    price: int
    extra: list[Table]
    together: list[Table]
    by_copy: Mapping[int, Table]
    own: list[Table]
    shifted: int

    def below(self, price: int) -> dict[int, Classes]:
        """By node the candidates that a plan cheaper than `price` may have."""
        return {n: np.flatnonzero(e < price - self.price) for n, e in enumerate(self.extra)}


class MiniBuckets(Struct, frozen=True):
    """A split problem: its variables and scopes, of which `origin` has the variable that each is a
    copy of, and an order in which no table over several factors exceeds the limit.
    """

    origin: list[int]
    scopes: list[tuple[int, ...]]
    order: list[int]


def mini_buckets(sizes: Sequence[int], scopes: Sequence[Sequence[int]], limit: int) -> MiniBuckets:
    """Split variables until elimination in a greedy order needs no table beyond `limit`."""
    return _Splitting(sizes, scopes, limit).run()


class _Splitting:
    """Elimination of scopes alone, in which each message knows the factors that are behind it."""

    def __init__(self, sizes: Sequence[int], scopes: Sequence[Sequence[int]], limit: int) -> None:
        self.sizes, self.limit = sizes, limit
        self.origin = list(range(len(sizes)))
        self.scopes = [tuple(scope) for scope in scopes]
        self.live: dict[int, tuple[frozenset[int], list[int]]] = {}
        self.touching: list[set[int]] = [set() for _ in sizes]
        self.next = 0
        for number, scope in enumerate(scopes):
            self._add(frozenset(scope), [number])

    def _add(self, scope: frozenset[int], behind: list[int]) -> None:
        self.live[self.next] = scope, behind
        for variable in scope:
            self.touching[variable].add(self.next)
        self.next += 1

    def _entries(self, scope: frozenset[int]) -> int:
        return prod(self.sizes[v] for v in scope)

    def _bucket(self, variable: int) -> frozenset[int]:
        return frozenset({variable}).union(*(self.live[n][0] for n in self.touching[variable]))

    def run(self) -> MiniBuckets:
        current = [self._entries(self._bucket(v)) for v in range(len(self.sizes))]
        heap = [(entries, v) for v, entries in enumerate(current)]
        heapify(heap)
        order: list[int] = []
        while heap:
            entries, variable = heappop(heap)
            if current[variable] != entries:
                continue
            current[variable] = 0
            around = self._bucket(variable) - {variable}
            order += self._eliminate(variable)
            for neighbour in sorted(around):
                again = self._entries(self._bucket(neighbour))
                if again != current[neighbour]:
                    current[neighbour] = again
                    heappush(heap, (again, neighbour))
        return MiniBuckets(self.origin, self.scopes, order)

    def _eliminate(self, variable: int) -> list[int]:
        """Eliminate a variable, split into as many copies as tables within the limit take."""
        parts = [self._taken(number) for number in sorted(self.touching[variable])]
        groups: list[tuple[frozenset[int], list[int]]] = []
        for scope, behind in sorted(parts, key=lambda part: -self._entries(part[0])):
            fitting = (
                k for k, (other, _) in enumerate(groups)
                if self._entries(scope | other) <= self.limit
            )  # fmt: skip
            k = next(fitting, len(groups))
            if k == len(groups):
                groups.append((frozenset(), []))
            groups[k] = groups[k][0] | scope, groups[k][1] + behind
        copies = [variable]
        for _, behind in groups[1:]:
            copies.append(len(self.origin))
            self.origin.append(variable)
            for number in behind:
                self.scopes[number] = tuple(
                    copies[-1] if v == variable else v for v in self.scopes[number]
                )
        for scope, behind in groups:
            self._add(scope - {variable}, behind)
        return copies

    def _taken(self, number: int) -> tuple[frozenset[int], list[int]]:
        scope, behind = self.live.pop(number)
        for variable in scope:
            self.touching[variable].discard(number)
        return scope, behind


class Relaxation:
    """The split problem of a `Conditioned` one.

    `copies` has the variables that are split, and their copies; `order` is the order of elimination
    and `entries` those of all its tables.
    """

    def __init__(
        self, problem: Conditioned, prices: Prices, shared: dict[Pattern, Table], limit: int
    ) -> None:
        encoding = encode(problem.own, problem.terms, prices, shared, limit)
        sizes = list(map(len, encoding.own))
        split = mini_buckets(sizes, [f.scope for f in encoding.factors], limit)
        self.order, self.entries = split.order, 0
        self._shifted = 0
        self._nodes = len(problem.own)
        self._factors = [
            _renamed(factor, scope)
            for factor, scope in zip(encoding.factors, split.scopes, strict=True)
        ]
        of = [[variable] for variable in range(len(sizes))]
        for copy in range(len(sizes), len(split.origin)):
            of[split.origin[copy]].append(copy)
        self.copies = {variable: copies for variable, copies in enumerate(of) if len(copies) > 1}
        self._own = [encoding.own[variable] for variable in split.origin]
        for variable, copies in self.copies.items():
            share = encoding.own[variable] // len(copies)
            rest = encoding.own[variable] - share * (len(copies) - 1)
            for copy in copies:
                part = rest if copy == variable else share
                self._own[copy] = np.where(encoding.own[variable] < NEVER, part, NEVER)

    def bounds(self) -> PriceBounds:
        """The bounds with the prices as they are shifted now."""
        reduced = eliminate_in_order(self._own, self._factors, self.order)
        self.entries = sum(b.best.size * len(self._own[b.variable]) for b in reduced.buckets)
        by_copy = extras(reduced)
        extra = [by_copy[node] for node in range(self._nodes)]
        together = list(extra)
        for node, copies in self.copies.items():
            if node < self._nodes:
                for copy in copies[1:]:
                    extra[node] = np.maximum(extra[node], by_copy[copy])
                    together[node] = plus(together[node], by_copy[copy])
        price = reduced.price()
        price = NEVER if price >= NEVER // 2 else price  # the impossible may have become cheaper
        return PriceBounds(price, extra, together, by_copy, self._own, self._shifted)

    def shift(self, bounds: PriceBounds, reach: int, step: float) -> bool:
        """Shift prices, from those of `bounds`, towards the copies to which candidates are dear.

        A step of 1 makes the copies agree on each candidate, were all else the same.  Extras beyond
        `reach` count as that; what is impossible to one copy becomes so to all.  False where so
        much was shifted that the impossible could become possible; then nothing is.
        """
        own, shifted = list(bounds.own), bounds.shifted
        for copies in self.copies.values():
            extra = np.array([bounds.by_copy[copy] for copy in copies])
            impossible = extra.max(0) >= NEVER // 2
            extra = np.minimum(extra, reach)
            amounts = ((extra.sum(0) // len(copies) - extra) * step).astype(np.int64)
            amounts[0] = -amounts[1:].sum(0)
            amounts[:, impossible] = 0
            shifted += int(np.abs(amounts).max(1).sum())
            for copy, amount in zip(copies, amounts, strict=True):
                own[copy] = np.where(impossible | (own[copy] >= NEVER), NEVER, own[copy] + amount)
        if shifted > NEVER // 4:
            return False
        self._own, self._shifted = own, shifted
        return True


def _renamed(factor: Factor, scope: Sequence[int]) -> Factor:
    """The factor over other variables, with axes in their order; its table is loaded once."""
    axes = sorted(range(len(scope)), key=lambda axis: scope[axis])
    table = factor.load().transpose(axes)
    return Factor(tuple(scope[axis] for axis in axes), lambda: table)
