"""Why a node that only moves elements is executed, and is no view.

In: the candidates and the solution.  Out: a record for each such node, like those of conversions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphflow.flow.candidates import Candidate, Candidates, Need
from graphflow.flow.copies import directly
from graphflow.flow.plan import Conversion, CopyKind, Label
from graphflow.flow.solve import Solution
from graphflow.graph import Node, OperatorGraph
from graphflow.kernels.recipes import View
from graphflow.tir import moves_of


def executed_moves(
    graph: OperatorGraph,
    candidates: Candidates,
    solution: Solution,
    labels: Mapping[str, Label],
) -> Iterator[Conversion]:
    """A record of kind `move` for each executed node that stores nothing but what it loads."""
    for name, taken in solution.candidates.items():
        node = graph.node(name)
        if isinstance(taken.alternative.recipe, View) or not moves_of(node.func):
            continue
        views = [
            option
            for option in candidates.of_node[name]
            if isinstance(option.alternative.recipe, View)
        ]
        value, work = node.inputs[0], taken.alternative.work
        yield Conversion(
            value=value,
            source=labels.get(value, taken.gives[0][1]),
            target=taken.gives[0][1],
            consumers=((name, 0),),
            kind=CopyKind.MOVE,
            seconds=taken.seconds,
            bytes=work.read + work.written,
            because=_because(graph, node, taken, views, solution, labels),
            measured=taken.measured,
        )


def _because(
    graph: OperatorGraph,
    node: Node,
    taken: Candidate,
    views: list[Candidate],
    solution: Solution,
    labels: Mapping[str, Label],
) -> str:
    what = f"{node.name} ({node.op})"
    if not views:
        return f"no layout leaves every element that {what} moves where it is"
    hindered = {
        index: [need for need in view.needs if not _had(graph, solution, labels, need)]
        for index, view in enumerate(views)
    }
    nearest = min(hindered, key=lambda index: (len(hindered[index]), index))
    view = views[nearest]
    if not hindered[nearest]:
        given = view.gives[0][1].describe()
        return (
            f"a {view.alternative.name} would give {given}; with {taken.gives[0][1].describe()} "
            f"what reads {what} costs less, or may lie in another tensor"
        )
    need = hindered[nearest][0]
    maker = graph.producer(need.value)
    origin = "the caller" if maker is None else f"{maker.name} ({maker.op})"
    return (
        f"a {view.alternative.name} wants {need.value} as {need.layout.describe()}"
        f"{_where(node, need)}; {origin} gives {labels[need.value].describe()}"
        f"{_whereabouts(graph, solution, need)}"
    )


def _had(graph: OperatorGraph, solution: Solution, labels: Mapping[str, Label], need: Need) -> bool:
    maker = graph.producer(need.value)
    lies = None if maker is None else solution.candidates[maker.name].lies
    return directly(labels[need.value], lies, need, need.value in graph.outputs)


def _where(node: Node, need: Need) -> str:
    return f" inside {node.outputs[0]}" if need.place.window else ""


def _whereabouts(graph: OperatorGraph, solution: Solution, need: Need) -> str:
    """Where a value lies that cannot lie in a window."""
    if not need.place.window:
        return ""
    if need.value in graph.inputs or need.value in graph.outputs:
        return ", in memory of the caller"
    others = [
        user.name
        for user, position in graph.consumers(need.value)
        if user.name in solution.candidates
        for other in solution.candidates[user.name].needs
        if other.position == position and other.place.window
    ]
    return f", inside the output of {others[0]}" if others else ""
