"""Tests of the report: it is complete, consistent, and agrees with the program that runs."""

import functools
import io
import json
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from rich.console import Console

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.cli.decision_table import show_table
from graphflow.frontends import tensor_names
from graphflow.inspect import movement_kind, summary_line
from graphflow.models import ModelBuilder
from graphflow.tir import parse

pytestmark = pytest.mark.decisions


def residual_model() -> onnx.ModelProto:
    """Odd channels, a residual add, a constant subgraph, an identity, a value nobody needs."""
    build = ModelBuilder(seed=3)
    x = build.input("x", (1, 3, 12, 12))
    stem = build.relu(build.conv(x, 18, 3, pads=[1, 1, 1, 1]))
    inner = build.conv(build.node("Identity", [stem]), 18, 1)
    total = build.add(inner, stem)
    scale = build.add(build.constant(np.float32([1.0]), "one"), build.constant(np.float32([2.0])))
    build.node("Neg", [total])
    build.output(build.node("Mul", [total, scale]))
    return build.model()


@functools.cache
def compiled() -> gf.Executable:
    return gf.compile(residual_model(), threads=1)


@functools.cache
def report() -> dict[str, Any]:
    return compiled().report()


def edge(name: str) -> dict[str, Any]:
    return next(found for found in report()["edges"] if found["name"] == name)


def test_every_tensor_of_the_model_appears_once_and_no_other() -> None:
    names = [found["name"] for found in report()["edges"]]
    assert len(names) == len(set(names))
    assert set(names) == set(tensor_names(residual_model()))


def test_the_report_is_plain_and_complete() -> None:
    assert json.loads(json.dumps(report())) == report()
    assert set(report()) == {
        "schema", "model", "target", "edges", "program", "cancelled", "refused", "assumed",
        "pinned", "seconds", "unpinned_seconds", "gap", "whole", "next_best", "sharing",
        "validation", "summary", "foreign", "guards", "trimmed", "refusals", "states",
        "integer_products", "unrounded",
        "unseparated_products", "rows", "rounded_products",
    }  # fmt: skip
    wanted = {
        "name", "producer", "consumers", "dtype", "logical_shape", "where", "physical_shape",
        "layout", "regions", "demands", "decided_by", "conversions",
    }  # fmt: skip
    for found in report()["edges"]:
        assert wanted <= set(found)
    assert {
        "edges", "conversions", "boundary_conversions", "inner_conversions", "fills",
        "cancelled_pairs", "folded_constants", "vectorized_share",
    } <= set(report()["summary"])  # fmt: skip


def test_where_a_tensor_is_follows_from_what_became_of_it() -> None:
    assert edge("x")["where"] == "stored"
    assert edge("relu_1")["where"] == "stored"
    assert edge("conv_1")["where"] == "register"
    assert edge("weight_1")["where"] == "constant"
    assert edge("add_2")["where"] == "constant"
    assert edge("identity_1")["where"] == "removed"
    assert "relu_1 holds the same" in edge("identity_1")["reason"]
    assert edge("neg_1")["where"] == "removed"
    assert edge("conv_1")["physical_shape"] is None is edge("conv_1")["layout"]


def test_shapes_are_logical_and_boxes_hold_them() -> None:
    for found in report()["edges"]:
        if found["physical_shape"] is not None:
            logical, physical = np.prod(found["logical_shape"]), np.prod(found["physical_shape"])
            assert physical >= logical
            assert bool(found["regions"]) == bool(physical > logical)
    assert edge("relu_1")["logical_shape"] == [1, 18, 12, 12]
    assert edge("relu_1")["dtype"] == "float32"


def test_counts_agree_with_the_edges() -> None:
    summary = report()["summary"]
    assert summary["edges"] == len(report()["edges"])
    assert summary["conversions"] == summary["boundary_conversions"] + summary["inner_conversions"]
    assert summary["cancelled_pairs"] == len(report()["cancelled"])
    assert 0.0 <= summary["vectorized_share"] <= 1.0
    moves = sum(call.moves and not call.prepare for call in compiled().compiled.physical.calls)
    assert summary["conversions"] + summary["fills"] >= moves


def test_a_conversion_that_is_executed_is_counted_whatever_operator_it_came_from() -> None:
    build = ModelBuilder()
    x = build.input("x", (4, 6))
    build.output(build.node("Transpose", [x], perm=[1, 0]))
    summary = gf.compile(build.model(), threads=1).report()["summary"]
    assert (summary["boundary_conversions"], summary["inner_conversions"]) == (1, 0)


