"""Record which variants of a plan are correct only under the user's assumptions about inputs.

In: the chosen candidates, and the facts that hold under the assumptions.  Out: a `Relied` for each
use of a fact that does not hold without the assumptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from graphflow.flow.candidates.candidates import Candidate
from graphflow.graph import OperatorGraph, contents
from graphflow.layout import Fact
from graphflow.plan import Relied


def reliances(
    graph: OperatorGraph, chosen: Iterable[Candidate], facts: Mapping[str, Fact]
) -> tuple[Relied, ...]:
    """The records, in the order of the nodes and of their inputs."""
    without = contents(graph)
    origins = _origins(graph, {name for name in graph.inputs if facts[name] != without[name]})
    return tuple(
        Relied(candidate.node, value, facts[value], origins[value])
        for candidate in chosen
        for value in dict.fromkeys(_relied_on(graph, candidate))
        if facts[value] != without[value]
    )


def _relied_on(graph: OperatorGraph, candidate: Candidate) -> Iterator[str]:
    """The values about whose contents a candidate relies on a fact."""
    node = graph.node(candidate.node)
    for buffer, value in zip(node.func.inputs, node.inputs, strict=True):
        if buffer.name in candidate.rests_on:
            yield value


def _origins(graph: OperatorGraph, assumed: set[str]) -> dict[str, tuple[str, ...]]:
    """For each value the assumed inputs that it is computed from, in the order of the inputs."""
    found: dict[str, set[str]] = {n: {n} & assumed for n in (*graph.inputs, *graph.initializers)}
    for node in graph.nodes:
        reached: set[str] = set().union(*(found[value] for value in node.inputs))
        found.update(dict.fromkeys(node.outputs, reached))
    return {v: tuple(n for n in graph.inputs if n in names) for v, names in found.items()}
