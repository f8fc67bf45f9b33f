"""The cheapest plan of a network that is too large for elimination: best-first branch and bound.

In: prices and terms, and how much work the search may take.  Out: a `BoundedPlan`: the best plan
that was found, and a bound that no plan is below.  A node of the search tree is a `Conditioned`
problem.  It drops candidates that others dominate, and those with which, by the bounds of the
relaxation, no plan is cheaper than the best one known.  Where elimination can then solve the rest,
the search ends there; else it divides the candidates of one graph node in two.  The problem with
the lowest bound is taken next.  Plans are found by elimination too, in the neighbourhood of the
relaxation's optimum: of the candidates with the lowest bounds, as many as elimination can solve.
What always holds: work is counted in table entries, not in seconds, so the same input gives the
same plan.

See Marinescu and Dechter, "AND/OR branch-and-bound search for combinatorial optimization in
graphical models" (2009); Allouche et al., "Anytime hybrid best-first search with tree decomposition
for weighted CSP" (2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import numpy as np
from msgspec import Struct

from graphflow.flow.branch_and_bound.conditioning import Conditioned, TablesTooLarge
from graphflow.flow.branch_and_bound.dominance import undominated
from graphflow.flow.branch_and_bound.relaxation import PriceBounds, Relaxation
from graphflow.flow.elimination.elimination import Reduced, detours
from graphflow.flow.elimination.prices import NEVER, Prices, Table
from graphflow.flow.objective.patterns import Classes, Pattern
from graphflow.flow.objective.terms import Term

RELAXED_TABLE = 1 << 15
"""The most entries of a table of the relaxation over several factors."""

ROUNDS = 16
"""How often prices are shifted at most, to raise the bound of one problem."""

LEAST_STEP = 1 / 16
"""Shifting ends where steps, which are halved whenever the bound does not rise, are smaller."""

SHRUNK = 0.9
"""The part of its candidates that a problem has left if it is worth to be relaxed again."""

WIDEST = 1 / 64
"""The reach of the first neighbourhood, as a part of the bound."""

NARROWEST = 1 / 4096
"""The least reach, before each node has only its candidate with the lowest bound."""

ENOUGH = 0.01
"""The relative gap at which the search ends after `PATIENCE` problems: less than the errors of
prices.
"""

PATIENCE = 8

BOOKKEEPING = 1 << 11
"""The table entries that take as long as the bookkeeping for one table."""


class OutOfWork(Exception):
    """No plan was found within the limit of work, which does not prove that there is none."""


class Solved(Struct, frozen=True):
    """A problem that elimination solved: of each node it has the candidates with these numbers."""

    kept: tuple[Classes, ...]
    reduced: Reduced

    def detour(self, differing: Sequence[Table]) -> tuple[list[int], int] | None:
        """Its cheapest plan that takes a candidate whose price in `differing`, which has all
        candidates, is not `NEVER`: the numbers of the candidates, and the price; None if there is
        none."""
        own = [table[kept] for table, kept in zip(differing, self.kept, strict=True)]
        detour = detours(self.reduced, own).cheapest()
        if detour is None:
            return None
        return self.numbers(detour.options), self.reduced.price() + detour.extra

    def numbers(self, options: Sequence[int]) -> list[int]:
        """The numbers among all candidates of those that have the numbers `options` here."""
        chosen = zip(self.kept, options, strict=False)
        return [int(kept[option]) for kept, option in chosen]


class BoundedPlan(Struct, frozen=True):
    """The number of the chosen candidate of each node, with the `price` of the plan, which is the
    cheapest of what was `solved`; no plan is cheaper than `bound`.
    """

    options: list[int]
    price: int
    bound: int
    solved: Solved


def branch_and_bound(
    own: Sequence[Table],
    terms: Sequence[Term],
    prices: Prices,
    limit: int,
    work: int,
    differing: Sequence[Table] | None = None,
    best: BoundedPlan | None = None,
) -> BoundedPlan | None:
    """The cheapest plan, or the cheapest that takes a candidate whose price in `differing`, which
    has `NEVER` for all others, is not `NEVER`; None if there is none.

    Elimination may make tables of `limit` entries.  After `work` entries in all the best plan found
    is returned.  Where the `best` plan of all is known, the search for another one begins with the
    cheapest among those that it was found among, and that may be `ENOUGH`.  Raises OutOfWork where
    none was found.
    """
    search = _Search(own, terms, prices, max(limit, 1), work, differing)
    if differing is not None and best is not None:
        search.begin_beside(best, differing)
    return search.run()


class _Open(Struct, frozen=True, eq=False):
    """A problem that is not solved yet, and a price that no plan of it is below."""

    bound: int
    number: int
    problem: Conditioned


class _Search:
    """A search in progress: the best plan so far, and the problems that are open, by bound."""

    def __init__(
        self,
        own: Sequence[Table],
        terms: Sequence[Term],
        prices: Prices,
        limit: int,
        work: int,
        differing: Sequence[Table] | None,
    ) -> None:
        self.whole = Conditioned.whole(own, terms)
        self.prices, self.limit, self.work, self.differing = prices, limit, work, differing
        self.shared: dict[Pattern, Table] = {}
        self.options: list[int] | None = None
        self.solved: Solved | None = None
        self.price, self.floor, self.patience = NEVER, 0, PATIENCE
        self.open: list[_Open] = []
        self.made = 0
        self.reach: int | None = None

    def begin_beside(self, best: BoundedPlan, differing: Sequence[Table]) -> None:
        """Begin with the other plans among which the best one of all was found."""
        self.floor, self.patience = best.bound, 0
        detour = best.solved.detour(differing)
        if detour is not None:
            (self.options, self.price), self.solved = detour, best.solved

    def run(self) -> BoundedPlan | None:
        possible = {node: np.flatnonzero(own < NEVER) for node, own in enumerate(self.whole.own)}
        self._push(self.floor, self.whole.restricted(possible))
        while self.open and self.work > 0 and not self._enough():
            # The most recent problem leads to a plan soonest.
            taken = (
                self.open[-1]
                if self.options is None
                else min(self.open, key=attrgetter("bound", "number"))
            )
            self.open.remove(taken)
            self._divide(taken)
        if self.options is not None and self.solved is not None:
            return BoundedPlan(self.options, self.price, self._bound(), self.solved)
        if self.open:
            raise OutOfWork
        return None

    def _bound(self) -> int:
        return min([self.price, *(problem.bound for problem in self.open)])

    def _enough(self) -> bool:
        """Whether the best plan is good enough."""
        part = ENOUGH if self.made > self.patience and self.options is not None else 0.0
        return self.price - self._bound() <= part * self.price

    def _push(self, bound: int, problem: Conditioned) -> None:
        if problem.possible and bound < self.price:
            self.made += 1
            self.open.append(_Open(bound, self.made, problem))

    def _divide(self, taken: _Open) -> None:
        """Solve a problem, or push two that have its candidates between them, without those that
        are in no plan cheaper than the best one.
        """
        problem = taken.problem
        while True:
            if self.differing is None:  # the next best plan may take dominated candidates
                kept = undominated(dict(enumerate(problem.own)), problem.terms, self.prices)
                problem = problem.restricted(kept)
            if not problem.possible or self._solve(problem):
                return
            bounds = self._bounds(problem)
            if bounds.price >= self.price:
                return
            kept = bounds.below(min(self.price, NEVER // 2))
            smaller = problem.restricted(kept)
            if not smaller.possible:
                return
            if smaller.choices > SHRUNK * problem.choices:
                break
            problem = smaller
        node = max(kept, key=lambda n: (len(kept[n]) > 1, bounds.together[n].min(), len(kept[n])))
        order = kept[node][np.argsort(bounds.together[node][kept[node]], kind="stable")]
        for part in (np.sort(order[1:]), order[:1]):
            bound = bounds.price + int(bounds.extra[node][part].min())
            self._push(max(taken.bound, bound), problem.restricted(kept | {node: part}))

    def _solve(self, problem: Conditioned) -> bool:
        """Whether elimination solves a problem; a better plan is taken."""
        try:
            reduced = problem.eliminated(self.prices, self.shared, self.limit)
        except TablesTooLarge:
            self.work -= BOOKKEEPING * len(problem.own)
            return False
        self._spend(reduced)
        price, solved = reduced.price(), Solved(problem.kept, reduced)
        if price >= NEVER:
            return True
        if self.differing is None:
            options = [0] * len(reduced.own)
            reduced.complete(options)
            numbers = solved.numbers(options)
        else:
            detour = solved.detour(self.differing)
            self._spend(reduced)
            if detour is None:
                return True
            numbers, price = detour
        if price < self.price:
            self.options, self.price, self.solved = numbers, price, solved
        return True

    def _spend(self, reduced: Reduced) -> None:
        self.work -= sum(bucket.best.size for bucket in reduced.buckets)
        self.work -= BOOKKEEPING * len(reduced.buckets)

    def _bounds(self, problem: Conditioned) -> PriceBounds:
        """The bounds by the relaxation, raised by shifting prices while a better plan may exist."""
        limit = min(self.limit, RELAXED_TABLE)
        relaxation = Relaxation(problem, self.prices, self.shared, limit)
        best = relaxation.bounds()
        if self.options is None:
            self._try_neighbourhood(problem, best)
        step = 1.0
        for _ in range(ROUNDS):
            if best.price >= self.price or step < LEAST_STEP or not relaxation.copies:
                break
            self.work -= 2 * (relaxation.entries + BOOKKEEPING * len(relaxation.order))
            reach = self.price - best.price if self.price < NEVER else best.price // 8
            if not relaxation.shift(best, reach, step):
                break
            raised = relaxation.bounds()
            if raised.price > best.price:
                best = raised
            else:
                step /= 2
        if best.price < self.price:
            self._try_neighbourhood(problem, best)
        return best

    def _try_neighbourhood(self, problem: Conditioned, bounds: PriceBounds) -> None:
        """Solve the problem of the candidates within reach of the lowest bound; what is too large
        is tried with half the reach, and so are all later ones.
        """
        if bounds.price >= NEVER:
            return
        if self.reach is None:
            self.reach = int(bounds.price * WIDEST)
        while True:
            near = {
                node: np.flatnonzero(extra <= extra.min() + self.reach)[: None if self.reach else 1]
                for node, extra in enumerate(bounds.together)
            }
            if self._solve(problem.restricted(near)) or not self.reach:
                return
            self.reach = self.reach // 2 if self.reach > bounds.price * NARROWEST else 0
