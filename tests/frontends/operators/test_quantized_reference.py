"""Quantized operators element by element against ONNX's reference evaluator, with random shapes,
scales and zero points, half-way cases and saturation."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from graphflow.frontends import import_model
from graphflow.graph import interpret_graph

FEW = settings(max_examples=40, deadline=None)
BYTES = st.sampled_from(["uint8", "int8"])
SEEDS = st.integers(0, 2**32 - 1).map(np.random.default_rng)
NEAR = 1e-4
"""How close to the middle between two steps float32 and float64 may round to different sides: the
error of two float32 roundings times the largest distance between a zero point and a result."""


def model(op: str, arrays: list[Any], outputs: int = 1, opset: int = 25, **attributes: Any) -> Any:
    """A model of one node whose inputs behind the first are constants; None is not given."""
    names = ["" if array is None else f"i{k}" for k, array in enumerate(arrays)]
    tensors = [
        numpy_helper.from_array(np.asarray(array), name)
        for name, array in zip(names[1:], arrays[1:], strict=True)
        if name
    ]
    x = arrays[0]
    info = helper.make_tensor_value_info("i0", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    results = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, name="the_node", **attributes)
    made = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([node], "g", [info], made, tensors)
    return typed(graph, opset)


def typed(graph: Any, opset: int = 25) -> Any:
    """A model whose outputs have the types that the reference evaluator gives them."""
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    given = {
        info.name: np.zeros(
            [dim.dim_value for dim in info.type.tensor_type.shape.dim],
            helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type),
        )
        for info in graph.input
    }
    for info, made in zip(proto.graph.output, by_reference(proto, given), strict=True):
        kind = helper.np_dtype_to_tensor_dtype(made.dtype)
        info.CopyFrom(helper.make_tensor_value_info(info.name, kind, made.shape))
    return proto


def by_reference(proto: Any, feeds: dict[str, Any]) -> list[Any]:
    with np.errstate(all="ignore"):
        return [np.asarray(a) for a in ReferenceEvaluator(proto).run(None, feeds)]


def by_graphflow(proto: Any, feeds: dict[str, Any]) -> list[Any]:
    graph = import_model(proto)
    made = interpret_graph(graph, feeds, graph.results)
    return [made[name] for name in graph.results]


def both(op: str, arrays: list[Any], **more: Any) -> tuple[list[Any], list[Any]]:
    """What graphflow and the reference evaluator make of one node."""
    proto = model(op, arrays, **more)
    feeds = {"i0": arrays[0]}
    return by_graphflow(proto, feeds), by_reference(proto, feeds)


def same(found: list[Any], wanted: list[Any]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)


def same_off_the_middle(found: Any, wanted: Any, real: Any) -> None:
    """Integers are equal, but where the number `real` that was rounded is half-way between two."""
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    away = np.abs(np.abs(real - np.trunc(real)) - 0.5) > NEAR
    np.testing.assert_array_equal(found[away], wanted[away])
    assert np.abs(found.astype("int64") - wanted.astype("int64")).max(initial=0) <= 1


def integers(rng: Any, dtype: str, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return np.asarray(rng.integers(info.min, info.max + 1, shape)).astype(dtype)


def even(rng: Any, dtype: str) -> Any:
    """A zero point with which it does not matter whether it is added before or after rounding."""
    return np.asarray(integers(rng, dtype) // 2 * 2, dtype)


def scales(rng: Any, *shape: int) -> Any:
    return np.asarray(np.exp(rng.uniform(-4, 0, shape)), "float32")


@st.composite
def parameters(draw: Any, shape: tuple[int, ...]) -> Any:
    """The shape of a scale for a tensor of `shape`, and attributes that say how it lies."""
    axis = draw(st.integers(0, len(shape) - 1))
    attributes = {"axis": draw(st.sampled_from([axis, axis - len(shape)]))}
    match draw(st.sampled_from(["tensor", "axis", "blocks"])):
        case "tensor":
            return (), {}
        case "axis":
            return (shape[axis],), attributes
        case _:
            block = draw(st.sampled_from([n for n in (1, 2, 3) if shape[axis] % n == 0]))
            blocks = (*shape[:axis], shape[axis] // block, *shape[axis + 1 :])
            return blocks, {**attributes, "block_size": block}


SHAPES = st.lists(st.sampled_from([1, 2, 3, 6]), min_size=1, max_size=3).map(tuple)


@FEW
@given(data=st.data(), shape=SHAPES, rng=SEEDS)
def test_quantize(data: st.DataObject, shape: tuple[int, ...], rng: Any) -> None:
    dtype = data.draw(st.sampled_from(["uint8", "int8", "uint16", "int16"]))
    own, attributes = data.draw(parameters(shape))
    scale = scales(rng, *own)
    if data.draw(st.booleans()):
        scale = np.exp2(np.round(np.log2(scale)))  # quotients are exact, and many are half-way
    x = rng.integers(-300, 300, shape) / np.float32(2)
    x[rng.random(shape) < 0.2] *= 1000  # saturates
    zero = integers(rng, dtype, *own) if data.draw(st.booleans()) else None
    if zero is None:
        attributes["output_dtype"] = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    same(*both("QuantizeLinear", [np.asarray(x, "float32"), scale, zero], **attributes))


@FEW
@given(data=st.data(), shape=SHAPES, rng=SEEDS)
def test_dequantize(data: st.DataObject, shape: tuple[int, ...], rng: Any) -> None:
    dtype = data.draw(st.sampled_from(["uint8", "int8", "uint16", "int16", "int32"]))
    own, attributes = data.draw(parameters(shape))
    zero = integers(rng, dtype, *own) if dtype != "int32" and data.draw(st.booleans()) else None
    x = integers(rng, dtype, *shape)
    same(*both("DequantizeLinear", [x, scales(rng, *own), zero], **attributes))


@FEW
@given(shape=SHAPES, rng=SEEDS, low=st.floats(-9, 9), extent=st.floats(0.0, 9))
def test_scales_of_a_run(shape: tuple[int, ...], rng: Any, low: float, extent: float) -> None:
    x = np.asarray(rng.uniform(low, low + extent, shape), "float32")
    if not x.any():
        x[...] = 1
    same(*both("DynamicQuantizeLinear", [x], outputs=3))


def test_zeros_have_a_scale_of_one() -> None:
    """As in onnxruntime; the reference evaluator takes 1/255 for the scale of zeros."""
    found, wanted = both("DynamicQuantizeLinear", [np.zeros((2, 3), "float32")], outputs=3)
    same([found[0], found[2]], [wanted[0], wanted[2]])
    assert (found[1], wanted[1]) == (1, np.float32(1) / 255)


@FEW
@given(a_type=BYTES, b_type=BYTES, rng=SEEDS, data=st.data())
def test_products(a_type: str, b_type: str, rng: Any, data: st.DataObject) -> None:
    m, k, n = (data.draw(st.integers(1, 9)) for _ in range(3))
    a, b = integers(rng, a_type, 2, m, k), integers(rng, b_type, k, n)
    zeros = [integers(rng, a_type), integers(rng, b_type, *data.draw(st.sampled_from([(), (n,)])))]
    same(*both("MatMulInteger", [a, b, *zeros]))
    y_zero = even(rng, a_type)
    y_scale = np.float32(data.draw(st.floats(0.5, 200)))
    a_scale, b_scale = scales(rng), scales(rng, *zeros[1].shape)
    wide = (a.astype("int64") - zeros[0]) @ (b.astype("int64") - zeros[1])
    arrays = [a, a_scale, zeros[0], b, b_scale, zeros[1], y_scale, y_zero]
    (found,), (wanted,) = both("QLinearMatMul", arrays)
    same_off_the_middle(found, wanted, wide * (a_scale * b_scale / y_scale))


@FEW
@given(x_type=BYTES, w_type=BYTES, rng=SEEDS, data=st.data())
def test_convolutions(x_type: str, w_type: str, rng: Any, data: st.DataObject) -> None:
    group = data.draw(st.integers(1, 2))
    channels, filters = 2 * group, group * data.draw(st.integers(1, 3))
    window = {
        "group": group,
        "strides": data.draw(st.sampled_from([[1, 1], [2, 1]])),
        "dilations": data.draw(st.sampled_from([[1, 1], [1, 2]])),
        "pads": data.draw(st.sampled_from([[0, 0, 0, 0], [1, 2, 0, 1]])),
    }
    x, w = integers(rng, x_type, 1, channels, 5, 6), integers(rng, w_type, filters, 2, 3, 2)
    zeros = [integers(rng, x_type), integers(rng, w_type)]
    (whole,), wanted = both("ConvInteger", [x, w, *zeros], **window)
    same([whole], wanted)
    x_scale, y_scale = scales(rng), np.float32(data.draw(st.floats(0.5, 200)))
    w_scale = scales(rng, *data.draw(st.sampled_from([(), (filters,)])))
    y_zero, bias = even(rng, x_type), integers(rng, "int16", filters).astype("int32")
    arrays = [x, x_scale, zeros[0], w, w_scale, zeros[1], y_scale, y_zero, bias]
    (found,), (wanted,) = both("QLinearConv", arrays, opset=10, **window)
    spread = w_scale.reshape(-1, 1, 1) if w_scale.ndim else w_scale
    real = (whole + bias.reshape(-1, 1, 1)) * (x_scale * spread / y_scale)
    same_off_the_middle(found, wanted, real)


@pytest.mark.parametrize("zero", [4, 5])
def test_half_way_results_are_rounded_before_the_zero_point_is_added(zero: int) -> None:
    """As ONNX says of QLinearMatMul; the evaluator adds first, so an odd zero point differs."""
    a, one = np.arange(16, dtype="uint8").reshape(16, 1), np.float32(1)
    none, b = np.array(0, "uint8"), np.ones((1, 1), "uint8")
    arrays = [a, one, none, b, one, none, np.float32(2), np.array(zero, "uint8")]
    (found,), (wanted,) = both("QLinearMatMul", arrays)
    np.testing.assert_array_equal(found, np.rint(a / 2) + zero)
    assert (zero % 2 == 0) == np.array_equal(found, wanted)


@FEW
@given(rng=SEEDS, data=st.data(), dtype=BYTES)
def test_operators_between_dequantize_and_quantize(rng: Any, data: Any, dtype: str) -> None:
    """The pattern of quantized models: each operator on floats between two quantizations."""
    shapes, op, attributes = data.draw(
        st.sampled_from(
            [
                ([(2, 5), (2, 5)], "Add", {}),
                ([(2, 5), (1, 5)], "Mul", {}),
                ([(3, 6), (6, 4)], "MatMul", {}),
                ([(1, 3, 5, 5), (2, 3, 3, 3)], "Conv", {"pads": [1, 1, 1, 1]}),
                ([(2, 3, 4, 4)], "AveragePool", {"kernel_shape": [2, 2]}),
                ([(2, 7)], "Sigmoid", {}),
                ([(2, 7)], "Relu", {}),
            ]
        )
    )
    tensors, nodes, reals, feeds, infos = [], [], [], {}, []
    for k, shape in enumerate(shapes):
        feeds[f"x{k}"] = integers(rng, dtype, *shape)
        infos.append(
            helper.make_tensor_value_info(
                f"x{k}", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
            )
        )
        tensors += [
            numpy_helper.from_array(scales(rng), f"s{k}"),
            numpy_helper.from_array(integers(rng, dtype), f"z{k}"),
        ]
        nodes.append(helper.make_node("DequantizeLinear", [f"x{k}", f"s{k}", f"z{k}"], [f"r{k}"]))
        reals.append(f"r{k}")
    y_scale = np.float32(data.draw(st.floats(0.01, 50)))
    tensors += [
        numpy_helper.from_array(y_scale, "s"),
        numpy_helper.from_array(integers(rng, dtype), "z"),
    ]
    nodes += [
        helper.make_node(op, reals, ["r"], **attributes),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["y"]),
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in ("y", "r")]
    proto = typed(helper.make_graph(nodes, "g", infos, made, tensors), 21)
    (found, _), (wanted, real) = by_graphflow(proto, feeds), by_reference(proto, feeds)
    same_off_the_middle(found, wanted, real.astype("float64") / y_scale)
