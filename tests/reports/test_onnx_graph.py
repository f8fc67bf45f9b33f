"""Tests of the ONNX graph of a program: onnx accepts it, and it says what was decided."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.models import ModelBuilder
from graphflow.reports.onnx_graph import DOMAIN, onnx_program
from graphflow.reports.program_graph import program_graph
from support.models.hostile_names import INNER, INPUT, OUTPUT, hostile_names

pytestmark = pytest.mark.usefixtures("code_is_left_out")


def graph_of(exe: gf.Executable) -> onnx.ModelProto:
    model = onnx_program(program_graph(exe.report()))
    onnx.checker.check_model(model, full_check=True)
    return model


@cache
def compiled() -> gf.Executable:
    return gf.compile(hostile_names(), threads=1, layouts={INNER: "blocked"})


def about(proto: Any) -> dict[str, str]:
    return {entry.key: entry.value for entry in proto.metadata_props}


def shape(value: onnx.ValueInfoProto) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def test_values_have_physical_shapes_and_say_what_was_decided() -> None:
    exe = compiled()
    model = graph_of(exe)
    values = {value.name: value for value in model.graph.value_info}
    edge = next(edge for edge in exe.report()["edges"] if edge["name"] == INNER)
    found = about(values[INNER])
    assert shape(values[INNER]) == edge["physical_shape"] != edge["logical_shape"]
    assert found["layout"].startswith(edge["layout"]) and found["decision"] == edge["sentence"]
    assert found["logical shape"] == "[1, 17, 4, 4]" and "region pad(1)" in found
    assert "masks what it reads" in next(
        t for w, t in found.items() if w.startswith("refused pair")
    )
    reads = [text for word, text in found.items() if word.startswith("read ")]
    assert len(reads) == 2 and all("demand on the padding: " in text for text in reads)


def test_inputs_and_outputs_have_the_names_and_types_of_the_model() -> None:
    model = graph_of(compiled())
    (given,), (returned,) = model.graph.input, model.graph.output
    assert (given.name, shape(given)) == (INPUT, [1, 3, 4, 4])
    assert (returned.name, shape(returned)) == (OUTPUT, [1, 17, 4, 4])
    (maker,) = [node for node in model.graph.node if OUTPUT in node.output]
    if maker.op_type == "convert":  # the tensor itself then has another name
        assert maker.input[0].startswith(f"{OUTPUT} as ")


def test_nodes_have_operators_variants_prices_and_reasons() -> None:
    exe = compiled()
    model = graph_of(exe)
    nodes = {node.name: node for node in model.graph.node}
    for name, choice in exe.compiled.plan.choices.items():
        node, found = nodes[name], about(nodes[name])
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        assert node.domain == DOMAIN and attributes["variant"].decode() == choice.variant_name
        assert found["because"] == choice.because == node.doc_string
        if "price_us" in attributes:
            assert attributes["price_us"] == pytest.approx(1e6 * choice.seconds)
    constants = [text for word, text in about(nodes["conv_1_node"]).items() if "a constant" in text]
    assert len(constants) == 2
    assert about(model)["summary"] == exe.decisions().summary


def test_a_saved_model_has_the_same_graph(tmp_path: Path) -> None:
    compiled().save(tmp_path / "m.gfx")
    assert graph_of(gf.load(tmp_path / "m.gfx")) == graph_of(compiled())


def test_sections_views_element_types_and_outputs_that_are_inputs_or_constants() -> None:
    b = ModelBuilder(3)
    x, n = b.input("x", (4, 6)), b.input("n", (2, 3), "int64")
    drawn = b.node("RandomNormalLike", [x], seed=1.0)
    flat = b.node("Reshape", [b.relu(b.add(x, drawn)), b.constant(np.array([24]))])
    b.output(flat)
    b.output(b.node("Cast", [n], ["half"], to=onnx.TensorProto.FLOAT16))
    b.output(b.node("Identity", [n], ["same"]))
    b.output(b.constant(np.float32([1, 2, 3]), "constant"), shape=(3,))
    exe = gf.compile(b.model(), threads=1)
    model = graph_of(exe)
    kinds = {onnx.helper.get_node_attr_value(node, "kind") for node in model.graph.node}
    assert b"section" in kinds
    types = {
        v.name: v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)
    }
    assert (types["n"], types["half"]) == (onnx.TensorProto.INT64, onnx.TensorProto.FLOAT16)
    assert [value.name for value in model.graph.output] == [t.name for t in exe.outputs]
    assert shape(model.graph.output[-1]) == [3]
