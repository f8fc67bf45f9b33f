"""Sums of products of bytes in lanes whose order is another: the results are the same."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, emit_assembly, host_target, instruction
from graphflow.codegen.transposed_sums import LANE_ORDER, transposed_sums
from graphflow.tir import interpret
from support.native import Native

PRODUCT = instruction("byte_product16")
VNNI = PROCESSORS["cascadelake-server"]

SUMS = """
@primfunc
def k(x: u8[9, 2, 16], w: i8[9, 2, 16], first: i32[2, 16], y: out[i32[2, 16]]):
    total = alloc(i32[2, 16], register)
    for i in unrolled(0, 2):
        for v in vectorized(0, 16):
            total[i, v] = first[i, v] - i32(7)
    for k in serial(0, 9):
        for i_u in unrolled(0, 2):
            byte_product16(total[i_u, 0:16], x[k, i_u, 0:16], w[k, i_u, 0:16])
"""

LOOPS = """
    for i_t in unrolled(0, 2):
        for v_t in vectorized(0, 16):
            y[i_t, v_t] = {stored}
"""

LANE_BY_LANE = [
    """
    for i_t in unrolled(0, 2):
        for v_t in vectorized(0, 16):
            own = alloc(i32[1], register)
            own[0] = {stored}
            y[i_t, v_t] = own[0]
    """,
    """
    for v_t in vectorized(0, 16):
        for i_t in vectorized(0, 2):
            y[i_t, v_t] = {stored}
    """,
    """
    for i_t in unrolled(0, 2):
        for v_t in vectorized(0, 16):
            y[i_t, v_t] = i32(0)
            for q in serial(0, v_t):
                y[i_t, v_t] += {stored}
    """,
]
"""Loops over lanes that are emitted one by one."""


def with_products(stored: str, loops: str = LOOPS) -> tir.PrimFunc:
    """A kernel that adds up products in registers, and stores what is computed of the sums."""
    definition = tir.to_text(PRODUCT).replace("@primfunc", "@instruction")
    return tir.parse(f"{definition}\n{SUMS}{loops.format(stored=stored)}")


def arrays() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {
        "x": random.integers(0, 256, (9, 2, 16)).astype(np.uint8),
        "w": random.integers(-128, 128, (9, 2, 16)).astype(np.int8),
        "first": random.integers(-1000, 1000, (2, 16)).astype(np.int32),
    }


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_results_are_the_same(target: Target) -> None:
    func = with_products("total[i_t, v_t] + first[i_t, v_t]")
    assert transposed_sums(func, PRODUCT) == {"total"}
    given = arrays()
    np.testing.assert_array_equal(Native(func, target)(given)["y"], interpret(func, given)["y"])


@pytest.mark.parametrize(
    "stored", ["total[i_t, 15 - v_t]", "total[i_t, 0]", "total[0, v_t] + total[1, 3]"]
)
def test_other_accesses_keep_the_order(stored: str) -> None:
    func = with_products(stored)
    assert transposed_sums(func, PRODUCT) == frozenset()
    given = arrays()
    np.testing.assert_array_equal(
        Native(func, host_target())(given)["y"], interpret(func, given)["y"]
    )


@pytest.mark.parametrize("loops", LANE_BY_LANE)
def test_loops_of_single_lanes_keep_the_order(loops: str) -> None:
    func = with_products("total[i_t, v_t]", loops)
    given = arrays()
    np.testing.assert_array_equal(
        Native(func, host_target())(given)["y"], interpret(func, given)["y"]
    )


def test_no_byte_is_widened() -> None:
    text = emit_assembly(with_products("total[i_t, v_t]"), "k", VNNI)
    assert "vbroadcasti32x4" in text and "vpmovzxbd" not in text


def test_the_order_is_its_own_inverse() -> None:
    assert [LANE_ORDER[lane] for lane in LANE_ORDER] == [*range(16)]
