"""Bucket elimination: exact minimization of a sum of cost tables, one variable at a time.

In: a price for each option of each variable, and factors, each a table over a few variables.  Out:
a `Reduced`: the buckets of eliminated variables, and the factors that are left.  Eliminating a
variable adds up all tables over it and minimizes over its options; the resulting table over its
neighbours, the message, is a new factor, and the bucket keeps the best option for each choice of
the neighbours.  The variable with the smallest table is eliminated first, of equal ones the lowest
number, so the order depends on the graph alone.  Most networks have small tree width, so the tables
stay small.  What small tables do not solve, the core, is eliminated in the best order that is found
before (`orders`), if its tables are within limits; else it is left.

A detour is an assignment that differs from the best one in at least one variable.  Its least price
is propagated in a second set of messages, in which exactly one of the parts of a bucket differs.
See Dechter, "Bucket elimination" (1999).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import prod
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.flow.elimination.orders import best_order
from graphflow.flow.elimination.prices import NEVER, Table, added, but_one, plus

Scope = tuple[int, ...]

SMALL_TABLE = 1 << 15
"""The most entries of a table that is made without looking for a better order: four variables of
thirteen options each.
"""

CORE_WORK = 1 << 23
"""The most entries of all tables of a core together.  An entry takes some 30 ns, and three times as
long if the next best plan and the prices of all candidates are asked for too.
"""


@dataclass(eq=False)
class Factor:
    """A table of prices over the variables in `scope`, ascending; an axis for each.

    `bucket` is the number of the bucket whose message it is, None for a factor of the input.
    """

    scope: Scope
    load: Callable[[], Table]
    bucket: int | None = None

    def over(self, full_scope: Scope) -> Table:
        """The table with an axis for each variable of the larger scope `full_scope`."""
        return spread(self.load(), self.scope, full_scope)


def spread(table: Table, scope: Scope, full_scope: Scope) -> Table:
    """`table` over `scope`, with an axis of length one for each other variable of `full_scope`."""
    sizes = iter(table.shape)
    return table.reshape([next(sizes) if v in scope else 1 for v in full_scope])


@dataclass(eq=False)
class Bucket:
    """One eliminated variable, the factors that were over it (`parts`) and its neighbours
    (`scope`).

    `best` is the variable's cheapest option by the options of the neighbours.
    """

    variable: int
    parts: list[Factor]
    scope: Scope
    best: NDArray[np.unsignedinteger[Any]]

    @property
    def full_scope(self) -> Scope:
        """The variable and its neighbours, ascending."""
        return tuple(sorted((*self.scope, self.variable)))


@dataclass(eq=False)
class Reduced:
    """The result of elimination; `remaining` are the factors that are left, messages among them."""

    own: Sequence[Table]
    buckets: list[Bucket]
    remaining: list[Factor]

    def roots(self) -> list[Factor]:
        """The messages over no variable: each is the least price of a connected part that is
        solved.
        """
        return [factor for factor in self.remaining if not factor.scope]

    def price(self) -> int:
        """The least price, if all variables are eliminated; `NEVER` where there is none."""
        return min(sum(int(root.load()) for root in self.roots()), NEVER)

    def left(self) -> set[int]:
        """The variables that were not eliminated."""
        return set(range(len(self.own))) - {bucket.variable for bucket in self.buckets}

    def complete(self, chosen: list[int]) -> None:
        """Set the options of the eliminated variables in `chosen` to the best for those of the
        others.
        """
        for bucket in reversed(self.buckets):
            chosen[bucket.variable] = int(bucket.best[tuple(chosen[v] for v in bucket.scope)])


class _Elimination:
    """The state of an elimination: the factors that are left, and which of them each variable is
    in.
    """

    def __init__(self, own: Sequence[Table], factors: Sequence[Factor], limit: int) -> None:
        self.own, self.most = own, limit
        self.limit = min(limit, SMALL_TABLE)
        self.sizes = [len(prices) for prices in own]
        self.buckets: list[Bucket] = []
        self.factors: dict[int, Factor] = {}
        self.touching: list[dict[int, Factor]] = [{} for _ in own]
        self.joining: list[dict[int, Factor]] = [{} for _ in own]
        """Of the factors that each variable is in, those over several variables."""
        self.blocked = [False] * len(own)
        self.next = 0
        for factor in factors:
            self._add(factor)

    def _add(self, factor: Factor) -> None:
        self.factors[self.next] = factor
        blocked = self._large(factor, self.limit)
        for variable in factor.scope:
            self.touching[variable][self.next] = factor
            if len(factor.scope) > 1:
                self.joining[variable][self.next] = factor
            self.blocked[variable] |= blocked
        self.next += 1

    def _large(self, factor: Factor, limit: int) -> bool:
        return prod(self.sizes[v] for v in factor.scope) > limit

    def run(self) -> Reduced:
        current = [self._size(v) for v in range(len(self.own))]
        heap = [(size, v) for v, size in enumerate(current) if size <= self.limit]
        heapify(heap)
        while heap:
            size, variable = heappop(heap)
            if size != current[variable]:
                continue
            current[variable] = 0
            for neighbour in self._eliminate(variable):
                current[neighbour] = self._size(neighbour)
                if current[neighbour] <= self.limit:
                    heappush(heap, (current[neighbour], neighbour))
        self._eliminate_core()
        return self.reduced()

    def follow(self, order: Iterable[int]) -> Reduced:
        for variable in order:
            self._eliminate(variable)
        return self.reduced()

    def reduced(self) -> Reduced:
        return Reduced(self.own, self.buckets, list(self.factors.values()))

    def _eliminate_core(self) -> None:
        """Eliminate each connected part of what is left, if that is within limits."""
        gone = {bucket.variable for bucket in self.buckets}
        left = [v for v in range(len(self.own)) if v not in gone]
        work = CORE_WORK
        for part in self._connected(left):
            factors = {n: f for v in part for n, f in self.touching[v].items()}.values()
            if any(self._large(f, self.most) for f in factors):
                continue
            order = best_order(self.sizes, part, [f.scope for f in factors], self.most, work)
            if order is not None:
                work -= order.entries
                for variable in order.variables:
                    self._eliminate(variable)

    def _connected(self, variables: Sequence[int]) -> list[list[int]]:
        """The connected parts of these variables, each ascending, in the order of the lowest."""
        found: list[list[int]] = []
        seen: set[int] = set()
        for start in variables:
            if start in seen:
                continue
            seen.add(start)
            part = [start]
            for variable in part:  # grows
                around = self._around(variable) - seen
                seen |= around
                part += sorted(around)
            found.append(sorted(part))
        return found

    def _size(self, variable: int) -> int:
        """The entries of the table for eliminating `variable`; more than the limit where that may
        not be.
        """
        if self.blocked[variable]:
            return self.limit + 1
        around, entries = {variable}, self.sizes[variable]
        for factor in self.joining[variable].values():
            for neighbour in factor.scope:
                if neighbour not in around:
                    around.add(neighbour)
                    entries *= self.sizes[neighbour]
            if entries > self.limit:  # a variable with thousands of neighbours is asked as often
                return self.limit + 1
        return entries

    def _around(self, variable: int) -> set[int]:
        """The neighbours of a variable: all others with which it shares a factor."""
        return {v for f in self.joining[variable].values() for v in f.scope if v != variable}

    def _eliminate(self, variable: int) -> Scope:
        scope = tuple(sorted(self._around(variable)))
        parts = dict(self.touching[variable])
        for number, factor in parts.items():
            del self.factors[number]
            for v in factor.scope:
                del self.touching[v][number]
                self.joining[v].pop(number, None)
        full_scope = tuple(sorted((*scope, variable)))
        total = np.empty([self.sizes[v] for v in full_scope], np.int64)
        total[...] = spread(self.own[variable], (variable,), full_scope)
        for factor in parts.values():
            added(total, factor.over(full_scope))
        axis = full_scope.index(variable)
        least = total.min(axis)
        message = Factor(scope, lambda: least, bucket=len(self.buckets))
        best = total.argmin(axis).astype(np.min_scalar_type(self.sizes[variable]))
        self.buckets.append(Bucket(variable, list(parts.values()), scope, best))
        self._add(message)
        return scope


def eliminate(own: Sequence[Table], factors: Sequence[Factor], limit: int) -> Reduced:
    """Eliminate every variable with a small table, and then the rest if no table exceeds `limit`.

    `own` has the prices of each variable's options.
    """
    return _Elimination(own, factors, limit).run()


def eliminate_in_order(
    own: Sequence[Table], factors: Sequence[Factor], order: Iterable[int]
) -> Reduced:
    """Eliminate the variables in this order, whatever tables that needs."""
    return _Elimination(own, factors, 0).follow(order)


class Detour(Struct, frozen=True):
    """An assignment, and its price above that of the best one."""

    options: list[int]
    extra: int


@dataclass(eq=False)
class Detours:
    """The least prices of detours: `own` where the variable itself differs, `messages` by bucket.

    `own[v][k]` is the price of option k if that counts as different, else `NEVER`.
    """

    reduced: Reduced
    own: Sequence[Table]
    messages: list[Table]

    def price(self, factor: Factor) -> Table | None:
        """The least prices of detours behind a factor; None for a factor that is no message."""
        return None if factor.bucket is None else self.messages[factor.bucket]

    def cheapest(self) -> Detour | None:
        """The cheapest detour; None if there is none."""
        ways = []
        for root in self.reduced.roots():
            around = self.price(root)
            if around is not None and around < NEVER:
                ways.append((int(around) - int(root.load()), root.bucket))
        if not ways:
            return None
        extra, inside = min(ways, key=lambda way: way[0])
        return Detour(self._options(inside), extra)

    def _options(self, inside: int | None) -> list[int]:
        """The options of all variables, with the detour inside this bucket."""
        chosen = [0] * len(self.own)
        for number in reversed(range(len(self.reduced.buckets))):
            bucket = self.reduced.buckets[number]
            if number != inside:
                at = tuple(chosen[v] for v in bucket.scope)
                chosen[bucket.variable] = int(bucket.best[at])
                continue
            neighbours = {v: chosen[v] for v in bucket.scope}
            ways = _ways(self, bucket, neighbours)
            taken = min(range(len(ways)), key=lambda k: (int(ways[k][1].min()), k))
            chosen[bucket.variable] = int(ways[taken][1].argmin())
            inside = ways[taken][0]
        return chosen


def _parts(
    detours: Detours, bucket: Bucket
) -> Iterator[tuple[int | None, Scope, Table, Table | None]]:
    """For each part of a bucket, and first the variable itself: the bucket it is the message of,
    its scope, its prices, and its prices if it differs, None if it cannot.
    """
    variable = bucket.variable
    yield None, (variable,), detours.reduced.own[variable], detours.own[variable]
    for factor in bucket.parts:
        yield factor.bucket, factor.scope, factor.load(), detours.price(factor)


def _ways(
    detours: Detours, bucket: Bucket, chosen: Mapping[int, int]
) -> list[tuple[int | None, Table]]:
    """For each part of a bucket that can differ: the bucket it is the message of, and by option of
    the variable the price if it does, where the neighbours are `chosen`.
    """
    parts = [
        (origin, _at(table, scope, chosen), None if way is None else _at(way, scope, chosen))
        for origin, scope, table, way in _parts(detours, bucket)
    ]
    others = but_one([table for _, table, _ in parts])
    return [
        (origin, plus(way, beside))
        for (origin, _, way), beside in zip(parts, others, strict=True)
        if way is not None
    ]


def _at(table: Table, scope: Scope, chosen: Mapping[int, int]) -> Table:
    """`table` by the option of the one variable of `scope` that is not chosen."""
    return np.asarray(table[tuple(chosen.get(v, slice(None)) for v in scope)], np.int64)


def _least(detours: Detours, bucket: Bucket) -> Table:
    """The least price of a detour in the bucket or behind it, by the options of the neighbours.

    One pass over the parts: the price without a difference so far, and the least price with one.
    """
    full_scope = bucket.full_scope
    same = np.zeros([len(detours.own[v]) for v in full_scope], np.int64)
    differing = np.full(same.shape, NEVER, np.int64)
    for _, scope, table, way in _parts(detours, bucket):
        prices = spread(table, scope, full_scope)
        added(differing, prices)
        if way is not None:
            np.minimum(differing, plus(same, spread(way, scope, full_scope)), out=differing)
        added(same, prices)
    return np.asarray(differing.min(full_scope.index(bucket.variable)), np.int64)


def detours(reduced: Reduced, own: Sequence[Table]) -> Detours:
    """The detours of what was eliminated, propagated in the order of elimination.

    Variables behind those in `own`, which are hidden, are never different themselves.
    """
    hidden = [np.full_like(prices, NEVER) for prices in reduced.own[len(own) :]]
    found = Detours(reduced, [*own, *hidden], [])
    for bucket in reduced.buckets:
        found.messages.append(_least(found, bucket))
    return found
