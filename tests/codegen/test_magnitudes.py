"""Maxima of magnitudes: as maxima of floats, with NaN, infinities and zeros of both signs."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, emit_assembly, host_target
from graphflow.codegen.magnitudes import magnitude_buffers
from graphflow.tir import parse
from support.native import Native

TARGETS = (host_target(), avx2_target())
SPECIAL = np.float32([0.0, -0.0, 1e-45, -1e-45, 7.5, -9.5, np.inf, -np.inf, np.nan, -np.nan])

IN_LANES = """
@primfunc
def kernel(x: f32[7, 16], y: out[f32[()]], z: out[f32[16]]):
    lanes = alloc(f32[16], register)
    for clear in vectorized(0, 16):
        lanes[clear] = f32(-inf)
    for i in serial(0, 7):
        for lane in vectorized(0, 16):
            reduce_max(lanes[lane], abs(x[i, lane]))
    y[()] = f32(-inf)
    for last in vectorized(0, 16):
        reduce_max(y[()], lanes[last])
    for out in vectorized(0, 16):
        z[out] = lanes[out]
"""


def kernel(text: str = IN_LANES) -> tir.PrimFunc:
    return parse(text)


def names(func: tir.PrimFunc) -> list[str]:
    return sorted(buffer.name for buffer in magnitude_buffers(func))


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
def test_maxima_of_any_floats(target: Target) -> None:
    rng, native = np.random.default_rng(0), Native(kernel(), target)
    for rare in (SPECIAL, SPECIAL[:-2], SPECIAL[:2]):
        for _ in range(20):
            x = rng.choice(rare, (7, 16))
            found = native({"x": x})
            np.testing.assert_array_equal(found["z"], np.abs(x).max(0))
            np.testing.assert_array_equal(found["y"], np.abs(x).max())
            assert not np.signbit(found["z"]).any()


def test_they_take_one_instruction_for_each_vector() -> None:
    assert names(kernel()) == ["lanes", "y"]
    for target in TARGETS:
        text = emit_assembly(kernel(), "kernel", target)
        assert "vpmaxsd" in text and "vcmpunordps" not in text


BEHIND_TILES = """
@primfunc
def kernel(x: f32[32, 16], y: out[f32[48, 16]], z: out[f32[16]]):
    lanes = alloc(f32[16], register)
    for clear in vectorized(0, 16):
        lanes[clear] = f32(-inf)
    for i in unrolled(0, 24):
        for lane in vectorized(0, 16):
            y[i, lane] = x[i, lane] * x[i + 1, lane]
            reduce_max(lanes[lane], abs(x[i, lane] * x[i + 1, lane]))
    for j in serial(0, 24):
        for lane2 in vectorized(0, 16):
            y[j + 24, lane2] = x[j, lane2] + x[j + 1, lane2]
    for fold in vectorized(0, 16):
        z[fold] = lanes[fold]
"""


@pytest.mark.parametrize(("processor", "lanes"), [("icelake-server", 16), ("zen3", 8)])
def test_they_are_computed_where_they_are_written(processor: str, lanes: int) -> None:
    """LLVM would move them to where they are read, and keep what they are maxima of until then."""
    func = kernel(BEHIND_TILES.replace("16", str(lanes)))
    lines = emit_assembly(func, "kernel", PROCESSORS[processor]).splitlines()
    maxima = [i for i, line in enumerate(lines) if "vpmaxsd" in line]
    sums = [i for i, line in enumerate(lines) if "vaddps" in line]
    assert maxima and max(maxima) < min(sums)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("abs(x[i, lane])", "x[i, lane]"),
        ("reduce_max(lanes[lane]", "reduce_min(lanes[lane]"),
        ("lanes[clear] = f32(-inf)", "lanes[clear] = f32(-1.0)"),
        ("lanes[clear] = f32(-inf)", "lanes[clear] = x[0, clear]"),
    ],
)
def test_what_may_hold_other_numbers_is_a_maximum_of_floats(old: str, new: str) -> None:
    """Then `y`, a maximum of these, is none of magnitudes either."""
    assert not names(kernel(IN_LANES.replace(old, new)))


def test_other_types_and_buffers_of_callers_are_maxima_of_floats() -> None:
    assert not names(kernel(IN_LANES.replace("f32", "f64")))
    assert names(kernel(IN_LANES.replace("y: out[f32[()]]", "y: inout[f32[()]]"))) == ["lanes"]
