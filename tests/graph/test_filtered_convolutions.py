"""Tests of the expansions of convolutions in transformed tiles: where there are any, of what."""

from __future__ import annotations

import numpy as np
import pytest

from graphflow.graph import (
    Expansions,
    OperatorGraph,
    contents,
    filtering_convolutions,
    folding_constants,
    interpret_graph,
)
from graphflow.kernels.recipes import TRANSFORMED_TILES, RefusedVariant
from graphflow.models import ModelBuilder
from graphflow.schedule import Refusal
from support.planning.nets import graph_of


def network(scale: float = 1.0, given: bool = False, stride: int = 1) -> OperatorGraph:
    b = ModelBuilder()
    x = b.input("x", (1, 4, 6, 6))
    weights = np.random.default_rng(0).standard_normal((4, 4, 3, 3), np.float32) * np.float32(scale)
    w = b.input("w", weights.shape) if given else b.constant(weights, "w")
    y = b.node("Conv", [x, w], pads=[1, 1, 1, 1], strides=[stride, stride])
    b.output(b.node("Relu", [y]))
    return graph_of(b)


def found(graph: OperatorGraph) -> Expansions:
    return filtering_convolutions(Expansions(graph), contents(graph))


def test_a_convolution_has_one_for_each_extent_of_tiles() -> None:
    graph = network()
    expansions = found(graph)
    (name,) = expansions.of_node
    small, large = expansions.of_node[name]
    assert "tiles of 2×2" in small.because
    assert "tiles of 4×4" in large.because
    assert "error" in large.because
    x = np.random.default_rng(1).standard_normal((1, 4, 6, 6), np.float32)
    (expected,) = interpret_graph(graph, {"x": x}).values()
    for expansion in (small, large):
        taken = expansions.take([expansion], set())
        (y,) = interpret_graph(taken, {"x": x}).values()
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "graph",
    [
        network(scale=float("inf")),
        network(scale=1e30),
        network(given=True),
        network(stride=2),
    ],
    ids=["infinite weights", "weights without room", "weights of a run", "strides"],
)
def test_there_is_none_where_a_sum_might_overflow_or_is_another(graph: OperatorGraph) -> None:
    assert not found(graph).of_node


def test_what_has_none_for_its_numbers_says_so_beside_earlier_refusals() -> None:
    graph = network(scale=1e30)
    (node,) = graph.nodes
    earlier = RefusedVariant("another", Refusal("", "of another kind"))
    known = Expansions(graph, refused={node.name: (earlier,)})
    first, own = filtering_convolutions(known, contents(graph)).refused[node.name]
    assert first == earlier
    assert own.variant == TRANSFORMED_TILES
    assert "has no bound, or one that is too large" in str(own.reason)
    graph = network()
    (node,) = graph.nodes
    known = Expansions(graph, refused={node.name: (earlier,)})
    assert filtering_convolutions(known, contents(graph)).refused == known.refused


def test_scaled_weights_are_transformed_too() -> None:
    b = ModelBuilder()
    x = b.input("x", (1, 4, 6, 6))
    random = np.random.default_rng(0)
    w = b.constant(random.standard_normal((4, 4, 3, 3), np.float32), "w")
    y = b.node("Conv", [x, w], pads=[1, 1, 1, 1])
    scale = b.constant(random.standard_normal((1, 4, 1, 1), np.float32), "scale")
    b.output(b.node("Mul", [y, scale]))
    graph = graph_of(b)
    known = folding_constants(graph)
    expansions = filtering_convolutions(known, contents(known.graph))
    (options,) = expansions.of_node.values()
    assert len(options) == 1 + 2 + 2
    both = options[-1]
    assert "folded" in both.because
    assert "4×4" in both.because
    x_array = random.standard_normal((1, 4, 6, 6), np.float32)
    (expected,) = interpret_graph(graph, {"x": x_array}).values()
    (y_array,) = interpret_graph(expansions.take([both], set()), {"x": x_array}).values()
    np.testing.assert_allclose(y_array, expected, rtol=1e-4, atol=1e-4)
