"""Instructions for dot products with weights of a few bits: they compute what their definitions
say, for all bytes."""

import numpy as np
import pytest

from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target, instruction
from graphflow.codegen.emit import emit_ir
from graphflow.codegen.packed_weight_products import packed_weight_products
from graphflow.tir import interpret, parse, to_text
from support.native import Native

HOST = host_target()
WITHOUT_VNNI = replace(HOST, features=HOST.features.replace("+avx512vnni", "-avx512vnni"))
TARGETS = (HOST, WITHOUT_VNNI, avx2_target())
NAMES = [one.definition.name for one in packed_weight_products()]


@pytest.mark.parametrize("target", TARGETS, ids=["host", "without VNNI", "avx2"])
@pytest.mark.parametrize("name", NAMES)
def test_products_of_all_bytes(name: str, target: Target) -> None:
    """With each byte of weights beside the bytes of data of the largest magnitude, whose products a
    saturating sum would not hold."""
    lanes = instruction(name).param("c").size
    definition = to_text(instruction(name)).replace("@primfunc", "@instruction")
    func = parse(f"""{definition}

@primfunc
def k(a: i8[16, 4], b: u8[16, {lanes}, 4], c: out[i32[16, {lanes}]]):
    for row in serial(0, 16):
        for lane in serial(0, {lanes}):
            c[row, lane] = i32(7)
        {name}(c[row, 0:{lanes}], a[row, 0:4], b[row, 0:{lanes}, 0:4])
""")
    random = np.random.default_rng(0)
    a = random.integers(-128, 128, (16, 4)).astype("int8")
    a[:2], a[2:4] = -128, 127
    b = np.resize(np.arange(256, dtype="uint8"), (16, lanes, 4))
    b[:4:2] = 255
    arrays = {"a": a, "b": b}
    np.testing.assert_array_equal(Native(func, target)(arrays)["c"], interpret(func, arrays)["c"])


@pytest.mark.parametrize(("target", "operation"), [(HOST, "vpdpbusd"), (TARGETS[2], "pmadd.ub.sw")])
def test_weights_of_half_a_byte_meet_the_instructions_of_the_target(
    target: Target, operation: str
) -> None:
    if operation == "vpdpbusd" and "+avx512vnni" not in target.features:
        pytest.skip("the host has no such instruction")
    lanes = target.computed_lanes("int32")
    name = f"{'' if operation == 'vpdpbusd' else 'split_'}weight_dot4_1_{lanes}"
    definition = to_text(instruction(name)).replace("@primfunc", "@instruction")
    func = parse(f"""{definition}

@primfunc
def k(a: i8[4], b: u8[{lanes}, 4], c: inout[i32[{lanes}]]):
    {name}(c[0:{lanes}], a[0:4], b[0:{lanes}, 0:4])
""")
    assert operation in emit_ir(func, "k", target)
