"""Tests of register tiles of which a run uses nothing: where conditions are put around them."""

import itertools

import numpy as np
import pytest

from graphflow import tir
from graphflow.kernels.lowering.unused_tiles import with_conditions_on_tiles

TILES = """
@primfunc
def rows(x: f32[10, 6], count: i64[()], y: out[f32[10]]):
    for z in serial(0, 10):
        y[z] = f32(7.0)
    for j in serial(0, 2):
        sums = alloc(f32[4], register)
        for u in unrolled(0, 4):
            sums[u] = f32(0.0)
        for k in serial(0, 6):
            for u_1 in unrolled(0, 4):
                sums[u_1] += x[4*j + u_1, k]
        for u_2 in unrolled(0, 4):
            if data(index(4*j + u_2, i64) < count[()]):
                y[4*j + u_2] = sums[u_2]
    rest = alloc(f32[2], register)
    for v in unrolled(0, 2):
        rest[v] = x[v + 8, 0]
    for v_1 in unrolled(0, 2):
        if data(index(v_1 + 8, i64) < count[()]):
            y[v_1 + 8] = rest[v_1]
"""

UNCONDITIONAL = TILES.replace(
    "            if data(index(4*j + u_2, i64) < count[()]):\n                y[", "            y["
)
"""All sums of the tile are stored."""

WITH_ANOTHER_STATEMENT = TILES.replace(
    "        for u_2 in", "        y[0] = f32(1.0)\n        for u_2 in"
)
"""Between the statements of the tile stands one that always runs."""


def first_conditions(func: tir.PrimFunc) -> list[str]:
    """The conditions that stand right behind the allocation of registers."""
    bodies = [func.body, *(loop.body for loop in tir.loops_of(func.body))]
    pairs = [pair for body in bodies for pair in itertools.pairwise(body)]
    return [
        str(after.condition.left.index)
        for before, after in pairs
        if isinstance(before, tir.Allocate)
        and isinstance(after, tir.If)
        and isinstance(after.condition, tir.Comparison)
        and isinstance(after.condition.left, tir.IndexValue)
    ]


def test_a_tile_is_computed_where_one_of_its_elements_is_used() -> None:
    made = with_conditions_on_tiles(tir.parse(TILES.strip()))
    assert sorted(first_conditions(made)) == ["4*j", "8"]
    tir.verify(made, "lowered")
    x = np.random.default_rng(0).standard_normal((10, 6)).astype(np.float32)
    for count in range(11):
        given = {"x": x, "count": np.array(count, np.int64)}
        plain = tir.interpret(tir.parse(TILES.strip()), given)["y"]
        np.testing.assert_array_equal(tir.interpret(made, given)["y"], plain)


@pytest.mark.parametrize("text", [UNCONDITIONAL, WITH_ANOTHER_STATEMENT])
def test_a_tile_beside_what_always_runs_is_computed(text: str) -> None:
    made = with_conditions_on_tiles(tir.parse(text.strip()))
    assert first_conditions(made) == ["8"]
