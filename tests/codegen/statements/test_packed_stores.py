"""Bytes of four vectors that are stored as one: the same numbers as one by one."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, emit_assembly, host_target
from graphflow.codegen.statements.unrolled_chains import unrolled_chains
from graphflow.tir import interpret
from support.native import Native

TARGETS = (host_target(), avx2_target())
ENDS = {"u8": (0, 255), "i8": (-128, 127)}
NAMES = {"u8": "uint8", "i8": "int8"}


def storing(
    byte: str,
    target: Target,
    rows: int = 5,
    vectors: int = 3,
    apart: int = 0,
    zero: str = "zero[()]",
) -> tir.PrimFunc:
    """A kernel that rounds vectors to bytes in unrolled loops, with a zero point; rows are `apart`
    bytes from each other."""
    low, high = ENDS[byte]
    lanes = target.computed_lanes("float32")
    at = f"{lanes}*j + v"
    whole = f"round(t[r, j, v]) + cast(f32, {zero})"
    bounded = f"select(data({whole} > f32({high}.0)), f32({high}.0), {whole})"
    clipped = f"select(data({whole} < f32({low}.0)), f32({low}.0), {bounded})"
    width = lanes * vectors
    shape = "()" if zero == "zero[()]" else str(width)
    return tir.parse(f"""
    @primfunc
    def k(x: f32[{rows}, {width}], zero: {byte}[{shape}], y: out[{byte}[{rows}, {width + apart}]]):
        t = alloc(f32[{rows}, {vectors}, {lanes}], register)
        for r in unrolled(0, {rows}):
            for j in unrolled(0, {vectors}):
                for v in vectorized(0, {lanes}):
                    t[r, j, v] = x[r, {at}] * f32(1.0)
                    y[r, {at}] = cast({byte}, {clipped})
    """)


def unrolled(func: tir.PrimFunc) -> tir.For:
    (loop,) = (s for s in func.body if isinstance(s, tir.For))
    return loop


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    """Ties, numbers beyond both ends, those that 32 bits do not hold, and infinite ones."""
    known = [0.5, 1.5, -0.5, 254.5, 255.5, 127.5, -128.5, 40000, -40000, 3e9, -3e9, 1e30, -1e30]
    random = np.random.default_rng(0)
    found = random.choice(np.array([*known, np.inf, -np.inf], np.float32), shape)
    near = random.uniform(-400, 400, shape).astype(np.float32)
    return np.where(random.random(shape) < 0.5, found, near)


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize(("byte", "zeros"), [("u8", (0, 3, 255)), ("i8", (-128, -7, 0, 127))])
@pytest.mark.parametrize(
    ("rows", "vectors", "apart"), [(5, 3, 0), (7, 2, 16), (1, 4, 0), (3, 1, 9)]
)
def test_ties_and_ends(
    byte: str, zeros: tuple[int, ...], rows: int, vectors: int, apart: int, target: Target
) -> None:
    func = storing(byte, target, rows, vectors, apart)
    chains = unrolled_chains(unrolled(func))
    assert chains is not None and chains.packed is not None
    native = Native(func, target)
    x = numbers(func.inputs[0].shape)
    for zero in zeros:
        given = {"x": x, "zero": np.array(zero, NAMES[byte])}
        width = x.shape[1]
        np.testing.assert_array_equal(
            native(given)["y"][:, :width], interpret(func, given)["y"][:, :width]
        )


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("byte", ["u8", "i8"])
def test_nan_is_the_least_byte(byte: str, target: Target) -> None:
    func = storing(byte, target)
    x = np.full(func.inputs[0].shape, np.nan, np.float32)
    for zero in (0, 5):
        found = Native(func, target)({"x": x, "zero": np.array(zero, NAMES[byte])})["y"]
        assert (found == ENDS[byte][0]).all()


def test_four_vectors_become_one() -> None:
    text = emit_assembly(storing("u8", host_target()), "k", host_target())
    assert "vpackuswb" in text and "vpackssdw" in text and "vpmovdb" not in text


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
def test_zero_points_of_lanes_stay_apart(target: Target) -> None:
    lanes = target.computed_lanes("float32")
    func = storing("i8", target, zero=f"zero[{lanes}*j + v]")
    assert unrolled_chains(unrolled(func)) is None
    x = numbers(func.inputs[0].shape)
    zeros = np.random.default_rng(1).integers(-128, 128, x.shape[1]).astype(np.int8)
    given = {"x": x, "zero": zeros}
    np.testing.assert_array_equal(Native(func, target)(given)["y"], interpret(func, given)["y"])


def storing_words(byte: str, less: int, rows: int, vectors: int) -> tir.PrimFunc:
    """A kernel that rounds vectors of 8 lanes to bytes and stores these less a number, as words."""
    low, high = ENDS[byte]
    at = "8*j + v"
    whole = f"round(t[r, j, v]) + cast(f32, {byte}({less}))"
    bounded = f"select(data({whole} > f32({high}.0)), f32({high}.0), {whole})"
    clipped = f"select(data({whole} < f32({low}.0)), f32({low}.0), {bounded})"
    width = 8 * vectors
    return tir.parse(f"""
    @primfunc
    def k(x: f32[{rows}, {width}], y: out[i16[{rows}, {width}]]):
        t = alloc(f32[{rows}, {vectors}, 8], register)
        for r in unrolled(0, {rows}):
            for j in unrolled(0, {vectors}):
                for v in vectorized(0, 8):
                    t[r, j, v] = x[r, {at}] * f32(1.0)
                    y[r, {at}] = cast(i16, cast(i32, cast({byte}, {clipped})) - i32({less}))
    """)


@pytest.mark.parametrize("byte, less", [("u8", 0), ("u8", 1), ("u8", 255), ("i8", -128), ("i8", 7)])
@pytest.mark.parametrize("rows, vectors", [(5, 3), (3, 1), (2, 4)])
def test_words_of_two_vectors_become_one(byte: str, less: int, rows: int, vectors: int) -> None:
    func, target = storing_words(byte, less, rows, vectors), avx2_target()
    chains = unrolled_chains(unrolled(func))
    assert chains is not None and chains.packed is not None
    low, high = ENDS[byte]
    assert (chains.packed.low, chains.packed.high) == (low - less, high - less)
    x = numbers(func.inputs[0].shape)
    given = {"x": x}
    np.testing.assert_array_equal(Native(func, target)(given)["y"], interpret(func, given)["y"])
    nothing = Native(func, target)({"x": np.full(x.shape, np.nan, np.float32)})["y"]
    assert (nothing == low - less).all()
    assert emit_assembly(func, "k", target).count("vpackssdw") == -(-rows * vectors // 2)
