"""The cheapest plan: an exact integer program over candidates and copies.

In: `Candidates` and the graph.  Out: `Solution`: one candidate for each node, and the copies to
make.  A copy of a value in a layout is paid once, however many readers share it.
Variables: one for each candidate, one for each possible copy.  Constraints: one candidate a node; a
candidate that reads needs a label or a copy that serves it; a value lies in at most one window; a
fill, which writes the padding of the value itself, disturbs no other reader.
The same input gives the same plan: variables are in a stable order, and HiGHS is deterministic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from graphflow.cost import conversion_seconds, fill_seconds
from graphflow.errors import LayoutConflict
from graphflow.flow.candidates import Candidate, Candidates, Need
from graphflow.flow.labels import accepts, label_key, label_of, memory_key
from graphflow.flow.plan import Label
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import View
from graphflow.layout import Equal, Layout, Undefined, Unused, fact_of, row_major, serves
from graphflow.target import Target
from graphflow.tir import DTYPES

TIME_LIMIT = 20.0
"""Seconds after which the best plan so far is taken; the gap is reported."""


@dataclass(frozen=True)
class Copy:
    """A possible copy of `value`; a fill starts from a label with the same layout.

    A copy in a `window` lies inside another tensor: anyone may read it there, but it is no output.
    """

    value: str
    target: Label
    kind: str
    seconds: float
    bytes: int
    window: bool = False

    def serves(self, need: Need) -> bool:
        """Whether a reader may take this copy."""
        if need.window != self.window and (need.window or need.position < 0):
            return False
        return label_serves(self.target, need)


def label_serves(label: Label, need: Need) -> bool:
    """Whether `label` is what a reader wants, and holds what the reader's own claims rest on."""
    known = dict(label.facts)
    return accepts(label, need.layout, need.demand) and all(
        known.get(region) == fact for region, fact in need.facts if fact != Undefined()
    )


@dataclass(frozen=True)
class Solution:
    """The chosen candidates and copies; `gap` is relative, `seconds` the objective."""

    candidates: dict[str, Candidate]
    copies: tuple[Copy, ...]
    seconds: float
    gap: float


@dataclass
class _Program:
    """Columns and rows of the integer program while it is written."""

    costs: list[float] = field(default_factory=list)
    rows: list[dict[int, float]] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)

    def variable(self, cost: float) -> int:
        self.costs.append(cost)
        return len(self.costs) - 1

    def constrain(self, row: dict[int, float], low: float, high: float) -> None:
        self.rows.append(row)
        self.lower.append(low)
        self.upper.append(high)

    def solve(self) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], float, float] | None:
        """The values of the variables, the objective and the gap; None if nothing is feasible."""
        if not self.costs:
            return np.zeros(0), 0.0, 0.0
        entries = [(r, c, v) for r, row in enumerate(self.rows) for c, v in row.items()]
        r, c, v = (np.array(part) for part in zip(*entries, strict=True))
        matrix = coo_array((v, (r, c)), shape=(len(self.rows), len(self.costs)))
        scale = max(max(self.costs), 1e-12)
        found = milp(
            np.array(self.costs) / scale,
            integrality=np.ones(len(self.costs)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix.tocsr(), self.lower, self.upper),
            options={"time_limit": TIME_LIMIT, "mip_rel_gap": 1e-6},
        )
        if found.x is None:
            return None
        gap = float(getattr(found, "mip_gap", 0.0) or 0.0)
        return np.round(found.x), float(found.fun) * scale, gap


