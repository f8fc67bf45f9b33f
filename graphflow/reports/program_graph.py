"""The program of a report as a graph of named values, from which pictures are written.

In: a report as plain values.  Out: a `ProgramGraph`.  What always holds: every value has a name of
its own; graph inputs and outputs have those of the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from graphflow.base.decisions import microseconds
from graphflow.reports.decision_rows import COPIES, INPUT, summary_sentence

OUTPUT, CHECK, VIEW = "output", "check", "view"
"""Kinds of nodes."""


class ProgramValue(Struct, frozen=True):
    """A tensor in one edge type: as its node writes it, or a copy of it.

    `dtype` and the shapes are None where the report does not have them; `about` are pairs of a
    word and a text.
    """

    name: str
    tensor: str
    writer: int
    dtype: str | None
    logical_shape: tuple[int, ...] | None
    edge_type: str | None
    physical_shape: tuple[int, ...] | None
    about: tuple[tuple[str, str], ...]


class ProgramNode(Struct, frozen=True):
    """A node: `inputs` are values, None for a constant, and `outputs` too; `operator` is what it
    computes in short; `about` are pairs of a word and a text."""

    place: int
    name: str
    kind: str
    operator: str
    variant: str | None
    seconds: float | None
    because: str
    inputs: tuple[ProgramValue | None, ...]
    outputs: tuple[ProgramValue, ...]
    about: tuple[tuple[str, str], ...]


class ProgramGraph(Struct, frozen=True):
    """The nodes in the order of a run, with the blocks as in `Decisions`."""

    title: str
    summary: str
    nodes: tuple[ProgramNode, ...]
    blocks: tuple[tuple[tuple[int, ...], int], ...]
    about: tuple[tuple[str, str], ...] = field(default=())

    def of_kind(self, kind: str) -> Iterator[ProgramNode]:
        """The nodes of a kind."""
        return (node for node in self.nodes if node.kind == kind)


def program_graph(report: Mapping[str, Any]) -> ProgramGraph:
    """The graph of the report of one program."""
    return _ReportReader(report).graph()


class _ReportReader:
    """The values of the graph while they are named."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        self.report = report
        self.nodes: Sequence[Mapping[str, Any]] = report["program"]["nodes"]
        self.edges = {edge["name"]: edge for edge in report["edges"]}
        self.pairs = _pairs(report)
        self.refusals = _refusals(report)
        # An output has the name of the model, also where it is a copy of the tensor.
        outputs = (node for node in self.nodes if node["kind"] == OUTPUT)
        self.returned = {
            read["tensor"]: read["from"] for node in outputs for read in node["inputs"]
        }
        self.taken: set[str] = {
            *self.returned,
            *(node["name"] for node in self.nodes if node["kind"] == INPUT),
        }

    def graph(self) -> ProgramGraph:
        values: dict[tuple[int, str], ProgramValue] = {}
        for place, node in enumerate(self.nodes):
            for output in node["outputs"]:
                values[place, output["tensor"]] = self._value(place, node, output)
        report, program = self.report, self.report["program"]
        return ProgramGraph(
            title=f"{report['model']} for {report['target']}",
            summary=summary_sentence(report),
            nodes=tuple(self._node(place, node, values) for place, node in enumerate(self.nodes)),
            blocks=tuple((tuple(block["starts"]), block["after"]) for block in program["blocks"]),
            about=(
                ("model", str(report["model"])),
                ("target", str(report["target"])),
                ("summary", summary_sentence(report)),
                ("assumed", "; ".join(_assumption(one) for one in report["assumed"])),
            ),
        )

    def _value(
        self, place: int, node: Mapping[str, Any], output: Mapping[str, Any]
    ) -> ProgramValue:
        tensor, copied = str(output["tensor"]), node["kind"] in COPIES
        own = self.returned.get(tensor, place) == place or node["kind"] == INPUT
        logical, physical = output["logical_shape"], output["physical_shape"]
        name = tensor if own and (not copied or tensor in self.returned) else None
        return ProgramValue(
            name=self._unused(f"{tensor} as {output['edge_type']}") if name is None else name,
            tensor=tensor,
            writer=place,
            dtype=output["dtype"],
            logical_shape=None if logical is None else tuple(logical),
            edge_type=output["edge_type"],
            physical_shape=None if physical is None else tuple(physical),
            about=tuple(self._about_value(tensor, output, node if copied else None)),
        )

    def _unused(self, wanted: str) -> str:
        """A name that no other value has."""
        name, number = wanted, 2
        while name in self.taken:
            name, number = f"{wanted} ({number})", number + 1
        self.taken.add(name)
        return name

    def _about_value(
        self, tensor: str, output: Mapping[str, Any], copy: Mapping[str, Any] | None
    ) -> Iterator[tuple[str, str]]:
        yield "layout", str(output["edge_type"])
        yield "logical shape", str(output["logical_shape"])
        yield "physical shape", str(output["physical_shape"])
        if copy is not None:
            yield "a copy of", tensor
            yield "reason", copy["because"]
            return
        edge = self.edges.get(tensor)
        if edge is None:
            yield "reason", "the model does not have this tensor: the compiler added it"
            return
        yield "decision", edge["sentence"]
        yield "reason", f"{edge['reason']} ({edge['decided_by']})"
        for known in edge["regions"]:
            yield f"region {known['region']}", known["fact"]
        for number, use in enumerate(edge["demands"]):
            proofs = "; ".join(use["proofs"])
            text = f"in {use['layout']}; demand on the padding: {use['demand']}; proof: {proofs}"
            yield f"read {number + 1} by {use['consumer']}", text
        for number, other in enumerate(edge["others"]):
            yield f"instead {number + 1}", f"{other['edge_type']}: {other['price']}"
        yield from self.pairs.get(tensor, ())

    def _node(
        self,
        place: int,
        node: Mapping[str, Any],
        values: Mapping[tuple[int, str], ProgramValue],
    ) -> ProgramNode:
        return ProgramNode(
            place=place,
            name=node["name"],
            kind=node["kind"],
            operator=node["kind"] if node["kind"] in COPIES else "+".join(node["operators"]),
            variant=node["variant"],
            seconds=node["seconds"],
            because=node["because"],
            inputs=tuple(
                None if read["from"] is None else values[read["from"], read["tensor"]]
                for read in node["inputs"]
            ),
            outputs=tuple(values[place, output["tensor"]] for output in node["outputs"]),
            about=tuple(self._about_node(node)),
        )

    def _about_node(self, node: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        yield "kind", node["kind"]
        if node["kind"] in COPIES:
            yield "copies", "+".join(node["operators"])
        for word in ("variant", "because"):
            if node[word]:
                yield word, node[word]
        if node["seconds"] is not None:
            known = "measured" if node["measured"] else "estimated"
            yield "price", f"{microseconds(node['seconds'])}, {known}"
        if node["bytes"] is not None:
            yield "bytes read and written", str(node["bytes"])
        if node["origins"]:
            yield "nodes of the model", ", ".join(node["origins"])
        for read in node["inputs"]:
            yield f"input {read['parameter']}", self._read(read)
        for number, note in enumerate(node["notes"]):
            yield f"note {number + 1}", note
        for number, refused in enumerate(self.refusals.get(node["name"], ())):
            yield f"refused {number + 1}", refused

    def _read(self, read: Mapping[str, Any]) -> str:
        """What an input reads, in words."""
        tensor = str(read["tensor"])
        if read["from"] is not None:
            return f"{tensor} in {read['edge_type']}"
        edge = self.edges.get(tensor)
        return f"{tensor}, a constant" + ("" if edge is None else f": {edge['sentence']}")


def _pairs(report: Mapping[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """What became of the pairs of crop and pad of each tensor."""
    found: dict[str, list[tuple[str, str]]] = {}
    for number, gone in enumerate(report["cancelled"]):
        about = f"cancelled pair {number + 1}", gone["proof"]
        found.setdefault(gone["edge"], []).append(about)
    for number, kept in enumerate(report["refused"]):
        about = f"refused pair {number + 1}", f"{kept['reason']}; instead {kept['repair']}"
        found.setdefault(kept["edge"], []).append(about)
    return found


def _refusals(report: Mapping[str, Any]) -> dict[str, list[str]]:
    """The variants that each node does not have, and the steps that its variant lacks."""
    found: dict[str, list[str]] = {}
    for refused in report["refusals"]:
        what = "a step of " if refused["chosen"] else ""
        for node in refused["nodes"]:
            found.setdefault(node, []).append(f"{what}{refused['variant']}: {refused['reason']}")
    return found


def _assumption(assumed: Mapping[str, Any]) -> str:
    return f"{assumed['tensor']} is {assumed['assumption']}"
