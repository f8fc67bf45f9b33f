"""Checking a plan by a fresh forward pass: every fact that something relied on must come out again.

In: the grouped graph and its plan.  Out: nothing, or a `VerifyError`.  Facts are computed here from
the forms and the bodies alone; nothing that flow concluded is used, except which forms it chose.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphflow.errors import VerifyError
from graphflow.flow import Label, LayoutPlan, memory_key, padding_regions
from graphflow.graph import Node, OperatorGraph
from graphflow.kernels.recipes import Padding
from graphflow.layout import Constant, Fact, Undefined, Unused, fact_of, output_facts, serves


def verify_plan(graph: OperatorGraph, plan: LayoutPlan) -> None:
    """Refuses a plan in which a reader gets another layout or weaker facts than it rests on."""
    facts: dict[str, dict[str, Fact]] = {name: {} for name in graph.inputs}
    for node in graph.nodes:
        if node.name not in plan.choices:
            continue
        given = _inputs(graph, plan, node, facts)
        for value in node.outputs:
            facts[value] = _outputs(plan, node, value, given)
            _compare(node, value, facts[value], plan.edges[value].label)


def _inputs(
    graph: OperatorGraph, plan: LayoutPlan, node: Node, facts: Mapping[str, dict[str, Fact]]
) -> dict[tuple[str, str], Fact]:
    form = plan.choices[node.name].alternative
    found: dict[tuple[str, str], Fact] = {}
    for position, (buffer, value) in enumerate(zip(node.func.inputs, node.inputs, strict=True)):
        layout = form.layouts[buffer.name]
        if graph.is_constant(value):
            for region in padding_regions(layout):
                found[buffer.name, region] = Undefined()
            continue
        source = plan.source(node.name, position, value)
        if memory_key(source.layout) != memory_key(layout):
            raise VerifyError(
                f"{node.name} ({node.op}) reads {value} as {layout.describe()}, and the plan gives "
                f"it {source.describe()}"
            )
        actual = _actual(plan, node, position, value, facts[value], source)
        demand = form.demands.get(buffer.name, Unused())
        for region in padding_regions(layout):
            fact = actual.get(region, Undefined())
            if not serves(fact, demand):
                raise VerifyError(
                    f"{node.name} ({node.op}) needs {region} of {value} {demand}, and a forward "
                    f"pass finds {fact} there"
                )
            found[buffer.name, region] = fact
    return found


def _actual(
    plan: LayoutPlan,
    node: Node,
    position: int,
    value: str,
    produced: Mapping[str, Fact],
    source: Label,
) -> Mapping[str, Fact]:
    """What a conversion wrote, or what the producer left."""
    converted = any(
        made.value == value and (node.name, position) in made.consumers for made in plan.conversions
    )
    return dict(source.facts) if converted else produced


def _outputs(
    plan: LayoutPlan, node: Node, value: str, given: Mapping[tuple[str, str], Fact]
) -> dict[str, Fact]:
    choice = plan.choices[node.name]
    output = node.func.outputs[node.outputs.index(value)]
    layout = choice.alternative.layouts[output.name]
    regions = padding_regions(layout)
    if not regions:
        return {}
    if choice.pad_value is not None:
        return dict.fromkeys(regions, fact_of(choice.pad_value, output.dtype))
    if choice.alternative.padding is not Padding.EVALUATED:
        return dict.fromkeys(regions, Undefined())
    left = output_facts(node.func, choice.alternative.layouts, given)
    return {region: left.get((output.name, region), Undefined()) for region in regions}


def _compare(node: Node, value: str, facts: Mapping[str, Fact], label: Label) -> None:
    for region, claimed in label.facts:
        actual = facts.get(region, Undefined())
        if isinstance(claimed, Constant) and actual != claimed:
            raise VerifyError(
                f"the plan says that {node.name} ({node.op}) leaves {claimed} in {region} of "
                f"{value}; a forward pass finds {actual}"
            )
