"""Tests of products that add up integers: what is proven, what is refused, what comes out."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from graphflow.graph import OperatorGraph
from graphflow.tir import Reduce, walk
from support.models.quantized_layers import QuantizedLayers, operators, results, same_bits

WEIGHT = np.arange(-24, 24).reshape(4, 3, 2, 2)
MATRIX = np.arange(-9, 9).reshape(6, 3)


def convolution(bias: str = "", zero: int = 3, weight: Sequence[Any] = ()) -> QuantizedLayers:
    b = QuantizedLayers()
    x = b.dequantized(b.stored((1, 3, 5, 4)), 0.1, zero)
    w = b.weight_of(WEIGHT, *weight)
    operands = [x, w]
    if bias == "integers":
        scale = b.constant(np.float32(np.float32(0.1) * np.float32(0.02)))
        stored = b.constant(np.array([100, -200, 3, 4], np.int32))
        operands.append(b.node("DequantizeLinear", [stored, scale]))
    elif bias == "floats":
        operands.append(b.constant(np.array([0.5, -1, 2, 3], np.float32)))
    b.node("Conv", operands, ["y"], pads=[1, 0, 1, 1])
    return b


def sums(graph: OperatorGraph) -> list[Reduce]:
    return [s for node in graph.nodes for s in walk(node.func.body) if isinstance(s, Reduce)]


@pytest.mark.parametrize("bias", ["", "integers", "floats"])
@pytest.mark.parametrize("zero", [0, 1, 128, 255])
def test_a_convolution_adds_up_integers(bias: str, zero: int) -> None:
    imported, graph = convolution(bias, zero).graphs("y")
    assert operators(graph) == ["Conv"]
    (update,) = sums(graph)
    assert update.buffer.dtype == "int32"
    assert {b.dtype for b in graph.nodes[0].func.inputs} <= {"uint8", "int8", "int32", "float32"}
    np.testing.assert_allclose(results(graph)["y"], results(imported)["y"], rtol=1e-5, atol=1e-5)
    assert graph.integer_products == {"y": ""}
    begins = [b for b in graph.nodes[0].func.inputs if b.dtype == "int32"]
    assert bool(begins) == (bias == "integers")


def test_scales_and_zero_points_of_channels_stay_theirs() -> None:
    scales, zeros = np.array([0.01, 0.02, 0.03, 0.5]), np.array([0, 1, -128, 127])
    imported, graph = convolution("floats", weight=(scales, zeros, 0)).graphs("y")
    assert graph.integer_products == {"y": ""}
    np.testing.assert_allclose(results(graph)["y"], results(imported)["y"], rtol=1e-5, atol=1e-4)


def matrices(**scales: object) -> QuantizedLayers:
    b = QuantizedLayers()
    x = b.dequantized(b.stored((4, 6)), scales.get("data", 0.1), axis=1)  # type: ignore[arg-type]
    w = b.weight_of(MATRIX, scales.get("weight", 0.02), axis=1)  # type: ignore[arg-type]
    b.node("MatMul", [x, w], ["y"])
    return b


def test_a_matrix_product_of_two_tensors_of_the_run() -> None:
    b = QuantizedLayers()
    x, y = (b.dequantized(b.stored((2, 4, 4), name=n), 0.1, z) for n, z in (("p", 0), ("q", 255)))
    b.node("MatMul", [x, y], ["y"])
    imported, graph = b.graphs("y")
    assert [update.buffer.dtype for update in sums(graph)] == ["int32"]
    np.testing.assert_allclose(results(graph)["y"], results(imported)["y"], rtol=1e-5)


def long_product() -> QuantizedLayers:
    b = QuantizedLayers()
    x = b.dequantized(b.stored((1, 70_000)), zero=255)
    b.node("MatMul", [x, b.weight_of(np.full((70_000, 1), 127))], ["y"])
    return b


def half_quantized() -> QuantizedLayers:
    b = QuantizedLayers()
    b.node("MatMul", [b.dequantized(b.stored((4, 6))), b.weight(6, 3)], ["y"])
    return b


def wide_data() -> QuantizedLayers:
    b = QuantizedLayers()
    x = b.node("DequantizeLinear", [b.input("q", (4, 6), "int16"), b.constant(np.float32(0.1))])
    b.node("MatMul", [x, b.weight_of(MATRIX)], ["y"])
    return b


@pytest.mark.parametrize(
    "make, reason",
    [
        (lambda: matrices(data=np.linspace(0.1, 1, 6)), "varies along its loop k"),
        (long_product, "may leave int32"),
        (half_quantized, "only one operand"),
        (wide_data, "not of bytes"),
    ],
)
def test_products_that_stay_sums_of_floats_say_why(
    make: Callable[[], QuantizedLayers], reason: str
) -> None:
    imported, graph = make().graphs("y")
    assert reason in graph.integer_products["y"]
    assert all(update.buffer.dtype == "float32" for update in sums(graph))
    if reason != "may leave int32":  # which takes the interpreter long
        assert same_bits(imported, graph)


def test_without_integer_products_all_bits_stay() -> None:
    imported, graph = convolution("integers").graphs("y", scaled=False)
    assert same_bits(imported, graph)
    assert not graph.integer_products


def test_shifted_operands_of_integer_operators_are_read_as_bytes() -> None:
    b = QuantizedLayers()
    zero = b.constant(np.array(7, np.uint8))
    weight = b.constant(np.arange(18).reshape(6, 3).astype(np.int8))
    b.node("MatMulInteger", [b.stored((4, 6)), weight, zero], ["y"])
    imported, graph = b.graphs("y")
    (node,) = graph.nodes
    assert [buffer.dtype for buffer in node.func.inputs] == ["uint8", "int8"]
    assert same_bits(imported, graph)
