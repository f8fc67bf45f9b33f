"""Convolutions of width 3 with padding 2, over rows of eight with a halo of zeros on both sides."""

from typing import Any

import numpy as np

from graphflow.layout import IndexMap, Layout
from graphflow.schedule import (
    Schedule,
    assume_finite,
    cache_read,
    cache_write,
    derive_padding,
    remove_branching_through_overcompute,
    sequential_buffer_access,
    simplify,
    transform_layout,
)
from graphflow.tir import PrimFunc, parse

NUMPY = {"i32": "int32", "f32": "float32"}

FILTER = (2, -1, 3)

CONV = """
    @primfunc
    def conv(x: {t}[{n}], f: {t}[3], y: out[{t}[{m}]]):
        with block("compute"):
            for i in serial(0, {m}):
                y[i] = {t}({zero})
                for k in serial(0, 3):
                    if i + k >= 2 and i + k < {m}:
                        y[i] += x[i + k - 2] * f[k]
    """


def convolution(extent: int, dtype: str = "i32") -> PrimFunc:
    """The convolution of `extent` elements to two more."""
    zero = "0" if dtype == "i32" else "0.0"
    return parse(CONV.format(t=dtype, n=extent, m=extent + 2, zero=zero))


def halo(extent: int, count: int | None = None) -> Layout:
    """As `count` rows of eight, two elements further behind; None for as many as are needed."""
    rows = IndexMap.from_function(1, lambda i: [(i + 2) // 8, (i + 2) % 8])
    return Layout.of(rows, (extent,), None if count is None else (count, 8))


def over_halos(
    extent: int,
    dtype: str = "i32",
    count: int | None = None,
    cached: bool = False,
    finite: bool = True,
) -> Schedule:
    """Without conditions over the whole box; a stage writes zeros to the output's padding.

    If `cached`, the halos are those of the caches `xc` and `yc`, and the interface is as it was.
    """
    over = remove_branching_through_overcompute
    zero: Any = 0 if dtype == "i32" else 0.0
    s = Schedule.of(convolution(extent, dtype))
    if dtype == "f32" and finite:
        s = s.apply(assume_finite, "f", "the filter is a constant that holds nothing else")
    x, y = ("xc", "yc") if cached else ("x", "y")
    if cached:
        s = s.apply(cache_read, "x", x).apply(cache_write, "y", y)
    s = s.apply(transform_layout, x, halo(extent, count), zero)
    s = s.apply(transform_layout, y, halo(extent + 2, count), zero)
    s = s.apply(over, "k", wrap=True).apply(simplify)
    s = s.apply(sequential_buffer_access, "compute", y, ("io", "ii"), whole_box=True)
    return s.apply(over, "compute", wrap=True).apply(simplify)


def branch_free(
    extent: int,
    dtype: str = "i32",
    count: int | None = None,
    cached: bool = False,
    finite: bool = True,
) -> Schedule:
    """Without conditions, and without a stage that writes the zeros of the output's padding."""
    s = over_halos(extent, dtype, count, cached, finite)
    return s.apply(derive_padding, "yc" if cached else "y")


def in_rows(values: Any, count: int | None = None) -> Any:
    """The values in the box of `halo`, zeros around them."""
    layout = halo(len(values), count)
    box = np.zeros(layout.physical_shape, dtype=values.dtype)
    box.reshape(-1)[2 : 2 + len(values)] = values
    return box


def numbers(extent: int, dtype: str = "i32") -> Any:
    """Small whole numbers of both signs."""
    return (np.arange(extent) % 7 - 3).astype(NUMPY[dtype])


def convolved(values: Any, times: int = 1) -> Any:
    """What the convolution computes, after it was done `times` times."""
    for _ in range(times):
        values = np.convolve(values, np.array(FILTER[::-1], values.dtype))
    return values