def test_every_executed_movement_has_a_reason() -> None:
    """Conversions, moves that no layout spares, and those that another window hinders."""
    b = ModelBuilder(3)
    x = b.relu(b.conv(b.input("x", (1, 3, 12, 12)), 8, 3))
    turned = b.node("Transpose", [x], perm=[0, 1, 3, 2])
    twice = b.node("Tile", [turned, b.constant(np.array([1, 2, 1, 1]))])
    left, right = b.relu(b.node("Neg", [turned])), b.node("Tanh", [twice])
    b.output(b.node("Concat", [left, right, left], axis=1))
    report = gf.compile(b.model(), threads=1).report()
    reasons = [c for e in report["edges"] for c in e["conversions"]]
    assert len(reasons) >= report["summary"]["conversions"] > 0
    assert all(c["because"] and c["bytes"] and c["consumer"] for c in reasons)
    assert any(c["kind"] == "move" and "no layout" in c["because"] for c in reasons)


def test_a_report_is_the_same_each_time() -> None:
    again = gf.compile(residual_model(), threads=1)
    assert json.dumps(again.report()) == json.dumps(report())


def test_the_story_of_a_tensor_names_decision_reader_and_variant() -> None:
    text = compiled().explain("relu_1")
    assert text.startswith("relu_1 is stored as ")
    assert "\n  tensor    float32[1, 18, 12, 12], stored\n" in text
    for word in ("because", "layout", "made by", "variant", "read by"):
        assert f"\n  {word} " in text
    assert "Conv+Relu" in text
    assert "register" in compiled().explain("conv_1")
    with pytest.raises(InvalidModel, match=r"no tensor 'q'; its tensors are .* …"):
        compiled().explain("q")
    with pytest.raises(InvalidModel, match=r"similar names are .*relu_1"):
        compiled().explain("relu_9")


def test_every_tensor_has_a_story() -> None:
    for name in compiled().layouts:
        sentence = compiled().explain(name).partition("\n")[0]
        assert sentence.startswith(f"{name} is ") and sentence.endswith(".")


def table(exe: gf.Executable, width: int = 200, **wanted: Any) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    show_table(exe, console=console, **wanted)
    return console.export_text()


def test_the_table_has_a_row_for_each_tensor_that_moves() -> None:
    short, full = table(compiled()), table(compiled(), constants=True)
    every = {found["name"]: found["where"] for found in report()["edges"]}
    moving = {name for name, where in every.items() if where not in ("constant", "removed")}
    for text, wanted in ((short, moving), (full, every.keys())):
        # Long rows go on in further lines, so names are looked for, and lines are not counted.
        firsts = [line.split()[0] for line in text.splitlines() if line.strip()]
        assert sorted(name for name in firsts if name in every) == sorted(wanted)
    assert "relu_1" in short and "1×18×12×12" in short and "conversions are executed" in short
    assert summary_line(compiled().compiled) in " ".join(short.split())


def test_an_operator_name_with_brackets_is_not_taken_for_markup() -> None:
    build = ModelBuilder()
    x = build.input("x[red]", (2, 3))
    build.output(build.node("Relu", [x], ["y[/]"]))
    exe = gf.compile(build.model(), threads=1)
    assert "x[red]" in table(exe) and "y[/]" in exe.explain("y[/]")


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("y[i] = x[i]", "move"),
        ("y[i] = select(i < 2, x[i], f32(0.0))", "move"),
        ("y[i] = f32(0.0)", "fill"),
        ("y[i] = x[i] + x[i]", "compute"),
        ("y[i] += x[i]", "compute"),
        ("y[i] = select(data(x[i] < f32(0.0)), f32(0.0), x[i])", "compute"),
    ],
)
def test_what_counts_as_movement(statement: str, kind: str) -> None:
    text = f"""@primfunc
def k(x: f32[4], y: out[f32[4]]):
    for i in serial(0, 4):
        {statement}
"""
    assert movement_kind(parse(text)) == kind


def test_a_model_that_only_copies_keeps_both_names() -> None:
    node = helper.make_node("Identity", ["a"], ["b"])
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [3]) for n in ("a", "b")]
    model = helper.make_model(
        helper.make_graph([node], "copy", info[:1], info[1:]),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    exe = gf.compile(model, threads=1)
    assert [exe.layouts[name].where for name in ("a", "b")] == ["stored", "stored"]
    summary = exe.report()["summary"]
    assert summary["boundary_conversions"] >= 1 and summary["inner_conversions"] == 0
    assert exe(np.float32([1, 2, 3])).tolist() == [1, 2, 3]
