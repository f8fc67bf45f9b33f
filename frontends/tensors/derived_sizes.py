"""Sizes that are computed from sizes: `n + m`, `n·m`, `n − 1`, `n // 2`, the lesser of two.

In: an operation on integers of which some are sizes.  Out: an integer where the sizes cancel, or
the tensor that holds the result in a run, which is a size itself, with bounds.  What always holds:
equal sums, products and quotients are one tensor, so that extents which agree are known to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, reduce
from typing import TypeAlias

import numpy as np

from graphflow.base.sizes import Size
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.size_sums import (
    Product,
    Quotient,
    SizeSum,
    divided,
    exact_ratio,
    product,
    quotient,
)
from graphflow.graph import Node, Value
from graphflow.kernels.definitions import elementwise
from graphflow.tir import BinaryOp

Element: TypeAlias = "int | str"
"""An integer, or the tensor that holds a size."""


def _remainder(left: SizeSum, right: SizeSum, sizes: Mapping[str, Size]) -> SizeSum | None:
    whole = divided(left, right, sizes)
    return None if whole is None else left.plus(whole, -right.offset)


_COMBINED: dict[str, Callable[[SizeSum, SizeSum, Mapping[str, Size]], SizeSum | None]] = {
    "Add": lambda left, right, _: left.plus(right),
    "Sub": lambda left, right, _: left.plus(right, -1),
    "Mul": lambda left, right, _: product(left, right),
    "Div": divided,
    "Mod": _remainder,
}

COMBINING = frozenset(_COMBINED)
"""The operators whose results are sums and quotients of sizes, where both operands are."""


def combined(context: ImportContext, op: str, left: Element, right: Element) -> Element | None:
    """`left op right` for one of `COMBINING`; None where that is no sum of sizes and quotients."""
    result = _COMBINED[op](_terms(context, left), _terms(context, right), context.sizes)
    return None if result is None else _element_of(context, result)


def rounded_down(context: ImportContext, dividend: Element, summand: int, divisor: int) -> Element:
    """`(dividend + summand) // divisor` of a number or a size, for a positive divisor."""
    shifted = _terms(context, dividend).plus(SizeSum((), summand))
    return _element_of(context, quotient(shifted, divisor, context.sizes))


def total(context: ImportContext, elements: Iterable[Element]) -> Element:
    """The sum of numbers and counts; it is a size if all of these are."""
    result = SizeSum((), 0)
    for element in elements:
        result = result.plus(_terms(context, element))
    return _element_of(context, result)


def product_of(context: ImportContext, elements: Iterable[Element]) -> SizeSum:
    """The product of numbers and sizes, in normal form: equal products are equal."""
    return reduce(product, (_terms(context, element) for element in elements), SizeSum((), 1))


def merged(context: ImportContext, elements: Iterable[Element]) -> Element:
    """The product of numbers and sizes."""
    return _element_of(context, product_of(context, elements))


def ratio_of(context: ImportContext, dividend: SizeSum, divisor: SizeSum) -> Element | None:
    """What gives `dividend` if it is multiplied with `divisor`; None where that is no size."""
    result = exact_ratio(dividend, divisor)
    return None if result is None else _element_of(context, result)


def lesser(context: ImportContext, left: Element, right: Element) -> Element:
    """The lesser of two numbers or counts: the same tensor for all that ask for it, so that what is
    cut to it is known to have equally many elements.  It is a size if the counts are."""
    if left == right or _always(context, left, right):
        return left
    if _always(context, right, left):
        return right
    first, second = sorted((left, right), key=str)
    known = context.lesser_counts.get((first, second))
    if known is None or known not in context.graph.values:
        known = _binary(context, "min", *(held(context, one) for one in (first, second)))
        context.lesser_counts[first, second] = known
        bounds = [_bounds(context, one) for one in (first, second)]
        if all(bounds):
            words = (context.sizes[n].name if isinstance(n, str) else n for n in (first, second))
            name = "min({}, {})".format(*words)
            context.sizes[known] = Size(name, *map(min, zip(*filter(None, bounds), strict=True)))
    return known


def held(context: ImportContext, element: Element) -> str:
    """The tensor that holds a number or a count: a constant for a number."""
    if isinstance(element, str):
        return element
    return context.new_constant(f"number.{element}", np.array(element, np.int64))


def _always(context: ImportContext, left: Element, right: Element) -> bool:
    """Whether `left` is at most `right` in every run."""
    bounds, others = _bounds(context, left), _bounds(context, right)
    return bounds is not None and others is not None and bounds[1] <= others[0]


def _bounds(context: ImportContext, element: Element) -> tuple[int, int] | None:
    """The least and the greatest value; None for a count that is no size."""
    if isinstance(element, int):
        return element, element
    size = context.sizes.get(element)
    return None if size is None else (size.lo, size.hi)


def _terms(context: ImportContext, element: Element) -> SizeSum:
    if isinstance(element, int):
        return SizeSum((), element)
    return context.summed.get(element, SizeSum(((element, 1),), 0))


def _element_of(context: ImportContext, wanted: SizeSum) -> Element:
    """The number that a sum is, or the tensor that holds it in a run."""
    if not wanted.factors:
        return wanted.offset
    term, _ = wanted.factors[0]
    if isinstance(term, str) and wanted == SizeSum(((term, 1),), 0):
        return term
    known = context.sums.get(wanted)
    if known is None or known not in context.graph.values:
        known = _computed(context, wanted)
        context.sums[wanted] = known
        context.summed[known] = wanted
        if all(name in context.sizes for name in wanted.names()):
            context.sizes[known] = Size(wanted.text(context.sizes), *wanted.bounds(context.sizes))
    return known


def _computed(context: ImportContext, wanted: SizeSum) -> str:
    """Add the kernels that compute a sum in a run; returns the tensor that holds it."""
    first, _ = wanted.factors[0]
    if wanted == SizeSum(((first, 1),), 0):
        if isinstance(first, Quotient):
            return _quotient(context, first)
        assert isinstance(first, Product)
        parts = [held(context, _element_of(context, SizeSum(((n, 1),), 0))) for n in first.factors]
        return reduce(partial(_binary, context, "mul"), parts)
    result = ""
    for term, factor in wanted.factors:
        part = held(context, _element_of(context, SizeSum(((term, 1),), 0)))
        part = part if factor == 1 else _binary(context, "mul", part, held(context, factor))
        result = _binary(context, "add", result, part) if result else part
    if wanted.offset:
        result = _binary(context, "add", result, held(context, wanted.offset))
    return result


def _quotient(context: ImportContext, wanted: Quotient) -> str:
    """The same for a quotient.  Kernels round quotients to zero, so that of a dividend that may be
    negative is computed from one that is not."""
    divisor = wanted.divisor
    ahead = max(0, -(wanted.dividend.bounds(context.sizes)[0] // divisor))
    dividend = _element_of(context, wanted.dividend.plus(SizeSum((), ahead * divisor)))
    result = _binary(context, "div", held(context, dividend), held(context, divisor))
    return _binary(context, "add", result, held(context, -ahead)) if ahead else result


def _binary(context: ImportContext, op: BinaryOp, left: str, right: str) -> str:
    result = context.unique_tensor_name("size")
    context.graph.add_value(Value(result, "int64", ()))
    func = elementwise.binary(op, (), (), "int64")
    func = context.kernels.setdefault(func, func)
    name = context.unique_node_name(result)
    context.graph.add(Node(name, "Size", func, (left, right), (result,), ()))
    return result
