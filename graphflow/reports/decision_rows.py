"""The decisions as a table for people: a row for each tensor, and a sentence that sums up.

In: a report as plain values.  Out: `Decisions`; `graphflow.cli.drawing` prints them.  What always
holds: a report of another structure raises KeyError, TypeError or ValueError.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from graphflow.base.decisions import CONSTANT, REMOVED, microseconds

INPUT = "input"
"""The operator of a graph input, in the table."""

SECTION = "section"
"""The kind of the nodes of a program that run in onnxruntime."""

MOST_NAMED = 3
"""The most nodes of the next best plan that the sentence names."""


class DecisionRow(Struct, frozen=True):
    """The decision about one tensor in texts and numbers.

    `operator` is that of the imported model; `layout` has the cost of a pin; `padding` and
    `variant` are empty where there is none.  `place` is that of the node of the program that writes
    the tensor, None for a tensor that no run computes.  `seconds` are the price of that node, None
    for a tensor that it keeps in registers, and `copies_seconds` that of the copies of the tensor.
    `bytes` are those of its box in memory.  `is_foreign`: a section of onnxruntime writes or reads
    it.
    """

    tensor: str
    operator: str
    shape: str
    where: str
    layout: str
    padding: str
    variant: str
    conversions: tuple[str, ...]
    place: int | None
    seconds: float | None
    copies_seconds: float
    bytes: int | None
    is_foreign: bool

    @property
    def is_computed(self) -> bool:
        """Whether a run has the tensor: no constant, and not removed."""
        return self.where not in (CONSTANT, REMOVED)

    @property
    def price(self) -> float | None:
        """The price of the node that writes it and of its copies, together; None if nothing runs
        for it."""
        found = (self.seconds or 0.0) + self.copies_seconds
        return None if self.seconds is None and not self.copies_seconds else found


class Decisions(Struct, frozen=True):
    """The decisions as a table: a row for each tensor, and a sentence that sums up.

    `operators` are those of each node of the program.  `blocks` are nodes that repeat: the first
    node of each repetition, and the node after the last one.
    """

    title: str
    rows: tuple[DecisionRow, ...]
    operators: tuple[str, ...]
    blocks: tuple[tuple[tuple[int, ...], int], ...]
    summary: str


def reported_decisions(report: Mapping[str, Any]) -> Decisions:
    """The decisions of the report of one program."""
    nodes, blocks = report["program"]["nodes"], report["program"]["blocks"]
    writers = _Writers(nodes)
    pinned = {pin["edge"]: pin for pin in report["pinned"]}
    return Decisions(
        title=f"{report['model']} for {report['target']}",
        rows=tuple(_row(edge, writers, pinned.get(edge["name"])) for edge in report["edges"]),
        operators=tuple("+".join(node["operators"]) or str(node["kind"]) for node in nodes),
        blocks=tuple((tuple(block["starts"]), block["after"]) for block in blocks),
        summary=summary_sentence(report),
    )


class _Writers:
    """Which node of the program writes each tensor."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        self.nodes = nodes
        own = [(place, node) for place, node in enumerate(nodes) if node["kind"] not in COPIES]
        self.by_output = {name: place for place, node in own for name in _written(node)}
        self.by_name = {node["name"]: place for place, node in own if node["kind"] not in OUTER}
        sections = [node for node in nodes if node["kind"] == SECTION]
        self.foreign = {name for node in sections for name in _written(node)}
        self.foreign |= {read["tensor"] for node in sections for read in node["inputs"]}

    def place(self, edge: Mapping[str, Any]) -> int | None:
        """The node that writes a tensor, or keeps it in registers; an input is its own node."""
        return self.by_output.get(edge["name"], self.by_name.get(edge["producer"]))


def _written(node: Mapping[str, Any]) -> tuple[str, ...]:
    """The tensors that a node writes."""
    return tuple(output["tensor"] for output in node["outputs"])


COPIES = ("convert", "fill", "copy")
"""The kinds of nodes that copy a tensor and keep its name."""

OUTER = ("input", "output", "check")
"""The kinds of nodes that are not executed."""


