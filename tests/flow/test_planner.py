"""Flow: plans as text, pins, prices against exhaustive search, and facts that may be relied on."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import graphflow.flow.planner as planner
from graphflow.convert import apply_plan
from graphflow.errors import LayoutConflict
from graphflow.flow import Label, LayoutPlan, plan_layouts
from graphflow.flow.candidates import (
    Candidate,
    Candidates,
    enumerate_candidates,
)
from graphflow.flow.collecting import collection_deferred
from graphflow.frontends import import_model
from graphflow.graph import Node, OperatorGraph, Value, canonicalize, fuse, interpret_graph
from graphflow.kernels import definitions as d
from graphflow.kernels.recipes import View, memory_key
from graphflow.layout import (
    Equal,
    blocked,
    channels_last,
    channels_last_padded,
    row_major,
)
from graphflow.models import Builder
from graphflow.schedule import Schedule
from graphflow.target import Target
from graphflow.tir import PrimFunc
from support.placing import interpret_physical

TARGET = Target("eight lanes", "", "", vector_bytes=32, vector_registers=16)
"""Its own data alone: plans do not depend on the machine that runs the tests."""
SHORT = Target("four lanes", "", "", vector_bytes=16, vector_registers=8)


def graph_of(builder: Builder) -> OperatorGraph:
    return fuse(canonicalize(import_model(builder.model())))


class Net:
    """A graph written down kernel by kernel; nothing is fused."""

    def __init__(self, **inputs: tuple[int, ...]) -> None:
        self.graph = OperatorGraph()
        for name, shape in inputs.items():
            self.graph.add_value(Value(name, "float32", shape))
        self.graph.set_inputs(inputs)

    def add(self, name: str, func: PrimFunc, *inputs: str) -> str:
        self.graph.add(Node(f"n_{name}", func.name, func, inputs, (name,), (name,)))
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        return self.graph.values[name].shape

    def conv(self, name: str, x: str, channels: int, kernel: int = 1) -> str:
        depth = self.shape(x)[1]
        rng = np.random.default_rng(len(self.graph.values))
        weights = rng.standard_normal((channels, depth, kernel, kernel)).astype(np.float32)
        weights /= np.float32(np.sqrt(depth) * kernel)
        self.graph.add_initializer(f"{name}_w", weights)
        pads = (kernel // 2,) * 4
        return self.add(
            name, d.convolution(self.shape(x), weights.shape, pads=pads), x, f"{name}_w"
        )

    def unary(self, name: str, op: str, x: str) -> str:
        return self.add(name, d.unary(op, self.shape(x)), x)

    def sum(self, name: str, a: str, b: str) -> str:
        return self.add(name, d.binary("add", self.shape(a), self.shape(b)), a, b)

    def concat(self, name: str, *parts: str, axis: int = 1) -> str:
        return self.add(name, d.concat([self.shape(p) for p in parts], axis), *parts)

    def over_channels(self, name: str, kind: str, x: str) -> str:
        return self.add(name, d.reduce(kind, self.shape(x), (1,)), x)

    def done(self, *outputs: str) -> OperatorGraph:
        self.graph.set_outputs(outputs)
        self.graph.validate()
        return self.graph


def describe(plan: LayoutPlan) -> str:
    """Everything that was decided, without prices."""
    lines = [f"{c.node}: {c.alternative.name}"
             + ("" if c.pad_value is None else f", padding {c.pad_value}")
             for c in plan.choices.values()]  # fmt: skip
    lines += [f"  {name} = {edge.label.describe()}" for name, edge in plan.edges.items()]
    for made in plan.conversions:
        readers = ", ".join(f"{node or 'output'}.{k}" for node, k in made.consumers)
        lines.append(
            f"{made.kind} {made.value}: {made.source.describe()} -> {made.target.describe()} "
            f"for {readers}"
        )
    lines += [f"cancelled on {c.value} to {c.consumer}: {c.layout.describe()}"
              for c in plan.cancelled]  # fmt: skip
    lines += [f"refused on {r.value} to {r.consumer}: {r.reason}; {r.repair}"
              for r in plan.refused]  # fmt: skip
    return "\n".join(lines) + "\n"


# Goldens ------------------------------------------------------------------------------------------


def chain() -> OperatorGraph:
    b = Builder()
    x = b.input("x", (1, 16, 14, 14))
    for _ in range(3):
        x = b.relu(b.conv(x, 32, 3, pads=[1, 1, 1, 1]))
    b.output(x)
    return graph_of(b)


def residual() -> OperatorGraph:
    b = Builder()
    x = b.relu(b.conv(b.input("x", (1, 16, 14, 14)), 32, 3, pads=[1, 1, 1, 1]))
    y = b.conv(b.relu(b.conv(x, 32, 3, pads=[1, 1, 1, 1])), 32, 1)
    b.output(b.relu(b.add(y, x)))
    return graph_of(b)


def joined() -> OperatorGraph:
    b = Builder()
    x = b.relu(b.conv(b.input("x", (1, 16, 14, 14)), 16, 1))
    left, right = b.relu(b.conv(x, 24, 1)), b.relu(b.conv(x, 40, 3, pads=[1, 1, 1, 1]))
    b.output(b.conv(b.node("Concat", [left, right], axis=1), 16, 1, in_channels=64))
    return graph_of(b)


def pooled() -> OperatorGraph:
    b = Builder()
    x = b.relu(b.conv(b.input("x", (1, 3, 28, 28)), 32, 3))
    x = b.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = b.relu(b.conv(x, 48, 3, in_channels=32))
    b.output(b.node("GlobalAveragePool", [x]))
    return graph_of(b)


def odd() -> OperatorGraph:
    b = Builder()
    x = b.relu(b.conv(b.input("x", (1, 3, 12, 12)), 17, 3))
    b.output(b.relu(b.conv(b.relu(b.conv(x, 18, 3)), 5, 1)))
    return graph_of(b)


GRAPHS = {"chain": chain, "residual": residual, "concat": joined, "pool": pooled, "odd": odd}


@pytest.mark.parametrize("name", GRAPHS)
def test_plan_as_text(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"plan_{name}", describe(plan_layouts(GRAPHS[name](), TARGET, 2)))


@pytest.mark.parametrize("name", GRAPHS)
def test_same_graph_same_plan(name: str) -> None:
    first, second = (plan_layouts(GRAPHS[name](), TARGET, 2) for _ in range(2))
    assert describe(first) == describe(second)
    assert first.seconds == second.seconds
    assert first == second


@pytest.mark.parametrize("name", GRAPHS)
def test_prices_add_up(name: str) -> None:
    plan = plan_layouts(GRAPHS[name](), TARGET, 2)
    total = sum(c.seconds for c in plan.choices.values())
    total += sum(c.seconds for c in plan.conversions)
    assert plan.seconds == pytest.approx(total, rel=1e-6)
    assert plan.next_best is not None
    assert plan.next_best >= plan.seconds
    assert plan.gap <= 1e-4
    assert all(c.because for c in plan.choices.values())


# Pins ---------------------------------------------------------------------------------------------


def middle(graph: OperatorGraph) -> str:
    return graph.nodes[0].outputs[0]


@pytest.mark.parametrize(
    ("pin", "layout"),
    [
        ("row_major", row_major((1, 32, 14, 14))),
        ("channels_last", channels_last((1, 32, 14, 14))),
        ("NHWC", channels_last((1, 32, 14, 14))),
        ("blocked(8)", blocked((1, 32, 14, 14), 1, 8)),
        ("blocked", blocked((1, 32, 14, 14), 1, 8)),
        ("NCHW8c", blocked((1, 32, 14, 14), 1, 8)),
    ],
)
def test_pin_by_name(pin: str, layout: Any) -> None:
    graph = chain()
    by_name = plan_layouts(graph, TARGET, 2, {middle(graph): pin})
    assert memory_key(by_name.edges[middle(graph)].label.layout) == memory_key(layout)
    assert describe(plan_layouts(graph, TARGET, 2, {middle(graph): layout})) == describe(by_name)
    assert by_name.seconds >= plan_layouts(graph, TARGET, 2).seconds * (1 - 1e-6)
    apply_plan(graph, by_name)


def test_pin_of_a_graph_input_or_output() -> None:
    """Outside the graph tensors stay row-major; a pin says in which layout they are used."""
    graph = chain()
    (y,) = graph.outputs
    plan = plan_layouts(graph, TARGET, 2, {y: "NHWC"})
    assert plan.edges[y].label.layout.describe() == "NHWC"
    assert [c.consumers for c in plan.conversions if c.value == y] == [(("", -1),)]
    plan = plan_layouts(graph, TARGET, 2, {"x": "NHWC"})
    assert [c.target.layout.describe() for c in plan.conversions if c.value == "x"] == ["NHWC"]


def test_a_pin_that_is_no_familys_is_taken() -> None:
    graph = chain()
    odd_box = channels_last_padded((1, 32, 14, 14), 24)
    plan = plan_layouts(graph, TARGET, 2, {middle(graph): odd_box})
    assert plan.edges[middle(graph)].label.layout == odd_box
    rng = np.random.default_rng(0)
    x = rng.standard_normal(graph.values["x"].shape).astype(np.float32)
    got = interpret_physical(graph, apply_plan(graph, plan), TARGET, {"x": x})
    for name, array in interpret_graph(graph, {"x": x}).items():
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5)


def test_a_pin_that_nobody_offers() -> None:
    graph = chain()
    node, odd_box = graph.nodes[0], channels_last_padded((1, 32, 14, 14), 24)
    graph.offer(node.name, Schedule.of(node.func), only=True)
    with pytest.raises(LayoutConflict) as error:
        plan_layouts(graph, TARGET, 2, {middle(graph): odd_box})
    text = str(error.value)
    assert node.name in text
    assert f"{middle(graph)} pinned to NHWC padded to 48" in text
    assert "its forms are" in text
    assert "row-major" in text
    assert "Drop one of these pins" in text


def test_pins_that_contradict_each_other_at_one_node() -> None:
    net = Net(x=(1, 16, 4, 4))
    a = net.unary("a", "relu", "x")
    graph = net.done(net.unary("b", "exp", a))
    pins = {"a": "NHWC", "b": "blocked(8)"}
    with pytest.raises(LayoutConflict) as error:
        plan_layouts(graph, TARGET, 2, pins)
    assert "a pinned to NHWC" in str(error.value)
    assert "b pinned to NCHW8c" in str(error.value)


@pytest.mark.parametrize(
    ("name", "pin", "message"),
    [
        ("nothing", "NHWC", "no such edge"),
        ("x", "NCWH", "it can be one of"),
        ("x", row_major((1, 16, 14)), "has \\[1, 16, 14, 14\\]"),
    ],
)
def test_pins_that_make_no_sense(name: str, pin: Any, message: str) -> None:
    with pytest.raises(LayoutConflict, match=message):
        plan_layouts(chain(), TARGET, 2, {name: pin})


# Sharing and views --------------------------------------------------------------------------------


def test_one_copy_for_several_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(x=(1, 16, 12, 12))
    a = net.unary("a", "relu", "x")
    outputs = [net.unary(f"y{k}", "exp", a) for k in range(3)]
    graph = net.done(*outputs)
    favour(monkeypatch, lambda c: (c.node == "n_a") == (c.alternative.name == "NCHW"))
    plan = plan_layouts(graph, TARGET, 2)
    (copy,) = [c for c in plan.conversions if c.value == "a"]
    assert copy.consumers == tuple((f"n_{name}", 0) for name in outputs)
    assert len([c for c in apply_plan(graph, plan).calls if c.name == "convert a"]) == 1


def views(graph: OperatorGraph, plan: LayoutPlan) -> list[str]:
    return [n for n, c in plan.choices.items() if isinstance(c.alternative.recipe, View)]


def outward(plan: LayoutPlan, name: str) -> bool:
    """Whether a view's output lies inside its input."""
    recipe = plan.choices[name].alternative.recipe
    return isinstance(recipe, View) and recipe.outward


