"""Orders of elimination: which variable to eliminate after which, so that tables stay small.

In: the number of options of each variable, and the scopes of the factors.  Out: the order with the
fewest table entries in total of three that are found greedily, without computing any table: by the
entries of the next table, by the links that elimination adds between neighbours (min-fill), and by
these links weighted with the options at both ends.  Which of them is best depends on the graph, and
finding an order costs little beside following it.  See Bodlaender and Koster, "Treewidth
computations I: upper bounds" (2010).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations
from math import prod
from typing import TypeAlias

from msgspec import Struct

Links: TypeAlias = dict[int, set[int]]
"""By variable, the others with which it shares a factor."""

Score: TypeAlias = Callable[[Sequence[int], Mapping[int, set[int]], int], int]
"""From the sizes of all variables, the links, and a variable: the lowest score goes first."""


class Order(Struct, frozen=True):
    """Variables in the order of elimination, and the entries of all tables together."""

    variables: tuple[int, ...]
    entries: int


def best_order(
    sizes: Sequence[int],
    variables: Iterable[int],
    scopes: Iterable[Sequence[int]],
    limit: int,
    work: int,
) -> Order | None:
    """The order of all `variables` with the fewest entries.

    None if every order that was found has a table of more than `limit` entries, or tables of more
    than `work` entries together.
    """
    links = _links(variables, scopes)
    best: Order | None = None
    for score in (_entries, _fill, _weighted_fill):
        found = _greedy(sizes, links, score, limit, best.entries - 1 if best else work)
        best = found or best
    return best


def _links(variables: Iterable[int], scopes: Iterable[Sequence[int]]) -> Links:
    links: Links = {variable: set() for variable in variables}
    for scope in scopes:
        for a, b in combinations(scope, 2):
            links[a].add(b)
            links[b].add(a)
    return links


def _greedy(
    sizes: Sequence[int], links: Links, score: Score, limit: int, work: int
) -> Order | None:
    """The order by lowest score, of equal ones the lowest number; None beyond a limit."""
    links = {variable: set(around) for variable, around in links.items()}
    current = {variable: score(sizes, links, variable) for variable in links}
    heap = [(number, variable) for variable, number in current.items()]
    heapify(heap)
    order: list[int] = []
    spent = 0
    while heap:
        number, variable = heappop(heap)
        if current.get(variable) != number:
            continue
        entries = _entries(sizes, links, variable)
        spent += entries
        if entries > limit or spent > work:
            return None
        order.append(variable)
        del current[variable]
        for changed in _remove(links, variable):
            again = score(sizes, links, changed)
            if again != current[changed]:
                current[changed] = again
                heappush(heap, (again, changed))
    return Order(tuple(order), spent)


def _remove(links: Links, variable: int) -> list[int]:
    """Link the neighbours of a variable to each other; returns those whose score may change."""
    around = links.pop(variable)
    for neighbour in around:
        links[neighbour] |= around
        links[neighbour] -= {neighbour, variable}
    return sorted(around.union(*(links[neighbour] for neighbour in around)))


def _entries(sizes: Sequence[int], links: Mapping[int, set[int]], variable: int) -> int:
    """The entries of the table for eliminating the variable."""
    return sizes[variable] * prod(sizes[neighbour] for neighbour in links[variable])


def _fill(sizes: Sequence[int], links: Mapping[int, set[int]], variable: int) -> int:
    """How many links between neighbours of the variable are missing."""
    return sum(b not in links[a] for a, b in combinations(links[variable], 2))


def _weighted_fill(sizes: Sequence[int], links: Mapping[int, set[int]], variable: int) -> int:
    """The pairs of options at the ends of the missing links."""
    pairs = combinations(links[variable], 2)
    return sum(sizes[a] * sizes[b] for a, b in pairs if b not in links[a])
