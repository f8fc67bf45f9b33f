"""Tests of the Graphviz text of a program: a parser reads it, whatever names the model has."""

from functools import cache
from typing import Any

import pydot
import pytest

import graphflow as gf
from graphflow.models import ModelBuilder
from graphflow.reports.graphviz import graphviz_text
from graphflow.reports.program_graph import program_graph
from support.models.hostile_names import INNER, INPUT, hostile_names

pytestmark = [
    pytest.mark.usefixtures("code_is_left_out"),
    pytest.mark.filterwarnings("ignore:.*deprecated - use"),  # by pydot of pyparsing
]


def parsed(exe: gf.Executable) -> Any:
    graphs = pydot.graph_from_dot_data(graphviz_text(program_graph(exe.report())))
    assert graphs is not None and len(graphs) == 1
    return graphs[0]


@cache
def hostile() -> Any:
    return parsed(gf.compile(hostile_names(), threads=1, layouts={INNER: "blocked"}))


def text(item: Any, name: str) -> str:
    """An attribute without its quotes and escapes."""
    quoted: str = item.get(name)
    assert quoted[0] == quoted[-1] == '"'
    return quoted[1:-1].replace("\\\\", "\0").replace('\\"', '"').replace("\\n", "\n").replace(
        "\0", "\\"
    )  # fmt: skip


def test_nodes_and_edges_are_those_of_the_program() -> None:
    exe = gf.compile(hostile_names(), threads=1, layouts={INNER: "blocked"})
    program = exe.report()["program"]
    graph = hostile()
    nodes = {node.get_name(): node for node in graph.get_nodes()}
    drawn = [nodes[f"n{place}"] for place in range(len(program["nodes"]))]
    for node, item in zip(program["nodes"], drawn, strict=True):
        assert text(item, "label").startswith(node["name"])
    arrows = [
        (f"n{read['from']}", f"n{place}")
        for place, node in enumerate(program["nodes"])
        for read in node["inputs"]
        if read["from"] is not None
    ]
    assert [(e.get_source(), e.get_destination()) for e in graph.get_edges()] == arrows


def test_names_stay_what_they_are() -> None:
    labels = [text(edge, "label") for edge in hostile().get_edges()]
    assert any(label.startswith(f"{INPUT}\n") for label in labels)
    assert any(label.startswith(f"{INNER}\n") for label in labels)


def test_padded_edges_are_bold_and_colours_are_those_of_layouts() -> None:
    colours: dict[str, set[str]] = {}
    for edge in hostile().get_edges():
        tensor, layout = text(edge, "label").removeprefix(INPUT).removeprefix(INNER).split("\n")[:2]
        colours.setdefault(layout.partition(" [")[0], set()).add(edge.get("color"))
        assert (edge.get("style") == '"bold"') == ("pad(1)" in layout), (tensor, layout)
    assert all(len(found) == 1 for found in colours.values())
    assert len({colour for found in colours.values() for colour in found}) == len(colours) > 1


def test_repetitions_are_clusters() -> None:
    b = ModelBuilder(3)
    x = b.input("x", (1, 8, 4, 4))
    for _ in range(4):
        x = b.node("MaxPool", [b.relu(b.conv(x, 8, 1))], kernel_shape=[1, 1])
    b.output(x)
    exe = gf.compile(b.model(), threads=1)
    clusters = parsed(exe).get_subgraphs()
    blocks = exe.report()["program"]["blocks"]
    assert len(clusters) == sum(len(block["starts"]) for block in blocks) > 1
    assert text(clusters[0], "label") == f"block 1, 1 of {len(blocks[0]['starts'])}"
    inside = {node.get_name() for cluster in clusters for node in cluster.get_nodes()}
    assert f"n{blocks[0]['starts'][0]}" in inside and "n0" not in inside
