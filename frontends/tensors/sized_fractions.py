"""Sizes as floating-point numbers, as exporters compute `floor(scale * extent)`.

In: a node that casts, scales or rounds sizes.  Out: their value as exact quotients by a power of
two, which floats hold, or as sizes again once they are rounded.  What always holds: each float on
the way is exact in every run, so no run rounds differently than the import.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import isfinite

import numpy as np
import onnx

from graphflow.frontends.protos.steps import ImportStep, names_read
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.data_extents import SizedArray
from graphflow.frontends.tensors.derived_sizes import Element, bounds_of, merged, rounded_down
from graphflow.graph import Array

_DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
"""The binary digits of floats."""

_ROUNDING = {"Floor": 0, "Ceil": -1}
"""Operators that round, and what is added to the divisor as they round up."""


def keeps_sizes(step: ImportStep, context: ImportContext) -> bool:
    """Whether each size that a step moves is the same number in its output, in every run."""
    sized = [context.sized_values[n] for n in names_read(step.node) if n in context.sized_values]
    if any(one.divisor != 1 for one in sized):
        return False
    if step.op != "Cast":
        return True
    wanted = onnx.helper.tensor_dtype_to_np_dtype(step.attribute("to"))
    tensors = {tensor for one in sized for tensor in one.sizes.values()}
    return all(_holds(wanted, bounds_of(context, tensor)) for tensor in tensors)


def sized_fractions(
    step: ImportStep, context: ImportContext, places: Sequence[int]
) -> SizedArray | None:
    """The output of a step that scales sizes in floats or rounds such numbers; None for others."""
    if len(places) != 1 or not step.is_standard:
        return None
    sized = context.sized_values[step.input(places[0])]
    if step.op in _ROUNDING and sized.array.dtype.kind == "f":
        return _rounded(context, sized, sized.array.dtype, _ROUNDING[step.op])
    if step.op == "Cast" and sized.divisor != 1 and step.attribute("to") == onnx.TensorProto.INT64:
        return _rounded(context, sized, np.dtype(np.int64), 0)
    if step.op in ("Mul", "Div") and sized.array.dtype.kind == "f":
        other = context.constant(step.input(1 - places[0]))
        if other is not None and (step.op == "Mul" or places[0] == 0):
            return _scaled(context, sized, other, step.op == "Div")
    return None


def _rounded(
    context: ImportContext, sized: SizedArray, dtype: np.dtype[np.generic], up: int
) -> SizedArray | None:
    """Quotients rounded down, or up; a cast rounds to zero, so none may be negative."""
    elements = _numerators(sized)
    if elements is None or any((bounds_of(context, n) or (-1,))[0] < 0 for n in elements):
        return None
    summand = (sized.divisor - 1) * -up
    whole = [rounded_down(context, n, summand, sized.divisor) for n in elements]
    return _array_of(context, whole, sized.array.shape, dtype, 1)


def _scaled(
    context: ImportContext, sized: SizedArray, by: Array, divides: bool
) -> SizedArray | None:
    """The elements times those of a constant, or divided by them, if floats hold the results."""
    elements = _numerators(sized)
    if elements is None or by.dtype != sized.array.dtype or by.size not in (1, sized.array.size):
        return None
    if by.ndim > sized.array.ndim or not all(
        isfinite(n) and n > 0 for n in by.reshape(-1).tolist()
    ):
        return None
    given = [Fraction(float(n)) for n in np.broadcast_to(by, sized.array.shape).reshape(-1)]
    ratios = [1 / n if divides else n for n in given]
    common = max(ratio.denominator for ratio in ratios)
    if any(common % ratio.denominator for ratio in ratios) or common & (common - 1):
        return None
    scaled = [
        merged(context, (n, ratio.numerator * (common // ratio.denominator)))
        for n, ratio in zip(elements, ratios, strict=True)
    ]
    if not all(_holds(by.dtype, bounds_of(context, n)) for n in scaled):
        return None
    return _array_of(context, scaled, sized.array.shape, by.dtype, sized.divisor * common)


def _numerators(sized: SizedArray) -> list[Element] | None:
    """The elements times the divisor; None where one is no whole number then."""
    found: list[Element] = []
    for place, value in enumerate(sized.array.reshape(-1)):
        number = Fraction(float(value)) * sized.divisor
        if place not in sized.sizes and number.denominator != 1:
            return None
        found.append(sized.sizes.get(place, int(number)))
    return found


def _array_of(
    context: ImportContext,
    elements: Iterable[Element],
    shape: tuple[int, ...],
    dtype: np.dtype[np.generic],
    divisor: int,
) -> SizedArray:
    found = list(elements)
    most = [n if isinstance(n, int) else context.sizes[n].hi for n in found]
    array = np.array([n / divisor for n in most]).astype(dtype).reshape(shape)
    return SizedArray(array, {k: n for k, n in enumerate(found) if isinstance(n, str)}, divisor)


def _holds(dtype: np.dtype[np.generic], bounds: tuple[int, int] | None) -> bool:
    """Whether all integers between two bounds are numbers of a dtype."""
    if bounds is None:
        return False
    if dtype.name in _DIGITS:
        return max(-bounds[0], bounds[1]) <= 1 << _DIGITS[dtype.name]
    bits = 8 * dtype.itemsize
    if dtype.kind == "i":
        return -(1 << bits - 1) <= bounds[0] and bounds[1] < 1 << bits - 1
    return dtype.kind == "u" and bounds[0] >= 0 and bounds[1] < 1 << bits
