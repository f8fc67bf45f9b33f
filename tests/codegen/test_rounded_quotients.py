"""Quotients rounded to bytes: the integers of a division, next to ties and for any scale."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS, VBMI
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, emit_assembly, host_target
from graphflow.codegen.saturated import quotient_runs
from graphflow.kernels.definitions import quantized
from graphflow.schedule import Schedule, mark_unrolled, vectorize_loop
from support.native import Native

TARGETS = (host_target(), avx2_target())
SIZE = 1 << 15
MADE = ["apart", "in runs", "in narrow runs"]


def quantizing(size: int) -> tir.PrimFunc:
    """A kernel that divides by a scale, rounds and saturates, in vectors of 16."""
    func = quantized.quantize_elements((size // 16, 16), "float32", (), "uint8", zero_shape=())
    _, inner = tir.loops_of(func.body)
    return Schedule.of(func).apply(vectorize_loop, str(inner.var)).func


def in_runs(size: int, width: int = 16, dtype: str = "uint8") -> tir.PrimFunc:
    """The same, of four vectors at once."""
    shape = (size // width // 4, 4, width)
    func = quantized.quantize_elements(shape, "float32", (), dtype, zero_shape=())
    _, vectors, lanes = (str(loop.var) for loop in tir.loops_of(func.body))
    s = Schedule.of(func).apply(mark_unrolled, vectors).apply(vectorize_loop, lanes)
    return s.func


def in_narrow_runs(size: int) -> tir.PrimFunc:
    """The same, of vectors of 8."""
    return in_runs(size, 8)


def in_words(size: int, less: str | None, dtype: str = "uint8") -> tir.PrimFunc:
    """The same, but bytes are stored less a number, as words; `less` is a number, or `zero` for the
    zero point."""

    def word(expr: tir.Expr) -> tir.Expr:
        match expr:
            case tir.Cast(tir.Select(), "uint8" | "int8") as byte:
                wide: tir.Expr = tir.Cast(byte, "int32")
                if less is not None:
                    number = zero if less == "zero" else tir.Literal(int(less), "int32")
                    wide = tir.Binary("sub", wide, number)
                return tir.Cast(wide, "int16")
        return expr

    func = in_runs(size, 8, dtype)
    zero = tir.Cast(next(x for x in tir.loads_in(func.body) if x.buffer.name == "zero"), "int32")
    changed = replace(func, body=tir.map_expressions(func.body, word))
    text = tir.to_text(changed).replace(f"y: out[{dtype[0]}8[", "y: out[i16[")
    return tir.parse(text)


def with_features(more: str) -> Target:
    """A processor with AVX-512 and further features."""
    target = PROCESSORS["icelake-server"]
    return replace(target, name=f"{target.name}{more}", features=target.features + more)


def of_magnitudes(func: tir.PrimFunc) -> tir.PrimFunc:
    """The same of the absolute values of what it divides."""

    def magnitude(expr: tir.Expr) -> tir.Expr:
        match expr:
            case tir.Binary("div", x):
                return replace(expr, left=tir.Unary("abs", x))
        return expr

    return replace(func, body=tir.map_expressions(func.body, magnitude))


def divided(
    x: NDArray[np.float32], scale: np.float32 | NDArray[np.float32], zero: int
) -> NDArray[np.uint8]:
    with np.errstate(all="ignore"):
        whole = np.round(x / scale) + np.float32(zero)
        return np.clip(whole, 0, 255).astype(np.uint8)


def next_to_ties(scale: np.float32) -> NDArray[np.float32]:
    """The floats around each tie of the quotients from −300 to 300, and some that are far away."""
    ties = (np.arange(-300, 300, dtype=np.float64) + 0.5) * float(scale)
    with np.errstate(over="ignore"):
        bits = ties.astype(np.float32).view(np.int32)
    near = bits[:, None] + np.arange(-25, 25, dtype=np.int32)
    far = np.float32([0.0, -0.0, 1e-45, -1e-45, 1e-20, 3e38, -3e38, np.inf, -np.inf])
    found = np.concatenate([near.reshape(-1).view(np.float32), far])
    return np.resize(found, SIZE)


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("made", [quantizing, in_runs, in_narrow_runs], ids=MADE)
def test_quotients_next_to_ties(made: Callable[[int], tir.PrimFunc], target: Target) -> None:
    func = made(SIZE)
    shape = func.inputs[0].shape
    native, rng = Native(func, target), np.random.default_rng(0)
    longest = 2 - 2.0**-23
    scales = [1.0, 1.5, 1 + 2.0**-23, longest, longest * 2.0**-60, 2.0**60, 0.0234567]
    scales += np.ldexp(1 + rng.random(20), rng.integers(-60, 60, 20)).tolist()
    for scale in np.array(scales, np.float32):
        x, zero = next_to_ties(scale).reshape(shape), int(rng.integers(0, 256))
        found = native({"x": x, "scale": scale, "zero": np.uint8(zero)})["y"]
        np.testing.assert_array_equal(found, divided(x, scale, zero))


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize(
    "scale", [2.0**-61, 2.0**61, 1e-40, 1e-45, 3e38, np.inf, -0.5, -(2.0**-70)]
)
def test_other_scales_divide(scale: float, target: Target) -> None:
    x = next_to_ties(np.float32(1 if np.isinf(scale) else scale))
    # An infinity by an infinity is NaN, which may become any integer.
    x = np.where(np.isinf(x) & np.isinf(scale), np.float32(0), x)
    for func in (quantizing(SIZE), in_runs(SIZE), in_narrow_runs(SIZE)):
        given = {"x": x.reshape(func.inputs[0].shape), "scale": np.float32(scale)}
        found = Native(func, target)({**given, "zero": np.uint8(3)})["y"]
        np.testing.assert_array_equal(found, divided(given["x"], given["scale"], 3))


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("made", [quantizing, in_runs, in_narrow_runs], ids=MADE)
def test_magnitudes_are_bounded_from_above_alone(
    made: Callable[[int], tir.PrimFunc], target: Target
) -> None:
    """Usual scales and others, zero points that leave no room, and one below the bounds."""
    native, shape = Native(of_magnitudes(made(SIZE)), target), made(SIZE).inputs[0].shape
    for scale in np.float32([1, 0.0234567, 2.0**-60, 2.0**60, 1e-40, 2.0**61, -0.5]):
        x = next_to_ties(scale).reshape(shape)
        for zero in (0, 3, 255):
            found = native({"x": x, "scale": scale, "zero": np.uint8(zero)})["y"]
            np.testing.assert_array_equal(found, divided(np.abs(x), scale, zero))


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize("of", ["abs(x[i, v])", "x[i, v]"])
def test_any_nan_becomes_a_number_of_a_byte(of: str, target: Target) -> None:
    """Signalling ones too; a reader of the byte as a word may look it up in a table."""
    whole = f"round({of} / s[()])"
    above = f"select(data({whole} > f32(255.0)), f32(255.0), {whole})"
    byte = f"cast(u8, select(data({whole} < f32(0.0)), f32(0.0), {above}))"
    func = tir.parse(f"""
    @primfunc
    def k(x: f32[256, 16], s: f32[()], y: out[i32[256, 16]]):
        for i in serial(0, 256):
            for v in vectorized(0, 16):
                y[i, v] = cast(i32, {byte})
    """)
    codes = np.random.default_rng(0).integers(0x7F800001, 1 << 31, (256, 16)).astype(np.uint32)
    codes[::2] |= np.uint32(1 << 31)
    native, nothing = Native(func, target), codes.view(np.float32)
    for x, scale in ((nothing, 0.01), (nothing, np.nan), (np.ones_like(nothing), np.nan)):
        found = native({"x": x, "s": np.float32(scale)})["y"]
        assert found.min() >= 0 and found.max() <= 255
    # The low bits of a scale that is no number are not those of an integer.
    for scale in nothing[:40, 0]:
        for x in (nothing, np.ones_like(nothing)):
            found = native({"x": x, "s": scale})["y"]
            assert found.min() >= 0 and found.max() <= 255


def test_a_magnitude_is_bounded_by_one_instruction() -> None:
    made = in_runs(1 << 10)
    assert "vrangeps" in emit_assembly(of_magnitudes(made), "k", PROCESSORS["icelake-server"])
    assert "vrangeps" not in emit_assembly(made, "k", PROCESSORS["icelake-server"])


def test_vectors_are_tested_and_joined_under_masks() -> None:
    """No test, and no byte, is merged with those before by an instruction of its own."""
    lines = emit_assembly(in_runs(1 << 10), "k", with_features(f",+{VBMI}")).splitlines()
    assert sum("vptestmd" in line and "{%k" in line for line in lines) >= 3
    assert sum("vpmultishiftqb" in line and "{%k" in line for line in lines) == 3
    assert not any("korw" in line or "vpermt2w" in line for line in lines)


@pytest.mark.parametrize("more, once", [(f",+{VBMI}", "vpmultishiftqb"), ("", "vpternlogd")])
def test_four_vectors_become_one_of_bytes(more: str, once: str) -> None:
    target = with_features(more)
    text = emit_assembly(in_runs(1 << 10), "k", target)
    assert once in text
    assert once not in emit_assembly(quantizing(1 << 10), "k", target)


def test_avx2_stores_each_vector() -> None:
    runs, apart = (
        emit_assembly(f(1 << 10), "k", PROCESSORS["zen3"]) for f in (in_runs, quantizing)
    )
    assert runs.count("vroundps") == 4 * apart.count("vroundps")


@pytest.mark.parametrize("less", [None, "0", "128", "255", "zero"])
@pytest.mark.parametrize("magnitudes", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_words_are_bytes_less_a_number(less: str | None, magnitudes: bool, dtype: str) -> None:
    """Next to ties, for usual scales and others, and of NaN within the bounds."""
    func, low = in_words(SIZE, less, dtype), np.iinfo(dtype).min
    func = of_magnitudes(func) if magnitudes else func
    native, shape = Native(func, avx2_target()), func.inputs[0].shape
    for scale in np.float32([1, 0.0234567, 2.0**-60, 2.0**60, 1e-40, 2.0**61]):
        x = next_to_ties(scale).reshape(shape)
        for steps in (0, 1, 127, 255):
            zero = steps + low
            found = native({"x": x, "scale": scale, "zero": np.array(zero, dtype)})["y"]
            number = zero if less == "zero" else int(less or 0)
            # Signed bytes are unsigned ones of another zero point.
            octets = divided(np.abs(x) if magnitudes else x, scale, steps).astype(np.int16)
            np.testing.assert_array_equal(found, octets + low - number)
            nothing = np.full(shape, np.nan, np.float32)
            found = native({"x": nothing, "scale": scale, "zero": np.array(zero, dtype)})["y"]
            assert found.min() >= low - number and found.max() <= 255 + low - number


def test_avx2_joins_vectors_of_8() -> None:
    """Four of bytes, or two of words, are tested together and stored as one."""
    zen3 = PROCESSORS["zen3"]
    octets = emit_assembly(in_narrow_runs(1 << 10), "k", zen3)
    assert octets.count("vtestps") == 1 and octets.count("vpblendvb") == 2
    for dtype in ("uint8", "int8"):
        words = emit_assembly(in_words(1 << 10, "128", dtype), "k", zen3)
        assert words.count("vtestps") == 2 and words.count("vpblendw") == 2
    assert "vpblendvb" not in emit_assembly(in_words(1 << 10, None), "k", zen3)


def test_words_of_avx512_stay_apart() -> None:
    text = emit_assembly(in_words(1 << 10, "3"), "k", PROCESSORS["skylake-server"])
    assert "vpblendw" not in text


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_runs_have_one_scale(axis: int) -> None:
    """Where vectors or lanes have scales of their own, vectors stay apart."""
    shape = (8, 4, 16)
    func = quantized.quantize_elements(
        shape, "float32", (shape[axis],), "uint8", axis=axis, zero_shape=None
    )
    _, vectors, lanes = (str(loop.var) for loop in tir.loops_of(func.body))
    func = Schedule.of(func).apply(mark_unrolled, vectors).apply(vectorize_loop, lanes).func
    runs = next(loop for loop in tir.loops_of(func.body) if str(loop.var) == vectors)
    assert (quotient_runs(runs) is not None) == (axis == 0)
    x = next_to_ties(np.float32(1))[: 8 * 4 * 16].reshape(shape)
    scale = np.linspace(0.5, 2, shape[axis], dtype=np.float32)
    found = Native(func, host_target())({"x": x, "scale": scale})["y"]
    wide = np.expand_dims(scale, [k for k in range(3) if k != axis])
    np.testing.assert_array_equal(found, divided(x, wide, 0))
