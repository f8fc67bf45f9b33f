"""Floats rounded to bytes: native code computes what the expression says, in few instructions."""

from dataclasses import replace

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, emit_assembly, host_target
from graphflow.codegen.saturated import Saturated, saturated
from graphflow.kernels.definitions import quantized
from graphflow.schedule import Schedule, vectorize_loop
from graphflow.tir import interpret
from support.native import Native

TARGETS = (host_target(), avx2_target())
SIZE = 32


def rounding(dtype: str, zero: bool = True) -> tir.PrimFunc:
    """A kernel that divides by a scale, rounds and saturates, in vectors."""
    func = quantized.quantize_elements(
        (SIZE,), "float32", (), dtype, zero_shape=() if zero else None
    )
    (loop,) = tir.loops_of(func.body)
    return Schedule.of(func).apply(vectorize_loop, str(loop.var)).func


def cast_of(func: tir.PrimFunc) -> tir.Cast:
    (store,) = (s for s in tir.walk(func.body) if isinstance(s, tir.Store))
    assert isinstance(store.value, tir.Cast)
    return store.value


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize(
    ("dtype", "zeros"), [("uint8", (0, 1, 127, 128, 255)), ("int8", (-128, -1, 0, 127))]
)
def test_ties_and_both_ends(dtype: str, zeros: tuple[int, ...], target: Target) -> None:
    func = rounding(dtype)
    native = Native(func, target)
    halves = np.arange(-SIZE // 4, SIZE // 4, 0.5, dtype=np.float32)
    far = np.linspace(-400, 400, SIZE, dtype=np.float32)
    large = np.float32(2.0) ** np.arange(20, 20 + SIZE) * np.where(np.arange(SIZE) % 2, -1, 1)
    for zero in zeros:
        for x in (halves, far, large.astype(np.float32), -np.float32(zero) + halves):
            given = {"x": x, "scale": np.float32(1), "zero": np.array(zero, dtype)}
            np.testing.assert_array_equal(native(given)["y"], interpret(func, given)["y"])


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 200), ("int8", -100)])
def test_integers_that_are_widened_again(dtype: str, zero: int, target: Target) -> None:
    """They are in the range of the byte, those of NaN too, and LLVM masks none."""
    byte = rounding(dtype)
    wide = tir.Buffer("y", (SIZE,), "int16")

    def widened(stmt: tir.Stmt) -> tir.Stmt:
        if not isinstance(stmt, tir.Store):
            return stmt
        return tir.Store(wide, stmt.indices, tir.Cast(tir.Cast(stmt.value, "int32"), "int16"))

    params = (*byte.params[:-1], replace(byte.params[-1], buffer=wide))
    func = replace(byte, params=params, body=tir.map_body(byte.body, widened))
    x = np.linspace(-400, 400, SIZE, dtype=np.float32)
    given = {"x": x, "scale": np.float32(1), "zero": np.array(zero, dtype)}
    native = Native(func, target)
    np.testing.assert_array_equal(native(given)["y"], interpret(func, given)["y"])
    found = native({**given, "x": np.full(SIZE, np.nan, np.float32)})["y"]
    limits = np.iinfo(dtype)
    assert ((found >= limits.min) & (found <= limits.max)).all()
    assert "vpand" not in emit_assembly(func, "k", avx2_target())


def test_one_conversion_rounds() -> None:
    text = emit_assembly(rounding("uint8"), "k", host_target())
    assert "vcvtps2dq" in text and "vround" not in text and "vrndscale" not in text


def test_what_is_rounded() -> None:
    found = saturated(cast_of(rounding("int8")))
    assert isinstance(found, Saturated) and (found.low, found.high) == (-128, 127)
    assert found.zero is not None
    without = saturated(cast_of(rounding("int8", zero=False)))
    assert without is not None and without.zero is None


def test_other_bounds_and_summands_are_left_alone() -> None:
    cast = cast_of(rounding("uint8"))
    assert saturated(tir.Cast(cast.operand, "int8")) is None  # the bounds are those of uint8
    assert saturated(tir.Cast(cast.operand, "int32")) is None
    assert isinstance(cast.operand, tir.Select)
    whole = cast.operand.if_false
    assert isinstance(whole, tir.Select)
    assert saturated(tir.Cast(whole, "uint8")) is None  # nothing bounds it from below
    half = tir.Literal(0.5, "float32")

    def changed(e: tir.Expr) -> tir.Expr:
        return half if isinstance(e, tir.Cast) and e.dtype == "float32" else e

    moved = tir.map_expr(cast, changed)
    assert isinstance(moved, tir.Cast) and saturated(moved) is None  # no whole number is added
