"""Quantization: floats as integers (or floats of 8 and fewer bits) with a scale and a zero point.

In: logical shapes and dtypes.  Out: a PrimFunc of one elementwise stage.  Scale and zero point are
parameters: one number for the tensor, one for each index of an axis, or one for each block of a
given number of indices of the axis.  Quotients are rounded half to even; integers saturate.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.arith import IndexExpr, const, floor_div
from graphflow.base.dtypes import FLOATING, integer_limits
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.scalar_functions import (
    add,
    clipped,
    compared,
    converted,
    divide,
    multiply,
    subtract,
)
from graphflow.kernels.definitions.stages import Loop, Shape
from graphflow.tir import Buffer, Expr, Load, PrimFunc, Select, Unary

WIDE = "float32"


def quantize_elements(
    shape: Shape,
    dtype: str,
    scale_shape: Shape,
    target: str,
    *,
    zero_shape: Shape | None = None,
    axis: int = 1,
    block: int = 0,
    saturate: bool = True,
) -> PrimFunc:
    """`y = saturate(round(x / scale) + zero)` as `target`; the scale is float32.

    If the target is a float, the cast rounds the quotient; without `saturate` the result may be
    infinite or NaN.
    """
    x, scale = Buffer("x", shape, dtype), Buffer("scale", scale_shape, WIDE)
    y = Buffer("y", shape, target)
    loops = stages.loops_over("i", shape)
    at = parameter_indices(scale_shape, shape, loops, axis, block)
    zeros, zero_point = _zero_point(zero_shape, target, shape, loops, axis, block)
    quotient = divide(converted(stages.element(x, loops), WIDE), Load(scale, at))
    value = rounded(quotient, zero_point, target, saturate)
    return stages.elementwise_kernel("quantize", (x, scale, *zeros), y, loops, value)


def dequantize(
    shape: Shape,
    dtype: str,
    scale_shape: Shape,
    *,
    zero_shape: Shape | None = None,
    axis: int = 1,
    block: int = 0,
) -> PrimFunc:
    """`y = (x − zero) · scale` as float32."""
    x, scale = Buffer("x", shape, dtype), Buffer("scale", scale_shape, WIDE)
    y, loops = Buffer("y", shape, WIDE), stages.loops_over("i", shape)
    at = parameter_indices(scale_shape, shape, loops, axis, block)
    zeros, zero_point = _zero_point(zero_shape, dtype, shape, loops, axis, block)
    value = _centred(stages.element(x, loops), zero_point, WIDE if dtype in FLOATING else "int32")
    value = multiply(converted(value, WIDE), Load(scale, at))
    return stages.elementwise_kernel("dequantize", (x, scale, *zeros), y, loops, value)


def shifted(shape: Shape, dtype: str, zero_shape: Shape | None, axis: int) -> PrimFunc:
    """`y = x − zero` as int32, which is exact; `y = x` if there is no zero point."""
    x, y = Buffer("x", shape, dtype), Buffer("y", shape, "int32")
    loops = stages.loops_over("i", shape)
    zeros, zero_point = _zero_point(zero_shape, dtype, shape, loops, axis)
    value = _centred(stages.element(x, loops), zero_point, "int32")
    return stages.elementwise_kernel("shifted", (x, *zeros), y, loops, value)


def _zero_point(
    own: Shape | None, dtype: str, shape: Shape, loops: Sequence[Loop], axis: int, block: int = 0
) -> tuple[tuple[Buffer, ...], Load | None]:
    """The parameter of a zero point of shape `own` and its element for each of `loops`, if there
    is one."""
    if own is None:
        return (), None
    zero = Buffer("zero", own, dtype)
    return (zero,), Load(zero, parameter_indices(own, shape, loops, axis, block))


def _centred(x: Expr, zero: Expr | None, exact: str) -> Expr:
    """`x − zero`, computed in the dtype `exact`."""
    value = converted(x, exact)
    return value if zero is None else subtract(value, converted(zero, exact))


def requantize(
    shape: Shape,
    scale_shapes: tuple[Shape, Shape, Shape],
    zero_shape: Shape,
    axes: tuple[int, int, int],
    target: str,
) -> PrimFunc:
    """`y = saturate(round(x · (a · b / c)) + zero)` for an int32 x and float32 scales a, b, c.

    `axes` are the axes along which the scales have their elements; the zero point has the axis of
    c.
    """
    x, y = Buffer("x", shape, "int32"), Buffer("y", shape, target)
    scales = [Buffer(name, s, WIDE) for name, s in zip("abc", scale_shapes, strict=True)]
    zero = Buffer("zero", zero_shape, target)
    loops = stages.loops_over("i", shape)
    places = [
        parameter_indices(buffer.shape, shape, loops, axis)
        for buffer, axis in zip(scales, axes, strict=True)
    ]
    a, b, c = (Load(buffer, at) for buffer, at in zip(scales, places, strict=True))
    product = multiply(converted(stages.element(x, loops), WIDE), divide(multiply(a, b), c))
    zero_place = parameter_indices(zero_shape, shape, loops, axes[2])
    value = rounded(product, Load(zero, zero_place), target)
    return stages.elementwise_kernel("requantize", (x, *scales, zero), y, loops, value)


def dynamic_scale() -> PrimFunc:
    """`y = (above + below) / 255`, the scale of a tensor whose elements reach so far above zero and
    below it.

    It is 1 if all elements are zero, as in onnxruntime, so that nothing is divided by zero.
    """
    below, above, y = (Buffer(name, (), WIDE) for name in ("below", "above", "y"))
    value = scale_of_range(_lower_end(below), _reached(above))
    return stages.elementwise_kernel("dynamic_scale", (below, above), y, (), value)


def dynamic_zero_point() -> PrimFunc:
    """`y = saturate(round(below / scale))` as uint8; 0 where nothing is below zero, by whatever
    scale."""
    below, scale = Buffer("below", (), WIDE), Buffer("scale", (), WIDE)
    y = Buffer("y", (), "uint8")
    point = converted(zero_point_of_range(_lower_end(below), Load(scale, ())), "uint8")
    value = Select(compared("gt", Load(below, ()), 0), point, stages.literal(0, "uint8"))
    return stages.elementwise_kernel("dynamic_zero_point", (below, scale), y, (), value)


def scale_of_range(low: Expr, high: Expr) -> Expr:
    """The scale with which uint8 covers the numbers from `low` to `high`, among which is 0."""
    extent = subtract(high, low)
    return Select(compared("eq", extent, 0), stages.literal(1, WIDE), divide(extent, 255))


def zero_point_of_range(low: Expr, scale: Expr) -> Expr:
    """The zero point, a whole float32, that belongs to `scale_of_range`."""
    quotient = divide(subtract(stages.literal(0, WIDE), low), scale)
    return clipped(Unary("round", quotient), stages.literal(0, WIDE), stages.literal(255, WIDE))


def _lower_end(below: Buffer) -> Expr:
    return Unary("neg", _reached(below))


def _reached(end: Buffer) -> Expr:
    """How far a tensor reaches to one side of zero: 0 where it has no elements."""
    return clipped(Load(end, ()), stages.literal(0, WIDE), None)


def rounded(x: Expr, zero: Expr | None, target: str, saturate: bool = True) -> Expr:
    """A float32 as `target`: rounded half to even, plus the zero point, saturated."""
    if target in FLOATING:
        moved = x if zero is None else add(x, converted(zero, WIDE))
        return converted(moved, target, saturate)
    # Whole numbers; what is too large for float32 to tell apart saturates.
    whole: Expr = Unary("round", x)
    if zero is not None:
        whole = add(whole, converted(zero, WIDE))
    low, high = integer_limits(target)
    return converted(clipped(whole, stages.literal(low, WIDE), stages.literal(high, WIDE)), target)


def rounded_in_words(x: Expr, zero: Expr | None, target: str) -> Expr:
    """As `rounded` to bytes, of a float32 that is less than 2^30 from zero: saturated as an integer
    of 32 bits."""
    whole = converted(Unary("round", x), "int32")
    if zero is not None:
        whole = add(whole, converted(zero, "int32"))
    low, high = integer_limits(target)
    limits = (stages.literal(limit, "int32") for limit in (low, high))
    return converted(clipped(whole, *limits), target)


def parameter_indices(
    own: Shape, shape: Shape, loops: Sequence[Loop], axis: int, block: int = 0
) -> tuple[IndexExpr, ...]:
    """The index of a scale or zero point of shape `own` in loops over a tensor of `shape`.

    A scalar serves the whole tensor; a vector lies along `axis`.  With the rank of the tensor, axes
    of extent 1 are broadcast, and along `axis` each element serves `block` neighbours.
    """
    if all(extent == 1 for extent in own):
        return tuple(const(0) for _ in own)
    axis = axis + len(shape) if axis < 0 else axis
    if len(own) == 1 and 0 <= axis < len(shape) and own[0] == shape[axis]:
        return (loops[axis][0],)
    places: list[IndexExpr] = []
    if len(own) == len(shape):
        for k, ((var, extent), mine) in enumerate(zip(loops, own, strict=True)):
            if mine == extent:
                places.append(var)
            elif mine == 1:
                places.append(const(0))
            elif k == axis and block > 0 and -(-extent // block) == mine:
                places.append(floor_div(var, block))
    if len(places) != len(shape):
        blocks = f" in blocks of {block}" if block else ""
        raise InvalidModel(
            f"a scale or zero point of shape {own} does not fit a tensor of shape {shape} along "
            f"axis {axis}{blocks}"
        )
    return tuple(places)
