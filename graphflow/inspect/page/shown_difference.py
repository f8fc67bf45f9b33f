"""The differences between two reports, on the graph of the second.

In: two reports as plain values.  Out: a `ShownModel` with `changes`.  What always holds: nothing is
shown that the reports do not have; so there are no kernels and index maps, and prices of nodes only
where the reports have the program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from graphflow.base.decisions import CONSTANT
from graphflow.base.errors import InvalidModel
from graphflow.base.fields import replace
from graphflow.inspect.diff import changes
from graphflow.inspect.page.page_data import (
    ShownArrow,
    ShownEdgeType,
    ShownGraph,
    ShownLayout,
    ShownModel,
    ShownNode,
    ShownOther,
    ShownPair,
    ShownPriceChange,
    ShownReading,
    ShownTensor,
)
from graphflow.inspect.page.shown_layouts import layout_family
from graphflow.inspect.tensor_decisions import GRAPH_OUTPUT
from graphflow.plan import CopyKind


def shown_difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> ShownModel:
    """What differs, and the graph of `after`.  Raises InvalidModel where one is no report."""
    found = changes(before, after)
    compared, seconds = _compared(before)
    try:
        edges = [edge for edge in after["edges"] if edge["layout"] is not None]
        places = {edge["name"]: place for place, edge in enumerate(edges)}
        pairs = _pairs(after)
        return ShownModel(
            model=str(after["model"]),
            target=str(after["target"]),
            summary="",
            seconds=float(after["seconds"]),
            layouts=tuple(map(_layout, edges)),
            edge_types=tuple(_edge_type(edge, place) for place, edge in enumerate(edges)),
            tensors=tuple(
                _tensor(edge, places.get(edge["name"]), pairs.get(edge["name"], ()))
                for edge in after["edges"]
            ),
            program=_priced(_Graph(edges).shown(), _prices(after), float(after["seconds"])),
            imported=ShownGraph((), (), ()),
            kernels={},
            changes=found,
            compared=compared,
            compared_seconds=seconds,
            price_changes=_price_changes(_prices(before), _prices(after)),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidModel(f"the second is no report of this version: {error}") from None


def _compared(report: Mapping[str, Any]) -> tuple[str, float]:
    """What the other plan is called, and the price of a run of it."""
    try:
        return f"{report['model']} for {report['target']}", float(report["seconds"])
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidModel(f"the first is no report of this version: {error}") from None


def _prices(report: Mapping[str, Any]) -> dict[str, float]:
    """The prices of the nodes of the program, by name; those of one name together."""
    found: dict[str, float] = {}
    for node in report.get("program", {}).get("nodes", ()):
        if node["seconds"] is not None:
            found[node["name"]] = found.get(node["name"], 0.0) + node["seconds"]
    return found


def _price_changes(
    before: Mapping[str, float], after: Mapping[str, float]
) -> tuple[ShownPriceChange, ...]:
    """The nodes whose price differs, to six digits as in other changes; none if one of the reports
    has no prices."""
    if not before or not after:
        return ()
    found = [
        ShownPriceChange(name, before.get(name), after.get(name))
        for name in {**before, **after}
        if f"{before.get(name, 0.0):.6g}" != f"{after.get(name, 0.0):.6g}"
    ]
    return tuple(sorted(found, key=lambda c: -abs((c.after or 0.0) - (c.before or 0.0))))


def _priced(graph: ShownGraph, prices: Mapping[str, float], total: float) -> ShownGraph:
    """The graph with the price of each node that has one."""
    nodes = tuple(
        replace(node, seconds=prices[node.name], share=prices[node.name] / total)
        if node.name in prices and node.kind not in ("input", "output")
        else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes)


def _layout(edge: Mapping[str, Any]) -> ShownLayout:
    """A layout of which only the name and the shapes are known."""
    logical, physical = tuple(edge["logical_shape"]), tuple(edge["physical_shape"])
    return ShownLayout(
        name=edge["layout"],
        family=layout_family(edge["layout"]),
        logical_shape=logical,
        physical_shape=physical,
        physical=(),
        logical=(),
        regions=tuple(known["region"] for known in edge["regions"]),
        padding_elements=prod(physical) - prod(logical),
    )


def _edge_type(edge: Mapping[str, Any], place: int) -> ShownEdgeType:
    facts = tuple((known["region"], known["fact"]) for known in edge["regions"])
    return ShownEdgeType(edge["layout"], place, facts)


def _pairs(report: Mapping[str, Any]) -> dict[str, tuple[ShownPair, ...]]:
    """The pairs of crop and pad, by tensor; a report does not name the reader."""
    found: dict[str, tuple[ShownPair, ...]] = {}
    for gone in report["cancelled"]:
        pair = ShownPair("a reader", (gone["proof"],))
        found[gone["edge"]] = (*found.get(gone["edge"], ()), pair)
    for kept in report["refused"]:
        pair = ShownPair("a reader", reason=kept["reason"], repair=kept["repair"])
        found[kept["edge"]] = (*found.get(kept["edge"], ()), pair)
    return found


def _tensor(
    edge: Mapping[str, Any], place: int | None, pairs: tuple[ShownPair, ...]
) -> ShownTensor:
    return ShownTensor(
        name=edge["name"],
        dtype=edge["dtype"],
        logical_shape=tuple(edge["logical_shape"]),
        where=edge["where"],
        edge_type=place,
        decided_by=edge["decided_by"],
        reason=edge["reason"],
        producer=edge["producer"],
        consumers=tuple(edge["consumers"]),
        readings=tuple(
            ShownReading(
                consumer=use["consumer"],
                position=-1,
                buffer="",
                layout=use["layout"],
                demand=use["demand"],
                conversion=use["conversion"],
                proofs=tuple(use["proofs"]),
            )
            for use in edge["demands"]
        ),
        pairs=pairs,
        others=tuple(
            ShownOther(
                name=other["edge_type"],
                variant=other["variant"],
                seconds=None,
                measured=False,
                extra=other["extra_seconds"],
                price=other["price"],
            )
            for other in edge["others"]
        ),
        notes=(),
        place=None,
        element_bytes=None,
        lanes=0,
    )


class _Graph:
    """The graph that the edges of a report make, while it is collected."""

    def __init__(self, edges: list[Mapping[str, Any]]) -> None:
        self.nodes: list[ShownNode] = []
        self.arrows: list[ShownArrow] = []
        self.places: dict[str, int] = {}
        self.run = [edge for edge in edges if edge["where"] != CONSTANT]
        self.edge_types = {edge["name"]: place for place, edge in enumerate(edges)}
        for edge in self.run:
            self._writer(edge)
        for edge in self.run:
            self._readers(edge)

    def shown(self) -> ShownGraph:
        """The graph, whose blocks are not looked for: a report does not name operators."""
        return ShownGraph(tuple(self.nodes), tuple(self.arrows), ())

    def _add(self, node: ShownNode) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _writer(self, edge: Mapping[str, Any]) -> None:
        """The node that writes a tensor, or an input."""
        name, producer = edge["name"], edge["producer"]
        if producer is None:
            self.places[f"input {name}"] = self._add(ShownNode("input", name, (), (name,)))
        elif f"node {producer}" not in self.places:
            moves = any(made["kind"] == CopyKind.MOVE for made in edge["conversions"])
            node = ShownNode("move" if moves else "kernel", producer, (), (name,))
            self.places[f"node {producer}"] = self._add(replace(node, variant=edge["variant"]))

    def _readers(self, edge: Mapping[str, Any]) -> None:
        """The arrows of a tensor, by way of a node for each kind of copy."""
        name, producer = edge["name"], edge["producer"]
        start = self.places[f"input {name}" if producer is None else f"node {producer}"]
        copies: dict[str, int] = {}
        for made in edge["conversions"]:
            kind = str(made["kind"])
            if kind != CopyKind.MOVE and kind not in copies:
                title, reads = f"{kind} {name}", (("src", name),)
                node = ShownNode(kind, title, reads, (name,), because=made["because"])
                copies[kind] = self._add(node)
                self._arrow(start, copies[kind], name, self.edge_types[name])
        for reader, copied in dict.fromkeys(_readings(edge)):
            end = self._reader(reader, name)
            if copied is None:
                self._arrow(start, end, name, self.edge_types[name])
            else:  # the report does not have the edge type of what a copy writes
                self._arrow(copies[copied], end, name, None)

    def _reader(self, reader: str, tensor: str) -> int:
        """The place of a reader: an output, or a node, which may write nothing of the model."""
        if reader == GRAPH_OUTPUT:
            return self._add(ShownNode("output", tensor, (("", tensor),)))
        if f"node {reader}" not in self.places:
            self.places[f"node {reader}"] = self._add(ShownNode("kernel", reader))
        return self.places[f"node {reader}"]

    def _arrow(self, start: int, end: int, name: str, edge_type: int | None) -> None:
        self.arrows.append(ShownArrow(start, end, name, edge_type))


def _readings(edge: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Each reader of a tensor, and the kind of copy that it takes, if any."""
    for use in edge["demands"]:
        yield use["consumer"], use["conversion"]
