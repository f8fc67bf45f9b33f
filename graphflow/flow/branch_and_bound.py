"""Branch and bound: the cheapest 0/1 columns of a program whose relaxation bounds it.

In: a `Relaxation`, what is known of its price, and the time.  Out: a `Search`: the cheapest columns
that were found, and a bound that always holds.  A node of the search fixes some columns at 0 or 1;
its relaxation bounds all that is below it, and columns whose reduced cost exceeds what is left up
to the best price are fixed at 0.  The node with the lowest bound is taken next, and from it the
search dives: it fixes the column that is most nearly undecided at 1, then the next, until the
relaxation is integral or too dear.  See Land and Doig (1960); Achterberg, "Constraint Integer
Programming" (2007).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import TypeAlias

import numpy as np

from graphflow.flow.highs import Floats, OutOfTime, Relaxation, Relaxed

RELATIVE_GAP = 1e-6
"""The relative gap at which the search ends: no solution cheaper by less than this is searched
for.
"""

ENOUGH = 0.01
"""The relative gap at which the search ends after `PATIENCE` nodes: less than the errors of prices,
and what is left takes long where it was not found at once.
"""

PATIENCE = 8
"""Nodes, not seconds: the plan of a graph may not depend on how busy the machine is."""

INTEGRAL = 1e-6
"""The distance from 0 or 1 up to which a column of the relaxation counts as integral."""

ROUNDING = 1e-9
"""The relative error that a bound may have from being summed in floats."""

NARROWEST = 1 / 1024
"""The least part of the distance from a bound to the best price that is tried in narrowing."""

Solved: TypeAlias = tuple[float, object]
"""The price of a solution and the solution: the columns that are 1, or one of the caller's."""

Close: TypeAlias = Callable[[Floats, Floats], Solved | None]
"""Finds the cheapest solution with columns between two bounds, or among more solutions than these;
None if there is none.  Raises OutOfTime where it cannot.
"""


@dataclass(frozen=True)
class Search:
    """The cheapest solution that was found, with its price, and a price that none is below.

    There is none if `solution` is None; then the price is infinite.
    """

    solution: object | None
    price: float
    bound: float


@dataclass(frozen=True)
class _Node:
    """The columns that may be other than 0 (`upper`) and must be 1 (`lower`), and a bound."""

    bound: float
    lower: Floats
    upper: Floats


class BranchAndBound:
    """A search in progress.

    The first `deciding` columns are fixed before all others, which mostly follow from them.
    `known` gives a solution that is found otherwise; it is asked for if the first relaxation is not
    integral.  Where `close` can solve a node, the search does not go below it.
    Columns with `upper` 0 stay 0.
    """

    def __init__(
        self,
        relaxation: Relaxation,
        seconds: float,
        deciding: int,
        known: Callable[[], Solved | None] = lambda: None,
        close: Close | None = None,
        upper: Floats | None = None,
    ) -> None:
        self.relaxation, self.deciding = relaxation, deciding
        self.known, self.close = known, close
        self.upper = np.ones(len(relaxation.costs)) if upper is None else upper
        self.ends = time.perf_counter() + seconds
        self.solution: object | None = None
        self.price = inf
        self.open: list[tuple[float, int, _Node]] = []
        self.made = 0
        self.passed = inf
        """The lowest bound of a node that was not searched because of its bound."""

    def run(self) -> Search:
        """The outcome.  Raises OutOfTime if time ends without a solution, known or found."""
        self._push(_Node(-inf, np.zeros(len(self.upper)), self.upper))
        while self.open and self._promising(self.open[0][0]) and not self._enough():
            _, _, node = heappop(self.open)
            child: _Node | None = node
            try:
                while child is not None:
                    node = child
                    child = self._step(node)
            except OutOfTime:
                self._push(node)
                break
        if self.price == inf and self.open:
            raise OutOfTime
        bound = min(self.price, self.passed, *(bound for bound, _, _ in self.open[:1]))
        exact = bound >= self.price - ROUNDING * abs(self.price)
        return Search(self.solution, self.price, self.price if exact else bound)

    def _push(self, node: _Node) -> None:
        self.made += 1
        heappush(self.open, (node.bound, self.made, node))

    def _promising(self, bound: float) -> bool:
        return self.price == inf or bound < self.price - RELATIVE_GAP * abs(self.price)

    def _enough(self) -> bool:
        """Whether the best solution is good enough for the nodes that the search made."""
        if self.price == inf or self.made <= PATIENCE:
            return False
        return self.price - self.open[0][0] <= ENOUGH * abs(self.price)

    def _step(self, node: _Node) -> _Node | None:
        """Solve the relaxation of a node; the child to go on with, None where the dive ends."""
        left = self.ends - time.perf_counter()
        if left <= 0:
            raise OutOfTime
        found = self.relaxation.solve(node.lower, node.upper, left)
        if found is None:
            return None
        if not self._promising(found.bound):
            self.passed = min(self.passed, found.bound)
            return None
        if np.abs(found.columns - found.columns.round()).max(initial=0.0) <= INTEGRAL:
            taken = found.columns > 0.5
            self._take((float(self.relaxation.costs @ taken), taken))
            self.passed = min(self.passed, found.bound)
            return None
        if self.made == 1:
            self._take(self.known())
        if self.close is not None and self._closed(node, found, self.close):
            return None
        return self._branch(found, node)

    def _take(self, found: Solved | None) -> None:
        if found is not None and found[0] < self.price:
            self.price, self.solution = found

    def _closed(self, node: _Node, found: Relaxed, close: Close) -> bool:
        """Whether the node needs no search: nothing in it is cheaper than the best solution.

        If `close` cannot solve all columns that a cheaper solution may have, those with the lowest
        reduced costs give a better solution, with which there may be fewer; this is tried at the
        first node alone.
        """
        reach = self.price - found.bound if self.price < inf else abs(found.bound)
        while reach > 0:
            ceiling = found.bound + reach
            try:
                solved = close(node.lower, _below(node, found, ceiling))
            except OutOfTime:
                if self.made > 1 or reach < NARROWEST * abs(found.bound):
                    return False
                reach /= 2
                continue
            self._take(solved)
            if self.price <= ceiling:
                return True
            try:
                solved = close(node.lower, _below(node, found, self.price))
            except OutOfTime:
                return False
            self._take(solved)
            return self.price < inf
        return False

    def _branch(self, found: Relaxed, node: _Node) -> _Node:
        upper = _below(node, found, self.price)
        bound = max(found.bound, node.bound)
        away = np.abs(found.columns - found.columns.round())
        undecided = away[: self.deciding].max(initial=0.0) > INTEGRAL
        column = int(away[: self.deciding if undecided else None].argmax())
        at = np.arange(len(upper)) == column
        self._push(_Node(bound, node.lower, np.where(at, 0.0, upper)))
        return _Node(bound, np.where(at, 1.0, node.lower), upper)


def _below(node: _Node, found: Relaxed, price: float) -> Floats:
    """The upper bounds of columns in solutions of the node that are cheaper than `price`."""
    return np.where(found.bound + found.reduced >= price, node.lower, node.upper)
