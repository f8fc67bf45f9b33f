"""onnxruntime's operators on quantized tensors (domain com.microsoft), written as standard ones.

A quantized tensor stands for `scale · (integer − zero point)`.  Products, sums and averages are
computed on integers, which is exact, and scaled once, by a factor that onnxruntime computes alike;
so results differ from onnxruntime's by a step at most, and only where a quotient is half-way
between two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import prod

import numpy as np
from onnx import TensorProto, numpy_helper

from graphflow.base.errors import InvalidModel
from graphflow.base.fields import replace
from graphflow.frontends.protos.steps import existing_axis
from graphflow.frontends.reading.vendor import DOMAIN
from graphflow.frontends.rewrites.contrib import WINDOW
from graphflow.frontends.rewrites.rewrites import NodeRewrite

_WINDOW = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
_ONE = np.array(1, np.float32)
_ALL_INTEGERS = 21
"""The opset as of which operators of quantized tensors, and casts, take all types of integers."""


def _scalar(body: NodeRewrite, position: int) -> str:
    """An input of one element as a scalar; onnxruntime takes vectors of one element as well."""
    name = body.input(position)
    return name if body.shape(name) == () else body.reshape(name, ())


def _zero(body: NodeRewrite, position: int, like: str) -> str:
    """The zero point at `position`; 0 in the type of `like` if it is not given."""
    if body.input(position):
        return _scalar(body, position)
    return body.number(0, like)


def _real(body: NodeRewrite, x: int, scale: int, zero: int) -> str:
    """The float32 numbers for which the quantized input at position `x` stands."""
    name = body.input(x)
    return body.add("DequantizeLinear", name, _scalar(body, scale), _zero(body, zero, name))


def _centred(body: NodeRewrite, name: str, zero: str) -> str:
    """A quantized tensor minus its zero point as float32, which is exact."""
    return body.add("DequantizeLinear", name, body.constant(_ONE), zero)


def _whole(body: NodeRewrite, x: str, zero: str, result: str = "") -> str:
    """`saturate(round(x) + zero)`: a scaled tensor as integers."""
    return body.add("QuantizeLinear", x, body.constant(_ONE), zero, result=result)


def _quantized(body: NodeRewrite, x: str, scale: int, zero: int, like: str) -> None:
    """Quantize `x` to the node's output, with the type of `like`."""
    parameters = _scalar(body, scale), _zero(body, zero, like)
    body.add("QuantizeLinear", x, *parameters, result=body.result)


def _qlinear_add(body: NodeRewrite) -> None:
    """`quantize(a + b)` of the numbers that the inputs stand for."""
    body.require_attributes()
    total = body.add("Add", _real(body, 0, 1, 2), _real(body, 3, 4, 5))
    _quantized(body, total, 6, 7, body.input(0))


def _qlinear_mul(body: NodeRewrite) -> None:
    """The product of two integers is exact, and is scaled by `a_scale · b_scale / c_scale`."""
    body.require_attributes()
    a, b = (_centred(body, body.input(k), _zero(body, k + 2, body.input(k))) for k in (0, 3))
    factor = body.add("Mul", _scalar(body, 1), _scalar(body, 4))
    factor = body.add("Div", factor, _scalar(body, 6))
    scaled = body.add("Mul", body.add("Mul", a, b), factor)
    _whole(body, scaled, _zero(body, 7, body.input(0)), body.result)


def _qlinear_unary(op: str, attributes: Sequence[str], body: NodeRewrite) -> None:
    """`quantize(op(x))` of the numbers that the input stands for; `attributes` are those of
    `op`."""
    body.require_attributes(*attributes)
    y = body.add(op, _real(body, 0, 1, 2), **body.given(*attributes))
    _quantized(body, y, 3, 4, body.input(0))


