"""Products of bytes in lanes that share dot products: the results are the same."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS, VBMI
from graphflow.codegen import avx2_target, emit_assembly, host_target, instruction
from graphflow.codegen.instruction_set import shares_dot_products
from graphflow.codegen.statements.lane_products import BY_LANES, adds_products
from graphflow.codegen.transposed_sums import LANE_ORDER
from graphflow.tir import interpret
from support.native import Native

PRODUCT = instruction("byte_product16")
SHARING = replace(host_target(), sums_per_cycle=2.0, fmas_per_cycle=1.0)
"""The host with units beside those that multiply; without vpermb products stay alone."""

ZEN4, CASCADE_LAKE = (
    replace(one, features=f"{one.features},+{VBMI}")
    for one in (PROCESSORS["zen4"], PROCESSORS["cascadelake-server"])
)
"""With an instruction more than their names promise."""

ROWS, PLACES = 5, 20


def convolution(taps: int, stride: int, before: int, across: str) -> tir.PrimFunc:
    """Three rows of taps along 20 places of 32 channels, of which those `before` the first one and
    behind the last one are left out."""
    definition = tir.to_text(PRODUCT).replace("@primfunc", "@instruction")
    place = f"{stride}*o + kw - {before}"
    return tir.parse(f"""{definition}
@primfunc
def k(x: u8[3, {PLACES}, 32], w: i8[3, {taps}, 32], first: i32[32], y: out[i32[{ROWS}, 32]]):
    total = alloc(i32[{ROWS}, 2, 16], register)
    for i in unrolled(0, {ROWS}):
        for j in unrolled(0, 2):
            for v in vectorized(0, 16):
                total[i, j, v] = first[16*j + v]
    for kh in {across}(0, 3):
        for kw in unrolled(0, {taps}):
            for o in unrolled(0, {ROWS}):
                if {place} >= 0:
                    if {place} < {PLACES}:
                        for p in unrolled(0, 2):
                            byte_product16(total[o, p, 0:16], x[kh, {place}, 16*p:16*p + 16],
                                           w[kh, kw, 16*p:16*p + 16])
    for i_t in unrolled(0, {ROWS}):
        for j_t in unrolled(0, 2):
            for v_t in vectorized(0, 16):
                y[i_t, 16*j_t + v_t] = total[i_t, j_t, v_t]
""")


def arrays(taps: int, extremes: bool) -> dict[str, np.ndarray]:
    """Bytes of all values, or of the ends of their types alone."""
    random = np.random.default_rng(taps)
    data = [0, 1, 127, 128, 255] if extremes else [*range(256)]
    weights = [-128, -127, -1, 0, 127] if extremes else [*range(-128, 128)]
    return {
        "x": random.choice(data, (3, PLACES, 32)).astype(np.uint8),
        "w": random.choice(weights, (3, taps, 32)).astype(np.int8),
        "first": random.integers(-(2**31), 2**31, 32).astype(np.int32),
    }


@pytest.mark.parametrize("extremes", [False, True])
@pytest.mark.parametrize("across", ["serial", "unrolled"])
@pytest.mark.parametrize(
    "taps, stride, before",
    [(2, 1, 0), (3, 1, 1), (3, 2, 1), (3, 1, 2), (4, 1, 0), (5, 1, 2), (5, 2, 2), (7, 3, 3)],
)
def test_results_are_the_same(
    taps: int, stride: int, before: int, across: str, extremes: bool
) -> None:
    func, given = convolution(taps, stride, before, across), arrays(taps, extremes)
    wanted = interpret(func, given)["y"]
    for target in (SHARING, avx2_target()):
        np.testing.assert_array_equal(Native(func, target)(given)["y"], wanted)


def test_bytes_that_a_sum_meets_twice_are_multiplied_apart() -> None:
    """Two products of a sum with the bytes of one place have two weights."""
    func = convolution(4, 0, 0, "serial")
    given = arrays(4, False)
    np.testing.assert_array_equal(Native(func, SHARING)(given)["y"], interpret(func, given)["y"])


def test_weights_that_are_written_anew_are_read_anew() -> None:
    """Weights of two rows lie in one memory, one row after the other."""
    definition = tir.to_text(PRODUCT).replace("@primfunc", "@instruction")
    func = tir.parse(f"""{definition}
@primfunc
def k(x: u8[2, 3, 16], w: i8[2, 3, 16], y: out[i32[16]]):
    total = alloc(i32[1, 16], register)
    row = alloc(i8[3, 16], scratch)
    for v in vectorized(0, 16):
        total[0, v] = i32(0)
    for r in unrolled(0, 2):
        for kr in unrolled(0, 3):
            for u in vectorized(0, 16):
                row[kr, u] = w[r, kr, u]
        for kw in unrolled(0, 3):
            byte_product16(total[0, 0:16], x[r, kw, 0:16], row[kw, 0:16])
    for v_t in vectorized(0, 16):
        y[v_t] = total[0, v_t]
""")
    random = np.random.default_rng(0)
    given = {
        "x": random.integers(0, 256, (2, 3, 16)).astype(np.uint8),
        "w": random.integers(-128, 128, (2, 3, 16)).astype(np.int8),
    }
    np.testing.assert_array_equal(Native(func, SHARING)(given)["y"], interpret(func, given)["y"])


def test_three_taps_take_one_dot_product() -> None:
    """Five rows of two vectors: ten sums, whose thirty products are ten dot products."""
    func = convolution(3, 1, 0, "serial")
    text = emit_assembly(func, "k", ZEN4)
    assert text.count("vpdpbusd") == 10 and "vperm" in text
    assert emit_assembly(func, "k", CASCADE_LAKE).count("vpdpbusd") == 30


def test_processors_that_share_them() -> None:
    """Where the units that multiply also shuffle, three products take as long apart."""
    assert shares_dot_products(ZEN4)
    assert not shares_dot_products(PROCESSORS["zen4"]), "no vpermb is promised"
    assert not shares_dot_products(CASCADE_LAKE)


def test_nests_of_products() -> None:
    func = convolution(3, 1, 1, "unrolled")
    nests = [loop for loop in tir.loops_of(func.body) if adds_products(loop, PRODUCT)]
    assert {str(loop.var) for loop in nests} >= {"kh", "kw", "o", "p"}
    assert not {str(loop.var) for loop in nests} & {"i", "j", "v", "i_t", "j_t", "v_t"}


def test_lanes_have_the_bytes_of_four_products() -> None:
    assert sorted(BY_LANES) == [*range(64)]
    assert BY_LANES[:8] == [0, 16, 32, 48, *(LANE_ORDER[1] + 16 * k for k in range(4))]
