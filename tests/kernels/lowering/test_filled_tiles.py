"""Tests of tiles that are computed only where a count includes some of their rows."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.kernels.lowering.filled_tiles import with_filled_tiles

TILES = """
@primfunc
def tiles(x: f32[42, 8], w: f32[8, 16], count: i64[()], y: out[f32[42, 16]]):
    for t in serial(0, 5):
        acc = alloc(f32[8, 16], scratch)
        for i in unrolled(0, 8):
            for j in vectorized(0, 16):
                acc[i, j] = f32(0.0)
        for k in serial(0, 8):
            for i_1 in unrolled(0, 8):
                for j_1 in vectorized(0, 16):
                    acc[i_1, j_1] += x[8*t + i_1, k] * w[k, j_1]
        for p in serial(0, 24):
            for i_3 in unrolled(0, 8):
                acc[i_3, 0] += f32(0.0)
        for i_2 in unrolled(0, 8):
            for j_2 in vectorized(0, 16):
                y[8*t + i_2, j_2] = select(data(index(8*t + i_2, i64) < count[()]), acc[i_2, j_2], f32(3.0))
    for r in unrolled(0, 2):
        for j_3 in vectorized(0, 16):
            y[r + 40, j_3] = select(data(index(r + 40, i64) < count[()]), x[r + 40, 0], f32(3.0))
"""  # noqa: E501


@pytest.mark.parametrize("count", [0, 1, 8, 9, 39, 40, 41, 42])
def test_tiles_behind_the_count_are_written_and_not_computed(count: int) -> None:
    func = tir.parse(TILES.strip())
    made = with_filled_tiles(func)
    tir.verify(made, "lowered")
    rng = np.random.default_rng(count)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((42, 8), (8, 16)))
    given = {"x": x, "w": w, "count": np.array(count, np.int64)}
    np.testing.assert_array_equal(tir.interpret(made, given)["y"], tir.interpret(func, given)["y"])
    (tile,) = (s for s in tir.walk(made.body) if isinstance(s, tir.If) and s.orelse)
    assert isinstance(tile.condition, tir.Comparison)
    assert str(tile.condition.left.index) == "8*t"
    assert not [*tir.loads_in(tile.orelse)]


def test_what_is_read_behind_its_tile_is_computed() -> None:
    text = TILES.replace("        acc = alloc(f32[8, 16], scratch)\n", "").replace(
        "    for t in serial(0, 5):",
        "    acc = alloc(f32[8, 16], scratch)\n    for t in serial(0, 5):",
    )
    text = text.replace("x[r + 40, 0]", "acc[r, j_3]")
    func = tir.parse(text.strip())
    assert with_filled_tiles(func) is func


TWO_COUNTS = """
@primfunc
def tiles(x: f32[16, 16], rows: i64[()], columns: i64[()], y: out[f32[16, 16]]):
    for a in serial(0, 4):
        for b in serial(0, 4):
            s = alloc(f32[4, 4], scratch)
            m = alloc(f32[4, 4], scratch)
            for p in serial(0, 300):
                s[0, 0] = f32(0.0)
            for i in unrolled(0, 4):
                for j in unrolled(0, 4):
                    s[i, j] = x[4*a + i, 4*b + j] * f32(2.0)
                    m[i, j] = select(data(index(4*a + i, i64) < rows[()]), s[i, j], f32(3.0))
                    y[4*a + i, 4*b + j] = select(data(index(4*b + j, i64) < columns[()]), m[i, j], f32(0.0))
"""  # noqa: E501


@pytest.mark.parametrize("rows", [0, 1, 4, 7, 16])
@pytest.mark.parametrize("columns", [0, 3, 8, 9, 16])
def test_tiles_may_be_behind_one_of_two_counts(rows: int, columns: int) -> None:
    """What is stored behind the rows is masked by the columns still, as the fills are two."""
    func = tir.parse(TWO_COUNTS.strip())
    made = with_filled_tiles(func)
    tir.verify(made, "lowered")
    x = np.random.default_rng(rows).standard_normal((16, 16)).astype(np.float32)
    given = {name: np.array(n, np.int64) for name, n in (("rows", rows), ("columns", columns))}
    got, want = (tir.interpret(f, {"x": x, **given})["y"] for f in (made, func))
    np.testing.assert_array_equal(got, want)
    tests = [s.condition for s in tir.walk(made.body) if isinstance(s, tir.If) and s.orelse]
    indices = {str(t.left.index) for t in tests if isinstance(t, tir.Comparison)}
    assert indices == {"4*a", "4*b"}
