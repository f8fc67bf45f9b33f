"""Tests of the physical graph and of its check: shared memory, and plans that must be refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphflow.base.errors import VerifyError
from graphflow.base.fields import replace
from graphflow.convert import apply_plan, verify_plan
from graphflow.flow import plan_layouts
from graphflow.graph import OperatorGraph
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.windows import convolution
from graphflow.kernels.recipes import View, kernel_variants, memory_key
from graphflow.layout import Undefined, blocked, channels_last, fact_of, row_major
from graphflow.physical import PhysicalGraph
from graphflow.plan import CopyKind, EdgeType, LayoutPlan
from support.placing import positions
from support.planning.nets import (
    SHORT,
    Net,
    check_meaning,
    favour,
    over_padding,
    padded,
    two_demands,
    views,
)
from support.planning.shared_memory_nets import SHARED


def applied(graph: OperatorGraph) -> PhysicalGraph:
    return apply_plan(graph, plan_layouts(graph, SHORT, 1))


def check_structure(graph: OperatorGraph, physical: PhysicalGraph) -> None:
    """Boxes fit their storages, tensors that live at once do not overlap, outputs are apart."""
    for name in graph.outputs:
        assert physical.storages[f"output:{name}"].kind == "output"
        assert physical.storages[f"output:{name}"].elements == graph.values[name].size
    for name in graph.inputs:
        assert physical.storages[name].kind == "input"
    written: dict[str, set[int]] = {}
    for call in physical.calls:
        assert set(call.placements) == {p.buffer.name for p in call.definition.params}
        for param in call.definition.params:
            place = call.placements[param.buffer.name]
            spec = physical.storages[place.storage]
            assert place.offset >= 0
            assert place.offset + np.prod(place.layout.physical_shape) <= spec.elements
            assert param.buffer.dtype == spec.dtype
            touched = set((positions(place.layout) + place.offset).reshape(-1).tolist())
            known = written.setdefault(place.storage, set())
            if param.buffer in call.definition.outputs and not call.name.startswith("fill"):
                assert spec.kind != "input", f"{call.name} writes a graph input"
                assert not touched & known, f"{call.name} writes over {place.storage}"
                known |= touched
            elif spec.kind != "input" and spec.contents is None:
                assert touched <= known, f"{call.name} reads {place.storage} before it is written"
    for name in graph.outputs:
        assert len(written[f"output:{name}"]) == graph.values[name].size


@pytest.mark.parametrize("make", SHARED, ids=lambda f: f.__name__)
def test_shared_memory(make: Callable[[], OperatorGraph]) -> None:
    graph = make()
    check_structure(graph, applied(graph))


def test_windows_of_a_concat() -> None:
    net = Net(x=(1, 4, 3, 4))
    parts = [net.unary(f"p{k}", op, "x") for k, op in enumerate(("relu", "exp", "tanh"))]
    graph = net.done(net.unary("y", "neg", net.concat("c", *parts)))
    plan = plan_layouts(graph, SHORT, 1)
    assert views(graph, plan) == ["n_c"]
    physical = apply_plan(graph, plan)
    places = [positions(physical.values[p].layout).reshape(-1) + physical.values[p].offset
              for p in parts]  # fmt: skip
    assert {physical.values[p].storage for p in parts} == {physical.values["c"].storage}
    assert sorted(np.concatenate(places)) == list(range(3 * 4 * 12))


# Outputs ------------------------------------------------------------------------------------------


def inner_output() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a = net.unary("a", "relu", "x")
    return net.done(a, net.unary("b", "exp", net.unary("m", "tanh", a)))


def same_contents_twice() -> OperatorGraph:
    """As identities between two outputs leave it: one tensor under two names."""
    net = Net(x=(1, 4, 3, 4))
    a = net.unary("a", "relu", "x")
    return net.done(a, net.add("b", movement.copy((1, 4, 3, 4)), a))


def output_is_input() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    return net.done("x", net.unary("y", "relu", "x"))


def output_is_constant() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    net.graph.add_initializer("k", np.arange(12, dtype=np.float32).reshape(3, 4))
    return net.done("k", net.unary("y", "relu", "x"))


def output_is_computed_constant() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    net.graph.add_initializer("k", np.arange(12, dtype=np.float32).reshape(3, 4))
    e = net.unary("e", "exp", "k")
    return net.done(e, net.sum("y", "x", net.unary("f", "neg", e)))


def output_is_a_view() -> OperatorGraph:
    net = Net(x=(1, 4, 3, 4))
    a = net.unary("a", "relu", "x")
    return net.done(net.add("r", movement.reshape((1, 4, 3, 4), (1, 48)), a))


def output_of_a_conv_and_read() -> OperatorGraph:
    net = Net(x=(1, 5, 6, 6))
    a = net.conv("a", "x", 6, 3)
    return net.done(a, net.conv("b", a, 7, 3), net.unary("e", "exp", a))


def scalars() -> OperatorGraph:
    net = Net(x=(), z=(1,))
    return net.done(net.sum("y", net.unary("a", "exp", "x"), "z"))


def shared_weights() -> OperatorGraph:
    """One weight in two kernels of different shapes of work."""
    net = Net(x=(1, 5, 6, 6), z=(1, 5, 2, 2))
    w = np.random.default_rng(0).standard_normal((9, 5, 1, 1)).astype(np.float32)
    net.graph.add_initializer("w", w)
    a = net.add("a", convolution.convolution((1, 5, 6, 6), w.shape), "x", "w")
    b = net.add("b", convolution.convolution((1, 5, 2, 2), w.shape), "z", "w")
    return net.done(a, b, net.add("s", elementwise.unary("exp", w.shape), "w"))


def weight_that_is_an_input() -> OperatorGraph:
    """An initializer that is a graph input too is not constant."""
    net = Net(x=(1, 5, 6, 6), w=(6, 5, 1, 1))
    net.graph.add_initializer("w", np.zeros((6, 5, 1, 1), np.float32))
    return net.done(net.add("y", convolution.convolution((1, 5, 6, 6), (6, 5, 1, 1)), "x", "w"))


OUTPUTS = [
    inner_output, same_contents_twice, output_is_input, output_is_constant,
    output_is_computed_constant, output_is_a_view, output_of_a_conv_and_read, scalars,
    shared_weights, weight_that_is_an_input,
]  # fmt: skip


@pytest.mark.parametrize("make", OUTPUTS, ids=lambda f: f.__name__)
def test_outputs(make: Callable[[], OperatorGraph]) -> None:
    graph = make()
    plan = plan_layouts(graph, SHORT, 1)
    physical = apply_plan(graph, plan)
    check_structure(graph, physical)
    check_meaning(graph, plan)


def test_an_output_named_twice() -> None:
    """Both positions get the tensor, or the graph is refused; neither stays unwritten."""
    net = Net(x=(1, 4, 3, 4))
    a = net.unary("a", "relu", "x")
    graph = net.done(a)
    graph.set_outputs([a, a])
    with pytest.raises(VerifyError, match="twice"):
        applied(graph)


# Padding ------------------------------------------------------------------------------------------


def test_fills_write_only_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(x=(1, 6, 8, 8))
    graph = net.done(net.over_channels("s", "sum", net.unary("a", "exp", "x")))
    natural = lambda c: c.node == "n_a" and padded(c) and c.pad_value is None  # noqa: E731
    favour(monkeypatch, lambda c: over_padding(c) or natural(c))
    plan = plan_layouts(graph, SHORT, 1)
    assert [c.kind for c in plan.conversions if c.value == "a"] == ["fill"]
    fills = [c for c in apply_plan(graph, plan).calls if c.name == "fill a"]
    assert len(fills) == 1
    assert fills[0].moves
    check_meaning(graph, plan)


def test_a_constant_written_by_the_epilogue(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, value in (("sum", 0.0), ("max", -np.inf)):
        net = Net(x=(1, 6, 4, 5))
        graph = net.done(net.over_channels("s", kind, net.conv("a", "x", 7)))
        wanted = lambda c, v=value: over_padding(c) or c.pad_value == v  # noqa: E731
        favour(monkeypatch, wanted)
        plan = plan_layouts(graph, SHORT, 1)
        assert plan.choices["n_a"].pad_value == value
        check_meaning(graph, plan)


# Mutations: each of them must be refused ----------------------------------------------------------


def plain() -> tuple[OperatorGraph, LayoutPlan]:
    net = Net(x=(1, 16, 12, 12))
    a = net.conv("a", "x", 32, 3)
    graph = net.done(net.conv("b", a, 16, 3))
    plan = plan_layouts(graph, SHORT, 1)
    verify_plan(graph, plan)
    return graph, plan


def with_fill(monkeypatch: pytest.MonkeyPatch) -> tuple[OperatorGraph, LayoutPlan]:
    graph = two_demands()
    natural = lambda c: c.node == "n_a" and padded(c) and c.pad_value is None  # noqa: E731
    favour(monkeypatch, lambda c: over_padding(c) or natural(c))
    plan = plan_layouts(graph, SHORT, 1)
    verify_plan(graph, plan)
    return graph, plan


def edge(plan: LayoutPlan, value: str, **changes: Any) -> LayoutPlan:
    changed = replace(plan.edges[value], **changes)
    return replace(plan, edges={**plan.edges, value: changed})


def test_every_dropped_conversion_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for graph, plan in (plain(), with_fill(monkeypatch)):
        assert plan.conversions
        for k in range(len(plan.conversions)):
            rest = plan.conversions[:k] + plan.conversions[k + 1 :]
            with pytest.raises(VerifyError):
                apply_plan(graph, replace(plan, conversions=rest))


def test_a_reader_taken_off_a_conversion_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, plan = with_fill(monkeypatch)
    for k, made in enumerate(plan.conversions):
        for reader in made.consumers:
            less = replace(made, consumers=tuple(c for c in made.consumers if c != reader))
            changed = (*plan.conversions[:k], less, *plan.conversions[k + 1 :])
            with pytest.raises(VerifyError):
                apply_plan(graph, replace(plan, conversions=changed))


def test_an_invented_fact_is_noticed() -> None:
    graph, plan = plain()
    for value, at in plan.edges.items():
        layout = blocked(at.edge_type.layout.logical_shape, 1, 5)
        facts = tuple((r.name, fact_of(0.0, "float32")) for r in layout.regions()[1:])
        with pytest.raises(VerifyError):
            verify_plan(graph, edge(plan, value, edge_type=EdgeType(layout, facts)))


def test_a_fact_that_no_variant_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, plan = with_fill(monkeypatch)
    edge_type = plan.edges["a"].edge_type
    assert edge_type.facts
    wrong = EdgeType(
        edge_type.layout, tuple((r, fact_of(0.0, "float32")) for r, _ in edge_type.facts)
    )
    with pytest.raises(VerifyError, match=r"leaves 0\.0 float32"):
        verify_plan(graph, edge(plan, "a", edge_type=wrong))


def test_another_layout_of_an_edge_is_noticed() -> None:
    graph, plan = plain()
    for value, at in plan.edges.items():
        shape = at.edge_type.layout.logical_shape
        for layout in (row_major(shape), channels_last(shape), blocked(shape, 1, 4)):
            if memory_key(layout) != memory_key(at.edge_type.layout):
                with pytest.raises(VerifyError):
                    verify_plan(graph, edge(plan, value, edge_type=EdgeType(layout)))


def test_another_variant_of_a_node_is_noticed() -> None:
    graph, plan = plain()
    first, second = plan.choices["n_a"], plan.choices["n_b"]
    for layout in (row_major((1, 32, 12, 12)), blocked((1, 32, 12, 12), 1, 4)):
        if memory_key(layout) != memory_key(first.variant.layouts["y"]):
            changed = {**first.variant.layouts, "y": layout}
            variant = replace(first.variant, layouts=changed)
            choices = {"n_a": replace(first, variant=variant), "n_b": second}
            with pytest.raises(VerifyError, match="n_a"):
                verify_plan(graph, replace(plan, choices=choices))


def test_a_missing_variant_is_noticed() -> None:
    graph, plan = plain()
    with pytest.raises(VerifyError, match="no variant for n_a"):
        verify_plan(graph, replace(plan, choices={"n_b": plan.choices["n_b"]}))


def test_a_pad_value_taken_away_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(x=(1, 6, 4, 5))
    graph = net.done(net.over_channels("s", "sum", net.conv("a", "x", 7)))
    favour(monkeypatch, lambda c: over_padding(c) or c.pad_value == 0.0)
    plan = plan_layouts(graph, SHORT, 1)
    for held in (None, 1.0, -0.0):
        changed = {**plan.choices, "n_a": replace(plan.choices["n_a"], pad_value=held)}
        with pytest.raises(VerifyError):
            verify_plan(graph, replace(plan, choices=changed))


def test_a_second_fill_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fills write the value's own memory, so the facts of one end with the next."""
    graph, plan = with_fill(monkeypatch)
    of_a = [c for c in plan.conversions if c.value == "a"]
    assert len(of_a) >= 2
    all_fills = tuple(
        replace(c, kind=CopyKind.FILL) if c.value == "a" else c for c in plan.conversions
    )
    with pytest.raises(VerifyError, match="forward pass finds undef"):
        verify_plan(graph, replace(plan, conversions=all_fills))


