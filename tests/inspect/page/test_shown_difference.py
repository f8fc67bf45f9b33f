"""Tests of the differences between two plans on a graph: they are those of `changes`."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from graphflow.base.errors import InvalidModel
from graphflow.base.options import Options
from graphflow.base.processors import PROCESSORS
from graphflow.inspect import changes, difference_page, report
from graphflow.inspect.page.page_data import ShownModel
from graphflow.inspect.page.shown_difference import shown_difference
from graphflow.models.zoo import zoo_model
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from support.targets import USUAL

pytestmark = pytest.mark.usefixtures("code_is_left_out")

NARROW = "broadwell-guest"


@cache
def reported(processor: str) -> Mapping[str, Any]:
    model, target = zoo_model("probe:concat:58", 0), PROCESSORS[processor]
    options = Options(threads=1, winograd=False)
    return report(compile_graph(CompileRequest(model, target=target, options=options)))


@cache
def shown() -> ShownModel:
    return shown_difference(reported(NARROW), reported(USUAL))


def priced(report: Mapping[str, Any], **seconds: float | None) -> Mapping[str, Any]:
    """The report with a program of nodes with these prices."""
    nodes = [{"name": name.replace("__", " "), "seconds": s} for name, s in seconds.items()]
    return {**report, "program": {"nodes": nodes}}


def test_prices_of_nodes_are_compared_where_the_reports_have_them() -> None:
    before = priced(reported(NARROW), conv_1_node=1e-4, conv_2_node=2e-4, convert__input=3e-4)
    prices = {"conv_1_node": 1e-4, "conv_2_node": 1.5e-4, "conv_3_node": None}
    after = priced(reported(USUAL), **prices, convert__conv_3=1e-5)
    found = shown_difference(before, after)
    assert [(c.node, c.before, c.after) for c in found.price_changes] == [
        ("convert input", 3e-4, None),
        ("conv_2_node", 2e-4, 1.5e-4),
        ("convert conv_3", None, 1e-5),
    ]
    prices = {n.name: (n.seconds, n.share) for n in found.program.nodes if n.seconds is not None}
    total = reported(USUAL)["seconds"]
    wanted = {"conv_1_node": 1e-4, "conv_2_node": 1.5e-4, "convert conv_3": 1e-5}
    assert prices == {name: (s, pytest.approx(s / total)) for name, s in wanted.items()}
    assert shown_difference(priced(reported(NARROW)), after).price_changes == ()
    changed = shown().price_changes
    saved = sum((change.before or 0.0) - (change.after or 0.0) for change in changed)
    assert saved == pytest.approx(reported(NARROW)["seconds"] - total)


def test_changes_are_those_of_the_reports() -> None:
    assert shown().changes == changes(reported(NARROW), reported(USUAL))
    assert shown().compared == f"probe_concat_58 for {NARROW}"
    assert shown().compared_seconds == reported(NARROW)["seconds"]
    assert len({change.name for change in shown().changes} & {t.name for t in shown().tensors}) > 1


def test_a_report_does_not_differ_from_itself() -> None:
    assert shown_difference(reported(USUAL), reported(USUAL)).changes == ()


def test_the_graph_is_that_of_the_second_report() -> None:
    program = shown().program
    kinds = {node.name: node.kind for node in program.nodes}
    assert kinds["convert conv_3"] == "convert" and kinds["conv_1_node"] == "kernel"
    ends = {(program.nodes[a.start].name, program.nodes[a.end].name) for a in program.arrows}
    assert ends == {
        ("input", "conv_1_node"),
        ("input", "convert input"),
        ("convert input", "conv_2_node"),
        ("conv_1_node", "concat_1_node"),
        ("conv_2_node", "concat_1_node"),
        ("concat_1_node", "conv_3_node"),
        ("conv_3_node", "convert conv_3"),
        ("convert conv_3", "conv_3"),
    }
    for edge in reported(USUAL)["edges"]:
        tensor = next(t for t in shown().tensors if t.name == edge["name"])
        assert [use.demand for use in tensor.readings] == [u["demand"] for u in edge["demands"]]
        if tensor.edge_type is not None:
            assert shown().edge_types[tensor.edge_type].name == edge["layout"]


def test_what_a_conversion_writes_is_not_known_of_a_report() -> None:
    program = shown().program
    kinds = ("convert", "copy", "fill")
    for arrow in program.arrows:
        assert (arrow.edge_type is None) == (program.nodes[arrow.start].kind in kinds)


@pytest.mark.parametrize("missing", ["model", "cancelled", "edges"])
def test_other_values_are_refused(missing: str) -> None:
    broken = {key: value for key, value in reported(USUAL).items() if key != missing}
    with pytest.raises(InvalidModel, match="no report"):
        difference_page(reported(USUAL), broken)
    if missing == "model":
        with pytest.raises(InvalidModel, match="the first is no report"):
            difference_page(broken, reported(USUAL))


def test_edges_of_another_shape_are_refused() -> None:
    edges = [{**edge, "demands": [{}]} for edge in reported(USUAL)["edges"]]
    with pytest.raises(InvalidModel, match="the second is no report"):
        difference_page(reported(USUAL), {**reported(USUAL), "edges": edges})