def _row(edge: Mapping[str, Any], writers: _Writers, pin: Mapping[str, Any] | None) -> DecisionRow:
    name, place = edge["name"], writers.place(edge)
    node = None if place is None else writers.nodes[place]
    writes = node is not None and name in _written(node)
    given = node is not None and node["kind"] == INPUT
    copies = [*_copies(edge["conversions"])]
    return DecisionRow(
        tensor=name,
        operator=INPUT if given else edge["operator"] or "",
        shape=_shape(edge),
        where=edge["where"],
        layout=_layout(edge, pin),
        padding="; ".join(f"{known['region']} = {known['fact']}" for known in edge["regions"]),
        variant=edge["variant"] or "",
        conversions=tuple(text for text, _ in copies),
        place=place,
        seconds=node["seconds"] if node is not None and writes else None,
        copies_seconds=sum((seconds for _, seconds in copies), 0.0),
        bytes=edge["bytes"],
        is_foreign=name in writers.foreign,
    )


def _shape(edge: Mapping[str, Any]) -> str:
    """The logical shape, with the names of the extents that a run decides."""
    named = {size["axis"]: size["name"] for size in edge["sizes"]}
    extents = enumerate(edge["logical_shape"])
    return "×".join(str(named.get(axis, extent)) for axis, extent in extents) or "scalar"


def _layout(edge: Mapping[str, Any], pin: Mapping[str, Any] | None) -> str:
    """The layout as text, with the cost of a pin."""
    text = str(edge["layout"] or "")
    if pin is None:
        return text
    if pin["layout"] != text:
        text += f", used as {pin['layout']}"
    cost = pin["cost"]
    return f"{text}, pinned" + ("" if cost is None else f", costs {microseconds(cost)}")


def _copies(made: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """What moves the elements of a tensor, in words, with its price; a copy for several readers is
    one.  A node of the model that only moves elements has its price in its own row.
    """
    readers: dict[tuple[str, str, float, str], list[str]] = {}
    for copy in made:
        about = copy["kind"], copy["edge_type"], copy["seconds"], copy["because"]
        readers.setdefault(about, []).append(copy["consumer"])
    for (kind, edge_type, seconds, because), consumers in readers.items():
        names = ", ".join(dict.fromkeys(consumers))
        if kind == "move":
            yield f"moved by {names}: {because}", 0.0
            continue
        verb = {"convert": "converted to", "fill": "filled to"}.get(kind, "copied to")
        yield f"{verb} {edge_type} for {names}, {microseconds(seconds)}: {because}", seconds


def summary_sentence(report: Mapping[str, Any]) -> str:
    """The counts of the report, and the price of the plan, in one sentence."""
    counts = report["summary"]
    return (
        f"{counts['edges']} tensors; {counts['conversions']} conversions are executed "
        f"({counts['boundary_conversions']} at the boundary, {counts['inner_conversions']} inside) "
        f"and {counts['fills']} fills; {counts['cancelled_pairs']} crop/pad pairs cancelled, "
        f"{counts['refused_pairs']} refused; {100 * counts['vectorized_share']:.0f} % of the "
        f"multiply-adds run in lanes; {_foreign(counts)}{_seconds(report)}"
    )


def _foreign(counts: Mapping[str, Any]) -> str:
    nodes = counts["foreign_nodes"]
    return f"{nodes} nodes run in onnxruntime; " if nodes else ""


def _seconds(report: Mapping[str, Any]) -> str:
    """The price of a run, how it is known, and what the next best plan would cost, in words."""
    seconds, counts = report["seconds"], report["summary"]
    text = f"estimated {1e3 * seconds:.3f} ms a run"
    measured = counts["measured_prices"]
    if measured:
        text += f" ({measured} of {measured + counts['estimated_prices']} prices measured)"
    if report["gap"]:
        text += f", at most {100 * report['gap']:.2g} % more than the best plan"
    if report["whole"] is not None:
        text += f"; the plan has {report['whole']['because']}"
    sharing = report["sharing"]
    if sharing is not None and sharing["alone"]:
        alone = "" if sharing["pays"] else "one thread runs it: "
        text += f"; {alone}{sharing['because']}"
    if report["unpinned_seconds"] is not None:
        pins = max(0.0, seconds - report["unpinned_seconds"])
        text += f"; the pins cost {microseconds(pins)} of that"
    if report["next_best"] is not None:
        text += _next_best(report["next_best"], seconds)
    return text


def _next_best(other: Mapping[str, Any], seconds: float) -> str:
    nodes = [differs["node"] for differs in other["differs"]]
    more = " …" if nodes[MOST_NAMED:] else ""
    return (
        f"; the next best plan has other variants of {', '.join(nodes[:MOST_NAMED])}{more} and "
        f"takes {microseconds(other['seconds'] - seconds)} more"
    )
