"""Tests of quantized operators, compiled for both targets, against ONNX's reference evaluator.

Where a processor has no dot products of bytes, onnxruntime saturates sums of two products of uint8
and int8 to 16 bits, so it is no reference for these (`test_what_onnxruntime_saturates`).
"""

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import graphflow as gf
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.codegen import avx2_target, host_target
from support.models.sized_runs import parsed_model
from support.single import noise, peer, single

TARGETS = (host_target(), avx2_target())
OPTIONS = gf.Options(workers=0, threads=1, fallback=None)


def by_reference(model: onnx.ModelProto, feeds: dict[str, Any]) -> dict[str, Any]:
    names = [info.name for info in model.graph.output]
    results = ReferenceEvaluator(model).run(None, feeds)
    return dict(zip(names, map(np.asarray, results), strict=True))


def check(
    model: onnx.ModelProto, feeds: dict[str, Any], expected: dict[str, Any] | None = None
) -> None:
    """What both targets give is what the reference evaluator gives, or what is `expected`;
    integers exactly."""
    expected = by_reference(model, feeds) if expected is None else expected
    for target in TARGETS:
        got = gf.compile(model, target=target, options=OPTIONS).run(feeds)
        for name, want in expected.items():
            assert (got[name].dtype, got[name].shape) == (want.dtype, want.shape)
            if want.dtype.kind == "f":
                np.testing.assert_allclose(got[name], want, rtol=1e-6)
            else:
                np.testing.assert_array_equal(got[name], want)


def integers(dtype: str, *shape: int, seed: int = 0) -> Any:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def scales(*shape: int, seed: int = 0) -> Any:
    return (np.abs(noise(*shape, seed=seed)) / 50 + 0.01).astype("float32")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_quantize_and_dequantize(dtype: str) -> None:
    # Halves, of which the even neighbour is nearest, and numbers beyond either end, which the
    # evaluator casts to int32.
    x = np.concatenate([np.arange(-20, 20) / 2, [1e6, -1e6, 3e38, -3e38]]).astype("float32")
    x = np.tile(x, 3).reshape(3, 44)
    zero = np.array(3, dtype)
    per_axis = {1: scales(3), 2: integers(dtype, 3)}
    for given, attributes in (
        ({1: np.float32(1), 2: zero}, {}),
        ({1: np.float32(0.37), 2: zero}, {}),
        (per_axis, {"axis": 0}),
    ):
        model = single("QuantizeLinear", [x], 21, given, **attributes)
        check(model, {"i0": x}, peer(model, {"i0": x}))
    q = integers(dtype, 3, 18)
    check(single("DequantizeLinear", [q], 21, {1: np.float32(0.37), 2: zero}), {"i0": q})
    check(single("DequantizeLinear", [q], 21, per_axis, axis=-2), {"i0": q})


def test_blocks_along_an_axis() -> None:
    x, q = noise(4, 10, 3), integers("int8", 4, 10, 3)
    blocks = {1: scales(4, 3, 3), 2: integers("int8", 4, 3, 3)}
    attributes = {"axis": 1, "block_size": 4}
    check(single("QuantizeLinear", [x], 21, blocks, **attributes), {"i0": x})
    check(single("DequantizeLinear", [q], 21, blocks, **attributes), {"i0": q})
    with pytest.raises(InvalidModel, match="does not fit a tensor of shape"):
        model = single("DequantizeLinear", [q], 21, blocks, axis=1, block_size=5)
        gf.compile(model, options=OPTIONS)


def test_weights_of_four_bits_are_dequantized() -> None:
    w = np.arange(24).reshape(4, 6).astype("int8").astype(ml_dtypes.int4)
    tensor = onnx.numpy_helper.from_array(w, "w")
    scale = onnx.numpy_helper.from_array(scales(6), "s")
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["f"], axis=1),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    infos = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", (3, 4)), ("y", (3, 6)))]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [tensor, scale])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = noise(3, 4)
    for target in TARGETS:
        got = gf.compile(model, target=target, options=OPTIONS).run({"x": x})["y"]
        np.testing.assert_allclose(got, x @ (w.astype("float32") * scales(6)), rtol=1e-5)


@pytest.mark.parametrize("shape", [(3, 20), (), (2, 3, 4), (1, 33, 45, 47)])
def test_scales_found_at_run_time(shape: tuple[int, ...]) -> None:
    for x in (noise(*shape), np.abs(noise(*shape)), -np.abs(noise(*shape)), 0 * noise(*shape)):
        x = np.asarray(x, "float32")
        model = single("DynamicQuantizeLinear", [x], 11, outputs=3)
        names = ("o0", "o1", "o2")
        kinds = (onnx.TensorProto.UINT8, onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8)
        del model.graph.output[:]
        model.graph.output.extend(
            helper.make_tensor_value_info(n, k, s)
            for n, k, s in zip(names, kinds, (shape, (), ()), strict=True)
        )
        # The evaluator has another scale for zeros; see docs/semantics.md.
        check(model, {"i0": x}, peer(model, {"i0": x}))


