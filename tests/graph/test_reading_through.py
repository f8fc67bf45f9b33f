"""Tests of expansions: readers that take channels from where they were computed."""

from collections import Counter
from functools import cache

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.target import Target
from graphflow.baselines import plan_groups
from graphflow.frontends import import_model
from graphflow.graph import (
    Expansions,
    OperatorGraph,
    canonicalize,
    fuse_groups,
    interpret_graph,
    moved_channels,
    reading_through,
)
from graphflow.graph.channels import segments_of
from graphflow.kernels.definitions.movements.segments import Segment
from graphflow.models.zoo import zoo_model
from graphflow.models.zoo.building.layers import NetworkBuilder
from support.targets import processors_in_turn
from support.texts import parsed

SIDE = 6


def units(channels: int, count: int, depthwise: bool = False) -> onnx.ModelProto:
    """Split, convolve one half, join, shuffle: `count` times; then who needs the channels."""
    b = NetworkBuilder(3, name="units")
    x = b.input("input", (1, channels, SIDE, SIDE))
    x = b.relu(b.conv_bias(x, channels, 1))
    for _ in range(count):
        left = b.slice_channels(x, 0, channels // 2)
        right = b.slice_channels(x, channels // 2, channels)
        right = b.relu(b.conv_bias(right, channels // 2, 3))
        x = b.channel_shuffle(b.concat(left, right), 2, SIDE, SIDE)
    groups = channels if depthwise else 1
    b.output(b.conv_bias(x, channels, 3, group=groups))
    return b.model()


def fused(model: onnx.ModelProto) -> OperatorGraph:
    return fuse_groups(canonicalize(import_model(model, {})))


@cache
def fused_network(name: str) -> OperatorGraph:
    """A network of the zoo, which plans for several processors share; nobody may change it."""
    return fused(zoo_model(name))


def through_movement(graph: OperatorGraph) -> OperatorGraph:
    """The graph with every expansion, and without the movement that is in vain then."""
    moves = moved_channels(graph)
    found = reading_through(Expansions(graph), moves, set(moves))
    needed = set(graph.outputs)
    for node in reversed(graph.nodes):
        taken = found.of_node.get(node.name)
        if node.outputs[0] in needed or node.outputs[0] not in found.origins:
            needed.update(node.inputs if taken is None else taken[0].node.inputs)
    unmoved = found.origins.keys() - needed
    taken = [e for (e,) in found.of_node.values() if e.node.outputs[0] not in unmoved]
    return found.take(taken, unmoved)


def running(graph: OperatorGraph) -> list[str]:
    """The nodes whose outputs are not all constant."""
    return [n.name for n in graph.nodes if not all(map(graph.is_constant, n.outputs))]


@pytest.mark.parametrize("channels", [6, 10, 18])
@pytest.mark.parametrize("depthwise", [False, True])
def test_the_graph_means_the_same(channels: int, depthwise: bool) -> None:
    graph = fused(units(channels, 3, depthwise))
    through = through_movement(graph)
    assert len(running(through)) < len(running(graph))
    x = np.random.default_rng(0).standard_normal((1, channels, SIDE, SIDE), np.float32)
    (want,) = interpret_graph(graph, {"input": x}).values()
    (got,) = interpret_graph(through, {"input": x}).values()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_every_channel_is_traced_to_where_it_was_computed() -> None:
    graph = fused(units(10, 2))
    x = np.random.default_rng(1).standard_normal((1, 10, SIDE, SIDE), np.float32)
    tables = {value: moved.table for value, moved in moved_channels(graph).items()}
    values = interpret_graph(graph, {"input": x}, graph.values)
    assert len(tables) == 8
    for value, table in tables.items():
        for channel, (source, origin) in enumerate(table):
            assert source not in tables
            np.testing.assert_array_equal(values[value][:, channel], values[source][:, origin])


def test_segments_are_runs_of_equal_steps() -> None:
    table = [("a", 3), ("b", 0), ("a", 4), ("b", 2), ("a", 5), ("b", 4), ("a", 0)]
    sources, segments = segments_of(table)
    assert sources == ("a", "b")
    assert segments == (
        Segment(0, 0, 2, 3, 1, 3), Segment(1, 1, 2, 0, 2, 3), Segment(0, 6, 1, 0, 1, 1),
    )  # fmt: skip
    rebuilt = {
        s.at + k * s.stride: (sources[s.source], s.begin + k * s.step)
        for s in segments
        for k in range(s.count)
    }
    assert [rebuilt[c] for c in range(len(table))] == table


def test_nothing_changes_where_nobody_reduces_over_channels() -> None:
    b = NetworkBuilder(0, name="pooled")
    x = b.input("input", (1, 6, SIDE, SIDE))
    b.output(b.relu(b.concat(b.relu(x), x)))
    graph = fused(b.model())
    moves = moved_channels(graph)
    assert not reading_through(Expansions(graph), moves, set(moves)).of_node


def test_a_pinned_graph_keeps_its_tensors() -> None:
    model = units(10, 2)
    free = gf.compile(model)
    moved = next(v for v in moved_channels(fused(model)) if v not in free.compiled.graph.values)
    pinned = gf.compile(model, layouts={moved: "NCHW"})
    assert moved in pinned.compiled.graph.values


@pytest.mark.parametrize("channels", [10, 18])
def test_units_move_less_than_once_each_and_agree(channels: int) -> None:
    model = units(channels, 4)
    exe = gf.compile(model)
    assert exe.report()["summary"]["inner_conversions"] <= 1
    x = np.random.default_rng(2).standard_normal((1, channels, SIDE, SIDE), np.float32)
    (want,) = interpret_graph(import_model(model, {}), {"input": x}).values()
    (got,) = exe.run({"input": x}).values()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


COPIES = {"shufflenet_v2": (1, 0), "densenet40_k12": (0, 0), "densenet121_k12": (0, 5)}
"""The most shuffles in a stage, and the most conversions, of networks of the zoo."""


@processors_in_turn(
    "name",
    [
        "shufflenet_v2",
        "densenet40_k12",
        pytest.param("densenet121_k12", marks=pytest.mark.slow),
    ],
)
def test_networks_of_odd_widths_copy_at_most_a_shuffle_a_stage(name: str, target: Target) -> None:
    """No concatenation and no split moves elements, nor is any tensor converted in networks of one
    growth rate; where one is, that is next to nothing.

    A first-level cache of 48 KiB holds what the first convolutions of densenet40 read of a row for
    64-byte vectors, so these keep lanes along the rows, and one tensor behind them is converted.
    With 32-byte vectors the 16 convolutions of densenet121 at 7×7 write 12 channels by blocks of 8.
    """
    shuffles, conversions = COPIES[name]
    along_rows = target.vector_bytes == 64 and target.l1_bytes > 32 << 10
    conversions += name == "densenet40_k12" and along_rows
    if name == "densenet121_k12" and target.vector_bytes == 32:
        conversions = 16
    graph, plan, _ = plan_groups(fused_network(name), target, 2)
    assert len(plan.conversions) <= conversions
    assert sum(made.seconds for made in plan.conversions) < 0.005 * plan.seconds
    moving = {node for move in plan.moves for node, _ in move.consumers}
    assert {graph.node(node).op for node in moving} <= {"ChannelShuffle"}
    stages = Counter(graph.values[graph.node(node).outputs[0]].shape[2:] for node in moving)
    assert all(count <= shuffles for count in stages.values()), stages


def weight_read_twice(value: str = "") -> onnx.ModelProto:
    """The weight of a product over moved channels is read behind the product too."""
    b = NetworkBuilder(5, name="twice")
    halves = [b.relu(b.input("x", (8, 4))), b.node("Sigmoid", [b.input("z", (8, 4))])]
    w = b.constant(np.random.default_rng(4).standard_normal((8, 8)).astype(np.float32), "w")
    y = b.add(b.node("MatMul", [b.concat(*halves), w]), w)
    b.output(b.node("Relu", [y], [value] if value else None))
    return b.model()


def agree(model: onnx.ModelProto) -> OperatorGraph:
    graph = fused(model)
    through = through_movement(graph)
    rng = np.random.default_rng(0)
    inputs = {n: rng.standard_normal(graph.values[n].shape, np.float32) for n in graph.inputs}
    (want,) = interpret_graph(graph, inputs).values()
    (got,) = interpret_graph(through, inputs).values()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return through


def test_a_weight_that_is_read_elsewhere_too_remains_an_operand() -> None:
    through = agree(weight_read_twice())
    (node,) = (n for n in through.nodes if n.op.startswith("MatMul"))
    assert "w" in node.inputs and "x" not in node.inputs
    assert len(node.inputs) == 5


def test_a_part_has_a_name_that_the_model_has_not() -> None:
    through = agree(weight_read_twice("w[0:0+1*4]"))
    assert through.outputs == ("w[0:0+1*4]",)
    assert "w[0:0+1*4]_2" in through.values


def test_what_a_kernel_computes_itself_has_no_parts_to_bind():
    model = parsed(
        """g (float[1,1] x) => (float[1,1] y) {
        first = Constant<value=int64 {0}>()
        axis = Constant<value=int64[1] {0}>()
        row = Gather<axis=0>(x, first)
        a = Unsqueeze(row, axis)
        turned = Transpose(x)
        p = Softmax<axis=1>(turned)
        y = MatMul(a, p) }"""
    )
    exe = gf.compile(model, options=gf.Options(cache="off", threads=1, workers=0, fallback=None))
    x = np.full((1, 1), 3, np.float32)
    np.testing.assert_allclose(exe.run({"x": x})["y"], x)
