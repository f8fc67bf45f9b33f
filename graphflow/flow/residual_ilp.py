"""The integer program for what elimination leaves: candidates of nodes, and copies of values.

In: the nodes of one connected part, the terms between them, and the messages of the branches that
were eliminated around them.  Out: an `IlpSolution`.  There is a 0/1 column for each candidate of a
node and for each possible copy.  The rows say that each node takes one candidate; that each
requirement of a taken candidate is satisfied by the production or by a copy; that a value is inside
at most one other tensor; and that a fill overwrites no padding that another reader relies on.  A
message adds to the prices of the candidates of its node.  Candidates that others dominate are left
out.  Where elimination can solve the rest it does; else branch and bound with the relaxation does,
until elimination can solve what a better assignment may still have.  What always holds: columns are
in a stable order, and the result is the same unless time runs out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from graphflow.cost import Price
from graphflow.flow.branch_and_bound import BranchAndBound, Solved
from graphflow.flow.copies import Copy
from graphflow.flow.dominance import undominated
from graphflow.flow.elimination import Detours, Factor
from graphflow.flow.highs import Floats, OutOfTime, Relaxation
from graphflow.flow.narrowing import narrowed
from graphflow.flow.patterns import Classes
from graphflow.flow.prices import NEVER, Prices, Table, plus
from graphflow.flow.requirements import InputAliasing, OperandRequirement
from graphflow.flow.terms import Term
from graphflow.kernels.recipes import memory_key


@dataclass(frozen=True)
class IlpSolution:
    """The chosen option of each variable and the copies of each value, with their `price`.

    `bound` is a price that no assignment is below.  If the solution is a detour that differs only
    in an eliminated branch, `inside` is the bucket of that branch's message.
    """

    options: dict[int, int]
    copies: dict[str, tuple[Copy, ...]]
    price: int
    bound: int
    inside: int | None = None


@dataclass
class _Matrix:
    """The columns and rows (compressed, row by row) of an integer program under construction."""

    costs: list[float] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)

    def copy(self) -> _Matrix:
        return _Matrix(*(list(part) for part in vars(self).values()))

    def variable(self, cost: float) -> int:
        self.costs.append(cost)
        return len(self.costs) - 1

    def constrain(
        self, added: Iterable[int], taken: Iterable[int] = (), low: float = -np.inf,
        high: float = np.inf,
    ) -> None:  # fmt: skip
        """Add the row `low <= Σ added - Σ taken <= high`; a column counts as often as it is
        listed.
        """
        row: dict[int, float] = {}
        for columns, sign in ((added, 1.0), (taken, -1.0)):
            for column in columns:
                row[column] = row.get(column, 0.0) + sign
        self.columns += row
        self.values += row.values()
        self.starts.append(len(self.columns))
        self.lower.append(low)
        self.upper.append(high)

    def relaxation(self) -> Relaxation:
        """The relaxation; costs are in units of `scale`."""
        scale = self.scale
        costs = [cost / scale for cost in self.costs]
        return Relaxation(costs, self.values, self.columns, self.starts, self.lower, self.upper)

    @property
    def scale(self) -> float:
        """The largest cost of a column, in seconds."""
        return max(max(self.costs), 1e-12)


class ResidualIlp:
    """The integer program of one connected part: `variables` and the `terms` between them.

    Each of the `messages` is a factor over one of the variables; its prices are added to theirs.
    """

    def __init__(
        self,
        own: Sequence[Table],
        variables: Sequence[int],
        terms: Sequence[Term],
        messages: Sequence[Factor],
        prices: Prices,
        limit: int,
    ) -> None:
        self.variables, self.terms, self.messages = variables, terms, messages
        self.prices, self.limit = prices, limit
        self.own: dict[int, Table] = {v: own[v] for v in variables}
        for message in messages:
            (v,) = message.scope
            self.own[v] = plus(self.own[v], message.load())
        self.matrix = _Matrix()
        self.deciding = 0
        self.options: dict[int, list[int]] = {}
        self.copies: dict[str, list[int]] = {}
        self._write()

    @cached_property
    def around(self) -> dict[int, list[Term]]:
        """For each variable the terms that depend on it."""
        found: dict[int, list[Term]] = {v: [] for v in self.variables}
        for term in self.terms:
            for v in term.scope:
                found[v].append(term)
        return found

    def floor(self) -> int:
        """A price that no assignment is below: the least price of each variable, and no copies."""
        return sum(int(prices.min()) for prices in self.own.values())

    def outcome(
        self, options: dict[int, int], copies: dict[str, tuple[Copy, ...]], bound: int
    ) -> IlpSolution:
        """An assignment with its price and a bound."""
        price = sum(int(self.own[v][k]) for v, k in options.items())
        price += sum(self.prices.copy(c) for made in copies.values() for c in made)
        return IlpSolution(options, copies, price, min(price, bound))

    def solve(
        self, seconds: float, known: Callable[[], IlpSolution | None] = lambda: None
    ) -> IlpSolution | None:
        """The cheapest assignment; None if there is none.

        Without time for the cheapest it is the best that was found, where `known` gives one to
        begin with.  Raises OutOfTime if none was found.
        """

        kept = undominated(self.own, self.terms, self.prices)
        if self.limit:
            try:
                alone = narrowed(self.own, self.terms, kept, self.prices, self.limit)
            except OutOfTime:
                pass  # tables are too large even for the candidates that are left
            else:
                return None if alone is None else self._exact(*alone)

        def begin() -> Solved | None:
            found = known()
            return None if found is None else (self._cost(found.price) / scale, found)

        scale = self.matrix.scale
        close = self._closed if self.limit else None
        relaxation = self.matrix.relaxation()
        upper = np.ones(len(self.matrix.costs))
        for v, columns in self.options.items():
            upper[np.delete(columns, kept[v])] = 0.0
        found = BranchAndBound(relaxation, seconds, self.deciding, begin, close, upper).run()
        if found.solution is None:
            return None
        taken = self._assigned(found.solution)
        if found.bound < found.price:
            return replace(taken, bound=self.prices.of(max(found.bound, 0.0) * scale, 0))
        return replace(taken, bound=taken.price)

    def _exact(self, options: dict[int, int], copies: dict[str, tuple[Copy, ...]]) -> IlpSolution:
        """An assignment that is the cheapest."""
        found = self.outcome(options, copies, 0)
        return replace(found, bound=found.price)

    def _closed(self, lower: Floats, upper: Floats) -> Solved | None:
        """The cheapest assignment of options between these bounds of their columns.

        Columns of copies are left free, so that it may be cheaper than any between the bounds.
        """
        kept = {}
        for v, columns in self.options.items():
            fixed = lower[columns] > 0
            possible = fixed if fixed.any() else (upper[columns] > 0) & (self.own[v] < NEVER)
            kept[v] = np.flatnonzero(possible)
        found = narrowed(self.own, self.terms, kept, self.prices, self.limit)
        if found is None:
            return None
        outcome = self.outcome(*found, 0)
        return self._cost(outcome.price) / self.matrix.scale, outcome

    def _assigned(self, solution: object) -> IlpSolution:
        if isinstance(solution, IlpSolution):
            return solution
        assert isinstance(solution, np.ndarray), "else it is the columns that are 1"
        return self._outcome(solution.tolist())

    def detour(self, detours: Detours, seconds: float) -> IlpSolution | None:
        """The cheapest assignment that differs in one of these variables, or in a branch behind a
        message.

        None if there is none; raises OutOfTime where none was found in `seconds`.
        """
        matrix = self.matrix.copy()
        behind: dict[int, tuple[int, int]] = {}
        differing = [
            column
            for v in self.variables
            for column, price in zip(self.options[v], detours.own[v], strict=True)
            if price < NEVER
        ]
        for message in self.messages:
            around, direct = detours.price(message), message.load()
            assert around is not None, "only messages are in the list"
            assert message.bucket is not None, "messages come from buckets"
            for k, option in enumerate(self.options[message.scope[0]]):
                if around[k] < NEVER:
                    extra = int(around[k]) - int(direct[k])
                    column = matrix.variable(self._cost(extra))
                    matrix.constrain([option], [column], low=0)
                    behind[column] = message.bucket, extra
        matrix.constrain([*differing, *behind], low=1)
        found = BranchAndBound(matrix.relaxation(), seconds, self.deciding).run()
        if not isinstance(found.solution, np.ndarray):
            return None
        taken: list[bool] = found.solution.tolist()
        outcome = self._outcome(taken)
        if any(taken[column] for column in differing):
            return outcome
        bucket, extra = next(behind[column] for column in behind if taken[column])
        return replace(outcome, price=outcome.price + extra, inside=bucket)

    def _cost(self, price: int) -> float:
        return price / (self.prices.scale * (1 << self.prices.bits))

    def _outcome(self, taken: list[bool]) -> IlpSolution:
        options = {
            v: next(k for k, c in enumerate(columns) if taken[c])
            for v, columns in self.options.items()
        }
        copies = {
            t.value: tuple(
                copy
                for copy, column in zip(
                    t.pattern.made(t.production(options)), self.copies[t.value], strict=True
                )
                if taken[column]
            )
            for t in self.terms
        }
        return self.outcome(options, copies, 0)

    # Rows ----------------------------------------------------------------------------------------

    def _write(self) -> None:
        for v, prices in self.own.items():
            possible = prices < NEVER
            costs = np.where(possible, prices, 0)
            columns = [self.matrix.variable(self._cost(int(cost))) for cost in costs]
            self.options[v] = columns
            self.deciding = len(self.matrix.costs)
            self.matrix.constrain([columns[k] for k in np.flatnonzero(possible)], low=1, high=1)
            if not possible.all():
                self.matrix.constrain([columns[k] for k in np.flatnonzero(~possible)], high=0)
        for term in self.terms:
            self._term(term)

    def _of(self, variable: int, classes: Classes, wanted: Iterable[int]) -> list[int]:
        """The columns of those options of a variable whose class is one of `wanted`."""
        among = set(wanted)
        pairs = zip(self.options[variable], classes.tolist(), strict=True)
        return [option for option, number in pairs if number in among]

    def _term(self, term: Term) -> None:
        pattern, matrix = term.pattern, self.matrix
        copies = [self._copy(term, prices) for prices in zip(*pattern.prices, strict=True)]
        self.copies[term.value] = copies
        for copy, column in zip(pattern.copies, copies, strict=True):
            able = [g for g in range(len(pattern.productions)) if pattern.makes(g, copy)]
            if len(able) < len(pattern.productions):
                producers, fixed = self._producers(term, able)
                matrix.constrain(producers, [column], low=-fixed)
        for requirement in pattern.output:
            self._satisfy(term, requirement, [], 1)
        for variable, classes, requirements in zip(
            term.readers, term.reader_classes, pattern.readers, strict=True
        ):
            fixed = int(len(requirements) == 1)
            for requirement, where in _distinct_requirements(requirements):
                readers = [] if fixed else self._of(variable, classes, where)
                self._satisfy(term, requirement, readers, fixed)
                for c in pattern.disturbing(requirement):
                    matrix.constrain([*readers, copies[c]], high=1 - fixed)
        self._exclude_aliasings(term)

    def _copy(self, term: Term, by_edge_type: Sequence[Price]) -> int:
        """The column of one copy, priced by the edge type that it is made from.

        The column costs what the copy costs from the cheapest edge type.  For each dearer price
        there is one more column, which costs the difference; its row makes it 1 if the copy is made
        and the producer gives an edge type of that price.
        """
        prices = [self.prices.copy(price) for price in by_edge_type]
        least = min(prices)
        copy = self.matrix.variable(self._cost(least))
        for price in sorted(set(prices) - {least}):
            edge_types = [g for g, p in enumerate(prices) if p == price]
            producers, always = self._producers(term, edge_types)
            extra = self.matrix.variable(self._cost(price - least))
            self.matrix.constrain([extra], [copy, *producers], low=always - 1)
        return copy

    def _exclude_aliasings(self, term: Term) -> None:
        """Rows for aliasing: at most one reader contains the value, and not as a box that is no
        contiguous piece if another reader needs it contiguous.
        """
        found: dict[InputAliasing, list[int]] = {aliasing: [] for aliasing in InputAliasing}
        fixed = dict.fromkeys(InputAliasing, 0)
        for variable, classes, requirements in zip(
            term.readers, term.reader_classes, term.pattern.readers, strict=True
        ):
            for number, group in enumerate(requirements):
                for requirement in group:
                    if len(requirements) > 1:
                        found[requirement.input_aliasing] += self._of(variable, classes, [number])
                    else:
                        fixed[requirement.input_aliasing] += 1
        inside = [aliasing for aliasing in InputAliasing if aliasing.inside_output]
        windows = [column for aliasing in inside for column in found[aliasing]]
        placed = sum(fixed[aliasing] for aliasing in inside)
        if len(windows) + placed > 1:
            self.matrix.constrain(windows, high=1 - placed)
        contiguous = [aliasing for aliasing in InputAliasing if aliasing.contiguous]
        boxes = found[InputAliasing.INSIDE_OUTPUT]
        pieces = [column for aliasing in contiguous for column in found[aliasing]]
        boxed = fixed[InputAliasing.INSIDE_OUTPUT]
        needed = sum(fixed[aliasing] for aliasing in contiguous)
        if boxed:
            self.matrix.constrain(pieces, high=-needed)
        if needed:
            self.matrix.constrain(boxes, high=-boxed)
        for box in boxes:
            for piece in pieces:
                self.matrix.constrain([box, piece], high=1)

    def _producers(self, term: Term, edge_types: Sequence[int]) -> tuple[list[int], int]:
        """The columns of the producer's options with one of these productions.

        The second result is 1 if the value has one of them whatever is chosen.
        """
        if term.producer is None or not term.produces_several:
            return [], int(0 in edge_types)
        return self._of(term.producer, term.producer_classes, edge_types), 0

    def _satisfy(
        self, term: Term, requirement: OperandRequirement, readers: list[int], fixed: int
    ) -> None:
        """Add the row `Σ readers with the requirement <= Σ productions and copies that
        satisfy it`.
        """
        producers, always = self._producers(term, term.pattern.direct(requirement))
        copies = self.copies[term.value]
        serving = [copies[c] for c in term.pattern.serving(requirement)]
        self.matrix.constrain([*producers, *serving], readers, low=fixed - always)


def _distinct_requirements(
    classes: Sequence[Sequence[OperandRequirement]],
) -> list[tuple[OperandRequirement, list[int]]]:
    """Each distinct requirement of a reader, with the classes of the reader that have it."""
    found: dict[object, tuple[OperandRequirement, list[int]]] = {}
    for number, requirements in enumerate(classes):
        for requirement in requirements:
            key = (
                memory_key(requirement.layout),
                requirement.demand,
                requirement.facts,
                requirement.input_aliasing,
                requirement.family,
            )
            numbers = found.setdefault(key, (requirement, []))[1]
            if number not in numbers:
                numbers.append(number)
    return list(found.values())