@pytest.mark.parametrize("special", [0.0, -3.0, 9.5, np.inf, np.nan])
def test_scales_of_what_is_never_below_zero_take_one_reduction(special: float) -> None:
    """Where NaN is among the elements, the scale is NaN, and a zero point may be any integer."""
    nodes = [
        helper.make_node("Relu", ["x"], ["v"]),
        helper.make_node("DynamicQuantizeLinear", ["v"], ["q", "scale", "zero"]),
    ]
    outputs = [
        helper.make_tensor_value_info(name, kind, shape)
        for name, kind, shape in (
            ("q", onnx.TensorProto.UINT8, (3, 20)),
            ("scale", onnx.TensorProto.FLOAT, ()),
            ("zero", onnx.TensorProto.UINT8, ()),
        )
    ]
    x_info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (3, 20))
    graph = helper.make_graph(nodes, "range", [x_info], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=10)
    x = noise(3, 20)
    x[1, 7] = special
    want = np.float32(np.maximum(x, 0).max() / np.float32(255))
    for target in TARGETS:
        exe = gf.compile(model, target=target, options=OPTIONS)
        assert not [tensor for tensor in exe.layouts if tensor.endswith("below")]
        got = exe.run({"x": x})
        np.testing.assert_array_equal(got["scale"], want)
        if np.isfinite(want):
            whole = np.clip(np.round(np.maximum(x, 0) / want), 0, 255).astype(np.uint8)
            np.testing.assert_array_equal(got["q"], whole)
            assert got["zero"] == 0


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integer_products(dtype: str) -> None:
    a, b = integers("uint8", 5, 33), integers(dtype, 33, 18, seed=1)
    check(single("MatMulInteger", [a, b], 10), {"i0": a, "i1": b})
    zeros = {2: integers("uint8"), 3: integers(dtype, 18, seed=2)}
    check(single("MatMulInteger", [a, b], 10, zeros), {"i0": a, "i1": b})
    x, w = integers("uint8", 1, 4, 7, 6), integers("uint8", 6, 2, 3, 3, seed=1)
    window = {"pads": [1, 1, 0, 1], "strides": [2, 1], "group": 2}
    model = single("ConvInteger", [x], 10, {1: w, 2: np.array(100, "uint8")}, **window)
    check(model, {"i0": x})


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantized_products(dtype: str) -> None:
    a, b = integers(dtype, 5, 33), integers(dtype, 33, 18, seed=1)
    zero = np.array(7, dtype)
    given = {
        1: np.float32(0.02), 2: zero, 3: b, 4: np.float32(0.03), 5: zero, 6: np.float32(0.9),
        7: zero,
    }  # fmt: skip
    check(single("QLinearMatMul", [a], 10, given), {"i0": a})
    x, w = integers("uint8", 1, 4, 7, 6), integers("int8", 6, 4, 3, 3, seed=1)
    given = {
        1: np.float32(0.02), 2: np.array(120, "uint8"), 3: w, 4: scales(6),
        5: np.zeros(6, "int8"), 6: np.float32(0.7), 7: np.array(128, "uint8"),
        8: integers("int16", 6).astype("int32"),
    }  # fmt: skip
    check(single("QLinearConv", [x], 10, given, pads=[1, 1, 1, 1]), {"i0": x})


def test_what_onnxruntime_saturates() -> None:
    """Products of uint8 and int8 are exact; onnxruntime's are, or sums of two have 16 bits."""
    a, b = integers("uint8", 5, 32), integers("int8", 32, 18, seed=1)
    model = single("MatMulInteger", [a, b], 10)
    feeds = {"i0": a, "i1": b}
    check(model, feeds)
    terms = a[:, :, None].astype("int32") * b.astype("int32")
    pairs = terms.reshape(5, 16, 2, 18).sum(2)
    saturated = np.clip(pairs, -(2**15), 2**15 - 1).sum(1)
    assert (saturated != pairs.sum(1)).any()
    found = peer(model, feeds)["o0"]
    assert np.array_equal(found, pairs.sum(1)) or np.array_equal(found, saturated)


def test_what_is_not_built_is_refused() -> None:
    x = noise(3)
    with pytest.raises(UnsupportedOp, match=r"a scale of int32.*cast the scale to float32"):
        given = {1: np.array(2, "int32"), 2: np.array(1, "int8")}
        numbers = np.arange(3, dtype="int32")
        gf.compile(single("QuantizeLinear", [numbers], 21, given), options=OPTIONS)
    e8m0 = int(onnx.TensorProto.FLOAT8E8M0)
    with pytest.raises(UnsupportedOp, match="target has dtype float8_e8m0"):
        gf.compile(single("Cast", [x], 25, to=e8m0), options=OPTIONS)


def test_zeros_that_are_known_behind_a_count_are_read_by_the_range_alone() -> None:
    """A softmax along counted rows leaves zeros behind them, of which no row is quantized."""
    model = parsed_model("""
    counted (bool[48] keep, float[48, 4] x) => (uint8 y, float scale) {
        k = Compress <axis = 0> (x, keep) s = Softmax <axis = 0> (k)
        y, scale, zero = DynamicQuantizeLinear(s)
    }
    """)
    for count in (48, 15, 1):
        check(model, {"keep": np.arange(48) < count, "x": noise(48, 4, seed=count)})
