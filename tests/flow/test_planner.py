"""Tests of the planner: golden plans, pins, prices against exhaustive search, and facts that a plan
relies on."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphflow.flow.planner as planner
from graphflow.base.errors import LayoutConflict
from graphflow.base.target import Target
from graphflow.convert import apply_plan
from graphflow.flow import plan_layouts
from graphflow.flow.candidates.candidates import Candidates, enumerate_candidates
from graphflow.graph import OperatorGraph, interpret_graph
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.recipes import Tiled, View, memory_key
from graphflow.kernels.recipes.tile_kinds.broadcast_tiles import BroadcastTile
from graphflow.layout import blocked, channels_last, channels_last_padded, row_major
from graphflow.plan import CopyKind, LayoutPlan
from graphflow.schedule import Schedule
from support.placing import interpret_physical
from support.planning.nets import (
    SHORT,
    TARGET,
    Net,
    chain,
    check_meaning,
    describe,
    favour,
    joined,
    middle,
    odd,
    over_padding,
    padded,
    pooled,
    residual,
    two_demands,
    views,
)
from support.planning.random_nets import random_graph, some
from support.planning.shared_memory_nets import (
    SHARED,
    concat_of_concats,
    concat_then_slice,
    halves,
    reshaped_twice,
    slice_then_reshape,
)
from support.seeds import seeds
from support.targets import processors

# Goldens ------------------------------------------------------------------------------------------


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
    assert memory_key(by_name.edges[middle(graph)].edge_type.layout) == memory_key(layout)
    assert describe(plan_layouts(graph, TARGET, 2, {middle(graph): layout})) == describe(by_name)
    assert by_name.seconds >= plan_layouts(graph, TARGET, 2).seconds * (1 - 1e-6)
    apply_plan(graph, by_name)


def test_pin_of_a_graph_input_or_output() -> None:
    """Outside the graph tensors stay row-major; a pin says in which layout they are used."""
    graph = chain()
    (y,) = graph.outputs
    plan = plan_layouts(graph, TARGET, 2, {y: "NHWC"})
    assert plan.edges[y].edge_type.layout.describe() == "NHWC"
    assert [c.consumers for c in plan.conversions if c.value == y] == [(("", -1),)]
    plan = plan_layouts(graph, TARGET, 2, {"x": "NHWC"})
    assert [c.target.layout.describe() for c in plan.conversions if c.value == "x"] == ["NHWC"]


def test_a_pin_that_is_no_familys_is_taken() -> None:
    graph = chain(5)
    odd_box = channels_last_padded((1, 32, 5, 5), 24)
    plan = plan_layouts(graph, TARGET, 2, {middle(graph): odd_box})
    assert plan.edges[middle(graph)].edge_type.layout == odd_box
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
    assert "its variants are" in text
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
        ("nothing", "NHWC", "has no tensor 'nothing'"),
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
    favour(monkeypatch, lambda c: (c.node == "n_a") == (c.variant.name == "NCHW"))
    plan = plan_layouts(graph, TARGET, 2)
    (copy,) = [c for c in plan.conversions if c.value == "a"]
    assert copy.consumers == tuple((f"n_{name}", 0) for name in outputs)
    assert len([c for c in apply_plan(graph, plan).calls if c.name == "convert a"]) == 1


def outward(plan: LayoutPlan, name: str) -> bool:
    """Whether a view's output lies inside its input."""
    recipe = plan.choices[name].variant.recipe
    return isinstance(recipe, View) and recipe.outward


def test_concat_is_a_view() -> None:
    net = Net(x=(1, 4, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "exp", "x")
    graph = net.done(net.unary("y", "tanh", net.concat("c", a, b)))
    plan = plan_layouts(graph, SHORT, 1)
    assert views(graph, plan) == ["n_c"]
    assert not [c for c in plan.conversions if c.value in {"a", "b", "c"}]
    check_meaning(graph, plan)


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


def test_readers_with_different_demands_do_not_disturb_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = two_demands()
    natural = lambda c: c.node == "n_a" and padded(c) and c.pad_value is None  # noqa: E731
    favour(monkeypatch, lambda c: over_padding(c) or natural(c) or c.node == "n_y")
    plan = plan_layouts(graph, SHORT, 1)
    assert len([c for c in plan.choices.values() if c.variant.demands]) == 3
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


@pytest.mark.parametrize("seed", seeds(12, 30))
def test_every_plan_computes_the_graph(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random prices lead to unusual plans; each is verified, lowered and interpreted."""
    rng = np.random.default_rng(1000 + seed)
    graph = random_graph(rng)

    def enumerated(*arguments: Any, **named: Any) -> Candidates:
        return some(enumerate_candidates(*arguments, **named), np.random.default_rng(seed), 6)

    monkeypatch.setattr(planner, "enumerate_candidates", enumerated)
    plan = plan_layouts(graph, SHORT, 1)
    check_meaning(graph, plan)


# Transposed operands ------------------------------------------------------------------------------


def attention(tokens: int, heads: int, width: int) -> OperatorGraph:
    """Scores of queries and keys, both as projections leave them: heads inside tokens."""
    shape = (1, tokens, heads, width)
    net = Net(q=shape, k=shape)
    queries = net.add("queries", movement.transpose(shape, (0, 2, 1, 3)), "q")
    keys = net.add("keys", movement.transpose(shape, (0, 2, 3, 1)), "k")
    product = linear.matmul((1, heads, tokens, width), (1, heads, width, tokens))
    return net.done(net.add("scores", product, queries, keys))


@processors()
@pytest.mark.parametrize("tokens", [64, 197])
def test_transposed_keys_are_a_view_and_read_across_lanes(tokens: int, target: Target) -> None:
    graph = attention(tokens, 4, 32)
    plan = plan_layouts(graph, target, 1)
    assert "n_keys" in views(graph, plan)
    assert not [c for c in plan.conversions if c.value in ("keys", "k")]
    recipe = plan.choices["n_scores"].variant.recipe
    assert isinstance(recipe, Tiled) and isinstance(recipe.kind, BroadcastTile)
    assert recipe.kind.transposed == ("b",)


@processors()
@pytest.mark.parametrize("perm", [(0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3)])
def test_a_transpose_that_is_executed_has_a_reason(perm: tuple[int, ...], target: Target) -> None:
    shape = (1, 24, 9, 10)
    net = Net(x=shape)
    graph = net.done(net.add("y", movement.transpose(shape, perm), "x"))
    plan = plan_layouts(graph, target, 1)
    (made,) = (*plan.conversions, *plan.moves)
    if made.kind is CopyKind.MOVE:
        assert "; the best plan in which it is a view takes " in made.because
    reason = {
        CopyKind.MOVE: f"a view of {row_major(shape).describe()} would give",
        CopyKind.CONVERT: "the graph output wants",
    }
    assert reason[made.kind] in made.because
