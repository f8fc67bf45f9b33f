"""Verify a plan by a fresh forward pass over the facts.

In: the graph of fusion groups and its plan.  Out: nothing, or a `VerifyError`.  What always holds:
facts are recomputed from the chosen variants and the bodies alone; of what flow concluded, only the
choices are used.  So every fact that a reader relies on has to come out a second time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from graphflow.base.errors import VerifyError
from graphflow.convert.windows import placed_inside
from graphflow.graph import Node, OperatorGraph, contents, finite_inputs, known_inputs
from graphflow.kernels.recipes import Padding, Scheduled, Tiled, left_facts, memory_key
from graphflow.layout import (
    Constant,
    Fact,
    Undefined,
    Unused,
    fact_of,
    join,
    row_major,
    serves,
)
from graphflow.plan import CopyKind, EdgeType, LayoutPlan, padding_regions


def verify_plan(graph: OperatorGraph, plan: LayoutPlan) -> None:
    """Raise VerifyError unless every reader gets the layout and the facts that it relies on.

    Also raises for a node that must run and has no variant, a graph input or output that is not
    row-major, a value that is inside two others, and an output named twice.
    """
    twice = [name for name in dict.fromkeys(graph.outputs) if graph.outputs.count(name) > 1]
    if twice:
        raise VerifyError(
            f"{', '.join(twice)} is named twice among the graph's outputs; each output has a "
            "storage of its own, so name it once or return a copy"
        )
    facts: dict[str, dict[str, Fact]] = {name: {} for name in graph.inputs}
    known = contents(graph, plan.assumed)
    for node in graph.nodes:
        if node.name not in plan.choices:
            if not all(graph.is_constant(value) for value in node.outputs):
                raise VerifyError(
                    f"the plan chooses no variant for {node.name} ({node.op}), and it must run"
                )
            continue
        _check_assumed_contents(graph, plan, node, known)
        input_facts = _inputs(graph, plan, node, facts)
        for value in node.outputs:
            facts[value] = _outputs(plan, node, value, input_facts)
            _check_facts(node, value, facts[value], plan.edges[value].edge_type)
            _check_layout(plan, node, value)
            facts[value] = _filled(plan, value, facts[value])
    _inputs_are_row_major(graph, plan)
    _outputs_are_row_major(graph, plan)
    placed_inside(graph, plan)


def _check_assumed_contents(
    graph: OperatorGraph, plan: LayoutPlan, node: Node, known: Mapping[str, Fact]
) -> None:
    """Check that a forward pass proves what a variant assumes about the contents of its inputs."""
    recipe = plan.choices[node.name].variant.recipe
    if not isinstance(recipe, Tiled | Scheduled):
        return
    never = recipe.excludes_negative_zero if isinstance(recipe, Tiled) else ()
    for stated, proven, what in (
        (recipe.finite, finite_inputs(node, recipe.finite, known), "finite"),
        (never, known_inputs(graph, node, known).excludes_negative_zero, "never -0.0"),
    ):
        for name in stated:
            if name not in proven:
                raise VerifyError(
                    f"the variant of {node.name} ({node.op}) states that {name} is {what}, and a "
                    "forward pass does not prove that"
                )


def _check_layout(plan: LayoutPlan, node: Node, value: str) -> None:
    """Check that the edge type of a value and the variant of its producer are the same memory."""
    buffer = node.func.outputs[node.outputs.index(value)]
    written = plan.choices[node.name].variant.layouts[buffer.name]
    edge_type = plan.edges[value].edge_type.layout
    if memory_key(written) != memory_key(edge_type):
        raise VerifyError(
            f"the plan says that {value} has the layout {edge_type.describe()}; the variant of "
            f"{node.name} ({node.op}) writes {written.describe()}"
        )


def _filled(plan: LayoutPlan, value: str, facts: dict[str, Fact]) -> dict[str, Fact]:
    """The facts about a value's padding after the plan's fills, which write it in place.

    A region on which a fill and the given fact differ becomes Undefined.
    """
    for _, made in plan.conversions_of(value):
        if made.kind == CopyKind.FILL:
            target = dict(made.target.facts)
            facts = {r: f if f == target.get(r) else Undefined() for r, f in facts.items()}
    return facts


def _inputs_are_row_major(graph: OperatorGraph, plan: LayoutPlan) -> None:
    for value in graph.inputs:
        layout = plan.edges[value].edge_type.layout
        if memory_key(layout) != memory_key(row_major(graph.values[value].shape)):
            raise VerifyError(
                f"the caller gives the graph input {value} row-major, and the plan says that it "
                f"has the layout {layout.describe()}"
            )


def _outputs_are_row_major(graph: OperatorGraph, plan: LayoutPlan) -> None:
    for value in graph.outputs:
        if graph.is_constant(value):
            continue
        source = plan.source("", -1, value).layout
        if memory_key(source) != memory_key(row_major(graph.values[value].shape)):
            raise VerifyError(
                f"the graph output {value} must be row-major, and the plan gives it "
                f"{source.describe()}"
            )


def _inputs(
    graph: OperatorGraph, plan: LayoutPlan, node: Node, facts: Mapping[str, dict[str, Fact]]
) -> dict[tuple[str, str], Fact]:
    variant = plan.choices[node.name].variant
    found: dict[tuple[str, str], Fact] = {}
    for position, (buffer, value) in enumerate(zip(node.func.inputs, node.inputs, strict=True)):
        layout = variant.layouts[buffer.name]
        if graph.is_constant(value):
            zero = fact_of(0, buffer.dtype)  # packing fills the padding of constants with zeros
            demanded = variant.demands.get(buffer.name, Unused())
            if not serves(zero, demanded):
                raise VerifyError(
                    f"{node.name} ({node.op}) needs the padding of the constant {value} {demanded}"
                )
            for region in padding_regions(layout):
                found[buffer.name, region] = zero
            continue
        source = plan.source(node.name, position, value)
        if memory_key(source.layout) != memory_key(layout):
            raise VerifyError(
                f"{node.name} ({node.op}) reads {value} as {layout.describe()}, and the plan gives "
                f"it {source.describe()}"
            )
        actual = _actual(plan, node, position, value, facts[value])
        demand = variant.demands.get(buffer.name, Unused())
        regions = padding_regions(layout)
        if actual and not set(regions) <= set(actual):
            # The same memory, with other names for its padding regions: which fact is meant is
            # not known, so each region gets what all facts have in common.
            actual = dict.fromkeys(regions, reduce(join, actual.values()))
        for region in regions:
            fact = actual.get(region, Undefined())
            if not serves(fact, demand):
                raise VerifyError(
                    f"{node.name} ({node.op}) needs {region} of {value} {demand}, and a forward "
                    f"pass finds {fact} there"
                )
            found[buffer.name, region] = fact
    return found


def _actual(
    plan: LayoutPlan, node: Node, position: int, value: str, produced: Mapping[str, Fact]
) -> Mapping[str, Fact]:
    """The facts that a reader finds in the padding: a conversion's target, or the producer's.

    Fills of one value write the same padding, so each one has to agree with the others.
    """
    number = plan.conversion_for(node.name, position, value)
    if number is None:
        return produced
    made = plan.conversions[number]
    if made.kind == CopyKind.FILL:
        return _filled(plan, value, dict(made.target.facts))
    return dict(made.target.facts)


def _outputs(
    plan: LayoutPlan, node: Node, value: str, input_facts: Mapping[tuple[str, str], Fact]
) -> dict[str, Fact]:
    choice = plan.choices[node.name]
    output = node.func.outputs[node.outputs.index(value)]
    layout = choice.variant.layouts[output.name]
    regions = padding_regions(layout)
    if not regions:
        return {}
    if choice.pad_value is not None:
        return dict.fromkeys(regions, fact_of(choice.pad_value, output.dtype))
    if choice.variant.padding is not Padding.EVALUATED:
        return dict.fromkeys(regions, Undefined())
    left = left_facts(node.func, choice.variant, input_facts)
    return {region: left.get((output.name, region), Undefined()) for region in regions}


def _check_facts(node: Node, value: str, facts: Mapping[str, Fact], edge_type: EdgeType) -> None:
    for region, claimed in edge_type.facts:
        actual = facts.get(region, Undefined())
        if isinstance(claimed, Constant) and actual != claimed:
            raise VerifyError(
                f"the plan says that {node.name} ({node.op}) leaves {claimed} in {region} of "
                f"{value}; a forward pass finds {actual}"
            )