def check_meaning(graph: OperatorGraph, plan: LayoutPlan, target: Target = SHORT) -> None:
    """The plan's physical graph computes what the graph means."""
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(graph.values[n].shape).astype(np.float32)
              for n in graph.inputs}  # fmt: skip
    got = interpret_physical(graph, apply_plan(graph, plan), target, arrays)
    for name, want in interpret_graph(graph, arrays).items():
        np.testing.assert_allclose(got[name], want, rtol=2e-5, atol=2e-5, err_msg=name)


def test_concat_is_a_view() -> None:
    net = Net(x=(1, 4, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "exp", "x")
    graph = net.done(net.unary("y", "tanh", net.concat("c", a, b)))
    plan = plan_layouts(graph, SHORT, 1)
    assert views(graph, plan) == ["n_c"]
    assert not [c for c in plan.conversions if c.value in {"a", "b", "c"}]
    check_meaning(graph, plan)


def concat_twice() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a = net.unary("a", "relu", "x")
    return net.done(net.unary("y", "exp", net.concat("c", a, a)))


def in_two_concats() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "tanh", "x")
    left, right = net.concat("left", a, b), net.concat("right", b, a)
    return net.done(net.unary("y", "exp", left), net.unary("z", "exp", right))


def input_in_a_concat() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a = net.unary("a", "relu", "x")
    return net.done(net.unary("y", "exp", net.concat("c", "x", a)))


