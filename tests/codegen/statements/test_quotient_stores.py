"""Quotients of several iterations that are stored as one vector: only where they are neighbours."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.processors import PROCESSORS
from graphflow.codegen import avx2_target, emit_assembly
from graphflow.tir import interpret
from support.native import Native

ROWS, VECTORS, LANES = 6, 4, 8


def dividing(apart: int) -> tir.PrimFunc:
    """A kernel that stores quotients as bytes, vectors of a row `apart` bytes from each other."""
    whole = "round(x[r, j, v] / scale[()]) + cast(f32, zero[()])"
    bounded = f"select(data({whole} > f32(255.0)), f32(255.0), {whole})"
    clipped = f"select(data({whole} < f32(0.0)), f32(0.0), {bounded})"
    shape = f"{ROWS}, {VECTORS}, {LANES}"
    return tir.parse(f"""
    @primfunc
    def k(x: f32[{shape}], scale: f32[()], zero: u8[()], y: out[u8[{ROWS}, {VECTORS}, {apart}]]):
        for r in serial(0, {ROWS}):
            for j in unrolled(0, {VECTORS}):
                for v in vectorized(0, {LANES}):
                    y[r, j, v] = cast(u8, {clipped})
    """)


@pytest.mark.parametrize("apart", [LANES, LANES + 1, 2 * LANES])
def test_vectors_are_stored_where_they_belong(apart: int) -> None:
    func = dividing(apart)
    x = np.random.default_rng(0).normal(0, 100, (ROWS, VECTORS, LANES)).astype(np.float32)
    given = {"x": x, "scale": np.array(0.7, np.float32), "zero": np.array(9, np.uint8)}
    found = Native(func, avx2_target())(given)["y"][..., :LANES]
    np.testing.assert_array_equal(found, interpret(func, given)["y"][..., :LANES])


def test_only_neighbours_are_one_vector() -> None:
    """One test of four vectors is how their quotients are made together."""
    together, *others = (
        emit_assembly(dividing(apart), "k", PROCESSORS["zen3"])
        for apart in (LANES, LANES + 1, 2 * LANES)
    )
    assert together.count("vtestps") == 1
    assert all(text.count("vtestps") == VECTORS for text in others)
