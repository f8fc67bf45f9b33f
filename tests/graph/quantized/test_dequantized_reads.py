"""Tests of dequantized tensors that their readers compute."""

import numpy as np

from support.models.quantized_layers import QuantizedLayers, operators, same_bits


def test_each_reader_computes_what_it_reads() -> None:
    b = QuantizedLayers()
    x = b.dequantized(b.stored((2, 6)))
    outputs = b.relu(x), b.node("Softmax", [x]), b.node("ReduceMean", [x], axes=[1])
    b = QuantizedLayers(opset=13)
    x = b.dequantized(b.stored((2, 6)))
    outputs = b.relu(x), b.node("Softmax", [x]), b.node("ReduceMean", [x], axes=[1])
    imported, graph = b.graphs(*outputs)
    assert operators(graph) == ["Relu", "Softmax", "ReduceMean"]
    assert all(node.inputs == ("q", node.inputs[1]) for node in graph.nodes)
    assert graph.removed[x].reason == "its readers compute it from q"
    assert same_bits(imported, graph)


def test_a_product_of_floats_reads_floats() -> None:
    b = QuantizedLayers()
    x = b.dequantized(b.stored((2, 6)))
    imported, graph = b.graphs(b.node("MatMul", [x, b.weight(6, 3)]), b.relu(x))
    assert operators(graph) == ["DequantizeLinear", "MatMul", "Relu"]
    assert same_bits(imported, graph)


def test_a_dequantized_output_is_still_made() -> None:
    b = QuantizedLayers()
    x = b.dequantized(b.stored((2, 6)))
    imported, graph = b.graphs(x, b.relu(x))
    assert operators(graph) == ["DequantizeLinear", "Relu"]
    assert same_bits(imported, graph)


def test_a_tensor_that_is_read_twice_becomes_one_parameter() -> None:
    b = QuantizedLayers()
    x = b.dequantized(b.stored((2, 6)))
    imported, graph = b.graphs(b.node("Mul", [x, x]))
    (node,) = graph.nodes
    assert node.inputs[0] == "q" and len(node.inputs) == 2
    assert same_bits(imported, graph)


def test_small_dequantized_weights_are_no_constants_of_the_import() -> None:
    b = QuantizedLayers()
    weight = b.weight_of(np.ones((2, 3)))
    imported, graph = b.graphs(b.add(b.input("x", (2, 3)), weight))
    assert "DequantizeLinear" in [node.op for node in imported.nodes]
    assert operators(graph) == ["Add"] and len(graph.nodes) == 1


def test_an_output_is_quantized_where_it_is_dequantized() -> None:
    b = QuantizedLayers()
    q = b.quantized(b.relu(b.input("x", (2, 6))))
    imported, graph = b.graphs(b.dequantized(q))
    assert operators(graph) == ["Relu", "DequantizeLinear"]
    assert graph.removed[q].reason.startswith("only DequantizeLinear")
    assert same_bits(imported, graph)


def test_integers_that_are_read_twice_are_stored() -> None:
    b = QuantizedLayers()
    q = b.quantized(b.relu(b.input("x", (2, 6))))
    imported, graph = b.graphs(b.dequantized(q), q)
    assert operators(graph) == ["Relu", "QuantizeLinear", "DequantizeLinear"]
    assert same_bits(imported, graph)
