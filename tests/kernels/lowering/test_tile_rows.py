"""Tests of tiles of rows: which statements are one, and what they compute for fewer rows."""

import numpy as np
import pytest

from graphflow import arith, tir
from graphflow.kernels.lowering import SizedAxis, rows_of, with_size_conditions
from graphflow.kernels.lowering.sized_rows import BoxAxis
from graphflow.kernels.lowering.tile_rows import TileOfRows, tile_of_rows

PRODUCT = """
@primfunc
def product(x: f32[12, 64], w: f32[64, 8], y: out[f32[12, 8]]):
    for t in serial(0, 3):
        acc = alloc(f32[4, 8], register)
        for i in unrolled(0, 4):
            for c in vectorized(0, 8):
                acc[i, c] = f32(0.0)
        for k in serial(0, 64):
            for i_1 in unrolled(0, 4):
                for c_1 in vectorized(0, 8):
                    acc[i_1, c_1] += x[4*t + i_1, k] * w[k, c_1]
        for i_2 in unrolled(0, 4):
            for c_2 in vectorized(0, 8):
                y[4*t + i_2, c_2] = acc[i_2, c_2]
"""
FEWER = {0: 4, 1: 1, 2: 2, 3: 3}
"""How many rows of the last tile are computed, by how many of them a run gives."""


def tile_of(text: str) -> TileOfRows | None:
    """The tile that the body of the loop over t is."""
    func = tir.parse(text.strip())
    y = func.param("y")
    axis = SizedAxis("n", y.shape[0], (BoxAxis("y", y.shape, 0),))
    (loop,) = func.body
    assert isinstance(loop, tir.For)
    domain = arith.ANYWHERE.inside(loop.var, loop.start, loop.stop)
    (rows,) = rows_of(func, (axis,))
    return tile_of_rows(loop.body, domain, rows.written_by(loop.body, domain), {y})


def test_a_product_is_a_tile_of_its_rows() -> None:
    tile = tile_of(PRODUCT)
    assert tile is not None and str(tile.base) == "4*t" and tile.extent == 4
    assert sorted(var.name for var in tile.rows) == ["i", "i_1", "i_2"]
    extents = {loop.var.name: loop.extent for loop in tir.loops_of(tile.first(3))}
    assert extents == {"i": 3, "i_1": 3, "i_2": 3, "k": 64, "c": 8, "c_1": 8, "c_2": 8}


def test_rows_before_the_size_are_the_same() -> None:
    func = tir.parse(PRODUCT.strip())
    axis = SizedAxis("n", 12, (BoxAxis("y", (12, 8), 0),))
    made, (param,) = with_size_conditions(func, (axis,))
    tir.verify(made, "lowered")
    rng = np.random.default_rng(0)
    given = {
        name: rng.standard_normal(func.param(name).shape).astype(np.float32) for name in ("x", "w")
    }
    whole = tir.interpret(func, given)["y"]
    for size in range(1, 13):
        found = tir.interpret(made, {**given, param.buffer.name: np.array(size)})["y"]
        np.testing.assert_array_equal(found[:size], whole[:size])
        computed = (size - 1) // 4 * 4 + FEWER[size % 4]
        assert np.isnan(found[computed:]).all() and not np.isnan(found[:computed]).any()


def replaced(*pairs: tuple[str, str]) -> str:
    text = PRODUCT
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


NO_TILE = {
    "rows in reverse": replaced(("y[4*t + i_2", "y[4*t - i_2 + 3")),
    "a row of two": replaced(("acc[i_1, c_1] +=", "acc[(i_1 + 1) % 4, c_1] +=")),
    "another row": replaced(("] = acc[i_2, c_2]", "] = acc[i_2, c_2] + acc[3, c_2]")),
    "a loop that is no row": replaced(("for i_1 in unrolled", "for i_1 in serial")),
    "different loops": replaced(("for i in unrolled(0, 4)", "for i in unrolled(0, 3)")),
    "one buffer for all rows": replaced(
        ("        for k in", "        last = alloc(f32[8], register)\n        for k in"),
        ("* w[k, c_1]\n", "* w[k, c_1]\n                    last[c_1] = x[4*t + i_1, k]\n"),
        ("= acc[i_2, c_2]", "= acc[i_2, c_2] + last[c_2]"),
    ),
    "rows along two axes": replaced(("= acc[i_2, c_2]", "= acc[i_2, i_2]")),
}


@pytest.mark.parametrize("text", NO_TILE.values(), ids=NO_TILE)
def test_what_is_no_tile(text: str) -> None:
    assert tile_of(text) is None


def test_one_row_is_no_tile() -> None:
    assert tile_of(PRODUCT.replace("unrolled(0, 4)", "unrolled(0, 1)")) is None