def inputs_only() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4), z=(1, 2, 3, 4))
    return net.done(net.concat("c", "x", "z", "x"))


def output_in_a_concat() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "exp", "x")
    return net.done(a, net.concat("c", a, b))


def concat_of_concats() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a, b, e = (net.unary(n, op, "x") for n, op in (("a", "relu"), ("b", "exp"), ("e", "tanh")))
    inner = net.concat("inner", a, b)
    outer = net.concat("outer", inner, e)
    return net.done(net.unary("y", "neg", outer), net.unary("z", "exp", inner))


def concat_with_a_constant() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a = net.unary("a", "relu", "x")
    net.graph.add_initializer("k", np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4))
    return net.done(net.unary("y", "exp", net.concat("c", a, "k")))


def reshape_then_concat() -> OperatorGraph:
    """The reshaped memory is a window of a larger one, under a shape of equal rank."""
    net = Net(x=(1, 6, 2))
    a = net.unary("a", "relu", "x")
    r = net.add("r", d.reshape((1, 6, 2), (1, 3, 4)), a)
    net.graph.add_value(Value("z", "float32", (1, 7, 4)))
    net.graph.set_inputs(["x", "z"])
    b = net.unary("b", "exp", "z")
    return net.done(net.unary("y", "neg", net.concat("c", b, r)))


