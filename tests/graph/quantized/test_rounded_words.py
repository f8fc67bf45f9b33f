"""Scaled sums that saturate as integers: where they are known to fit, and that no bit changes."""

import numpy as np
import pytest

from graphflow import tir
from support.models.quantized_layers import QuantizedLayers, results, same_bits


def bytes_of_sums(graph: object) -> list[str]:
    """The type that each byte of a graph is saturated in."""
    return [
        expr.operand.dtype
        for node in graph.nodes  # type: ignore[attr-defined]
        for stmt in tir.walk(node.func.body)
        for whole in tir.expressions_of(stmt)
        for expr in tir.walk_expr(whole)
        if isinstance(expr, tir.Cast) and isinstance(expr.operand, tir.Select)
    ]


def layers(step: float, zero: int, dtype: str = "uint8") -> QuantizedLayers:
    """A product whose sums are multiplied by 0.1 · 0.04 / `step` and its double."""
    b = QuantizedLayers()
    x = b.dequantized(b.stored((4, 6)))
    w = b.weight_of(np.arange(-9, 3).reshape(6, 2), np.array([0.04, 0.08]), axis=1)
    b.node("QuantizeLinear", [b.node("MatMul", [x, w]), *b.parameters(step, zero, dtype)], ["y"])
    return b


@pytest.mark.parametrize(
    ("dtype", "zero"),
    [("uint8", z) for z in (0, 1, 127, 128, 255)] + [("int8", z) for z in (-128, -1, 0, 127)],
)
def test_small_factors(dtype: str, zero: int) -> None:
    imported, graph = layers(0.04, zero, dtype).graphs("y")
    assert bytes_of_sums(graph) == ["int32"]
    found, expected = results(graph)["y"].astype(int), results(imported)["y"].astype(int)
    assert abs(found - expected).max() <= 1


def test_a_factor_that_is_too_large_is_bounded_as_a_float() -> None:
    """0.1 · 0.08 / 0.03 is more than a quarter."""
    _, graph = layers(0.03, 9).graphs("y")
    assert bytes_of_sums(graph) == ["float32"]


@pytest.mark.parametrize(("scale", "where"), [(0.02, "int32"), (5.0, "float32")])
def test_a_quantized_operator(scale: float, where: str) -> None:
    """The factor is 0.1 · `scale` / 0.1."""
    b = QuantizedLayers()
    x, z = b.stored((4, 6)), b.parameters(0.1, 3)
    weight = b.constant(np.arange(-9, 9).reshape(6, 3).astype(np.int8))
    b.node("QLinearMatMul", [x, *z, weight, *b.parameters(scale, 0, "int8"), *z], ["y"])
    imported, graph = b.graphs("y")
    assert bytes_of_sums(graph) == [where]
    assert same_bits(imported, graph)


def test_floats_that_are_no_sums_are_bounded_as_floats() -> None:
    b = QuantizedLayers()
    imported, graph = b.graphs(b.quantized(b.relu(b.input("x", (4, 6)))))
    assert bytes_of_sums(graph) == ["float32"]
    assert same_bits(imported, graph)
