"""Floats rounded to bytes: native code computes what the expression says, in few instructions."""

from collections.abc import Callable

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, emit_assembly, host_target
from graphflow.codegen.saturated import Saturated, saturated
from graphflow.kernels.definitions import quantized, stages
from graphflow.schedule import Schedule, divide_loop, mark_unrolled, vectorize_loop
from graphflow.tir import interpret
from support.native import Native

TARGETS = (host_target(), avx2_target())
SIZE = 32

Expression = Callable[[tir.Expr, tir.Expr], tir.Expr]
"""A byte of a float32 and a zero point."""


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


def stored_in_runs(dtype: str, byte: Expression, rounds: int = 4) -> tir.PrimFunc:
    """A kernel that stores `byte` of a float32 and a zero point, in unrolled vectors of 16."""
    size = 16 * rounds
    x, zero = tir.Buffer("x", (size,), "float32"), tir.Buffer("zero", (), dtype)
    func = stages.elementwise_kernel(
        "k",
        (x, zero),
        tir.Buffer("y", (size,), byte(tir.Literal(0.0, "float32"), tir.Load(zero, ())).dtype),
        loops := stages.loops_over("i", (size,)),
        byte(stages.element(x, loops), tir.Load(zero, ())),
    )
    s = Schedule.of(func)
    s = s.apply(divide_loop, str(loops[0][0]), 16, ("o", "v"), "perfect")
    return s.apply(mark_unrolled, "o").apply(vectorize_loop, "v").func


def in_words(dtype: str) -> Expression:
    return lambda x, zero: quantized.rounded_in_words(x, zero, dtype)


def kept_unsigned(byte: Expression) -> Expression:
    """A signed byte, stored as the unsigned one that is greater by 128."""
    offset = tir.Literal(128, "int32")
    return lambda x, zero: tir.Cast(
        tir.Binary("add", tir.Cast(byte(x, zero), "int32"), offset), "uint8"
    )


ENDS = {"uint8": (0, 1, 127, 128, 255), "int8": (-128, -1, 0, 1, 127)}


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("rounds", [4, 3, 1])
@pytest.mark.parametrize("dtype", ENDS)
def test_integers_saturate(dtype: str, rounds: int, target: Target) -> None:
    """Also those that are far outside of 16 bits, in whole vectors of bytes and in parts of one."""
    func = stored_in_runs(dtype, in_words(dtype), rounds)
    native, size = Native(func, target), 16 * rounds
    near = np.arange(-size // 2, size // 2, dtype=np.float32) * np.float32(12.5)
    far = near * np.float32(2**29) / np.abs(near).max()
    for zero in ENDS[dtype]:
        for x in (near, far, far / np.float32(2**13), near / np.float32(25) - np.float32(zero)):
            given = {"x": x.astype(np.float32), "zero": np.array(zero, dtype)}
            np.testing.assert_array_equal(native(given)["y"], interpret(func, given)["y"])


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
def test_other_floats_are_rounded_as_they_are(target: Target) -> None:
    """A float64 is no lane of four bytes."""
    x = tir.Buffer("x", (64,), "float64")
    loops = stages.loops_over("i", x.shape)
    byte = quantized.rounded_in_words(stages.element(x, loops), None, "uint8")
    func = stages.elementwise_kernel("k", (x,), tir.Buffer("y", x.shape, "uint8"), loops, byte)
    s = Schedule.of(func)
    s = s.apply(divide_loop, str(loops[0][0]), 16, ("o", "v"), "perfect")
    func = s.apply(mark_unrolled, "o").apply(vectorize_loop, "v").func
    given = {"x": np.arange(-8, 24, 0.5) * 12}
    np.testing.assert_array_equal(Native(func, target)(given)["y"], interpret(func, given)["y"])


def test_what_fits_is_not_bounded_before_it_is_rounded() -> None:
    bounded = stored_in_runs("uint8", lambda x, zero: quantized.rounded(x, zero, "uint8"))
    for target in TARGETS:
        assert "vminps" in emit_assembly(bounded, "k", target)
        assert "vminps" not in emit_assembly(
            stored_in_runs("uint8", in_words("uint8")), "k", target
        )


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("fits", [True, False])
def test_signed_bytes_that_are_kept_as_unsigned_ones(fits: bool, target: Target) -> None:
    """They are packed like others."""
    byte = in_words("int8") if fits else lambda x, zero: quantized.rounded(x, zero, "int8")
    func = stored_in_runs("int8", kept_unsigned(byte))
    assert "vpackuswb" in emit_assembly(func, "k", target)
    native = Native(func, target)
    for zero in ENDS["int8"]:
        for x in (np.arange(-32, 32) * 9.5, np.arange(-32, 32) * 0.5 - zero, np.full(64, 2.0**28)):
            given = {"x": x.astype(np.float32), "zero": np.array(zero, "int8")}
            np.testing.assert_array_equal(native(given)["y"], interpret(func, given)["y"])


def test_a_zero_point_that_is_moved_to_zero_is_none() -> None:
    found = saturated(cast_of(rounding("int8", zero=False)))
    assert found is not None
    moved = found.moved_by(128)
    assert (moved.low, moved.high) == (0, 255) and moved.zero == tir.Literal(128.0, "float32")
    assert moved.moved_by(-128) == found
