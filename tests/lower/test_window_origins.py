"""Tests of tensors inside others: equal ones have one kernel, and their elements stay in place."""

from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np
import pytest

from graphflow import compile
from graphflow.arith import evaluate
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.convert import apply_plan
from graphflow.flow import plan_layouts
from graphflow.layout import Layout, blocked, channels_last, row_major
from graphflow.lower import lower
from graphflow.lower.window_origins import at_window_origins
from graphflow.models.builder import ModelBuilder
from graphflow.physical import PhysicalGraph, Placement
from support.padded import session
from support.planning.nets import SHORT, graph_of
from support.targets import in_turn

COUNT, CHANNELS, SIDE = 4, 32, 6


def network(batch: int = 1) -> ModelBuilder:
    """Equal convolutions of different tensors, whose results are joined and convolved."""
    b = ModelBuilder()
    x = b.input("x", (batch, 16, SIDE, SIDE))
    inner = [b.relu(b.conv(x, CHANNELS, 1)) for _ in range(COUNT)]
    parts = [b.relu(b.conv(one, CHANNELS, 3, pads=[1, 1, 1, 1])) for one in inner]
    whole = b.node("Concat", parts, axis=1)
    b.output(b.conv(whole, 16, 1, in_channels=COUNT * CHANNELS))
    return b


def physical() -> PhysicalGraph:
    graph = graph_of(network())
    return apply_plan(graph, plan_layouts(graph, SHORT, 1))


def inside(graph: PhysicalGraph) -> list[Placement]:
    """The places inside other tensors of what kernels with a variant read and write."""
    calls = [call for call in graph.calls if call.variant is not None]
    return [p for call in calls for p in call.placements.values() if not p.own]


def places(place: Placement) -> list[int]:
    """The position in the storage of each element, in logical order."""
    strides = place.layout.buffer("b", "float32").strides
    axes = place.layout.index_map.inputs
    return [
        place.offset
        + sum(
            evaluate(e, dict(zip(axes, index, strict=True))) * step
            for e, step in zip(place.layout.index_map.outputs, strides, strict=True)
        )
        for index in product(*map(range, place.layout.logical_shape))
    ]


def test_equal_kernels_inside_one_tensor_are_made_once() -> None:
    before = physical()
    written = {p.layout: p.offset for p in inside(before)}
    assert len(written) == COUNT
    assert {*written.values()} == {0}
    program = lower(before, SHORT)
    symbols = {
        step.symbol
        for call, step in program.calls
        if call.variant is not None and any(not p.own for p in call.placements.values())
    }
    assert len(symbols) == 1


def test_elements_stay_where_they_are_and_boxes_end_in_their_storage() -> None:
    before = physical()
    after = at_window_origins(before)
    assert [places(p) for p in inside(after)] == [places(p) for p in inside(before)]
    for place in inside(after):
        size = prod(place.layout.physical_shape)
        assert place.offset + size <= after.storages[place.storage].elements
    grown = [n for n, spec in after.storages.items() if spec != before.storages[n]]
    assert {*grown} <= {place.storage for place in inside(after)}
    assert all(after.storages[name].kind == "arena" for name in grown)


def test_memory_of_the_caller_does_not_grow() -> None:
    before = physical()
    storages = {n: replace(spec, kind="output") for n, spec in before.storages.items()}
    after = at_window_origins(replace(before, storages=storages))
    assert after.storages == storages
    for place in inside(after):
        size = prod(place.layout.physical_shape)
        assert place.offset + size <= storages[place.storage].elements


@in_turn("batch", (1, 3))
def test_the_joined_network_computes_what_onnxruntime_does(target: Target, batch: int) -> None:
    model = network(batch).model()
    exe = compile(model, target=target, options=Options(workers=0, validate=True))
    x = np.random.default_rng(0).standard_normal((batch, 16, SIDE, SIDE)).astype(np.float32)
    (wanted,) = session(model).run(None, {"x": x})
    (found,) = exe.run({"x": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "layout", "box"),
    [
        ((1, 5, 2, 3), channels_last, (1, 2, 3, 40)),
        ((1, 5, 2, 3), row_major, (1, 5, 2, 3)),
        ((2, 5, 2, 3), row_major, (2, 40, 2, 3)),
        ((1, 32, 2, 3), lambda shape: blocked(shape, 1, 16), (1, 2, 2, 3, 16)),
    ],
)
def test_a_layout_at_its_origin(
    shape: tuple[int, ...], layout: Callable[[tuple[int, ...]], Layout], box: tuple[int, ...]
) -> None:
    """The outermost axis of more than one place ends with the tensor, the others do not."""
    plain = layout(shape)
    axis = plain.physical_shape.index(5) if 5 in plain.physical_shape else 1
    begin = tuple(3 * (k == axis) for k in range(len(plain.physical_shape)))
    whole = [40 if k == axis else n for k, n in enumerate(plain.physical_shape)]
    moved, found = plain.windowed(begin, whole).at_origin()
    assert found == begin
    assert moved == plain.boxed(box)
    assert moved.at_origin() == (moved, (0,) * len(begin))
