"""A program as Graphviz text, which `dot` draws.

In: a `ProgramGraph`.  Out: text in the DOT language.  What always holds: names are quoted, so that
any name of a model is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from graphflow.base.decisions import microseconds
from graphflow.reports.decision_rows import COPIES, INPUT, SECTION
from graphflow.reports.program_graph import (
    CHECK,
    OUTPUT,
    VIEW,
    ProgramGraph,
    ProgramNode,
    ProgramValue,
)

LAYOUT_COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b"
)  # fmt: skip
"""Colours that people with impaired colour vision can tell apart (Okabe and Ito), and two more; a
layout has the next one when it is met first."""

FILLS = {**dict.fromkeys((*COPIES, "move"), "#f7c6c6"), SECTION: "#d9d9d9"}
"""The colours of nodes that only move elements, and of those that onnxruntime runs."""

SHAPES = {INPUT: "invhouse", OUTPUT: "house", CHECK: "house"}


def graphviz_text(graph: ProgramGraph) -> str:
    """The digraph: repetitions of blocks are clusters, edges have the colour of their layout, and
    bold ones carry padding."""
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: ProgramGraph) -> Iterator[str]:
    yield "digraph graphflow {"
    yield f"  label={_quoted(graph.title)}; labelloc=t;"
    yield f"  tooltip={_quoted(graph.summary)};"
    yield '  node [shape=box, style="rounded,filled", fillcolor="#ffffff", fontname=Helvetica];'
    yield "  edge [fontname=Helvetica, fontsize=10];"
    inside = {
        place: (number, repetition)
        for number, (starts, after) in enumerate(graph.blocks)
        for repetition, (first, last) in enumerate(zip(starts, (*starts[1:], after), strict=True))
        for place in range(first, last)
    }
    for node in graph.nodes:
        if node.place not in inside:
            yield f"  {_node(node)}"
    for number, (starts, _) in enumerate(graph.blocks):
        for repetition in range(len(starts)):
            title = f"block {number + 1}, {repetition + 1} of {len(starts)}"
            yield f"  subgraph cluster_{number}_{repetition} {{"
            yield f"    label={_quoted(title)}; style=dashed;"
            members = (n for n in graph.nodes if inside.get(n.place) == (number, repetition))
            yield from (f"    {_node(node)}" for node in members)
            yield "  }"
    yield from _edges(graph)
    yield "}"


def _node(node: ProgramNode) -> str:
    texts = [node.name, *filter(None, (node.operator, node.variant))]
    if node.seconds is not None:
        texts.append(microseconds(node.seconds))
    about = {
        "label": "\n".join(texts),
        "tooltip": "\n".join(f"{word}: {text}" for word, text in node.about),
    }
    if node.kind in SHAPES:
        about["shape"] = SHAPES[node.kind]
    if node.kind in FILLS:
        about["fillcolor"] = FILLS[node.kind]
    if node.kind == VIEW:  # nothing runs
        about["style"] = "rounded,dashed"
    return f"n{node.place} [{_attributes(about)}];"


def _edges(graph: ProgramGraph) -> Iterator[str]:
    colours: dict[str, str] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                layout = (value.edge_type or "").partition(" [")[0]
                colour = LAYOUT_COLOURS[len(colours) % len(LAYOUT_COLOURS)]
                about = _edge(value, colours.setdefault(layout, colour))
                yield f"  n{value.writer} -> n{node.place} [{_attributes(about)}];"


def _edge(value: ProgramValue, colour: str) -> dict[str, str]:
    shapes = value.logical_shape, value.physical_shape
    texts = [value.tensor]
    if value.edge_type is not None:
        texts.append(value.edge_type)
    if value.physical_shape is not None:
        texts.append("×".join(map(str, value.physical_shape)) or "scalar")
    about = {
        "label": "\n".join(texts),
        "tooltip": "\n".join(f"{word}: {text}" for word, text in value.about),
        "color": colour,
    }
    if None not in shapes and prod(shapes[1] or ()) > prod(shapes[0] or ()):
        about["style"] = "bold"
    return about


def _attributes(about: dict[str, str]) -> str:
    return ", ".join(f"{name}={_quoted(text)}" for name, text in about.items())


def _quoted(text: str) -> str:
    """A quoted string of the DOT language with line breaks as `\\n`."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("\r", " ")
    return '"' + plain.replace("\n", "\\n").replace("\0", " ") + '"'
