"""Tests of movement of rounded numbers that are widened before they are moved."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphflow as gf
from graphflow.base.dtypes import DTYPES
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, interpret_graph
from graphflow.graph.rounded.widened_moves import widen_moves
from graphflow.models.zoo.building.sixteen_bits import ELEMENTS

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 6e-8, 1e-40, 60000.0, 1.0009765625)

Nodes = list[tuple[str, list[str], str, dict[str, Any]]]
SUM = ("Add", ["x", "c"], "h", {})
SQUARE = ("Mul", ["m", "m"], "y", {})
CHAINS: dict[str, tuple[Nodes, int]] = {
    "concat": ([SUM, ("Concat", ["h", "h"], "m", {"axis": 1}), SQUARE], 1),
    "concat of a constant": ([SUM, ("Concat", ["h", "c"], "m", {"axis": 1}), SQUARE], 1),
    "transpose of a part": (
        [
            SUM,
            ("Transpose", ["h"], "t", {"perm": [0, 2, 1]}),
            ("Slice", ["t", "one", "three", "two"], "m", {}),
            SQUARE,
        ],
        2,
    ),
    "padding": ([SUM, ("Pad", ["h", "pads", "half"], "m", {}), SQUARE], 1),
    "two readers": (
        [
            SUM,
            ("Transpose", ["h"], "m", {"perm": [0, 2, 1]}),
            ("Exp", ["m"], "e", {}),
            ("Add", ["m", "e"], "y", {}),
        ],
        1,
    ),
    "what is moved is an output": ([SUM, ("Concat", ["h", "h"], "y", {"axis": 1})], 0),
    "an input is moved": ([("Concat", ["x", "x"], "m", {"axis": 1}), SQUARE], 0),
    "an input is moved beside it": ([SUM, ("Concat", ["h", "x"], "m", {"axis": 1}), SQUARE], 0),
    "a constant is moved": (
        [("Transpose", ["c"], "t", {"perm": [0, 2, 1]}), ("Matmul", ["x", "t"], "y", {})],
        0,
    ),
}
"""Nodes (operator, inputs, output, attributes), and how many of them move widened numbers."""


def model_of(dtype: str, nodes: Nodes) -> onnx.ModelProto:
    element = ELEMENTS[dtype]

    def numbers(name: str, values: Any) -> onnx.TensorProto:
        array = np.asarray(values).astype(DTYPES[dtype])
        return helper.make_tensor(name, element, array.shape, array.tobytes(), raw=True)

    constants = [
        numbers("c", np.linspace(-2, 2, 24).reshape(1, 4, 6)),
        numbers("half", 0.5),
        *(
            helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
            for name, values in (
                ("one", [1]), ("three", [3]), ("two", [2]), ("pads", [0, 1, 0, 0, 0, 2])
            )
        ),
    ]  # fmt: skip
    made = [
        helper.make_node({"Matmul": "MatMul"}.get(op, op), inputs, [output], **attributes)
        for op, inputs, output, attributes in nodes
    ]
    read = {name for node in made for name in node.input}
    infos = [
        helper.make_tensor_value_info(name, element, shape)
        for name, shape in (("x", (1, 4, 6)), ("y", (None, None, None)))
    ]
    kept = [c for c in constants if c.name in read]
    graph = helper.make_graph(made, "g", infos[:1], infos[1:], kept)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("name", CHAINS)
def test_numbers_are_moved_widened(dtype: str, name: str) -> None:
    nodes, expected = CHAINS[name]
    model = model_of(dtype, nodes)
    graph = import_model(model)
    x = np.random.default_rng(0).standard_normal((1, 4, 6))
    x.reshape(-1)[: len(SPECIAL)] = SPECIAL
    feeds = {"x": x.astype(DTYPES[dtype])}
    before = interpret_graph(graph, feeds)["y"]
    assert widen_moves(graph) == expected
    graph.validate()
    for got in (
        interpret_graph(graph, feeds)["y"],
        interpret_graph(canonicalize(graph), feeds)["y"],
        gf.compile(model).run(feeds)["y"],
    ):
        assert got.dtype == before.dtype
        same = np.asarray(got).view(np.uint16) == np.asarray(before).view(np.uint16)
        assert (same | (np.isnan(got) & np.isnan(before))).all()


def test_what_is_read_rounded_too_keeps_its_type() -> None:
    """The transposed tensor is an output, so a run stores it in 16 bits."""
    model = model_of("float16", [SUM, ("Transpose", ["h"], "m", {"perm": [0, 2, 1]}), SQUARE])
    info = helper.make_tensor_value_info("m", TensorProto.FLOAT16, (None, None, None))
    model.graph.output.append(info)
    assert widen_moves(import_model(model)) == 0
