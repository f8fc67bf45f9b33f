"""Tensors that are never below zero: where they are quantized as magnitudes, and where not."""

import numpy as np
import pytest

import graphflow as gf
from graphflow import tir
from graphflow.graph import OperatorGraph, interpret_graph
from support.models.quantized_layers import QuantizedLayers, same_bits


def of_magnitudes(graph: OperatorGraph) -> bool:
    """Whether absolute values are divided in a graph."""
    return any(
        isinstance(expr, tir.Binary) and expr.op == "div" and isinstance(expr.left, tir.Unary)
        for node in graph.nodes
        for stmt in tir.walk(node.func.body)
        for whole in tir.expressions_of(stmt)
        for expr in tir.walk_expr(whole)
    )


def quantized(operator: str, *bounds: float) -> tuple[OperatorGraph, OperatorGraph]:
    """The range of a tensor and its bytes, behind an operator with these bounds."""
    b = QuantizedLayers()
    limits = [b.constant(np.float32(bound)) for bound in bounds]
    v = b.node(operator, [b.input("x", (4, 6)), *limits])
    b.node("DynamicQuantizeLinear", [v], ["y", "s", "z"])
    return b.graphs("y", "s", "z")


@pytest.mark.parametrize("bounds", [("Relu",), ("Clip", 0.0, 6.0)])
def test_what_is_clipped_at_zero(bounds: tuple[str, ...]) -> None:
    imported, graph = quantized(*bounds)
    assert of_magnitudes(graph)
    assert same_bits(imported, graph)


@pytest.mark.parametrize("value", [0.0, -0.0, 1e-42, 3e38, np.inf])
def test_elements_at_the_ends(value: float) -> None:
    imported, graph = quantized("Relu")
    x = np.zeros((4, 6), np.float32)
    x[1, 2], x[3, 3] = value, -1.0
    found, expected = (interpret_graph(g, {"x": x}) for g in (graph, imported))
    for result in (found, expected):
        result["y"][np.isinf(x)] = 0  # inf / inf is NaN, which may become any integer
    for name in ("y", "s", "z"):
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.parametrize("bounds", [("Tanh",), ("Clip", -1e-6, 6.0)])
def test_elements_below_zero_are_bounded_on_both_sides(bounds: tuple[str, ...]) -> None:
    imported, graph = quantized(*bounds)
    assert not of_magnitudes(graph)
    assert same_bits(imported, graph)


def test_buffers_of_a_kernel_of_its_own() -> None:
    """Of these no set of numbers is known."""
    whole = "round(t[i, j1] / s[i])"
    above = f"select(data({whole} > f32(255.0)), f32(255.0), {whole})"
    func = tir.parse(f"""
    @primfunc
    def k(x: f32[4, 16], y: out[u8[4, 16]]):
        s = alloc(f32[4])
        t = alloc(f32[4, 16])
        for i in serial(0, 4):
            s[i] = f32(0.0)
            for j in serial(0, 16):
                t[i, j] = abs(x[i, j])
                reduce_max(s[i], abs(x[i, j]))
            for j1 in serial(0, 16):
                y[i, j1] = cast(u8, select(data({whole} < f32(0.0)), f32(0.0), {above}))
    """)
    x = np.random.default_rng(0).standard_normal((4, 16)).astype("float32")
    expected = np.round(np.abs(x) / np.abs(x).max(axis=1, keepdims=True))
    np.testing.assert_array_equal(gf.build(func).run({"x": x})["y"], expected)


def test_a_scale_that_is_known_before_a_run() -> None:
    b = QuantizedLayers()
    imported, graph = b.graphs(b.quantized(b.relu(b.input("x", (4, 6)))))
    assert not of_magnitudes(graph)
    assert same_bits(imported, graph)


def test_a_scale_that_a_run_gives() -> None:
    """An input is no scale that a kernel computes of the range; kernels may fuse with others."""
    b = QuantizedLayers()
    v = b.relu(b.input("x", (4, 6)))
    b.node("QuantizeLinear", [v, b.input("s", ())], ["y"])
    _, graph = b.graphs("y")
    assert not of_magnitudes(graph)
    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)
    scale = np.float32(-0.25)
    found = interpret_graph(graph, {"x": x, "s": scale})["y"]
    assert not found.any()
