"""Tests of movement on stored integers: the same bits, and the traps of padding and maxima."""

import numpy as np
import pytest

from graphflow.graph import Node, OperatorGraph, canonicalize
from graphflow.kernels.definitions.movements.selection import pad
from graphflow.kernels.definitions.quantized import shifted
from support.models.quantized_layers import QuantizedLayers, operators, same_bits

SHAPE = (1, 4, 3, 6)


def test_movement_between_equal_scales_is_movement_of_bytes() -> None:
    b = QuantizedLayers()
    x = b.dequantized(b.stored(SHAPE))
    x = b.node("Transpose", [x], perm=[0, 2, 1, 3])
    x = b.node("Reshape", [b.quantized(x), b.constant(np.array([12, 6]))])
    imported, graph = b.graphs(b.quantized(b.dequantized(x)))
    assert operators(graph) == ["Transpose", "Reshape"]
    assert same_bits(imported, graph)


@pytest.mark.parametrize("zero", [0, 1, 127, 255])
@pytest.mark.parametrize("value", [0.0, 0.4])
def test_a_pad_moves_its_value_as_an_integer(value: float, zero: int) -> None:
    b = QuantizedLayers()
    pads = b.constant(np.array([0, 0, 1, 0, 0, 0, 2, 0]))
    x = b.dequantized(b.stored(SHAPE), zero=zero)
    padded = b.node("Pad", [x, pads, b.constant(np.float32(value))])
    imported, graph = b.graphs(b.quantized(padded, zero=zero))
    assert operators(graph) == ["Pad"]
    assert same_bits(imported, graph)


def test_a_pad_of_any_value_is_quantized_before_it_is_moved() -> None:
    b = QuantizedLayers()
    pads = b.constant(np.array([0, 0, 1, 0, 0, 0, 2, 0]))
    x = b.relu(b.input("x", SHAPE))
    padded = b.node("Pad", [x, pads, b.constant(np.float32(0.77))])
    imported, graph = b.graphs(b.quantized(padded))
    assert operators(graph) == ["Relu", "QuantizeLinear", "Pad"]
    assert same_bits(imported, graph)


@pytest.mark.parametrize("value", [-np.inf, np.inf])
def test_a_pad_of_an_infinity_is_an_end_of_the_type(value: float) -> None:
    """What stands behind the rows of a run for a maximum is such a value."""
    b = QuantizedLayers()
    pads = b.constant(np.array([0, 0, 1, 0, 0, 0, 2, 0]))
    x = b.dequantized(b.stored(SHAPE))
    padded = b.node("Pad", [x, pads, b.constant(np.float32(value))])
    imported, graph = b.graphs(b.quantized(padded))
    assert operators(graph) == ["Pad"]
    assert same_bits(imported, graph)


def test_a_pad_of_an_infinity_that_is_not_quantized_stays_one_of_floats() -> None:
    b = QuantizedLayers()
    pads = b.constant(np.array([0, 0, 1, 0, 0, 0, 2, 0]))
    x = b.dequantized(b.stored(SHAPE))
    padded = b.node("Pad", [x, pads, b.constant(np.float32(-np.inf))])
    imported, graph = b.graphs(padded)
    assert graph.values[padded].dtype == "float32"
    assert same_bits(imported, graph)


def test_a_pad_of_shifted_bytes_is_the_zero_point_of_the_run() -> None:
    graph = OperatorGraph()
    x, zero = graph.add_input("x", "int8", (2, 3)), graph.add_input("z", "int8", ())
    graph.add(Node("shift", "Sub", shifted((2, 3), "int8", (), 0), (x, zero), ("less",)))
    padded = pad((2, 3), [1, 0], [0, 2], "constant", 0, "int32")
    graph.add(Node("pad", "Pad", padded, ("less",), ("y",)))
    graph.set_outputs(["y"])
    new = canonicalize(graph)
    made = [(node.op, node.func.outputs[0].dtype) for node in new.nodes]
    assert made == [("Pad", "int8"), ("Sub", "int32")]
    assert same_bits(graph, new)


@pytest.mark.parametrize("pads", [[1, 0, 0, 1], [0, 0, 0, 0]])
def test_a_maximum_is_one_of_bytes(pads: list[int]) -> None:
    b = QuantizedLayers()
    x = b.dequantized(b.stored(SHAPE))
    x = b.node("MaxPool", [x], kernel_shape=[2, 2], pads=pads)
    imported, graph = b.graphs(b.quantized(x))
    assert operators(graph) == ["MaxPool"]
    assert same_bits(imported, graph)


def test_a_maximum_of_nothing_stays_one_of_floats() -> None:
    """A dilated window may lie in the padding alone, where it is minus infinity."""
    b = QuantizedLayers()
    x = b.dequantized(b.stored((1, 2, 1, 1)), zero=100)
    x = b.node("MaxPool", [x], kernel_shape=[2, 1], dilations=[2, 1], pads=[1, 0, 1, 0])
    imported, graph = b.graphs(x)
    assert "MaxPool" in operators(graph)
    assert all(value.dtype != "uint8" or name == "q" for name, value in graph.values.items()
               if name not in graph.initializers)  # fmt: skip
    assert same_bits(imported, graph)


def test_joined_tensors_of_unlike_scales_are_requantized_before() -> None:
    b = QuantizedLayers()
    one = b.dequantized(b.stored(SHAPE, name="p"), 0.1, 3)
    other = b.dequantized(b.stored(SHAPE, name="q"), 0.3, 200)
    imported, graph = b.graphs(b.quantized(b.node("Concat", [one, other], axis=1), 0.1, 3))
    assert operators(graph) == ["QuantizeLinear", "Concat"]
    assert same_bits(imported, graph)


@pytest.mark.parametrize("scale, zero", [(0.2, 3), (0.1, 4)])
def test_other_parameters_requantize(scale: float, zero: int) -> None:
    b = QuantizedLayers()
    imported, graph = b.graphs(b.quantized(b.dequantized(b.stored(SHAPE)), scale, zero))
    assert operators(graph) == ["QuantizeLinear"]
    assert same_bits(imported, graph)


def test_scales_too_small_to_divide_by_requantize() -> None:
    b = QuantizedLayers()
    x = b.dequantized(b.stored(SHAPE), 1e-42)
    imported, graph = b.graphs(b.quantized(x, 1e-42))
    assert operators(graph) == ["QuantizeLinear"]
    assert same_bits(imported, graph)


def test_rows_of_a_quantized_table_are_gathered_as_bytes() -> None:
    b = QuantizedLayers()
    table = b.weight_of(np.arange(-20, 20).reshape(8, 5))
    rows = b.node("Gather", [table, b.constant(np.array([3, 0, 7, -1]))])
    imported, graph = b.graphs(b.add(rows, b.dequantized(b.stored((4, 5)))))
    assert same_bits(imported, graph)
