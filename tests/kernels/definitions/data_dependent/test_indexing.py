"""Tests of what is found of all indices: one that is outside of an interval, if any is."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import graphflow as gf
from graphflow import tir
from graphflow.base.target import Target
from graphflow.kernels.definitions.data_dependent.indexing import furthest_index
from support.targets import in_turn

INTEGERS = ("int64", "int32", "int8", "uint8")


@given(st.data())
def test_all_are_inside_if_the_furthest_is(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    limits = np.iinfo(dtype)
    wide = st.integers(int(limits.min), int(limits.max))
    near = st.integers(max(-4, int(limits.min)), 4)
    indices = data.draw(st.lists(st.one_of(near, wide), min_size=1, max_size=6))
    extent = data.draw(st.sampled_from((1, 3, 1000)))
    lo, hi = data.draw(st.sampled_from(((-extent, extent - 1), (0, extent - 1))))
    x = np.array(indices, dtype)
    found = int(tir.interpret(furthest_index(x.shape, lo, dtype), {"x": x})["y"])
    assert found in indices
    assert (lo <= found <= hi) == all(lo <= n <= hi for n in indices)


@in_turn("dtype", INTEGERS)
def test_indices_behind_a_count_are_not_looked_at(dtype: str, target: Target) -> None:
    exe = gf.build(furthest_index((101, 3), 0, dtype, (0,)), target=target)
    x = np.full((101, 3), np.iinfo(dtype).max, dtype)
    for count in (0, 1, 17, 64, 101):
        x[:count] = np.arange(3 * count).reshape(count, 3) % 100
        want = int(x[:count].max(initial=0))
        assert exe.run({"x": x, "count0": np.array(count)})["y"] == want


@in_turn("dtype", INTEGERS)
def test_one_of_many_indices_is_found(dtype: str, target: Target) -> None:
    x = np.arange(101, dtype=dtype)
    exe = gf.build(furthest_index((101,), -101, dtype), target=target)
    assert exe.run({"x": x})["y"] == 100
    if dtype != "uint8":
        x[37] = -102
        assert exe.run({"x": x})["y"] == -102
