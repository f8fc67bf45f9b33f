"""Tests of float16 and bfloat16 models: each tensor is rounded once, and movement keeps all
bits."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import graphflow as gf
from graphflow.base.dtypes import DTYPES, STORED_INTEGERS
from graphflow.base.errors import InvalidModel
from graphflow.codegen import avx2_target, host_target
from graphflow.frontends import import_model
from support.single import noise, single

TARGETS = (host_target(), avx2_target())
OPTIONS = gf.Options(workers=0, threads=1, fallback=None)
HALVES = ("float16", "bfloat16")


def half(array: Any, dtype: str) -> Any:
    return np.asarray(array).astype(DTYPES[dtype])


def run(model: onnx.ModelProto, feeds: dict[str, Any], options: gf.Options = OPTIONS) -> Any:
    results = []
    for target in TARGETS:
        (found,) = gf.compile(model, target=target, options=options).run(feeds).values()
        results.append(found)
    assert results[0].tobytes() == results[1].tobytes()
    return results[0]


@pytest.mark.parametrize("dtype", HALVES)
def test_arithmetic_is_rounded_once(dtype: str) -> None:
    a, b = half(noise(3, 18), dtype), half(noise(18, seed=1), dtype)
    wide = a.astype("float32"), b.astype("float32")
    for op, function in (("Add", np.add), ("Mul", np.multiply), ("Div", np.divide)):
        want = function(*wide)
        got = run(single(op, [a, b], 22), {"i0": a, "i1": b})
        assert got.dtype == DTYPES[dtype]
        assert got.tobytes() == half(want, dtype).tobytes()


def chain(dtype: str, *nodes: Any, shape: tuple[int, ...] = (2, 3, 4)) -> onnx.ModelProto:
    """x → nodes → y, all of one dtype; a node is an operator and its attributes."""
    elem_type = helper.np_dtype_to_tensor_dtype(DTYPES[dtype])
    names = ["x", *(f"t{k}" for k in range(len(nodes) - 1)), "y"]
    made = [
        helper.make_node(op, [names[k]], [names[k + 1]], **attributes)
        for k, (op, attributes) in enumerate(nodes)
    ]
    infos = [helper.make_tensor_value_info("x", elem_type, shape)]
    outputs = [helper.make_tensor_value_info("y", elem_type, None)]
    graph = helper.make_graph(made, "g", infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("dtype", HALVES)
def test_each_tensor_is_rounded(dtype: str) -> None:
    """Two operators, fused into one kernel: the tensor between them has its 16 bits."""
    x = half(noise(2, 3, 4) + 3, dtype)
    got = run(chain(dtype, ("Sqrt", {}), ("Exp", {})), {"x": x})
    between = half(np.sqrt(x.astype("float32")), dtype)
    want = np.exp(between.astype("float64"))
    unrounded = np.exp(np.sqrt(x.astype("float64")))
    step = 2.0 ** -(10 if dtype == "float16" else 7)
    assert (np.abs(got.astype("float64") / want - 1) <= 0.51 * step).all()
    assert (np.abs(got.astype("float64") / unrounded - 1) > 0.51 * step).any()


@pytest.mark.parametrize("dtype", HALVES)
def test_movement_keeps_every_bit_and_needs_no_cast(dtype: str) -> None:
    bits = np.random.default_rng(0).integers(0, 2**16, (2, 3, 4), dtype=np.uint16)
    x = bits.view(DTYPES[dtype])  # signalling NaN among them
    model = chain(dtype, ("Transpose", {"perm": [2, 0, 1]}), ("Identity", {}))
    graph = import_model(model)
    assert {value.dtype for value in graph.values.values()} == {dtype}
    got = run(model, {"x": x})
    assert got.tobytes() == np.ascontiguousarray(x.transpose(2, 0, 1)).tobytes()


@pytest.mark.parametrize("dtype", HALVES)
def test_other_movement(dtype: str) -> None:
    a, b = half(noise(2, 3), dtype), half(noise(2, 3, seed=1), dtype)
    flag = noise(2, 3, seed=2) > 0
    got = run(single("Where", [flag, a, b], 16), {"i0": flag, "i1": a, "i2": b})
    assert got.tobytes() == np.where(flag, a, b).tobytes()
    got = run(single("Concat", [a, b], 13, axis=1), {"i0": a, "i1": b})
    assert got.tobytes() == np.concatenate([a, b], 1).tobytes()
    pads = {1: np.array([1, 0, 0, 2])}
    got = run(single("Pad", [a], 13, pads), {"i0": a})
    assert got.tobytes() == np.pad(a, ((1, 0), (0, 2))).tobytes()
    got = run(single("Gather", [a], 13, {1: np.array([1, 0, 1])}, axis=0), {"i0": a})
    assert got.tobytes() == a[[1, 0, 1]].tobytes()
    model = single("Concat", [a, b], 13, axis=1)
    assert {value.dtype for value in import_model(model).values.values()} == {dtype}


@pytest.mark.parametrize("dtype", HALVES)
def test_casts_between_floats_and_integers(dtype: str) -> None:
    x = half([0, -0.0, 1.5, -2.75, 100, np.inf, np.nan, 0.1], dtype)
    for name in ("float32", "float64", *HALVES, "bool"):
        to = helper.np_dtype_to_tensor_dtype(DTYPES[name])
        got = run(single("Cast", [x], 19, to=to), {"i0": x})
        with np.errstate(all="ignore"):
            assert got.tobytes() == x.astype("float32").astype(DTYPES[name]).tobytes(), name
    to = helper.np_dtype_to_tensor_dtype(DTYPES[dtype])
    for name in ("float64", "int64", "uint8", "bool"):
        numbers = np.arange(8).astype(name)
        got = run(single("Cast", [numbers], 19, to=to), {"i0": numbers})
        assert got.tobytes() == half(numbers, dtype).tobytes()


@pytest.mark.parametrize("dtype", HALVES)
def test_a_network_of_halves(dtype: str) -> None:
    """Convolution, normalization of a batch, pooling and a product, with weights of 16 bits."""
    rng = np.random.default_rng(0)
    elem_type = helper.np_dtype_to_tensor_dtype(DTYPES[dtype])
    weights = {
        "w": rng.normal(size=(20, 3, 3, 3)) / 5, "b": rng.normal(size=20),
        "m": rng.normal(size=(20, 7)) / 4,
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "m"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(half(w, dtype), name) for name, w in weights.items()]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", elem_type, (1, 3, 9, 9))],
        [helper.make_tensor_value_info("y", elem_type, (1, 7))], tensors,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    x = half(rng.normal(size=(1, 3, 9, 9)), dtype)
    poison = gf.Options(workers=0, threads=1, poison=True, validate=True)
    got = gf.compile(model, options=poison).run({"x": x})["y"]
    assert got.dtype == DTYPES[dtype]
    wide = {name: half(w, dtype).astype("float64") for name, w in weights.items()}
    padded = np.pad(x.astype("float64"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[0]
    conv = np.einsum("chwij,ocij->ohw", windows, wide["w"]) + wide["b"][:, None, None]
    want = np.maximum(conv, 0).mean((1, 2)) @ wide["m"]
    step = 2.0 ** -(10 if dtype == "float16" else 7)
    np.testing.assert_allclose(got[0].astype("float64"), want, rtol=8 * step, atol=8 * step)


@pytest.mark.parametrize("dtype", HALVES)
def test_save_and_load_and_inputs_of_other_dtypes(dtype: str, tmp_path: Any) -> None:
    exe = gf.compile(chain(dtype, ("Exp", {})), options=OPTIONS)
    x = half(noise(2, 3, 4), dtype)
    exe.save(tmp_path / "half.gfx")
    loaded = gf.load(tmp_path / "half.gfx", threads=1)
    assert loaded.run({"x": x})["y"].tobytes() == exe.run({"x": x})["y"].tobytes()
    for other in (x.view(np.uint16), x.astype("float32")):
        with pytest.raises(InvalidModel, match=f"expects {dtype}"):
            exe.run({"x": other})


@pytest.mark.parametrize("dtype", [*STORED_INTEGERS, "float8_e4m3fn", "float8_e5m2"])
def test_weights_of_few_bits(dtype: str) -> None:
    """They are unpacked when the model is read, and cast by the model."""
    w = np.arange(24).reshape(4, 6).astype("int8").astype(DTYPES[dtype])
    tensor = numpy_helper.from_array(w, "w")
    nodes = [
        helper.make_node("Cast", ["w"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, (3, 4))],
        [helper.make_tensor_value_info("y", 1, (3, 6))], [tensor],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)
    x = noise(3, 4)
    got = run(model, {"x": x})
    np.testing.assert_allclose(got, x @ w.astype("float32"), rtol=1e-5)


def test_casts_to_float8_saturate_unless_told_otherwise() -> None:
    x = np.array([0.1, 500, -1e9, np.inf, -np.inf, 3], "float32")
    for dtype, top in (("float8_e4m3fn", 448), ("float8_e5m2", 57344), ("float8_e4m3fnuz", 240)):
        kind = DTYPES[dtype]
        to = helper.np_dtype_to_tensor_dtype(kind)
        got = run(single("Cast", [x], 19, to=to), {"i0": x})
        assert got.tobytes() == np.clip(x, -top, top).astype(kind).tobytes()
        got = run(single("Cast", [x], 19, to=to, saturate=0), {"i0": x})
        with np.errstate(all="ignore"):
            want = x.astype(kind)
        np.testing.assert_array_equal(got.astype("float32"), want.astype("float32"))
