"""Tests of float64 beside other types: its layouts and register tiles fit vectors of half as many
elements."""

import numpy as np
import onnx
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

import graphflow as gf
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.cost import NEAR, CostModel, Timings
from graphflow.flow import enumerate_candidates, variants_of
from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph, canonicalize, fuse_groups
from graphflow.kernels.recipes import Tiled, definition_key, variant_key
from graphflow.models import ModelBuilder
from support.targets import in_turn

TARGETS = pytest.mark.parametrize("target", (avx2_target(), host_target()), ids=("avx2", "host"))

PLAIN_SUMS = gf.Options(threads=1, winograd=False)
"""Convolutions in tiles of accumulators, not in transformed tiles."""
Array = NDArray[np.float64]

CHANNELS, SIZE = 50, 9
"""No multiple of 4, 8 or 16: vectors of all targets and types are partly padding."""


def mixed(seed: int = 0) -> tuple[onnx.ModelProto, tuple[Array, Array]]:
    """float32 in, two convolutions and a Relu in float64, float32 out; and the weights."""
    rng = np.random.default_rng(seed)
    first, second = (
        rng.standard_normal((n, m, 3, 3)) / 16 for n, m in ((CHANNELS, 20), (20, CHANNELS))
    )
    b = ModelBuilder(seed)
    wide = b.node("Cast", [b.input("x", (1, 20, SIZE, SIZE))], to=onnx.TensorProto.DOUBLE)
    y = b.node("Conv", [wide, b.constant(first)], pads=[1] * 4)
    y = b.node("Conv", [b.node("Relu", [y]), b.constant(second)], pads=[1] * 4)
    b.output(b.node("Cast", [y], to=onnx.TensorProto.FLOAT))
    return b.model(), (first, second)


def conv(x: Array, w: Array) -> Array:
    windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), (3, 3), (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows, w)


@in_turn("family", ("", "channels_last_padded", "blocked"))
def test_a_graph_of_two_types_is_right_in_all_layouts(family: str, target: Target) -> None:
    """A float64 tensor's blocks hold as many channels as its own vectors."""
    model, (first, second) = mixed()
    free = gf.compile(model, target=target, threads=1)
    pinned = {name: family for name in ("relu_1", "cast_1") if name in free.layouts and family}
    options = gf.Options(threads=1, poison=True)
    exe = gf.compile(model, target=target, layouts=pinned, options=options)
    assert bool(pinned) is bool(family)
    for name in pinned:
        lanes = target.computed_lanes("float64")
        channels = exe.layouts[name].layout.logical_shape[1]
        assert (
            np.prod(exe.layouts[name].layout.physical_shape)
            == -(-channels // lanes) * lanes * SIZE**2
        )
    x = np.random.default_rng(1).standard_normal((1, 20, SIZE, SIZE)).astype(np.float32)
    want = conv(np.maximum(conv(x.astype(np.float64), first), 0), second)
    for value in (float("nan"), 7.5e29):
        (found,) = exe.run({"x": x}, poison=value).values()
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-7)


@TARGETS
@pytest.mark.parametrize("dtype", ("float32", "float64", "float16"))
def test_a_convolution_holds_as_many_accumulators_as_there_are_registers(
    target: Target, dtype: str
) -> None:
    b = ModelBuilder()
    y = b.node("Conv", [b.input("x", (1, 64, 14, 14), dtype), b.weight(64, 64, 3, 3, dtype=dtype)])
    b.output(y)
    exe = gf.compile(b.model(), target=target, options=PLAIN_SUMS)
    recipes = [c.variant.recipe for c in exe.compiled.plan.choices.values()]
    tiled = [r for r in recipes if isinstance(r, Tiled)]
    size = 8 if dtype == "float64" else 4
    assert tiled
    for panel in (panel for recipe in tiled for panel in recipe.tiling.panels):
        registers = -(-panel.lanes * size // target.vector_bytes)
        assert panel.nr_vectors * (panel.mr + 1) * registers < target.vector_registers


@TARGETS
def test_sums_wider_than_the_output_take_the_registers_that_they_need(target: Target) -> None:
    """A Cast to float32 behind a convolution in float64: each vector of sums is two registers."""
    model, _ = mixed()
    exe = gf.compile(model, target=target, threads=1)
    (choice,) = (c for c in exe.compiled.plan.choices.values() if "conv_2" in c.node)
    assert isinstance(choice.variant.recipe, Tiled)
    for panel in choice.variant.recipe.tiling.panels:
        registers = -(-panel.lanes * 8 // target.vector_bytes)
        assert registers == 2 or panel.lanes < target.lanes("float32")
        assert panel.nr_vectors * (panel.mr + 1) * registers < target.vector_registers


def rows() -> OperatorGraph:
    """A convolution with lanes along channels, or along rows in the same layouts."""
    b = ModelBuilder()
    b.output(b.node("Conv", [b.input("x", (1, 20, 32, 32)), b.weight(20, 20, 1, 1)]))
    return fuse_groups(canonicalize(import_model(b.model())))


@pytest.mark.parametrize(("share", "first"), [(NEAR / 2, True), (2 * NEAR, False), (0.0, True)])
def test_of_interchangeable_variants_a_later_one_has_to_be_clearly_cheaper(
    share: float, first: bool
) -> None:
    graph, target = rows(), avx2_target()
    (node,) = graph.nodes
    free = enumerate_candidates(graph, CostModel(target), {}).of_node[node.name]
    (along,) = (c.variant for c in free if c.variant.name == "NCHW along rows")
    (plain,) = (
        f
        for f in variants_of(graph, target).of_node[node.name]
        if f.name == "NCHW" and isinstance(f.recipe, Tiled)
    )
    key = definition_key(node.func)
    known = {variant_key(key, plain, None): 1e-6, variant_key(key, along, None): 1e-6 * (1 - share)}
    cost = CostModel(target, timings=Timings(known))
    taken = [c for c in enumerate_candidates(graph, cost, {}).of_node[node.name] if c.measured]
    assert [c.variant.name for c in taken] == ["NCHW" if first else "NCHW along rows"]
