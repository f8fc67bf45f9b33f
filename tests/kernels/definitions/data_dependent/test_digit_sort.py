"""Tests of sorting digit by digit: interpreted and natively, against numpy's order."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import graphflow as gf
from graphflow import tir
from graphflow.base.target import Target
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.digit_sort import (
    DigitSort,
    sorting_cycles,
    sorting_key,
)
from support.targets import in_turn

DTYPES = (
    "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
)  # fmt: skip


def sorting(extent: int, count: int, dtype: str, largest: bool) -> tir.PrimFunc:
    """A kernel that sorts one line."""
    x, y = tir.Buffer("x", (extent,), dtype), tir.Buffer("y", (count,), "int64")
    body = DigitSort(extent, count, dtype).sorted(
        lambda index: sorting_key(tir.Load(x, (index,)), largest),
        lambda place, index: tir.Store(y, (place,), index),
    )
    return stages.kernel_of_stages("sorting", (x,), (y,), (tir.Block("sorting", body),))


def in_order(x: Any, count: int, largest: bool) -> list[int]:
    """The first indices by value, of equal elements the lower index first; NaN is the largest."""

    def key(i: int) -> tuple[bool, Any]:
        is_nan = bool(x[i] != x[i])
        value = x[i].item()
        return (is_nan != largest, 0 if is_nan else -value if largest else value)

    return sorted(range(len(x)), key=key)[:count]


def drawn(data: st.DataObject, dtype: str, extent: int) -> Any:
    if np.dtype(dtype).kind == "f":
        tiny = float(np.finfo(dtype).smallest_subnormal)
        numbers = (-np.inf, -1.5, -tiny, -0.0, 0.0, tiny, 1.0, np.inf, np.nan, -np.nan)
        of: Any = st.sampled_from(numbers)
    else:
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        of = st.sampled_from((least, least + 1, 0, 1, 2, 255, 256, most - 1, most))
        of = of.filter(lambda n: n <= most)
    return np.array(data.draw(st.lists(of, min_size=extent, max_size=extent)), dtype)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_short_lines(data: st.DataObject) -> None:
    dtype, extent = data.draw(st.sampled_from(DTYPES)), data.draw(st.integers(1, 40))
    count, largest = data.draw(st.integers(1, extent)), data.draw(st.booleans())
    x = drawn(data, dtype, extent)
    func = sorting(extent, count, dtype, largest)
    assert tir.interpret(func, {"x": x})["y"].tolist() == in_order(x, count, largest)


EXTENTS = ((600, 30), (333, 290), (333, 333))
"""Extents and counts: of the first the elements that can be wanted are found before."""

LINES = {
    "normal": lambda rng, n: 20 * rng.standard_normal(n),
    "near": lambda rng, n: 100 + rng.integers(0, 7, n),
    "equal": lambda rng, n: np.full(n, 3),
    "falling": lambda _, n: 100.0 - np.arange(n) // 3,
    "nan": lambda rng, n: np.where(rng.random(n) < 0.4, np.nan, rng.standard_normal(n)),
    "wide": lambda rng, n: rng.choice([3e38, -3e38, 1e-45, -0.0, 0.0, np.inf], n) * rng.random(n),
}
"""How the elements of long lines are drawn, by name."""


def test_which_lines_are_bounded_first() -> None:
    assert [DigitSort(*extents, "float32").bounded for extents in EXTENTS] == [True, False, False]
    assert sorting_cycles(600, 30, "float32") < sorting_cycles(600, 600, "float32")


@in_turn("extents dtype largest", EXTENTS, DTYPES, (False, True))
def test_long_lines(extents: tuple[int, int], dtype: str, largest: bool, target: Target) -> None:
    floats, (extent, count) = np.dtype(dtype).kind == "f", extents
    exe = gf.build(sorting(extent, count, dtype, largest), target=target)
    rng = np.random.default_rng(3)
    for kind, line in LINES.items():
        if not floats and kind in ("nan", "wide"):
            continue
        values = line(rng, extent)
        with np.errstate(all="ignore"):
            x = (values if floats else values.astype("int64")).astype(dtype)
        assert exe.run({"x": x})["y"].tolist() == in_order(x, count, largest), kind


def test_long_lines_interpreted() -> None:
    rng = np.random.default_rng(4)
    for extent, count in EXTENTS:
        x = LINES["normal"](rng, extent).astype("float32")
        found = tir.interpret(sorting(extent, count, "float32", True), {"x": x})["y"]
        assert found.tolist() == in_order(x, count, True)