def flatten_then_concat() -> OperatorGraph:
    net = Net(x=(1, 6, 2, 2), z=(1, 5))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "exp", "z")
    r = net.add("r", d.reshape((1, 6, 2, 2), (1, 24)), a)
    return net.done(net.unary("y", "neg", net.concat("c", b, r)))


def reshape_of_a_window() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "exp", "x")
    net.concat("c", a, b)
    r = net.add("r", d.reshape((1, 4, 3, 4), (1, 48)), a)
    return net.done("c", net.unary("y", "neg", r))


def reshape_of_an_input() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    return net.done(net.add("r", d.reshape((1, 4, 3, 4), (1, 48)), "x"))


def output_and_window() -> OperatorGraph:
    """The copy for the graph output and the copy for the window are two."""
    net = Net(x=(1, 16, 12, 12))
    a = net.conv("a", net.conv("b", "x", 32, 3), 16, 3)
    return net.done(a, net.concat("c", net.unary("e", "exp", "x"), a))


def concat_then_reshape() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "exp", "x")
    return net.done(net.add("r", d.reshape((1, 8, 3, 4), (1, 96)), net.concat("c", a, b)))


def part(net: Net, name: str, source: str, channels: range) -> str:
    shape = net.graph.values[source].shape
    ranges = [range(n) for n in shape]
    ranges[1] = channels
    return net.add(name, d.take_slice(shape, ranges), source)


def halves() -> OperatorGraph:
    net = Net(x=(1, 8, 3, 4))
    a = net.unary("a", "relu", "x")
    left, right = part(net, "left", a, range(4)), part(net, "right", a, range(4, 8))
    return net.done(net.unary("y", "exp", left), net.unary("z", "tanh", right), a)


def halves_of_an_input() -> OperatorGraph:
    net = Net(x=(1, 8, 3, 4))
    left, right = part(net, "left", "x", range(4)), part(net, "right", "x", range(4, 8))
    return net.done(net.unary("y", "exp", left), right)


