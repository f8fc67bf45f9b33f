"""Explain why a node that only moves elements is executed instead of being a view.

In: the candidates, the solution, and what other candidates would cost.  Out: a `Conversion` of kind
MOVE for each such node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite

from graphflow.base.decisions import microseconds
from graphflow.flow.candidates.candidates import Candidate, Candidates
from graphflow.flow.candidates.copies import directly
from graphflow.flow.candidates.requirements import OperandRequirement, Production
from graphflow.flow.solve import Solution
from graphflow.graph import Node, OperatorGraph
from graphflow.kernels.recipes import View
from graphflow.plan import Conversion, CopyKind, EdgeType
from graphflow.tir import moves_of


def executed_moves(
    graph: OperatorGraph,
    candidates: Candidates,
    solution: Solution,
    edge_types: Mapping[str, EdgeType],
    extras: Mapping[str, Sequence[float]],
) -> Iterator[Conversion]:
    """A record of kind MOVE for each executed node whose kernel stores only what it loads.

    `extras` has for each candidate of a node, in their order, the seconds that the best plan with
    it takes more; no entry for a node where that is not known.
    """
    for name, taken in solution.candidates.items():
        node = graph.node(name)
        if isinstance(taken.variant.recipe, View) or not moves_of(node.func):
            continue
        views = [
            option
            for option in candidates.of_node[name]
            if isinstance(option.variant.recipe, View)
            and option.definition is taken.definition
            and not option.unmoved
        ]
        value, work = node.inputs[0], taken.variant.work
        yield Conversion(
            value=value,
            source=edge_types.get(value, taken.gives[0][1]),
            target=taken.gives[0][1],
            consumers=((name, 0),),
            kind=CopyKind.MOVE,
            seconds=taken.seconds,
            bytes=work.read + work.written,
            because=_because(graph, node, taken, views, solution, edge_types)
            + _price(candidates.of_node[name], extras.get(name, ())),
            recipe=taken.variant.recipe,
            measured=taken.measured,
        )


def _price(options: Sequence[Candidate], extras: Sequence[float]) -> str:
    """What the best plan with a view of the node takes more; empty where that is not known."""
    views = [
        extra
        for option, extra in zip(options, extras, strict=False)
        if isinstance(option.variant.recipe, View) and not option.unmoved and isfinite(extra)
    ]
    if not views:
        return ""
    return f"; the best plan in which it is a view takes {microseconds(min(views))} more"


def _because(
    graph: OperatorGraph,
    node: Node,
    taken: Candidate,
    views: list[Candidate],
    solution: Solution,
    edge_types: Mapping[str, EdgeType],
) -> str:
    what = f"{node.name} ({node.op})"
    if not views:
        return f"under no layout does {what} leave every element where it is"
    hindered = {
        index: [
            requirement
            for requirement in view.requirements
            if not _had(graph, solution, edge_types, requirement)
        ]
        for index, view in enumerate(views)
    }
    nearest = min(hindered, key=lambda index: (len(hindered[index]), index))
    view = views[nearest]
    if not hindered[nearest]:
        offered = view.gives[0][1].describe()
        return (
            f"a {view.variant.name} would give {offered}; with {taken.gives[0][1].describe()} "
            f"the readers of {what} cost less, or it may be inside another tensor"
        )
    requirement = hindered[nearest][0]  # of the view with the fewest obstacles
    maker = graph.producer(requirement.value)
    origin = "the caller" if maker is None else f"{maker.name} ({maker.op})"
    return (
        f"a {view.variant.name} wants {requirement.value} as {requirement.layout.describe()}"
        f"{_where(node, requirement)}; {origin} gives {edge_types[requirement.value].describe()}"
        f"{_whereabouts(graph, solution, requirement)}"
    )


def _had(
    graph: OperatorGraph,
    solution: Solution,
    edge_types: Mapping[str, EdgeType],
    requirement: OperandRequirement,
) -> bool:
    maker = graph.producer(requirement.value)
    output_aliasing = None if maker is None else solution.candidates[maker.name].output_aliasing
    production = Production(edge_types[requirement.value], output_aliasing)
    return directly(production, requirement, requirement.value in graph.outputs)


def _where(node: Node, requirement: OperandRequirement) -> str:
    return f" inside {node.outputs[0]}" if requirement.input_aliasing.inside_output else ""


def _whereabouts(graph: OperatorGraph, solution: Solution, requirement: OperandRequirement) -> str:
    """Why a value cannot be inside the reader's output: where it already is."""
    if not requirement.input_aliasing.inside_output:
        return ""
    if requirement.value in graph.inputs or requirement.value in graph.outputs:
        return ", in memory of the caller"
    others = [
        user.name
        for user, position in graph.consumers(requirement.value)
        if user.name in solution.candidates
        for other in solution.candidates[user.name].requirements
        if other.position == position and other.input_aliasing.inside_output
    ]
    return f", inside the output of {others[0]}" if others else ""
