"""Bounds that a range repeats: where they are dropped, where not, and that no bit changes."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import graphflow as gf
from graphflow.graph import OperatorGraph, interpret_graph
from graphflow.tir import to_text
from support.models.quantized_layers import QuantizedLayers

SHAPE = (4, 6)
SPECIAL = (0.0, -0.0, 6.0, 5.9999995, 6.0000005, -7.5, 1e-42, -1e-42, 3e38, np.inf, -np.inf)

Layer = Callable[[QuantizedLayers, str], str]


def clip(low: float | None, high: float | None) -> Layer:
    """A bounded tensor."""

    def made(b: QuantizedLayers, x: str) -> str:
        bounds = ["" if one is None else b.constant(np.float32(one)) for one in (low, high)]
        return b.node("Clip", [x, *bounds])

    return made


def quantized(layer: Layer, *also: str) -> tuple[OperatorGraph, OperatorGraph]:
    """A tensor behind a layer, quantized by its range; `also` are operators that read it, too."""
    b = QuantizedLayers()
    v = layer(b, b.input("x", SHAPE))
    b.node("DynamicQuantizeLinear", [v], ["y", "s", "z"])
    return b.graphs("y", "s", "z", *(b.node(op, [v]) for op in also))


def is_bounded(graph: OperatorGraph) -> bool:
    """Whether a kernel bounds a whole tensor of floats."""
    return any(
        graph.values[node.outputs[0]].shape == SHAPE
        and graph.values[node.outputs[0]].dtype == "float32"
        and "select(" in to_text(node.func)
        for node in graph.nodes
    )


def agree(graphs: tuple[OperatorGraph, OperatorGraph], x: NDArray[np.float32]) -> None:
    """Compare all results, bit for bit."""
    want, found = (interpret_graph(graph, {"x": x}) for graph in graphs)
    for name in want:
        assert found[name].tobytes() == want[name].tobytes(), name


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("high", [6.0, 2.0**-100, 3e38, None])
def test_bounds_that_the_range_repeats(special: float, high: float | None) -> None:
    graphs = quantized(clip(0.0, high))
    assert is_bounded(graphs[0])
    assert not is_bounded(graphs[1])
    size = 1.0 if high is None else min(high, 1e30)
    x = (np.random.default_rng(0).standard_normal(SHAPE) * size).astype(np.float32)
    agree(graphs, x)
    if high is None and np.isinf(special):
        return  # bytes of inf / inf, which is no number
    x[2, 3] = special
    agree(graphs, x)


@pytest.mark.parametrize("layer", [clip(0.0, 6.0), QuantizedLayers.relu])
def test_no_element_is_above_zero(layer: Layer) -> None:
    graphs = quantized(layer)
    assert not is_bounded(graphs[1])
    agree(graphs, np.full(SHAPE, -2.0, np.float32))


def test_what_is_no_number_is_in_the_scale() -> None:
    x = np.ones(SHAPE, np.float32)
    x[1, 1] = np.nan
    for graph in quantized(clip(0.0, 6.0)):
        assert np.isnan(interpret_graph(graph, {"x": x})["s"])


@pytest.mark.parametrize("bounds", [(0.0, 2.0**-101), (-1.0, 6.0), (0.5, 6.0), (None, 6.0)])
def test_bounds_that_the_range_does_not_repeat(bounds: tuple[float | None, float]) -> None:
    """The 255th part of the first would not be normal; bytes of the others may end below 255."""
    graphs = quantized(clip(*bounds))
    assert is_bounded(graphs[1])
    agree(graphs, np.linspace(-8, 8, 24, dtype=np.float32).reshape(SHAPE))


def test_another_reader_needs_the_bound() -> None:
    graphs = quantized(clip(0.0, 6.0), "Exp")
    assert is_bounded(graphs[1])
    agree(graphs, np.linspace(-8, 8, 24, dtype=np.float32).reshape(SHAPE))


def test_a_scale_of_another_range() -> None:
    b = QuantizedLayers()
    x = b.input("x", SHAPE)
    v = clip(0.0, 6.0)(b, x)
    b.node("DynamicQuantizeLinear", [b.node("Sqrt", [v])], ["y", "s", "z"])
    graphs = b.graphs("y", b.node("QuantizeLinear", [v, "s", "z"]))
    assert is_bounded(graphs[1])
    agree(graphs, np.linspace(-8, 8, 24, dtype=np.float32).reshape(SHAPE))


def test_a_bound_that_is_an_output() -> None:
    b = QuantizedLayers()
    v = clip(0.0, 6.0)(b, b.input("x", SHAPE))
    b.node("DynamicQuantizeLinear", [v], ["y", "s", "z"])
    graphs = b.graphs("y", "s", "z", v)
    assert is_bounded(graphs[1])
    agree(graphs, np.linspace(-8, 8, 24, dtype=np.float32).reshape(SHAPE))


@pytest.mark.parametrize("target", ["host", "avx2"])
@pytest.mark.parametrize("size", [0.1, 40.0])
def test_native_layers_whose_sums_exceed_the_bound(target: str, size: float) -> None:
    """Two quantized convolutions with a bound between, of 17 channels, with undefined padding."""
    b = QuantizedLayers()
    x = b.input("x", (1, 3, 9, 9))
    rng = np.random.default_rng(0)
    for channels, read in ((17, 3), (5, 17)):
        q, scale, zero = (f"{name}{channels}" for name in "qsz")
        b.node("DynamicQuantizeLinear", [x], [q, scale, zero])
        w = b.constant(rng.integers(-127, 128, (channels, read, 3, 3)).astype(np.int8))
        total = b.node("ConvInteger", [q, w, zero], pads=[1, 1, 1, 1])
        factor = b.node("Mul", [scale, b.constant(np.float32(size / 255))])
        x = clip(0.0, 6.0)(b, b.node("Mul", [b.node("Cast", [total], to=1), factor]))
    imported, _ = b.graphs(x)
    given = rng.standard_normal((1, 3, 9, 9)).astype(np.float32)
    exe = gf.compile(b.model(), options=gf.Options(poison=True), target=target)
    (want,) = interpret_graph(imported, {"x": given}).values()
    np.testing.assert_allclose(exe(given), want, rtol=1e-5, atol=1e-5)