def solve(
    graph: OperatorGraph,
    candidates: Candidates,
    target: Target,
    threads: int,
    excluded: Iterable[Candidate] = (),
) -> Solution | None:
    """The cheapest plan, or the cheapest that differs from the `excluded` candidates; None if none.

    LayoutConflict if there is no plan at all.
    """
    model = _Model(graph, candidates, target, threads)
    model.write()
    left_out = {id(candidate) for candidate in excluded}
    chosen = [k for k, c in model.columns.items() if id(c) in left_out]
    if chosen:
        model.program.constrain(dict.fromkeys(chosen, 1.0), 0, len(chosen) - 1)
    solved = model.program.solve()
    if solved is None:
        if chosen:
            return None
        raise LayoutConflict("no plan meets the constraints of the graph; drop a pin")
    values, seconds, gap = solved
    picked = {c.node: c for k, c in model.columns.items() if values[k]}
    copies = tuple(c for k, c in model.copies.items() if values[k])
    return Solution(picked, copies, seconds, gap)


class _Model:
    """The integer program of one graph."""

    def __init__(
        self, graph: OperatorGraph, candidates: Candidates, target: Target, threads: int
    ) -> None:
        self.graph, self.candidates = graph, candidates
        self.target, self.threads = target, threads
        self.program = _Program()
        self.columns: dict[int, Candidate] = {}
        self.copies: dict[int, Copy] = {}
        self._copy_columns: dict[tuple[str, object, str, bool], int] = {}
        self._copies_of: dict[str, list[int]] = {}
        self._givers: dict[str, dict[object, tuple[Label, list[int]]]] = {}

    def write(self) -> None:
        """Writes all columns, then all rows."""
        for options in self.candidates.of_node.values():
            columns = [self._candidate(c) for c in options]
            self.program.constrain(dict.fromkeys(columns, 1.0), 1, 1)
        needs: list[tuple[int | None, Need]] = [
            (column, need) for column, c in self.columns.items() for need in c.needs
        ]
        for value in self.graph.outputs:
            if not self.graph.is_constant(value):
                layout = row_major(self.graph.values[value].shape)
                needs.append((None, Need(-1, value, layout, Unused())))
        for _, need in needs:
            self._copies_for(need)
        for need, readers in self._wants(needs):
            self._serve(readers, need)
        self._undisturbed(needs)
        self._one_window()
        self._no_reshaped_window()

    def _candidate(self, candidate: Candidate) -> int:
        column = self.program.variable(candidate.seconds)
        self.columns[column] = candidate
        for value, label in candidate.gives:
            given = self._givers.setdefault(value, {})
            given.setdefault(label_key(label), (label, []))[1].append(column)
        return column

    def _wants(self, needs: list[tuple[int | None, Need]]) -> list[tuple[Need, list[int | None]]]:
        """Each want once, with all candidates of one node that have it; at most one is taken."""
        found: dict[object, tuple[Need, list[int | None]]] = {}
        for column, need in needs:
            node = "" if column is None else self.columns[column].node
            key = (node, need.position, need.value, memory_key(need.layout), need.demand,
                   need.facts, need.window)  # fmt: skip
            found.setdefault(key, (need, []))[1].append(column)
        return list(found.values())

    def _serve(self, columns: list[int | None], need: Need) -> None:
        """`Σ candidates <= Σ what serves their need`; a graph output always needs."""
        row: dict[int, float] = {column: -1.0 for column in columns if column is not None}
        fixed = 0.0
        for label, givers in self._sources(need.value):
            if not label_serves(label, need) or (need.window and not givers):
                continue
            for giver in givers:
                row[giver] = row.get(giver, 0.0) + 1.0
            fixed = 1.0 if not givers else fixed
        for copy in self._copies_of.get(need.value, []):
            if self.copies[copy].serves(need):
                row[copy] = 1.0
        demanded = 1.0 if None in columns else 0.0
        self.program.constrain(row, demanded - fixed, np.inf)

    def _sources(self, value: str) -> list[tuple[Label, list[int]]]:
        """The labels of a value with the candidates that give it; a graph input has none."""
        if value in self.graph.inputs:
            return [(label, []) for label in self.candidates.labels[value]]
        return list(self._givers.get(value, {}).values())

    def _copies_for(self, need: Need) -> None:
        """Columns for the copies that this reader alone would want."""
        wanted = [f for _, f in need.facts if f != Undefined()]
        if wanted:
            target = Label(need.layout, need.facts)
        elif isinstance(need.demand, Equal):
            literal = need.demand.literal
            target = label_of(need.layout, fact_of(literal.value, literal.dtype))
        else:
            target = label_of(need.layout)
        self._copy(need.value, target, "convert", need.window)
        if target.facts and not serves(Undefined(), need.demand):
            self._copy(need.value, target, "fill", need.window)

    def _copy(self, value: str, target: Label, kind: str, window: bool) -> None:
        key = (value, label_key(target), kind, window)
        if key in self._copy_columns:
            return
        copy = replace(self._priced(value, target, kind), window=window)
        column = self.program.variable(copy.seconds)
        self._copy_columns[key] = column
        self._copies_of.setdefault(value, []).append(column)
        self.copies[column] = copy
        if kind == "fill":
            self._needs_same_layout(column, value, target.layout)

    def _needs_same_layout(self, column: int, value: str, layout: Layout) -> None:
        """A fill writes padding only, so the rest must be there in this layout already."""
        row: dict[int, float] = {column: -1.0}
        for label, givers in self._sources(value):
            if memory_key(label.layout) == memory_key(layout):
                row |= dict.fromkeys(givers, 1.0)
        self.program.constrain(row, 0, np.inf)

    def _priced(self, value: str, target: Label, kind: str) -> Copy:
        tensor = self.graph.values[value]
        size = DTYPES[tensor.dtype].itemsize
        whole = target.layout.buffer(value, tensor.dtype).bytes
        if kind == "fill":
            padding = target.layout.padding_elements * size
            seconds = fill_seconds(padding, self.target, self.threads)
            return Copy(value, target, kind, seconds, padding)
        moved = whole + tensor.size * size
        return Copy(
            value, target, kind, conversion_seconds(moved, self.target, self.threads), moved
        )

    def _undisturbed(self, needs: list[tuple[int | None, Need]]) -> None:
        """A fill and a reader that relies on other padding of the same value exclude each other."""
        for column, need in needs:
            if column is None or label_serves(label_of(need.layout), need):
                continue
            for fill in self._copies_of.get(need.value, []):
                copy = self.copies[fill]
                if copy.kind == "fill" and not label_serves(copy.target, need):
                    self.program.constrain({column: 1.0, fill: 1.0}, 0, 1)

    def _no_reshaped_window(self) -> None:
        """Memory that a view reads under another shape is not part of a larger storage."""
        reshaped: dict[str, list[int]] = {}
        for column, candidate in self.columns.items():
            if _reshapes(candidate):
                reshaped.setdefault(candidate.gives[0][0], []).append(column)
        for column, candidate in self.columns.items():
            for need in candidate.needs:
                makers = reshaped.get(need.value, [])
                if need.window and makers:
                    self.program.constrain({**dict.fromkeys(makers, 1.0), column: 1.0}, 0, 1)

    def _one_window(self) -> None:
        """A value is placed in at most one storage that is not its own."""
        uses: dict[str, list[int]] = {}
        for column, candidate in self.columns.items():
            for need in candidate.needs:
                if need.window:
                    uses.setdefault(need.value, []).append(column)
        for columns in uses.values():
            row: dict[int, float] = {}
            for column in columns:
                row[column] = row.get(column, 0.0) + 1.0
            if sum(row.values()) > 1:
                self.program.constrain(row, 0, 1)


def _reshapes(candidate: Candidate) -> bool:
    """Whether the form is a view whose input is not a box inside the output's box."""
    recipe, whole = candidate.alternative.recipe, candidate.gives[0][1].layout
    return isinstance(recipe, View) and any(
        window.physical_shape != whole.physical_shape for _, window in recipe.windows
    )
