"""Elementary functions of float32 against float64 arithmetic: every exponent, and every seam."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from graphflow import tir
from graphflow.arith import Var, const
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.codegen.erf_table import SPACING
from graphflow.codegen.math import ERF_MOST, ERROR_ULPS, TANH_MOST
from support.native import Array, Native

TARGETS = {"avx512": host_target(), "avx2": avx2_target()}
MANTISSAS = 48


def _sigmoid(x: Array) -> Array:
    """Without cancellation and overflow on both sides."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, e, 1.0) / (1 + e))


REFERENCES: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "erf": np.vectorize(math.erf, otypes=[float]),
    "sigmoid": _sigmoid,
    "sin": np.sin,
    "cos": np.cos,
    "atan": np.arctan,
    "asin": np.arcsin,
    "acos": np.arccos,
}
TRIGONOMETRIC_ULPS = 0.51

SEAMS = {
    "exp": (89.0, -104.0, 88.7228, -87.3365, -103.972, math.log(2) / 2),
    "log": (1.0, math.sqrt(0.5), math.sqrt(2), 2.0**-126),
    "tanh": (TANH_MOST, 9.0109, math.log(2) / 4, 3 * math.log(2) / 4),
    "erf": (ERF_MOST, 3.9192, 0.2745, 0.6, *((k + 0.5) * SPACING for k in range(15))),
    "sigmoid": (104.0, 88.7228, 87.3365, 103.972, math.log(2) / 2),
    "sin": (2.0**30, math.pi / 4, math.pi / 2, math.pi, 3 * math.pi / 4),
    "cos": (2.0**30, math.pi / 4, math.pi / 2, math.pi, 3 * math.pi / 4),
    "atan": (1.0, 2.0**24),
    "asin": (0.5, 1.0),
    "acos": (0.5, 1.0),
}
"""Where a function clamps its argument, rounds it to another whole number, or leaves a range."""


def arguments(name: str) -> Array:
    """Each of the 256 exponents with both signs and sampled mantissas, the first and the last of
    them included, and the neighbours of the seams."""
    rng = np.random.default_rng(7)
    mantissas = rng.integers(0, 1 << 23, (256, MANTISSAS), dtype=np.uint32)
    mantissas[:, :3] = 0, 1, (1 << 23) - 1
    exponents = np.arange(256, dtype=np.uint32)[:, None] << 23
    bits = (exponents | mantissas).ravel()
    near = np.array(SEAMS[name], np.float32).view(np.uint32)[:, None] + np.arange(-40, 40)
    bits = np.concatenate([bits, near.ravel().astype(np.uint32)])
    bits = np.concatenate([bits, bits | np.uint32(1 << 31)])
    dense = rng.uniform(-12, 12, 64 * 256).astype(np.float32)
    x = np.concatenate([bits.view(np.float32), dense, dense / 12])
    return x[: len(x) // 64 * 64]


def mapping(name: str, count: int, lanes: int) -> tir.PrimFunc:
    """`y = name(x)` over vectors of `lanes` elements."""
    x, y = tir.Buffer("x", (count,)), tir.Buffer("y", (count,))
    o, v = Var("o"), Var("v")
    at = (o * lanes + v,)
    store = tir.Store(y, at, tir.Unary(name, tir.Load(x, at)))
    inner = tir.For(v, const(0), const(lanes), tir.LoopKind.VECTORIZED, (store,))
    outer = tir.For(o, const(0), const(count // lanes), tir.LoopKind.SERIAL, (inner,))
    return tir.PrimFunc(
        "k",
        (tir.Param(x, tir.Role.INPUT), tir.Param(y, tir.Role.OUTPUT)),
        (tir.Block("b", (outer,)),),
    )


def error_in_ulps(got: Array, want: Array) -> Array:
    """The distance of each float32 result from the exact one, in units in its last place.

    0 for equal infinities and for NaN where the function has none; infinite for other differences.
    """
    with np.errstate(all="ignore"):
        rounded = want.astype(np.float32)
        same = (rounded == got) | (np.isnan(rounded) & np.isnan(got))
        size = np.maximum(np.abs(rounded), np.float32(2.0**-126))
        spacing = np.spacing(np.where(np.isfinite(size), size, np.float32(1))).astype(np.float64)
        distance = np.abs(got.astype(np.float64) - want) / spacing
    finite = np.isfinite(rounded) & np.isfinite(got)
    # Exact results beyond the largest float32 round to infinity, or to it within the bound.
    return np.where(finite, distance, np.where(same, 0.0, np.inf))


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("lanes", [1, 16, 64])
@pytest.mark.parametrize("kind", TARGETS)
def test_errors_stay_within_the_stated_bound(name: str, kind: str, lanes: int) -> None:
    target: Target = TARGETS[kind]
    x = arguments(name)
    func = mapping(name, len(x), min(lanes, 4 * target.lanes("float32")))
    got = Native(func, target)({"x": x})["y"]
    with np.errstate(all="ignore"):
        errors = error_in_ulps(got, REFERENCES[name](x.astype(np.float64)))
    worst = int(np.argmax(errors))
    assert errors[worst] <= ERROR_ULPS.get(name, TRIGONOMETRIC_ULPS), (x[worst], got[worst])


@pytest.mark.parametrize("name", REFERENCES)
def test_the_interpreter_stays_within_the_stated_bound(name: str) -> None:
    x = arguments(name)[::16]
    x = x[: len(x) // 16 * 16]
    with np.errstate(all="ignore"):
        got = tir.interpret(mapping(name, len(x), 16), {"x": x})["y"]
        errors = error_in_ulps(got, REFERENCES[name](x.astype(np.float64)))
    assert errors.max() <= max(1.0, ERROR_ULPS.get(name, 1.0))


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid"])
def test_no_result_leaves_the_range_of_the_function(name: str, kind: str) -> None:
    """Rational approximations of tanh and erf do: they give more than 1 near their clamp."""
    x = np.linspace(-12, 12, 1 << 16, dtype=np.float32)
    y = Native(mapping(name, len(x), 16), TARGETS[kind])({"x": x})["y"]
    assert np.abs(y).max() <= 1
    if name != "sigmoid":
        assert not (np.signbit(x) ^ np.signbit(y)).any()


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize(("name", "most"), [("tanh", TANH_MOST), ("erf", ERF_MOST)])
def test_large_arguments_give_one(name: str, most: float, kind: str) -> None:
    """Not the number before it: Gelu multiplies its sum with −1 by the argument."""
    sizes = np.array([most, 2 * most, 1e4, 1e38, np.inf], np.float32)
    x = np.concatenate([np.nextafter(sizes[:3], np.float32(np.inf)), sizes])
    x = np.concatenate([x, -x])
    y = Native(mapping(name, len(x), 16), TARGETS[kind])({"x": x})["y"]
    np.testing.assert_array_equal(y, np.sign(x))


def test_a_nan_keeps_being_one_whatever_its_payload() -> None:
    """The low bits of a rounded argument become an exponent; those of a NaN are anything."""
    bits = np.arange(0x7F800001, 0x7F800001 + (1 << 22), 65521, dtype=np.uint32)
    x = np.concatenate([bits, bits | np.uint32(0x80000000)]).view(np.float32)
    x = x[: len(x) // 16 * 16]
    for target in TARGETS.values():
        for name in ("exp", "tanh", "erf", "sigmoid", "log"):
            y = Native(mapping(name, len(x), 16), target)({"x": x})["y"]
            assert np.isnan(y).all(), (name, target.name)