def _qlinear_softmax(body: NodeRewrite) -> None:
    """The attribute `opset` says of which opset Softmax is meant: before 13 it is over all axes
    from `axis` on."""
    body.require_attributes("axis", "opset")
    name, rank = body.input(0), body.rank(body.input(0))
    axis = existing_axis(body.step, body.attribute("axis", -1), rank)
    x = _real(body, 0, 1, 2)
    y = body.add("Softmax", x, axis=axis)
    if body.attribute("opset") < 13:
        body.of_opset(11)
    _quantized(body, y, 3, 4, name)


def _qlinear_where(body: NodeRewrite) -> None:
    """Each side is requantized to the output's scale and zero point, unless it has these."""
    body.require_attributes()
    sides = [_requantized(body, position, (7, 8)) for position in (1, 4)]
    body.add("Where", body.input(0), *sides, result=body.result)


def _qlinear_global_average_pool(body: NodeRewrite) -> None:
    """The mean over all axes but batch and channels: an integer sum, scaled once."""
    body.require_attributes("channels_last")
    x, rank = body.input(0), body.rank(body.input(0))
    if rank < 3:
        raise InvalidModel(f"{body.step}: its input of rank {rank} has no axes behind the channels")
    first = 1 if body.attribute("channels_last", 0) else 2
    axes = range(first, first + rank - 2)
    zero = body.add("Cast", _zero(body, 2, x), to=TensorProto.INT32)
    integers = body.add("Sub", body.add("Cast", x, to=TensorProto.INT32), zero)
    total = body.add("ReduceSum", integers, body.ints(axes), keepdims=1)
    count = body.add("Cast", _count(body, x, axes), to=TensorProto.FLOAT)
    factor = body.add("Div", _scalar(body, 1), body.add("Mul", _scalar(body, 3), count))
    scaled = body.add("Mul", body.add("Cast", total, to=TensorProto.FLOAT), factor)
    _whole(body, scaled, _zero(body, 4, x), body.result)


def _count(body: NodeRewrite, x: str, axes: Iterable[int]) -> str:
    """How many elements `x` has along some axes, as a scalar of shape arithmetic."""
    extents = [body.extents(x)[axis] for axis in axes]
    count = body.integer(prod(n for n in extents if isinstance(n, int)))
    for size in extents:
        if not isinstance(size, int):
            count = body.add("Mul", count, body.integer(size))
    return count


def _qlinear_concat(body: NodeRewrite) -> None:
    """Inputs of the output's scale and zero point are joined as they are, others requantized."""
    body.require_attributes("axis")
    step = body.step
    inputs = list(step.node.input)
    if len(inputs) < 5 or len(inputs) % 3 != 2:
        raise InvalidModel(
            f"{step}: {len(inputs)} inputs are not two, and three for each joined tensor"
        )
    parts = [_requantized(body, position, (0, 1)) for position in range(2, len(inputs), 3)]
    body.add("Concat", *parts, result=body.result, axis=body.attribute("axis"))


def _requantized(body: NodeRewrite, position: int, result: tuple[int, int]) -> str:
    """The quantized input at `position`, which its scale and zero point follow, with the scale and
    the zero point at the positions `result`."""
    if _same(body, position + 1, result[0]) and _same(body, position + 2, result[1]):
        return body.input(position)
    real = _real(body, position, position + 1, position + 2)
    return body.add("QuantizeLinear", real, _scalar(body, result[0]), _scalar(body, result[1]))


def _same(body: NodeRewrite, one: int, other: int) -> bool:
    """Whether two inputs are known to be equal."""
    names = (body.input(one), body.input(other))
    first, second = (body.context.constant(name) for name in names)
    if first is None or second is None:
        return names[0] == names[1]
    return bool(np.array_equal(first.reshape(-1), second.reshape(-1)))


def _qlinear_conv(body: NodeRewrite) -> None:
    """The standard operator, or the same on images whose channels are the last axis."""
    body.require_attributes(*WINDOW, "channels_last")
    x, result = body.input(0), body.result
    rank = body.rank(x)
    last = bool(body.attribute("channels_last", 0))
    if last:
        x = body.transpose(x, (0, rank - 1, *range(1, rank - 1)))
    others = list(body.step.node.input)[1:]
    y = body.add("QLinearConv", x, *others, result="" if last else result, **body.given(*WINDOW))
    if last:
        body.transpose(y, (0, *range(2, rank), 1), result)


