"""The steps of a register tile that one iteration of its loop does."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS, restricted_to_avx2
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.cost import Panels, Tiling
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.recipes import Tiled
from graphflow.kernels.recipes.kernel_schedule import kernel_schedule
from graphflow.kernels.recipes.tile_kinds.broadcast_tiles import BroadcastTile
from graphflow.layout import row_major
from graphflow.schedule import Schedule
from support.native import Native
from support.schedule_checks import inputs_of

WIDE = PROCESSORS["cascadelake-server"]
TARGETS = {"host": host_target(), "avx2": avx2_target()}


def product(depth: int, target: Target) -> Schedule:
    """A product of 8 rows of so many elements, in tiles of 4 rows and 2 vectors."""
    definition = linear.matmul((8, depth), (depth, 64))
    placements = tuple((p.buffer.name, row_major(p.buffer.shape), None) for p in definition.params)
    tiling = Tiling((Panels(64 // (2 * target.lanes("float32")), 2, target.lanes("float32"), 4),))
    return kernel_schedule(definition, placements, Tiled(BroadcastTile(), tiling), target)


@pytest.mark.parametrize("name", TARGETS)
def test_two_steps_are_written_out_between_jumps(name: str) -> None:
    target = replace(TARGETS[name], name=f"{name} pairs", near_steps=0, steps_per_iteration=2)
    made = product(20, target)
    text = tir.to_text(made.func)
    assert "for ko in serial(0, 10):" in text and "for ki in unrolled(0, 2):" in text
    inputs = inputs_of(made.func)
    want = tir.interpret(made.func, inputs)["y"]
    np.testing.assert_allclose(want, inputs["a"] @ inputs["b"], rtol=1e-5, atol=1e-5)
    got = Native(made.func, TARGETS[name])(inputs, ((0, 8),))["y"]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("depth", "count"), [(21, 2), (20, 1)])
def test_loops_stay_whole(depth: int, count: int) -> None:
    """Steps that two do not divide, and those of other processors."""
    made = product(depth, replace(WIDE, name=f"count {count}", steps_per_iteration=count))
    assert f"for k in serial(0, {depth}):" in tir.to_text(made.func)


def test_only_wide_vectors_of_a_cascade_lake_take_two_steps() -> None:
    assert WIDE.steps_per_iteration == 2
    assert restricted_to_avx2(WIDE).steps_per_iteration == 1
    assert PROCESSORS["zen4"].steps_per_iteration == 1