def test_a_weaker_fact_for_a_variant_that_rests_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """relu leaves 0 where its input holds 0; without that the sum behind it is refused."""
    net = Net(x=(1, 6, 4, 5))
    graph = net.done(net.over_channels("s", "sum", net.unary("r", "relu", net.conv("a", "x", 7))))

    def wanted(c: Any) -> bool:
        return over_padding(c) or c.pad_value == 0.0 or (
            c.node == "n_r" and c.pad_value is None and any(n.facts for n in c.requirements)
            and c.gives[0][1].facts[0][1] != Undefined()
        )  # fmt: skip

    favour(monkeypatch, lambda c: wanted(c) and (c.node != "n_r" or c.pad_value is None))
    plan = plan_layouts(graph, SHORT, 1)
    assert plan.choices["n_a"].pad_value == 0.0
    assert plan.choices["n_r"].pad_value is None
    check_meaning(graph, plan)
    changed = {**plan.choices, "n_a": replace(plan.choices["n_a"], pad_value=None)}
    with pytest.raises(VerifyError):
        verify_plan(graph, replace(plan, choices=changed))


def test_a_value_in_two_windows_is_noticed() -> None:
    net = Net(x=(1, 4, 3, 4))
    a, b = net.unary("a", "relu", "x"), net.unary("b", "tanh", "x")
    net.concat("left", a, b), net.concat("right", b, a)
    graph = net.done(net.unary("y", "exp", "left"), net.unary("z", "exp", "right"))
    plan = plan_layouts(graph, SHORT, 1)
    taken = [n for n in ("n_left", "n_right")
             if isinstance(plan.choices[n].variant.recipe, View)]  # fmt: skip
    assert len(taken) <= 1
    from_left = plan_layouts(graph, SHORT, 1).choices
    view = next(
        f for f in _variants(graph, "n_left")
        if isinstance(f.recipe, View) and f.layouts["y"] == row_major((1, 8, 3, 4))
    )  # fmt: skip
    both = {n: replace(c, variant=view) if n in {"n_left", "n_right"} else c
            for n, c in from_left.items()}  # fmt: skip
    with pytest.raises(VerifyError):
        verify_plan(graph, replace(plan, choices=both))


def _variants(graph: OperatorGraph, node: str) -> tuple[Any, ...]:
    return kernel_variants(graph.node(node).func, frozenset(), SHORT)
