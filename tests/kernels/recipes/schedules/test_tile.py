"""Tests of the order in which a register tile goes through panels and planes."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.arith import evaluate, variables
from graphflow.base.processors import PROCESSORS, restricted_to_avx2
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.cost import Panels, Tiling
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.windows import convolution
from graphflow.kernels.lowering import remove_assume
from graphflow.kernels.recipes import Tiled
from graphflow.kernels.recipes.kernel_schedule import kernel_schedule
from graphflow.kernels.recipes.tile_kinds.broadcast_tiles import BroadcastTile
from graphflow.kernels.recipes.variants.packing import AxisDigit, packed_weights
from graphflow.layout import channels_last, row_major
from graphflow.schedule import Schedule
from support.native import Native
from support.schedule_checks import inputs_of

WIDE = PROCESSORS["skylake-server"]
PLANES, PANELS = 3, 2


def in_panels(b_shape: tuple[int, ...], target: Target) -> Schedule:
    """A product of three matrices of 7 rows, in two panels of a vector that run outermost."""
    lanes = target.computed_lanes("float32")
    definition = linear.matmul((PLANES, 7, 5), (*b_shape, PANELS * lanes))
    placements = tuple((p.buffer.name, row_major(p.buffer.shape), None) for p in definition.params)
    tiling = Tiling((Panels(PANELS, 1, lanes, 4),), panel_outermost=True)
    return kernel_schedule(definition, placements, Tiled(BroadcastTile(), tiling), target)


def planes_in_order(func: tir.PrimFunc) -> list[int]:
    """The plane that each iteration of the shared loop writes."""
    (loop,) = (x for x in tir.loops_of(func.body) if x.kind is tir.LoopKind.PARALLEL)
    stores = (x for x in tir.walk(loop.body) if isinstance(x, tir.Store))
    plane = next(x.indices[0] for x in stores if x.buffer is func.outputs[0])
    assert set(variables(plane)) == {loop.var}
    return [evaluate(plane, {loop.var: k}) for k in range(loop.extent or 0)]


@pytest.mark.parametrize("target", [WIDE, restricted_to_avx2(WIDE)], ids=["64", "32"])
def test_panels_of_a_matrix_for_each_plane_run_inside_of_the_planes(target: Target) -> None:
    assert planes_in_order(in_panels((PLANES, 5), target).func) == [0, 0, 1, 1, 2, 2]
    assert planes_in_order(in_panels((5,), target).func) == [0, 1, 2, 0, 1, 2]
    assert planes_in_order(in_panels((1, 5), target).func) == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
@pytest.mark.parametrize("b_shape", [(PLANES, 5), (5,)], ids=["of each plane", "of all planes"])
def test_native_code_does_the_same_in_either_order(
    b_shape: tuple[int, ...], target: Target
) -> None:
    func = in_panels(b_shape, target).func
    given = inputs_of(func)
    found = Native(func, target)(given, ((0, len(planes_in_order(func))),))["y"]
    np.testing.assert_allclose(found, given["a"] @ given["b"], rtol=1e-5)


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
@pytest.mark.parametrize("box", [32, 64], ids=["own memory", "inside another tensor"])
def test_tiles_go_on_from_one_row_of_an_image_to_the_next(box: int, target: Target) -> None:
    """Six of the eleven rows of a tile are in another row of an image of 5×5, or of the next
    image; in a box of 64 channels those of the output are the last 32."""
    definition = convolution.convolution((2, 3, 5, 5), (32, 3, 1, 1))
    y = channels_last((2, 32, 5, 5)).windowed((0, 0, 0, box - 32), (2, 5, 5, box))
    layouts = {"x": channels_last((2, 3, 5, 5)), "y": y}
    placements = tuple(
        (p.buffer.name, layouts.get(p.buffer.name, row_major(p.buffer.shape)), None)
        for p in definition.params
    )
    panels, lanes = 32 // target.computed_lanes("float32"), target.computed_lanes("float32")
    tiling = Tiling((Panels(panels, 1, lanes, 11),), panel_outermost=True)
    for joined, shared in enumerate((2 * 5 * panels, 2 * panels, panels)):
        recipe = Tiled(BroadcastTile(joined=joined), tiling)
        func = remove_assume(kernel_schedule(definition, placements, recipe, target).func)
        (loop,) = (x for x in tir.loops_of(func.body) if x.kind is tir.LoopKind.PARALLEL)
        assert loop.extent == shared
        given = inputs_of(func)
        found = Native(func, target)(given, ((0, shared),))["y"]
        expected = given["x"].reshape(2, 5, 5, 3) @ given["w"].reshape(32, 3).T
        own = found.reshape(2, 5, 5, box)[..., box - 32 :]
        np.testing.assert_allclose(own, expected, rtol=1e-5)


@pytest.mark.parametrize("rows", [28, 27])
@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "AVX2"])
def test_blocks_of_rows_run_around_panels(target: Target, rows: int) -> None:
    """Threads share one loop over both, the panels of a block one after the other; and the last
    block may lack rows."""
    lanes = target.computed_lanes("float32")
    definition = linear.matmul((rows, 20), (20, 6 * lanes))
    layouts = {b.name: row_major(b.shape) for b in (*definition.inputs, *definition.outputs)}
    layouts["b"] = packed_weights((20, 6 * lanes), 1, 2 * lanes, (AxisDigit(0),))
    placements = tuple((name, layout, None) for name, layout in layouts.items())
    tiling = Tiling((Panels(3, 2, lanes, 4),), panel_outermost=True)
    func, inside, around = (
        kernel_schedule(definition, placements, Tiled(kind, tiling), target).func
        for kind in (
            BroadcastTile(),
            BroadcastTile(blocks=2),
            BroadcastTile(blocks=2, near_blocks=True),
        )
    )
    inputs = {
        name: np.random.default_rng(1).standard_normal(x.shape).astype(x.dtype)
        for name, x in inputs_of(func).items()
    }
    want = tir.interpret(func, inputs)["y"]
    for other, first in ((inside, [0, 0, 1, 1, 2, 2]), (around, [0, 1, 2, 0, 1, 2])):
        np.testing.assert_array_equal(tir.interpret(other, inputs)["y"], want)
        got = Native(other, target)(inputs, ((0, 6),))["y"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        (shared,) = (x for x in tir.loops_of(other.body) if x.kind is tir.LoopKind.PARALLEL)
        panel = next(a.indices[0] for a in tir.accesses(shared.body) if a.buffer.name == "b")
        assert [evaluate(panel, {shared.var: k}) for k in range(6)] == first