def integer_product(
    body: NodeRewrite, a: str, b: str, a_zero: str, b_zero: str, factor: str
) -> str:
    """`(a − a_zero) · (b − b_zero) · factor` as float32; zero points may be ''."""
    total = body.add("MatMulInteger", a, b, a_zero, b_zero)
    return body.add("Mul", body.add("Cast", total, to=TensorProto.FLOAT), factor)


def _shifted(body: NodeRewrite, x: str, bias: str, result: str) -> None:
    """`x + bias` as `result`, or `x` if there is no bias."""
    if bias:
        body.add("Add", x, bias, result=result)
    else:
        body.add("Identity", x, result=result)


def _matmul_integer_to_float(body: NodeRewrite) -> None:
    body.require_attributes()
    a, b, a_scale, b_scale, a_zero, b_zero, bias = body.inputs(7)
    factor = body.add("Mul", a_scale, b_scale)
    product = integer_product(body, a, b, a_zero, b_zero, factor)
    _shifted(body, product, bias, body.result)


def _dynamic_quantize_matmul(body: NodeRewrite) -> None:
    """The left factor is quantized to uint8 with the scale of its own range."""
    body.require_attributes()
    a, b, b_scale, b_zero, bias = body.inputs(5)
    integers, a_scale, a_zero = body.add_several("DynamicQuantizeLinear", 3, a)
    factor = body.add("Mul", a_scale, b_scale)
    product = integer_product(body, integers, b, a_zero, b_zero, factor)
    _shifted(body, product, bias, body.result)


def _qgemm(body: NodeRewrite) -> None:
    """C has the scale `alpha · a_scale · b_scale`, so it is added to the integer sum.

    Without a scale for the output, the output is float32.
    """
    body.require_attributes("alpha", "transA", "transB")
    step = body.step
    a, a_scale, a_zero, b, b_scale, b_zero, c, y_scale, y_zero = body.inputs(9)
    if bool(y_scale) != bool(y_zero):
        raise InvalidModel(f"{step}: y_scale and y_zero_point are given together or not at all")
    if body.attribute("transA", 0):
        a = body.transpose(a, (1, 0))
    if body.attribute("transB", 0):
        b = body.transpose(b, (1, 0))
    total = body.add("MatMulInteger", a, b, a_zero, b_zero)
    if c:
        total = body.add("Add", total, c)
    factor = body.add("Mul", a_scale, b_scale)
    alpha = body.attribute("alpha", 1.0)
    if alpha != 1.0:
        factor = body.add("Mul", body.constant(np.array(alpha, np.float32)), factor)
    result = body.result
    real = body.add("Cast", total, to=TensorProto.FLOAT)
    if not y_scale:
        body.add("Mul", real, factor, result=result)
        return
    factor = body.add("Div", factor, y_scale)
    _whole(body, body.add("Mul", real, factor), _scalar(body, 8), result)


def _quantize_linear(body: NodeRewrite) -> None:
    """Like the standard operator of opset 21, with a default axis of 1."""
    body.require_attributes("axis")
    inputs, axis = body.step.inputs, body.attribute("axis", 1)
    body.add(body.step.node.op_type, *inputs, result=body.result, axis=axis)
    body.of_opset(_ALL_INTEGERS)


