"""Find the prices on which the choice of a plan depends, the most decisive first.

In: a graph, and a cost model with the timings so far.  Out: `MeasurementCandidates`: the variants
and copies of the cheapest plan that were not measured; then those of the next best plan, and
variants with which the best plan would take hardly longer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from graphflow.cost import CostModel
from graphflow.flow import (
    Candidate,
    Candidates,
    Copy,
    Problem,
    Solution,
    enumerate_candidates,
    expansions_of,
)
from graphflow.graph import Node, OperatorGraph, constant_inputs
from graphflow.kernels.recipes import (
    Foreign,
    KernelVariant,
    View,
    definition_key,
    kernel_variants,
    lifted,
    variant_key,
)
from graphflow.layout import Layout
from graphflow.plan import CopyKind, EdgeType

NEAR = 0.1
"""A variant is worth measuring if the best plan with it takes at most this share of its node's
seconds longer.
"""

MOST_NEAR = 3
"""The most such variants of one node that are measured before the next plan."""


class VariantToTime(Struct, frozen=True):
    """A variant of a node; `pad` is the constant that it writes to padding, None if it writes none.

    The node is one of the graph, or what takes its place.  `seconds` is the price of the variant so
    far, measured or estimated.
    """

    node: Node
    variant: KernelVariant
    pad: float | None
    seconds: float


class CopyToTime(Struct, frozen=True):
    """A copy of a value from its edge type `source`: a conversion, or a fill of its padding."""

    value: str
    source: EdgeType
    target: EdgeType
    kind: CopyKind
    seconds: float


ToTime = VariantToTime | CopyToTime


class MeasurementCandidates(Struct, frozen=True):
    """Prices worth measuring, of kernels in `graph`.

    `decisive` are the unmeasured prices of the cheapest plan.  `near` are those of plans that come
    close; empty if `decisive` is, since then no other plan is cheaper.
    """

    graph: OperatorGraph
    decisive: tuple[ToTime, ...]
    near: tuple[ToTime, ...]


def measurement_candidates(
    graph: OperatorGraph,
    cost: CostModel,
    pins: Mapping[str, Layout] | None = None,
    winograd: bool = True,
) -> MeasurementCandidates:
    """The prices worth measuring for `graph` under `cost`; `winograd` as of `flow.find_plan`.

    Raises LayoutConflict where no plan meets the pins.
    """
    expansions = expansions_of(graph, cost.target, winograd=winograd)
    candidates = enumerate_candidates(graph, cost, pins or {}, expansions=expansions)
    problem = Problem(graph, candidates, cost)
    best, wide = problem.best, expansions.graph
    decisive = tuple(_of_plan(wide, candidates, best))
    near: list[ToTime] = []
    if decisive:
        other = problem.differing(best.candidates.values())
        if other is not None:
            near += _of_plan(wide, candidates, other)
        near += _near_variants(wide, candidates, best, problem.extras())
    return MeasurementCandidates(wide, decisive, tuple(near))


def found_and_recipes(graph: OperatorGraph, cost: CostModel) -> Iterator[VariantToTime]:
    """For each node with a schedule from a search: that, and the cheapest variant of a recipe
    beside it, each unless it was measured.

    Variants of recipes are compared by their estimates, among those that pad nothing.
    """
    for node in graph.nodes:
        if not node.found:
            continue
        found = [lifted(kernel.kernel, cost.target) for kernel in node.found]
        recipes = [
            variant
            for variant in kernel_variants(node.func, constant_inputs(graph, node), cost.target)
            if not isinstance(variant.recipe, View | Foreign)
            and not any(layout.is_padded for layout in variant.layouts.values())
        ]
        recipes.sort(key=lambda variant: cost.kernel_seconds(variant.work))
        for variant in (*found, *recipes[:1]):
            known = cost.measured(variant_key(definition_key(node.func), variant, None))
            if known is None or not known.measured:
                yield VariantToTime(node, variant, None, cost.kernel_seconds(variant.work))


def _of_plan(graph: OperatorGraph, candidates: Candidates, plan: Solution) -> Iterator[ToTime]:
    """The variants and copies that a plan executes and that were not measured."""
    edge_types = {name: candidates.edge_types[name][0] for name in graph.inputs}
    for candidate in plan.candidates.values():
        edge_types |= dict(candidate.gives)
        if _is_open(candidate):
            yield _variant(graph, candidate)
    for copy in plan.copies:
        if not copy.measured:
            yield _copy(copy, edge_types[copy.value])


def _near_variants(
    graph: OperatorGraph,
    candidates: Candidates,
    best: Solution,
    extras: Mapping[str, Sequence[float]],
) -> Iterator[ToTime]:
    """Unmeasured variants with which the best plan would take hardly longer.

    `extras` are as `Problem.extras` returns; nodes that are missing there are compared by the
    prices of their variants alone.
    """
    for name, chosen in best.candidates.items():
        options = candidates.of_node[name]
        alone = [option.seconds - chosen.seconds for option in options]
        ranked = sorted(
            (extra, number)
            for number, extra in enumerate(extras.get(name, alone))
            if _is_open(options[number]) and extra <= NEAR * chosen.seconds
        )
        for _, number in ranked[:MOST_NEAR]:
            yield _variant(graph, options[number])


def _is_open(candidate: Candidate) -> bool:
    return not candidate.measured and not isinstance(candidate.variant.recipe, View | Foreign)


def _variant(graph: OperatorGraph, candidate: Candidate) -> VariantToTime:
    node = candidate.definition or graph.node(candidate.node)
    return VariantToTime(node, candidate.variant, candidate.pad_value, candidate.seconds)


def _copy(copy: Copy, source: EdgeType) -> CopyToTime:
    return CopyToTime(copy.value, source, copy.target, copy.kind, copy.seconds)
