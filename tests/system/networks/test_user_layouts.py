"""Tests of layouts that a user defines, of any rank and map: pinned to edges, and in schedules."""

import random

import numpy as np
import pytest

from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.convert import apply_plan, poison_padding
from graphflow.flow import plan_layouts
from graphflow.graph import Node, OperatorGraph, Value, interpret_graph
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.recipes import memory_key
from graphflow.layout import Layout
from graphflow.schedule import (
    Schedule,
    cache_read,
    cache_write,
    remove_branching_through_overcompute,
    sequential_buffer_access,
    transform_layout,
)
from graphflow.tir import PrimFunc
from support.models.random_layouts import random_layout
from support.placing import interpret_physical
from support.seeds import seeds

TARGET = Target("eight lanes", "", "", 32, 16, clock_ghz=6.25)


def assert_runs(graph: OperatorGraph, pins: dict[str, Layout], seed: int) -> None:
    """Interpreted after all of the compiler's stages, poisoned too, against the graph's meaning."""
    rng = np.random.default_rng(seed)
    arrays = {
        n: rng.integers(-9, 10, graph.values[n].shape).astype("float32") for n in graph.inputs
    }
    plan = plan_layouts(graph, TARGET, 1, pins)
    for value, pin in pins.items():
        assert memory_key(plan.edges[value].edge_type.layout) == memory_key(pin)
    plain = apply_plan(graph, plan)
    expected = interpret_graph(graph, arrays)
    for physical in (plain, poison_padding(graph, plan, plain)):
        poisons = {v.name: np.array(-42, v.dtype) for v in physical.poisons}
        got = interpret_physical(graph, physical, TARGET, {**arrays, **poisons})
        for name, array in expected.items():
            np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-4)


def in_a_row(*kernels: PrimFunc) -> OperatorGraph:
    graph = OperatorGraph()
    graph.add_value(Value("x", "float32", kernels[0].inputs[0].shape))
    graph.set_inputs(["x"])
    last = "x"
    for k, func in enumerate(kernels):
        inputs = (last,) * len(func.inputs)
        graph.add(Node(f"n{k}", func.name, func, inputs, (f"v{k}",)))
        last = f"v{k}"
    graph.set_outputs([last])
    return graph


@pytest.mark.parametrize("seed", seeds(8, 16))
def test_any_layout_can_be_pinned(seed: int) -> None:
    """To both ends of an elementwise kernel, at odds or not, behind several kinds of kernels."""
    rng = random.Random(seed)
    shape = tuple(rng.choice([3, 4, 5, 7]) for _ in range(rng.randint(1, 3)))
    axis = len(shape) - 1
    first = (
        elementwise.unary("abs", shape),
        reduction.reduce("max", shape, (axis,)),
        reduction.softmax(shape, (axis,)),
        movement.concat([shape, shape], axis),
    )[seed % 4]
    middle = first.outputs[0].shape
    graph = in_a_row(
        first, elementwise.unary("exp", middle), reduction.reduce("sum", middle, (axis,))
    )
    pins = {name: random_layout(rng, middle) for name in ("v0", "v1")}
    assert_runs(graph, pins, seed)


@pytest.mark.parametrize("seed", seeds(8, 16))
def test_kernels_scheduled_in_any_layouts(seed: int) -> None:
    """Caches in layouts and with padding that agree with the neighbours' or not."""
    rng = random.Random(seed)
    shape = tuple(rng.choice([3, 5, 7, 14]) for _ in range(rng.randint(1, 2)))
    graph = in_a_row(*(elementwise.unary(op, shape) for op in ("abs", "exp", "neg")))
    usual = random_layout(rng, shape)
    for node in graph.nodes:
        ends = [usual if rng.random() < 0.8 else random_layout(rng, shape) for _ in "xy"]
        pads = rng.choice([None, "undef", 0.0, 1.0]), rng.choice([None, "undef", 0.0])
        s = Schedule.of(node.func).apply(cache_read, "x", "xc").apply(cache_write, "y", "yc")
        s = s.apply(transform_layout, "xc", ends[0], pads[0])
        s = s.apply(transform_layout, "yc", ends[1], pads[1])
        block = next(b.name for b in node.func.body)  # type: ignore[union-attr]
        axes = tuple(f"p{k}" for k in range(len(ends[1].physical_shape)))
        try:
            s = s.apply(sequential_buffer_access, block, "yc", axes, True)
            s = s.apply(remove_branching_through_overcompute, block)
        except ScheduleError:
            pass  # it runs over the elements alone
        graph.offer(node.name, s, only=rng.random() < 0.8)
    assert_runs(graph, {}, seed)
