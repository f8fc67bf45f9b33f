"""Sizes that are computed from sizes: `n + m`, `2·n`, `n − 1`, the lesser of two.

In: an operation on integers of which some are sizes.  Out: an integer where the sizes cancel, or
the tensor that holds the result in a run, which is a size itself, with bounds.  What always holds:
equal sums of sizes are one tensor, so that extents which agree are known to agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import numpy as np

from graphflow.base.sizes import Size
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.size_sums import SizeSum, product
from graphflow.graph import Node, Value
from graphflow.kernels.definitions import elementwise
from graphflow.tir import BinaryOp

Element: TypeAlias = "int | str"
"""An integer, or the tensor that holds a size."""


_COMBINED: dict[str, Callable[[SizeSum, SizeSum], SizeSum | None]] = {
    "Add": lambda left, right: left.plus(right),
    "Sub": lambda left, right: left.plus(right, -1),
    "Mul": product,
}

COMBINING = frozenset(_COMBINED)
"""The operators whose results are sums of sizes, where both operands are."""


def combined(context: ImportContext, op: str, left: Element, right: Element) -> Element | None:
    """`left op right` for one of `COMBINING`; None where that is no sum of sizes."""
    result = _COMBINED[op](_terms(context, left), _terms(context, right))
    return None if result is None else _element_of(context, result)


def total(context: ImportContext, elements: Iterable[Element]) -> Element:
    """The sum of numbers and counts; it is a size if all of these are."""
    result = SizeSum((), 0)
    for element in elements:
        result = result.plus(_terms(context, element))
    return _element_of(context, result)


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
    if wanted.offset == 0 and [factor for _, factor in wanted.factors] == [1]:
        return wanted.factors[0][0]
    known = context.sums.get(wanted)
    if known is None or known not in context.graph.values:
        known = _computed(context, wanted)
        context.sums[wanted] = known
        context.summed[known] = wanted
        if all(name in context.sizes for name, _ in wanted.factors):
            context.sizes[known] = Size(wanted.text(context.sizes), *wanted.bounds(context.sizes))
    return known


def _computed(context: ImportContext, wanted: SizeSum) -> str:
    """Add the kernels that compute a sum in a run; returns the tensor that holds it."""
    result = ""
    for name, factor in wanted.factors:
        term = name if factor == 1 else _binary(context, "mul", name, held(context, factor))
        result = _binary(context, "add", result, term) if result else term
    if wanted.offset:
        result = _binary(context, "add", result, held(context, wanted.offset))
    return result


def _binary(context: ImportContext, op: BinaryOp, left: str, right: str) -> str:
    result = context.unique_tensor_name("size")
    context.graph.add_value(Value(result, "int64", ()))
    func = elementwise.binary(op, (), (), "int64")
    func = context.kernels.setdefault(func, func)
    name = context.unique_node_name(result)
    context.graph.add(Node(name, "Size", func, (left, right), (result,), ()))
    return result
