"""Checking a plan by a fresh forward pass: every fact that something relied on must come out again.

In: the grouped graph and its plan.  Out: nothing, or a `VerifyError`.  Facts are computed here from
the variants and the bodies alone; nothing that flow concluded is used, except which variants it
chose."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from graphflow.base.errors import VerifyError
from graphflow.convert.windows import placed_inside
from graphflow.flow import (
    CopyKind,
    EdgeType,
    LayoutPlan,
    contents,
    finite_inputs,
    known_inputs,
    padding_regions,
)
from graphflow.graph import Node, OperatorGraph
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


def verify_plan(graph: OperatorGraph, plan: LayoutPlan) -> None:
    """Refuses a plan in which a reader gets another layout or weaker facts than it rests on.

    Also one that leaves a node without a variant, gives a graph output in another layout than
    row-major, or puts a value into two others.
    """
    twice = [name for name in dict.fromkeys(graph.outputs) if graph.outputs.count(name) > 1]
    if twice:
        raise VerifyError(
            f"{', '.join(twice)} is named twice among the graph's outputs; each output is memory "
            "of its own, so name it once or give out a copy"
        )
    facts: dict[str, dict[str, Fact]] = {name: {} for name in graph.inputs}
    known = contents(graph, plan.assumed)
    for node in graph.nodes:
        if node.name not in plan.choices:
            _require_constant(graph, node)
            continue
        _states_what_holds(graph, plan, node, known)
        given = _inputs(graph, plan, node, facts)
        for value in node.outputs:
            facts[value] = _outputs(plan, node, value, given)
            _compare(node, value, facts[value], plan.edges[value].edge_type)
            _same_layout(plan, node, value)
            facts[value] = _filled(plan, value, facts[value])
    _outputs_are_row_major(graph, plan)
    placed_inside(graph, plan)


def _require_constant(graph: OperatorGraph, node: Node) -> None:
    if not all(graph.is_constant(value) for value in node.outputs):
        raise VerifyError(
            f"the plan chooses no variant for {node.name} ({node.op}), and it must run"
        )


def _states_what_holds(
    graph: OperatorGraph, plan: LayoutPlan, node: Node, known: Mapping[str, Fact]
) -> None:
    """What a variant states of the contents of its inputs comes out of a forward pass."""
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
                    "forward pass does not find that"
                )


def _same_layout(plan: LayoutPlan, node: Node, value: str) -> None:
    """The edge type of an edge and the variant of its producer name the same memory."""
    buffer = node.func.outputs[node.outputs.index(value)]
    written = plan.choices[node.name].variant.layouts[buffer.name]
    edge_type = plan.edges[value].edge_type.layout
    if memory_key(written) != memory_key(edge_type):
        raise VerifyError(
            f"the plan says that {value} lies in {edge_type.describe()}; the variant of "
            f"{node.name} ({node.op}) writes {written.describe()}"
        )


def _filled(plan: LayoutPlan, value: str, facts: dict[str, Fact]) -> dict[str, Fact]:
    """What is in the padding of a value after the fills, which write it in place."""
    for made in plan.conversions:
        if made.value == value and made.kind == CopyKind.FILL:
            target = dict(made.target.facts)
            facts = {r: f if f == target.get(r) else Undefined() for r, f in facts.items()}
    return facts


def _outputs_are_row_major(graph: OperatorGraph, plan: LayoutPlan) -> None:
    for value in graph.outputs:
        if graph.is_constant(value):
            continue
        given = plan.source("", -1, value).layout
        if memory_key(given) != memory_key(row_major(graph.values[value].shape)):
            raise VerifyError(
                f"the graph output {value} must be row-major, and the plan gives it "
                f"{given.describe()}"
            )


def _inputs(
    graph: OperatorGraph, plan: LayoutPlan, node: Node, facts: Mapping[str, dict[str, Fact]]
) -> dict[tuple[str, str], Fact]:
    variant = plan.choices[node.name].variant
    found: dict[tuple[str, str], Fact] = {}
    for position, (buffer, value) in enumerate(zip(node.func.inputs, node.inputs, strict=True)):
        layout = variant.layouts[buffer.name]
        if graph.is_constant(value):
            zero = fact_of(0, buffer.dtype)  # packing writes that
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
            # The same memory under other names of its padding: any of the facts may be meant.
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
    """What a conversion wrote, or what the producer left; fills of one value write each other's."""
    number = plan.conversion_for(node.name, position, value)
    if number is None:
        return produced
    made = plan.conversions[number]
    if made.kind == CopyKind.FILL:
        return _filled(plan, value, dict(made.target.facts))
    return dict(made.target.facts)


def _outputs(
    plan: LayoutPlan, node: Node, value: str, given: Mapping[tuple[str, str], Fact]
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
    left = left_facts(node.func, choice.variant, given)
    return {region: left.get((output.name, region), Undefined()) for region in regions}


def _compare(node: Node, value: str, facts: Mapping[str, Fact], edge_type: EdgeType) -> None:
    for region, claimed in edge_type.facts:
        actual = facts.get(region, Undefined())
        if isinstance(claimed, Constant) and actual != claimed:
            raise VerifyError(
                f"the plan says that {node.name} ({node.op}) leaves {claimed} in {region} of "
                f"{value}; a forward pass finds {actual}"
            )
