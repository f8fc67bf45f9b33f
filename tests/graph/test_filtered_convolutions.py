"""Tests of the expansions of convolutions in transformed tiles: where there are any, of what."""

import numpy as np
import pytest

from graphflow.graph import (
    Expansions,
    Node,
    OperatorGraph,
    contents,
    filtering_convolutions,
    folding_constants,
    interpret_graph,
)
from graphflow.kernels.definitions.windows import convolution
from graphflow.kernels.recipes import TRANSFORMED_TILES, RefusedVariant
from graphflow.layout import Fact, Range
from graphflow.models import ModelBuilder
from graphflow.schedule import Refusal
from support.kernels.narrow_products import narrow
from support.planning.nets import SHORT, graph_of


def network(scale: float = 1.0, given: bool = False, stride: int = 1) -> OperatorGraph:
    b = ModelBuilder()
    x = b.input("x", (1, 4, 6, 6))
    weights = np.random.default_rng(0).standard_normal((4, 4, 3, 3), np.float32) * np.float32(scale)
    w = b.input("w", weights.shape) if given else b.constant(weights, "w")
    y = b.node("Conv", [x, w], pads=[1, 1, 1, 1], strides=[stride, stride])
    b.output(b.node("Relu", [y]))
    return graph_of(b)


def found(graph: OperatorGraph) -> Expansions:
    return filtering_convolutions(Expansions(graph), contents(graph), SHORT)


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


def test_a_convolution_along_sequences_has_tiles_of_one_axis() -> None:
    b = ModelBuilder()
    x = b.input("x", (2, 4, 30))
    b.output(b.node("Conv", [x, b.weight(4, 4, 3)], pads=[1, 1]))
    graph = graph_of(b)
    expansions = found(graph)
    (options,) = expansions.of_node.values()
    assert all(f"tiles of {n} outputs" in x.because for n, x in zip((2, 4), options, strict=True))
    arrays = {"x": np.random.default_rng(1).standard_normal((2, 4, 30), np.float32)}
    (expected,) = interpret_graph(graph, arrays).values()
    for expansion in options:
        (y,) = interpret_graph(expansions.take([expansion], set()), arrays).values()
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "graph",
    [network(scale=float("inf")), network(scale=1e30), network(given=True), network(stride=2)],
    ids=["infinite weights", "weights without room", "weights of a run", "strides"],
)
def test_there_is_none_where_a_sum_might_overflow_or_is_another(graph: OperatorGraph) -> None:
    assert not found(graph).of_node


@pytest.mark.parametrize("axis", range(4))
def test_there_is_one_for_parts_of_images_that_reads_how_much_a_run_gives(axis: int) -> None:
    b = ModelBuilder()
    x = b.input("x", (2, 4, 6, 6))
    b.output(b.node("Conv", [x, b.weight(4, 4, 3, 3)], pads=[1, 1, 1, 1]))
    graph = graph_of(b)
    graph.add_input("count", "int64", ())
    values = [value for value in graph.values.values() if value.shape[1:] == (4, 6, 6)]
    graph.counted = {value: {axis: "count"} for value in values}
    expansions = found(graph)
    assert bool(expansions.of_node) == (axis != 1)
    for first, *_ in expansions.of_node.values():
        assert ("count" in first.node.inputs) == (axis > 1)
    for ((refused,),) in [expansions.refused.values()] if axis == 1 else []:
        assert "a run gives a part of the channels" in str(refused.reason)


def test_what_has_none_for_its_numbers_says_so_beside_earlier_refusals() -> None:
    graph = network(scale=1e30)
    (node,) = graph.nodes
    earlier = RefusedVariant("another", Refusal("", "of another kind"))
    known = Expansions(graph, refused={node.name: (earlier,)})
    first, own = filtering_convolutions(known, contents(graph), SHORT).refused[node.name]
    assert first == earlier
    assert own.variant == TRANSFORMED_TILES
    assert "has no bound, or one that is too large" in str(own.reason)
    graph = network()
    (node,) = graph.nodes
    known = Expansions(graph, refused={node.name: (earlier,)})
    assert filtering_convolutions(known, contents(graph), SHORT).refused == known.refused


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
    expansions = filtering_convolutions(known, contents(known.graph), SHORT)
    (options,) = expansions.of_node.values()
    assert len(options) == 1 + 2 + 2
    both = options[-1]
    assert "folded" in both.because
    assert "4×4" in both.because
    x_array = random.standard_normal((1, 4, 6, 6), np.float32)
    (expected,) = interpret_graph(graph, {"x": x_array}).values()
    (y_array,) = interpret_graph(expansions.take([both], set()), {"x": x_array}).values()
    np.testing.assert_allclose(y_array, expected, rtol=1e-4, atol=1e-4)


def words(
    channels: int, data: tuple[int, int], largest: int
) -> tuple[OperatorGraph, dict[str, Fact]]:
    """A convolution of integers of 16 bits, and facts about it: the image is in `data`, and no
    weight is larger in magnitude than `largest`."""
    func = narrow(
        convolution.convolution((1, channels, 6, 6), (4, channels, 3, 3), dtype="int32"),
        ("int16", "int16"),
    )
    graph = OperatorGraph()
    graph.add_input("x", "int16", (1, channels, 6, 6))
    graph.add_initializer("w", np.full((4, channels, 3, 3), largest, np.int16))
    graph.add(Node("conv", "Conv", func, ("x", "w"), ("y",)))
    graph.set_outputs(["y"])
    return graph, {**contents(graph), "x": Range(*data)}


def test_integers_have_small_tiles_that_are_exact() -> None:
    graph, facts = words(3, (-255, 255), 127)
    expansions = filtering_convolutions(Expansions(graph), facts, SHORT)
    ((only,),) = expansions.of_node.values()
    assert "tiles of 2×2 outputs, exactly" in only.because
    x = np.random.default_rng(0).integers(-255, 256, (1, 3, 6, 6)).astype(np.int16)
    (expected,) = interpret_graph(graph, {"x": x}).values()
    (y,) = interpret_graph(expansions.take([only], set()), {"x": x}).values()
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("channels", "data", "largest", "reason"),
    [
        (3, (-8192, 8191), 1, "the elements of x have no bound, or one that is too large"),
        (3, (0, 255), 3641, "w has no bound, or one that is too large"),
        (1842, (0, 255), 127, "sums over 1842 channels times 4 might not fit into 32 bits"),
    ],
    ids=["elements", "weights", "sums"],
)
def test_integers_that_might_not_fit_have_none(
    channels: int, data: tuple[int, int], largest: int, reason: str
) -> None:
    graph, facts = words(channels, data, largest)
    expansions = filtering_convolutions(Expansions(graph), facts, SHORT)
    assert not expansions.of_node
    ((refused,),) = expansions.refused.values()
    assert reason in str(refused.reason)


def test_integers_that_just_fit_have_tiles() -> None:
    fitting = ((3, (-8191, 8191), 1), (3, (0, 255), 3640), (1841, (0, 255), 127))
    for channels, data, largest in fitting:
        graph, facts = words(channels, data, largest)
        assert filtering_convolutions(Expansions(graph), facts, SHORT).of_node
