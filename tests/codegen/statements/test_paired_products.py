"""Products of integers in lanes of which two share a multiplication: the results are the same."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.codegen import avx2_target, emit_assembly, instruction
from graphflow.codegen.instruction_set import paired_products
from graphflow.codegen.statements.paired_products import product_to_pair
from graphflow.tir import interpret
from support.native import Native

AVX2 = avx2_target()
HASWELL = PROCESSORS["haswell"]
ROWS, HEIGHT, WIDTH, CHANNELS = 6, 9, 20, 24
NUMBERS = {"u8": (0, 255), "i16": (-(2**15), 2**15 - 1)}


def convolution(data: str, taps: int, stride: int, before: int, kind: str = "parallel") -> str:
    """The text of a kernel: windows of `taps` by `taps` along rows of six sums, of which those
    `before` the first element and behind the last one are left out."""
    definition = tir.to_text(instruction(f"{data}_product8")).replace("@primfunc", "@instruction")
    begin = f"max({before} - {stride}*r, 0)"
    end = f"min({HEIGHT} + {before} - {stride}*r, {taps})"
    high = (HEIGHT + 2 * before - taps) // stride + 1
    place = f"{stride}*o + kw - {before}"
    return f"""{definition}
@primfunc
def k(x: {data}[{HEIGHT}, {WIDTH}, {CHANNELS}], w: i16[{taps}, {taps}, {CHANNELS}],
      first: i32[{CHANNELS}], y: out[i32[{high}, {ROWS}, {CHANNELS}]]):
    for r in {kind}(0, {high}):
        for g in serial(0, {CHANNELS // 8}):
            total = alloc(i32[{ROWS}, 8], register)
            for i in unrolled(0, {ROWS}):
                for v in vectorized(0, 8):
                    total[i, v] = first[8*g + v]
            for kh in serial({begin}, {end}):
                for kw in unrolled(0, {taps}):
                    for o in unrolled(0, {ROWS}):
                        if {place} >= 0:
                            if {place} < {WIDTH}:
                                {data}_product8(total[o, 0:8],
                                    x[{stride}*r + kh - {before}, {place}, 8*g:8*g + 8],
                                    w[kh, kw, 8*g:8*g + 8])
            for t in unrolled(0, {ROWS}):
                for u in vectorized(0, 8):
                    y[r, t, 8*g + u] = total[t, u]
"""


def arrays(data: str, taps: int, extremes: bool) -> dict[str, np.ndarray]:
    """Numbers of the whole types, or of their ends alone."""
    random = np.random.default_rng(taps)
    low, high = NUMBERS[data]
    given = [low, low + 1, 127, 128, high] if extremes else [*range(low, high + 1)]
    weights = [-(2**15), -1, 0, 2**15 - 1] if extremes else [*range(-255, 256)]
    dtype = np.uint8 if data == "u8" else np.int16
    return {
        "x": random.choice(given, (HEIGHT, WIDTH, CHANNELS)).astype(dtype),
        "w": random.choice(weights, (taps, taps, CHANNELS)).astype(np.int16),
        "first": random.integers(-(2**31), 2**31, CHANNELS).astype(np.int32),
    }


@pytest.mark.parametrize("extremes", [False, True])
@pytest.mark.parametrize("data", ["u8", "i16"])
@pytest.mark.parametrize(
    "taps, stride, before", [(2, 1, 0), (3, 1, 1), (3, 2, 1), (3, 1, 2), (3, 3, 0), (5, 1, 2)]
)
def test_results_are_the_same(
    data: str, taps: int, stride: int, before: int, extremes: bool
) -> None:
    func, given = tir.parse(convolution(data, taps, stride, before)), arrays(data, taps, extremes)
    wanted = interpret(func, given)["y"]
    rows = ((0, 1), (1, len(wanted)))
    np.testing.assert_array_equal(Native(func, AVX2)(given, rows)["y"], wanted)


def test_rows_within_the_image_have_code_of_their_own() -> None:
    """Six sums of nine taps: five multiplications each, in place of nine; and the loop over one row
    of three taps, two each.  A sum at the left border has two taps in a row."""
    text = emit_assembly(tir.parse(convolution("u8", 3, 1, 1)), "k", HASWELL)
    assert text.count("vpmaddwd") == 5 * 5 + 3 + 5 * 2 + 1
    serial = emit_assembly(tir.parse(convolution("u8", 3, 1, 1, "serial")), "k", HASWELL)
    assert serial.count("vpmaddwd") == text.count("vpmaddwd")


def test_windows_without_borders_have_no_other_code() -> None:
    text = emit_assembly(tir.parse(convolution("i16", 3, 1, 0)), "k", HASWELL)
    assert text.count("vpmaddwd") == 6 * 5


def test_many_taps_are_paired_along_a_row_alone() -> None:
    """All products of 49 taps and six sums would be too much code."""
    text = emit_assembly(tir.parse(convolution("u8", 7, 1, 0)), "k", HASWELL)
    assert text.count("vpmaddwd") == 6 * 4


def test_bytes_that_a_sum_meets_twice_and_weights_of_two_sums() -> None:
    """With a stride of 0 all sums read the same, and pairs have one place twice."""
    definition = tir.to_text(instruction("u8_product8")).replace("@primfunc", "@instruction")
    func = tir.parse(f"""{definition}
@primfunc
def k(x: u8[8], w: i16[3, 8], y: out[i32[2, 8]]):
    total = alloc(i32[2, 8], register)
    for i in unrolled(0, 2):
        for v in vectorized(0, 8):
            total[i, v] = i32(0)
    for kw in unrolled(0, 3):
        for o in unrolled(0, 2):
            u8_product8(total[o, 0:8], x[0:8], w[kw, 0:8])
            u8_product8(total[o, 0:8], x[0:8], w[kw, 0:8], name="again")
    for t in unrolled(0, 2):
        for u in vectorized(0, 8):
            y[t, u] = total[t, u]
""")
    random = np.random.default_rng(0)
    given = {
        "x": random.integers(0, 256, 8).astype(np.uint8),
        "w": random.integers(-128, 128, (3, 8)).astype(np.int16),
    }
    np.testing.assert_array_equal(Native(func, AVX2)(given)["y"], interpret(func, given)["y"])


def test_sums_in_memory_stay_as_they_are() -> None:
    func = tir.parse(convolution("u8", 3, 1, 1).replace(", register)", ", scratch)"))
    given = arrays("u8", 3, False)
    wanted = interpret(func, given)["y"]
    np.testing.assert_array_equal(Native(func, AVX2)(given, ((0, len(wanted)),))["y"], wanted)
    assert emit_assembly(func, "k", HASWELL).count("vpmaddwd") == 3 * 5 + 2


def test_targets_that_pair_products() -> None:
    assert [one.name for one in paired_products(HASWELL)] == ["u8_product8", "i16_product8"]
    assert paired_products(PROCESSORS["zen4"]) == ()
    assert paired_products(replace(HASWELL, features="+fma")) == ()


def test_bodies_of_products() -> None:
    func, products = tir.parse(convolution("u8", 3, 1, 1)), paired_products(HASWELL)
    (inner,) = (loop for loop in tir.loops_of(func.body) if str(loop.var) == "kh")
    found = product_to_pair(inner.body, products)
    assert found is not None and found.name == "u8_product8"
    assert product_to_pair((), products) is None and product_to_pair(inner.body, ()) is None
    assert product_to_pair(func.body, products) is None


@pytest.mark.parametrize("zero", [0, 1, 127, 128, 255])
@pytest.mark.parametrize(
    "stride, side, channels, taps", [(1, 7, 20, 3), (2, 10, 40, 3), (1, 9, 8, 5)]
)
def test_depthwise_convolutions_are_exact(
    zero: int, stride: int, side: int, channels: int, taps: int
) -> None:
    """With borders, channels that fill no vector, padding that holds anything, and bytes of each
    value."""
    random = np.random.default_rng(zero)
    x = random.choice([0, 1, 127, 128, 255, zero], (1, channels, side, side)).astype(np.uint8)
    w = random.choice([-128, -127, -1, 0, 5, 127], (channels, 1, taps, taps)).astype(np.int8)
    pads = [taps // 2] * 4
    given = {"w": w, "z": np.array(zero, np.uint8)}
    attributes = {"group": channels, "strides": [stride, stride], "pads": pads}
    nodes = [
        helper.make_node("ConvInteger", ["x", "w", "z"], ["sum"], **attributes),
        helper.make_node("Cast", ["sum"], ["y"], to=TensorProto.FLOAT),
    ]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(a), name) for name, a in given.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    options = gf.Options(threads=1, workers=0, poison=True, fallback=None, cache="off")
    found = gf.compile(model, target=AVX2, options=options).run({"x": x}, poison=42.0)["y"]
    around = np.pad(np.int64(x) - zero, ((0, 0), (0, 0), *[(taps // 2, taps // 2)] * 2))
    windows = np.lib.stride_tricks.sliding_window_view(around, (taps, taps), (2, 3))
    wanted = np.einsum("nchwij,cij->nchw", windows[:, :, ::stride, ::stride], np.int64(w[:, 0]))
    np.testing.assert_array_equal(found, wanted)