def slice_then_concat() -> OperatorGraph:
    """A part of one tensor becomes a part of another one, so one of the two has to move."""
    net = Net(x=(1, 8, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "exp", "x")
    joined = net.concat("c", part(net, "p", a, range(2, 6)), b)
    return net.done(net.unary("y", "neg", joined), net.unary("z", "tanh", a))


def concat_then_slice() -> OperatorGraph:
    """The slice crosses the border between two parts."""
    net = Net(x=(1, 4, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "exp", "x")
    return net.done(net.unary("y", "neg", part(net, "p", net.concat("c", a, b), range(2, 7))))


def slice_then_reshape() -> OperatorGraph:
    """Row-major, half of the channels is one piece of memory; channels-last it is not."""
    net = Net(x=(1, 8, 3, 4))
    half = part(net, "p", net.unary("a", "relu", "x"), range(4, 8))
    flat = net.add("r", d.reshape((1, 4, 3, 4), (1, 48)), half)
    return net.done(net.unary("y", "exp", flat), net.unary("z", "tanh", half))


def reshaped_twice() -> OperatorGraph:
    net = Net(x=(1, 8, 3, 4))
    a = net.unary("a", "relu", "x")
    flat = net.add("r", d.reshape((1, 8, 3, 4), (1, 96)), a)
    rows = net.add("s", d.reshape((1, 8, 3, 4), (1, 24, 4)), a)
    return net.done(net.unary("y", "exp", flat), net.unary("z", "tanh", rows))


def reshaped_parts_of_an_output() -> OperatorGraph:
    """As a detector ends: boxes of several scales, one behind the other."""
    net = Net(x=(1, 4, 3, 4), z=(1, 4, 2, 2))
    rows = []
    for name, size in (("x", (3, 4)), ("z", (2, 2))):
        a = net.unary(f"a{name}", "relu", name)
        turned = net.add(f"t{name}", d.transpose((1, 4, *size), (0, 2, 3, 1)), a)
        count = size[0] * size[1]
        rows.append(net.add(f"r{name}", d.reshape((1, *size, 4), (1, count, 4)), turned))
    return net.done(net.add("c", d.concat([(1, 12, 4), (1, 4, 4)], 1), *rows))


def shuffled_halves() -> OperatorGraph:
    """A channel shuffle, then one half into a convolution and the other one past it."""
    net = Net(x=(1, 16, 5, 5))
    a, b = net.conv("a", "x", 8), net.conv("b", "x", 8)
    joined = net.concat("c", a, b)
    apart = net.add("r", d.reshape((1, 16, 5, 5), (1, 2, 8, 5, 5)), joined)
    turned = net.add("t", d.transpose((1, 2, 8, 5, 5), (0, 2, 1, 3, 4)), apart)
    mixed = net.add("s", d.reshape((1, 8, 2, 5, 5), (1, 16, 5, 5)), turned)
    left, right = part(net, "left", mixed, range(8)), part(net, "right", mixed, range(8, 16))
    return net.done(net.concat("y", left, net.conv("e", right, 8)))


def every_second() -> OperatorGraph:
    """What lies between the rows that are read belongs to another tensor."""
    net = Net(x=(1, 4, 6, 6))
    a = net.unary("a", "relu", "x")
    ranges = [range(1), range(4), range(0, 6, 2), range(0, 6, 2)]
    rows = net.add("rows", d.take_slice((1, 4, 6, 6), ranges), a)
    return net.done(net.conv("y", rows, 5), net.unary("z", "exp", a))


SHARED = [
    concat_twice, in_two_concats, input_in_a_concat, inputs_only, output_in_a_concat,
    concat_of_concats, concat_with_a_constant, reshape_then_concat, flatten_then_concat,
    reshape_of_a_window, reshape_of_an_input, concat_then_reshape, output_and_window,
    halves, halves_of_an_input, slice_then_concat, concat_then_slice, slice_then_reshape,
    reshaped_twice, reshaped_parts_of_an_output, shuffled_halves, every_second,
]  # fmt: skip


@pytest.mark.parametrize("make", SHARED, ids=lambda f: f.__name__)
def test_values_that_share_memory(make: Callable[[], OperatorGraph]) -> None:
    graph = make()
    plan = plan_layouts(graph, SHORT, 1)
    inside: dict[str, int] = {}
    for name in views(graph, plan):
        node = graph.node(name)
        if outward(plan, name):
            inside[node.outputs[0]] = inside.get(node.outputs[0], 0) + 1
            continue
        for position, value in enumerate(node.inputs):
            copied = any((name, position) in c.consumers for c in plan.conversions)
            if not copied and not graph.is_constant(value):
                inside[value] = inside.get(value, 0) + 1
    assert all(count == 1 for count in inside.values())
    assert not set(inside) & set(graph.inputs)
    check_meaning(graph, plan)


@pytest.mark.parametrize(
    "make", [halves, concat_then_slice, reshaped_twice, slice_then_reshape, concat_of_concats]
)
def test_nothing_moves_where_everything_can_lie_in_one_storage(
    make: Callable[[], OperatorGraph],
) -> None:
    graph = make()
    plan = plan_layouts(graph, SHORT, 1)
    assert not plan.conversions
    moving = {"slice", "reshape", "concat", "transpose"}
    for node in graph.nodes:
        if node.op in moving or node.func.name in moving:
            assert node.name in views(graph, plan)


# Demands ------------------------------------------------------------------------------------------


def test_the_producer_writes_what_a_reduction_demands() -> None:
    net = Net(x=(1, 6, 3, 4))
    a = net.unary("a", "exp", "x")
    graph = net.done(net.over_channels("y", "sum", a))
    plan = plan_layouts(graph, SHORT, 1, {"a": "channels_last_padded(4)"})
    check_meaning(graph, plan)


def two_demands() -> OperatorGraph:
    """A sum and a maximum over the same padded channels need different padding."""
    net = Net(x=(1, 6, 8, 8))
    a = net.unary("a", "exp", "x")
    return net.done(
        net.over_channels("s", "sum", a), net.over_channels("m", "max", a),
        net.over_channels("p", "prod", a), net.unary("y", "neg", a),
    )  # fmt: skip


def over_padding(candidate: Candidate) -> bool:
    return any(isinstance(n.demand, Equal) for n in candidate.needs)


def padded(candidate: Candidate) -> bool:
    return any(label.facts for _, label in candidate.gives)


def favour(monkeypatch: pytest.MonkeyPatch, wanted: Callable[[Candidate], bool]) -> None:
    """Makes the candidates that are not wanted expensive, so that the plan takes the others."""

    def enumerated(*arguments: Any, **named: Any) -> Candidates:
        found = enumerate_candidates(*arguments, **named)
        priced = {
            node: tuple(replace(c, seconds=c.seconds + (0 if wanted(c) else 1e-2)) for c in options)
            for node, options in found.of_node.items()
        }
        return Candidates(priced, found.labels)

    monkeypatch.setattr(planner, "enumerate_candidates", enumerated)


def test_readers_with_different_demands_do_not_disturb_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = two_demands()
    natural = lambda c: c.node == "n_a" and padded(c) and c.pad_value is None  # noqa: E731
    favour(monkeypatch, lambda c: over_padding(c) or natural(c) or c.node == "n_y")
    plan = plan_layouts(graph, SHORT, 1)
    assert len([c for c in plan.choices.values() if c.alternative.demands]) == 3
    assert len([c for c in plan.conversions if c.kind == "fill"]) <= 1
    check_meaning(graph, plan)


def test_one_fill_serves_readers_that_want_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(x=(1, 6, 8, 8))
    a = net.unary("a", "exp", "x")
    sums = [net.over_channels(f"s{k}", "sum", a) for k in range(2)]
    graph = net.done(*sums, net.unary("y", "neg", a))
    natural = lambda c: c.node == "n_a" and padded(c) and c.pad_value is None  # noqa: E731
    favour(monkeypatch, lambda c: over_padding(c) or natural(c) or (c.node == "n_y" and padded(c)))
    plan = plan_layouts(graph, SHORT, 1)
    (fill,) = [c for c in plan.conversions if c.value == "a"]
    assert fill.kind == "fill"
    assert {("n_s0", 0), ("n_s1", 0)} <= set(fill.consumers)
    check_meaning(graph, plan)


# Random graphs ------------------------------------------------------------------------------------


KINDS = ("unary", "unary", "conv", "sum", "concat", "pool", "reduce")


def random_graph(
    rng: np.random.Generator, count: int | None = None, kinds: Sequence[str] = KINDS
) -> OperatorGraph:
    """A graph of `count` kernels, by default two to four."""
    net = Net(x=(1, int(rng.choice([4, 6])), 3, 4))
    values = ["x"]
    read: set[str] = set()
    for k in range(int(rng.integers(2, 5)) if count is None else count):
        kind, x, name = str(rng.choice(kinds)), str(rng.choice(values)), f"v{k}"
        shape = net.shape(x)
        same = [v for v in values if net.shape(v) == shape]
        other = str(rng.choice(same))
        if kind == "unary":
            net.unary(name, str(rng.choice(["relu", "exp", "tanh"])), x)
        elif kind == "conv":
            net.conv(name, x, int(rng.choice([4, 5])), int(rng.choice([1, 3])))
        elif kind == "sum":
            net.sum(name, x, other)
        elif kind == "concat":
            net.concat(name, x, other)
        elif kind == "pool":
            net.add(name, d.max_pool(shape, (2, 2), pads=(1, 1, 0, 0)), x)
        elif kind == "slice":
            half = (range(1), range(-(-shape[1] // 2)), *map(range, shape[2:]))
            net.add(name, d.take_slice(shape, half), x)
        elif kind == "transpose":
            net.add(name, d.transpose(shape, (0, 2, 3, 1)), x)
        else:
            net.over_channels(name, str(rng.choice(["sum", "max"])), x)
        read |= {x, other} if kind in {"sum", "concat"} else {x}
        values.append(name)
    ends = [v for v in values[1:] if v not in read]
    inner = [v for v in values[1:] if v in read]
    if inner and rng.random() < 0.3:
        ends.append(str(rng.choice(inner)))
    return net.done(*ends)


def some(candidates: Candidates, rng: np.random.Generator, most: int) -> Candidates:
    """A few candidates of each node, one of them no view, at random prices."""
    kept: dict[str, tuple[Candidate, ...]] = {}
    for node, options in candidates.of_node.items():
        plain = [
            k
            for k, c in enumerate(options)
            if not any(n.place.window or n.place.held for n in c.needs)
        ]
        chosen = {int(rng.choice(plain)), *map(int, rng.permutation(len(options))[: most - 1])}
        kept[node] = tuple(
            replace(options[k], seconds=float(rng.uniform(0.1e-6, 1.5e-6))) for k in sorted(chosen)
        )
    labels: dict[str, tuple[Label, ...]] = dict(candidates.labels)
    return Candidates(kept, labels)


@pytest.mark.parametrize("seed", range(30))
def test_every_plan_computes_the_graph(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random prices lead to unusual plans; each is verified, lowered and interpreted."""
    rng = np.random.default_rng(1000 + seed)
    graph = random_graph(rng)

    def enumerated(*arguments: Any, **named: Any) -> Candidates:
        return some(enumerate_candidates(*arguments, **named), np.random.default_rng(seed), 6)

    monkeypatch.setattr(planner, "enumerate_candidates", enumerated)
    plan = plan_layouts(graph, SHORT, 1)
    check_meaning(graph, plan)


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_is_left_as_it_was(on: bool) -> None:
    """Of overlapping plans the last one to end switches it on again, if it was on."""
    was = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        with pytest.raises(ZeroDivisionError), collection_deferred():
            with collection_deferred():
                assert not gc.isenabled()
            assert not gc.isenabled(), "the outer plan is not done"
            raise ZeroDivisionError
        assert gc.isenabled() == on
    finally:
        (gc.enable if was else gc.disable)()


@pytest.mark.parametrize("frozen", [True, False])
def test_what_is_left_of_planning_can_be_collected(frozen: bool) -> None:
    """Objects become old without a pass; what somebody else froze stays so."""
    was = gc.isenabled()
    gc.enable()
    try:
        if frozen:
            gc.freeze()
        held = gc.get_freeze_count()
        with collection_deferred():
            cycle: list[Any] = []
            cycle.append(cycle)
            gone = id(cycle)
            del cycle
        assert gc.get_freeze_count() == held
        assert frozen or any(id(o) == gone for o in gc.get_objects(generation=2))
        assert gc.collect() >= 1
    finally:
        gc.unfreeze()
        (gc.enable if was else gc.disable)()
