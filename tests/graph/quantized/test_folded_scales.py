"""Tests of scales that are folded when a model is compiled."""

import numpy as np
import pytest

from graphflow.tir import Binary, expressions_of, walk, walk_expr
from support.models.quantized_layers import QuantizedLayers, operators, results, same_bits


def divisions(graph: object) -> int:
    return sum(
        isinstance(e, Binary) and e.op == "div"
        for node in graph.nodes  # type: ignore[attr-defined]
        for stmt in walk(node.func.body)
        for expr in expressions_of(stmt)
        for e in walk_expr(expr)
    )


def product(scale: float = 0.25) -> QuantizedLayers:
    b = QuantizedLayers()
    x = b.dequantized(b.stored((4, 6)))
    w = b.weight_of(np.arange(-9, 9).reshape(6, 3), np.array([0.01, 0.02, 0.03]), axis=1)
    b.node("QuantizeLinear", [b.relu(b.node("MatMul", [x, w])), *b.parameters(scale, 9)], ["y"])
    return b


def test_behind_an_integer_product_no_run_divides() -> None:
    imported, graph = product().graphs("y")
    assert operators(graph) == ["MatMul", "Relu", "QuantizeLinear"]
    assert divisions(graph) == 0
    apart = results(graph)["y"].astype(int) - results(imported)["y"]
    assert abs(apart).max() <= 1
    factor = next(v for n, v in graph.initializers.items() if n.endswith(".scale"))
    np.testing.assert_array_equal(factor, np.float32(0.1) * np.array([1, 2, 3], np.float32) / 100)


def rounded_sum(zero: int, *read: str) -> tuple[object, object]:
    """A product that is quantized, and those of its tensors that are outputs too."""
    b = QuantizedLayers()
    x = b.dequantized(b.stored((4, 6)))
    w = b.weight_of(np.arange(-9, 9).reshape(6, 3), np.array([0.01, 0.02, 0.03]), axis=1)
    b.node("MatMul", [x, w], ["sum"])
    b.node("QuantizeLinear", ["sum", *b.parameters(0.25, zero)], ["y"])
    return b.graphs("y", *read)


@pytest.mark.parametrize("zero", [0, 9])
def test_one_factor_scales_a_sum_to_steps(zero: int) -> None:
    imported, graph = rounded_sum(zero)
    assert operators(graph) == ["MatMul", "QuantizeLinear"]
    apart = results(graph)["y"].astype(int) - results(imported)["y"]
    assert abs(apart).max() <= 1
    factor = next(v for n, v in graph.initializers.items() if n.endswith(".factor"))
    np.testing.assert_allclose(factor, 0.4 * np.array([1, 2, 3]) / 100, rtol=1e-6)
    assert len(graph.nodes[-1].inputs) == (2 if zero else 1), "0 is not added"


def test_a_sum_that_others_read_keeps_its_scale() -> None:
    _, graph = rounded_sum(9, "sum")
    assert not any(name.endswith(".factor") for name in graph.initializers)


def test_a_scale_without_a_reciprocal_divides() -> None:
    assert divisions(product(1e-40).graphs("y")[1]) > 0


def test_other_quotients_stay() -> None:
    b = QuantizedLayers()
    imported, graph = b.graphs(b.quantized(b.relu(b.input("x", (4, 6)))))
    assert divisions(graph) > 0
    assert same_bits(imported, graph)


def test_the_factor_of_a_quantized_operator_is_computed_once() -> None:
    b = QuantizedLayers()
    x, z = b.stored((4, 6)), b.parameters(0.1, 3)
    weight = b.constant(np.arange(-9, 9).reshape(6, 3).astype(np.int8))
    b.node("QLinearMatMul", [x, *z, weight, *b.parameters(0.02, 0, "int8"), *z], ["y"])
    imported, graph = b.graphs("y")
    assert divisions(graph) == 0
    assert same_bits(imported, graph)