def _gather_block_quantized(body: NodeRewrite) -> None:
    """Gathers integers, scales and zero points, and scales what it has taken: no more of a packed
    table is unpacked."""
    body.require_attributes("bits", "block_size", "gather_axis", "quantize_axis")
    data, indices, scales, zeros = body.inputs(4)
    kind, bits, rank = body.dtype(data).name, body.attribute("bits", 4), body.rank(data)
    if kind not in ("int4", "uint4", "uint8"):
        body.refuse(f"a table of {kind}")
    if bits not in ((2, 4, 8) if kind == "uint8" else (4,)):
        body.refuse(f"a table of {kind} with {bits} bits")
    gathered, blocked = (
        existing_axis(body.step, body.attribute(name, default), rank)
        for name, default in (("gather_axis", 0), ("quantize_axis", 1))
    )
    if gathered == blocked or (kind == "uint8" and gathered == rank - 1):
        raise InvalidModel(f"{body.step}: it gathers along axis {gathered}, which has the blocks")
    if kind != "uint8":  # Gather takes no narrower integers
        wide = TensorProto.INT8 if kind == "int4" else TensorProto.UINT8
        data, zeros = (name and body.add("Cast", name, to=wide) for name in (data, zeros))
        body.steps = [replace(step, opsets={"": _ALL_INTEGERS}) for step in body.steps]
    rows, factors = (body.add("Gather", x, indices, axis=gathered) for x in (data, scales))
    rows = _unpacked(body, rows, bits) if kind == "uint8" else rows
    if zeros:
        zero = body.add("Gather", zeros, indices, axis=gathered)
        if kind == "uint8" and bits < 8:
            zero = _unpacked(body, zero, bits)
            zero = body.add("Slice", zero, body.ints([0]), body.ints([body.shape(scales)[-1]]),
                            body.ints([-1]))  # fmt: skip
    else:
        middle = np.full(1, 1 << bits - 1 if kind == "uint8" else 0, kind.replace("4", "8"))
        shape = body.add("Shape", factors)
        zero = body.add("ConstantOfShape", shape, value=numpy_helper.from_array(middle))
        body.of_opset(_ALL_INTEGERS)
    body.add(
        "DequantizeLinear", rows, factors, zero, result=body.result,
        block_size=body.attribute("block_size", 128),
        axis=blocked if blocked < gathered else blocked - 1 + body.rank(indices),
    )  # fmt: skip
    body.of_opset(_ALL_INTEGERS)


def _unpacked(body: NodeRewrite, name: str, bits: int) -> str:
    """The numbers of so many bits in bytes, along the last axis, the low ones first."""
    if bits == 8:
        return name
    shifts = body.constant(np.arange(0, 8, bits, dtype=np.uint8))
    parts = body.add("Unsqueeze", name, body.ints([-1]))
    parts = body.add("BitShift", parts, shifts, direction="RIGHT")
    parts = body.add("BitwiseAnd", parts, body.constant(np.array((1 << bits) - 1, np.uint8)))
    rank = body.rank(body.input(0)) - 1 + body.rank(body.input(1))
    return body.reshape(parts, (*[0] * (rank - 1), -1))


CONTRIB_QUANTIZED: dict[tuple[str, str], Callable[[NodeRewrite], None]] = {
    (DOMAIN, "DequantizeLinear"): _quantize_linear,
    (DOMAIN, "DynamicQuantizeMatMul"): _dynamic_quantize_matmul,
    (DOMAIN, "GatherBlockQuantized"): _gather_block_quantized,
    (DOMAIN, "MatMulIntegerToFloat"): _matmul_integer_to_float,
    (DOMAIN, "QGemm"): _qgemm,
    (DOMAIN, "QLinearAdd"): _qlinear_add,
    (DOMAIN, "QLinearConcat"): _qlinear_concat,
    (DOMAIN, "QLinearConv"): _qlinear_conv,
    (DOMAIN, "QLinearGlobalAveragePool"): _qlinear_global_average_pool,
    (DOMAIN, "QLinearAveragePool"): partial(_qlinear_unary, "AveragePool", _WINDOW),
    (DOMAIN, "QLinearLeakyRelu"): partial(_qlinear_unary, "LeakyRelu", ("alpha",)),
    (DOMAIN, "QLinearMul"): _qlinear_mul,
    (DOMAIN, "QLinearSigmoid"): partial(_qlinear_unary, "Sigmoid", ()),
    (DOMAIN, "QLinearSoftmax"): _qlinear_softmax,
    (DOMAIN, "QLinearWhere"): _qlinear_where,
    (DOMAIN, "QuantizeLinear"): _quantize_linear,
}
