"""Maxima of what is above zero: those of floats, with NaN, infinities and zeros of both signs."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, emit_assembly, host_target
from graphflow.codegen.heights import above_zero, height_of, with_signs_beside
from graphflow.codegen.magnitudes import magnitude_buffers
from graphflow.tir import interpret, parse
from support.native import Native

TARGETS = (host_target(), avx2_target())
SPECIAL = np.float32(
    [0.0, -0.0, 1e-45, -1e-45, 7.5, -9.5, 3e38, -3e38, np.inf, -np.inf, np.nan, -np.nan]
)

HEIGHT = "abs(select(data(x[i, lane] < f32(0.0)), f32(0.0), x[i, lane]))"
IN_LANES = f"""
@primfunc
def kernel(x: f32[5, 16], y: out[f32[()]], z: out[f32[16]]):
    lanes = alloc(f32[16], register)
    for clear in vectorized(0, 16):
        lanes[clear] = f32(-inf)
    for i in serial(0, 5):
        for lane in vectorized(0, 16):
            reduce_max(lanes[lane], {HEIGHT})
    y[()] = f32(-inf)
    for last in vectorized(0, 16):
        reduce_max(y[()], lanes[last])
    for out in vectorized(0, 16):
        z[out] = lanes[out]
"""


def kernel(text: str = IN_LANES) -> tir.PrimFunc:
    return parse(text)


def names(func: tir.PrimFunc) -> dict[str, str]:
    """The buffers of maxima, and those beside them."""
    _, beside = with_signs_beside(func, magnitude_buffers(func))
    return {maxima.name: signs.name for maxima, signs in beside.items()}


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize(
    "text",
    [
        IN_LANES,
        IN_LANES.replace("serial(0, 5)", "serial(0, 0)"),
        IN_LANES.replace("lane in vectorized(0, 16)", "lane in vectorized(0, 11)"),
        IN_LANES.replace(f"reduce_max(lanes[lane], {HEIGHT})", f"reduce_max(lanes[3], {HEIGHT})"),
    ],
    ids=["full", "no rows", "some lanes", "one element"],
)
def test_maxima_of_any_floats(target: Target, text: str) -> None:
    func = kernel(text)
    rng, native = np.random.default_rng(0), Native(func, target)
    assert names(func) == {"lanes": "lanes_signs"}
    for some in (SPECIAL, SPECIAL[:-2], SPECIAL[:6], SPECIAL[[1, 3, 5]], SPECIAL[[1, 5, 11]]):
        for _ in range(10):
            x = rng.choice(some, (5, 16))
            found, want = native({"x": x}), interpret(func, {"x": x})
            for name in ("y", "z"):
                np.testing.assert_array_equal(found[name], want[name])
                numbers = ~np.isnan(want[name])
                signs = np.signbit(found[name]), np.signbit(want[name])
                assert (signs[0] == signs[1])[numbers].all()


def test_the_kernel_with_both_buffers_says_the_same_of_numbers() -> None:
    """Of what is interpreted, as the emitter takes the maxima of bits."""
    func = kernel()
    changed, _ = with_signs_beside(func, magnitude_buffers(func))
    tir.verify(changed, "lowered")
    x = np.random.default_rng(0).choice(SPECIAL, (5, 16))
    for name, want in interpret(func, {"x": x}).items():
        np.testing.assert_array_equal(interpret(changed, {"x": x})[name], want)


def test_they_take_two_instructions_for_each_vector() -> None:
    for target in TARGETS:
        body = emit_assembly(kernel(), "kernel", target)
        assert "vpmaxsd" in body and "vpmaxud" in body and "vmaxps" not in body


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (HEIGHT, "abs(x[i, lane])"),
        (HEIGHT, HEIGHT.replace("< f32(0.0)", "< f32(1.0)")),
        (HEIGHT, HEIGHT.replace("f32(0.0), x", "f32(1.0), x")),
        (HEIGHT, HEIGHT.replace("f32(0.0), x[i, lane]", "x[i, lane], f32(0.0)")),
        ("reduce_max(lanes[lane]", "reduce_min(lanes[lane]"),
        ("lanes[clear] = f32(-inf)", "lanes[clear] = abs(x[0, clear])"),
        ("f32[16], register", "f32[16], scratch"),
    ],
)
def test_what_holds_other_numbers_has_nothing_beside_it(old: str, new: str) -> None:
    assert not names(kernel(IN_LANES.replace(old, new)))


def test_a_height_and_what_it_is_of() -> None:
    (value,) = (s.value for s in tir.walk(kernel().body) if isinstance(s, tir.Reduce) and s.indices)
    assert isinstance(value, tir.Unary)
    assert height_of(value) == above_zero(value.operand)
    assert height_of(value.operand) is None and above_zero(value) is None
