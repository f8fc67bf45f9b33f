"""Tests of selections among rounded numbers that are made before they are rounded."""

from typing import Any

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.dtypes import DTYPES, HALVES
from graphflow.graph.rounded.moved_roundings import before_rounding
from graphflow.tir import PrimFunc, interpret, parse

COUNT = 4096


def kernel(value: str) -> PrimFunc:
    """An elementwise kernel of an element `x[i]`."""
    return parse(f"""
    @primfunc
    def selection(x: f32[{COUNT}], y: out[f32[{COUNT}]]):
        for i in serial(0, {COUNT}):
            y[i] = {value}
    """)


def store_of(func: PrimFunc) -> tir.Store:
    (store,) = (stmt for stmt in tir.walk(func.body) if isinstance(stmt, tir.Store))
    return store


def moved(func: PrimFunc, dtype: str) -> PrimFunc | None:
    """The kernel of the numbers before rounding."""
    store = store_of(func)
    (element, *_) = (e for e in tir.walk_expr(store.value) if isinstance(e, tir.Load))
    value = before_rounding(store.value, element, dtype)
    if value is None:
        return None
    body = tir.map_body(
        func.body, lambda s: (tir.Store(s.buffer, s.indices, value),) if s is store else (s,)
    )
    return PrimFunc(func.name, func.params, body)


def numbers(dtype: str, bounds: tuple[float, ...]) -> Any:
    """Float32 numbers of all sizes, and those beside each bound and beside half steps from it."""
    rng = np.random.default_rng(0)
    made = rng.integers(0, 2**32, COUNT, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near: list[float] = [0.0, -0.0, np.nan, -np.inf, np.inf, 65520.0, -65520.0, 3.4e38, 1e-45]
    for bound in bounds:
        rounded = np.asarray(bound, DTYPES[dtype])
        bits = rounded.view(np.uint16)
        for step in (-1, 0, 1):
            other = (bits + np.int16(step)).astype(np.uint16).view(DTYPES[dtype])
            middle = (np.float32(rounded) + np.float32(other)) / np.float32(2)
            for sign in (1, -1):
                for towards in (-np.inf, 0.0, np.inf):
                    near.append(float(np.nextafter(np.float32(sign * middle), towards)))
                near.append(float(sign * middle))
    made[: len(near)] = near
    return made


SELECTIONS = {
    "relu": ("select(data(x[i] < f32(0.0)), f32(0.0), x[i])", (0.0,)),
    "relu6": (
        "select(data(x[i] < f32(0.0)), f32(0.0), select(data(x[i] > f32(6.0)), f32(6.0), x[i]))",
        (0.0, 6.0),
    ),
    "clip": (
        "select(data(x[i] < f32(-1.0)), f32(-1.0), select(data(x[i] > f32(1.0)), f32(1.0), x[i]))",
        (1.0,),
    ),
    "crossed": (
        "select(data(x[i] < f32(2.0)), f32(2.0), select(data(x[i] > f32(1.0)), f32(1.0), x[i]))",
        (1.0, 2.0),
    ),
    "another bound": ("select(data(x[i] <= f32(0.3)), f32(1.0), -x[i])", (0.3,)),
    "at least": ("select(data(x[i] >= f32(0.1)), x[i], f32(0.0))", (0.1,)),
    "extremes": ("max(min(abs(x[i]), f32(4.0)), f32(-0.0))", (4.0,)),
}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", SELECTIONS)
def test_the_result_rounded_is_that_of_rounded_numbers(name: str, dtype: str) -> None:
    text, bounds = SELECTIONS[name]
    func = kernel(text)
    before = moved(func, dtype)
    assert before is not None
    x = numbers(dtype, bounds)
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = x.astype(DTYPES[dtype]).astype(np.float32)
        expected = interpret(func, {"x": rounded})["y"].astype(DTYPES[dtype])
        got = interpret(before, {"x": x})["y"].astype(DTYPES[dtype])
    differ = (got.view(np.uint16) != expected.view(np.uint16)) & ~np.isnan(expected)
    assert not differ.any(), (x[differ], got[differ], expected[differ])
    assert (np.isnan(got) == np.isnan(expected)).all()


@pytest.mark.parametrize(
    "value",
    [
        "x[i] * f32(2.0)",  # rounding does not commute with it
        "select(data(x[i] < f32(0.0)), f32(0.1), x[i])",  # 0.1 is rounded, the selected is not
        "select(data(x[i] == f32(1.0)), f32(0.0), x[i])",  # what rounds to 1 is an interval
        "select(data(x[i] < x[0]), f32(0.0), x[i])",  # an element that is not that of this place
        "select(data(x[i] * x[i] < f32(1.0)), f32(0.0), x[i])",
    ],
)
def test_other_kernels_have_no_such_expression(value: str) -> None:
    assert moved(kernel(value), "float16") is None
