"""Which kernels of a plan the threads of a run share, and which the caller runs alone.

In: a graph, its plan without that decision, and a cost model.  Out: a `ThreadSharing`.  What always
holds: it depends on estimates alone, and changes no kernel, so results are the same whatever it
says.

    before    [shared] meet [shared] meet [shared] meet [shared]
    after     [shared] meet [alone] [alone] meet [shared]

Threads meet behind each kernel that they share and in front of it, and wait for lines that others
wrote.  Kernels of the caller alone follow each other without either, so short ones are decided
together.  Each price is of one kernel, or of two and zero where both are alone, and at most that of
the two mixed cases together where both are shared; of such decisions a minimum cut is the cheapest
(Kolmogorov and Zabih, What energy functions can be minimized via graph cuts?, 2004).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import inf

import networkx as nx
from msgspec import Struct, field

from graphflow.base.fields import replace
from graphflow.cost import WAKING, CostModel
from graphflow.graph import Node, OperatorGraph
from graphflow.kernels.recipes import Foreign, View, conversion_work
from graphflow.layout import Layout, row_major
from graphflow.plan import LayoutPlan, SharingUnit, ThreadSharing, copied_constant
from graphflow.program import may_run_concurrently
from graphflow.tir import DTYPES

_SHARED, _ALONE = -1, -2
"""The ends of the cut; copies have numbers from 0 on."""

_UNIT = 1e-15
"""The seconds of one unit of capacity."""


class ExecutedUnit(Struct, frozen=True):
    """A kernel or copy: seconds by the caller alone and by all threads, infinite where one thread
    has to run it, and the bytes that it reads of what others wrote.

    Each thread `reads_all` of these where it computes some of the columns.  Several that are
    `beside` each other may be run by one thread each.
    """

    unit: SharingUnit
    alone: float
    shared: float
    reads: Mapping[SharingUnit, int] = field(default_factory=dict)
    reads_all: bool = False
    beside: bool = False


def thread_sharing(graph: OperatorGraph, plan: LayoutPlan, cost: CostModel) -> ThreadSharing | None:
    """The decision for a plan; None for one thread.

    The caller alone runs everything if sharing saves less than waking the others takes.
    """
    if cost.threads == 1:
        return None
    executed = [*_Walk(graph, plan, cost).executed()]
    seconds, shared = cheapest_sharing(executed, cost)
    saved = sum(step.alone for step in executed) - seconds
    saved += sum(step.alone for step in executed if step.beside) * (1 - 1 / cost.threads)
    alone = frozenset(s.unit for s in executed if not s.beside and s.unit not in shared)
    gains = {s.unit: _gain(s, cost) for s in executed if s.unit not in alone}
    meeting = cost.step_meeting_seconds()
    return ThreadSharing(cost.threads, saved, WAKING, len(executed), alone, meeting, gains)


def _gain(step: ExecutedUnit, cost: CostModel) -> float:
    """The seconds that threads save by sharing a kernel, without their meeting behind it."""
    if step.beside:
        return step.alone * (1 - 1 / cost.threads)
    awaited = sum(step.reads.values()) if step.reads_all else 0
    return max(0.0, step.alone - step.shared - cost.exchange_seconds(awaited))


class _Walk:
    """What a run of a plan executes, and which kernels and copies wrote each value."""

    def __init__(self, graph: OperatorGraph, plan: LayoutPlan, cost: CostModel) -> None:
        self.graph, self.plan, self.cost = graph, plan, cost
        self.one = replace(cost, threads=1)
        self.writers: dict[str, tuple[SharingUnit, ...]] = {}

    def executed(self) -> Iterator[ExecutedUnit]:
        """In order: each kernel, and behind it the copies of its outputs; at last the copies of
        constants that are outputs of the graph."""
        for value in self.graph.inputs:
            yield from self._copies(value)
        for node in self.graph.nodes:
            if node.name not in self.plan.choices:
                continue
            if isinstance(self.plan.choices[node.name].variant.recipe, View | Foreign):
                written = tuple(unit for v in node.inputs for unit in self.writers.get(v, ()))
            else:
                written = (node.name,)
                yield self._kernel(node)
            self.writers.update(dict.fromkeys(node.outputs, written))
            for value in node.outputs:
                yield from self._copies(value)
        for value in dict.fromkeys(filter(self.graph.is_constant, self.graph.outputs)):
            plain = row_major(self.graph.values[value].shape)
            yield self._copy(copied_constant(value), value, plain, plain, {})

    def _kernel(self, node: Node) -> ExecutedUnit:
        work = self.plan.choices[node.name].variant.work
        reads: dict[SharingUnit, int] = {}
        for position, value in enumerate(node.inputs):
            copy = self.plan.conversion_for(node.name, position, value)
            for unit in self.writers.get(value, ()) if copy is None else (copy,):
                reads[unit] = min(self._bytes(value), work.read)
        alone = self.one.kernel_seconds(work)
        if work.rows <= 1:
            touched = work.read - work.constants + work.written
            beside = may_run_concurrently(1, (work.read, work.written)) and (
                alone * (1 - 1 / self.cost.threads)
                > self.cost.exchange_seconds(touched) + self.cost.step_meeting_seconds()
            )
            return ExecutedUnit(node.name, alone, inf, reads, beside=beside)
        # Columns are shared where weights outweigh the data, and then all of it is read.
        reads_all = work.constants > work.read - work.constants
        reads_all = reads_all and not self.cost.prices_exchange(work)
        return ExecutedUnit(node.name, alone, self.cost.kernel_seconds(work), reads, reads_all)

    def _copies(self, value: str) -> Iterator[ExecutedUnit]:
        reads = dict.fromkeys(self.writers.get(value, ()), self._bytes(value))
        for index, made in self.plan.conversions_of(value):
            yield self._copy(index, value, made.source.layout, made.target.layout, reads)

    def _copy(
        self,
        unit: SharingUnit,
        value: str,
        source: Layout,
        target: Layout,
        reads: Mapping[SharingUnit, int],
    ) -> ExecutedUnit:
        work = conversion_work(source, target, self.graph.values[value].dtype)
        alone, shared = (model.conversion_seconds(work) for model in (self.one, self.cost))
        return ExecutedUnit(unit, alone, shared, reads)

    def _bytes(self, value: str) -> int:
        known = self.graph.values[value]
        return known.size * DTYPES[known.dtype].itemsize


def cheapest_sharing(
    executed: list[ExecutedUnit], cost: CostModel
) -> tuple[float, set[SharingUnit]]:
    """The least seconds of a run, and which of its kernels are shared then.

    Capacities are integers, so the cut does not depend on the order in which they are summed.
    """
    cut: nx.DiGraph[SharingUnit] = nx.DiGraph()

    def add(source: SharingUnit, target: SharingUnit, seconds: float) -> None:
        before = cut.get_edge_data(source, target, {"capacity": 0})["capacity"]
        more = seconds if seconds == inf else round(seconds / _UNIT)
        cut.add_edge(source, target, capacity=before + more)

    def differ(one: SharingUnit, other: SharingUnit, seconds: float) -> None:
        add(one, other, seconds)
        add(other, one, seconds)

    def either(one: SharingUnit, other: SharingUnit, seconds: float) -> None:
        """If any of two is shared: half for each, and half if they differ."""
        add(one, _ALONE, seconds / 2)
        add(other, _ALONE, seconds / 2)
        differ(one, other, seconds / 2)

    for step in executed:
        add(_SHARED, step.unit, step.alone)
        add(step.unit, _ALONE, step.shared)
        for unit, size in step.reads.items():
            charge = either if step.reads_all else differ
            charge(unit, step.unit, cost.exchange_seconds(size))
    for one, other in pairwise(executed):
        either(one.unit, other.unit, cost.step_meeting_seconds())
    if not executed:
        return 0.0, set()
    units, (shared, _) = nx.minimum_cut(cut, _SHARED, _ALONE)
    return units * _UNIT, shared - {_SHARED}
