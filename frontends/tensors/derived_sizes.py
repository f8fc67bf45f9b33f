"""Sizes that are computed from sizes: `n + m`, `2·n`, `n − 1`.

In: an operation on integers of which some are sizes.  Out: an integer where the sizes cancel, or
the tensor that holds the result in a run, which is a size itself, with bounds.  What always holds:
equal sums of sizes are one tensor, so that extents which agree are known to agree.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from graphflow.base.sizes import Size
from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.size_sums import SizeSum, times
from graphflow.graph import Node, Value
from graphflow.kernels.definitions import elementwise

Element: TypeAlias = "int | str"
"""An integer, or the tensor that holds a size."""


_COMBINED: dict[str, Callable[[SizeSum, SizeSum], SizeSum | None]] = {
    "Add": lambda left, right: left.plus(right),
    "Sub": lambda left, right: left.plus(right, -1),
    "Mul": times,
}

COMBINING = frozenset(_COMBINED)
"""The operators whose results are sums of sizes, where both operands are."""


def combined(context: ImportContext, op: str, left: Element, right: Element) -> Element | None:
    """`left op right` for one of `COMBINING`; None where that is no sum of sizes."""
    result = _COMBINED[op](_sum_of(context, left), _sum_of(context, right))
    return None if result is None else element_of(context, result)


def element_of(context: ImportContext, wanted: SizeSum) -> Element:
    """The number that a sum is, or the tensor that holds it."""
    if not wanted.factors:
        return wanted.offset
    if wanted.offset == 0 and [factor for _, factor in wanted.factors] == [1]:
        return wanted.factors[0][0]
    known = context.sums.get(wanted)
    if known is None or known not in context.graph.values:
        known = _computed(context, wanted)
        context.sums[wanted] = known
        context.summed[known] = wanted
        context.sizes[known] = Size(wanted.text(context.sizes), *wanted.bounds(context.sizes))
    return known


def _sum_of(context: ImportContext, element: Element) -> SizeSum:
    if isinstance(element, int):
        return SizeSum((), element)
    return context.summed.get(element, SizeSum(((element, 1),), 0))


def _computed(context: ImportContext, wanted: SizeSum) -> str:
    """Add the kernels that compute a sum in a run; returns the tensor that holds it."""
    total = ""
    for name, factor in wanted.factors:
        term = name if factor == 1 else _binary(context, "mul", name, _number(context, factor))
        total = _binary(context, "add", total, term) if total else term
    if wanted.offset:
        total = _binary(context, "add", total, _number(context, wanted.offset))
    return total


def _number(context: ImportContext, number: int) -> str:
    return context.new_constant(f"number.{number}", np.array(number, np.int64))


def _binary(context: ImportContext, op: str, left: str, right: str) -> str:
    result = context.unique_tensor_name("size")
    context.graph.add_value(Value(result, "int64", ()))
    func = elementwise.binary("mul" if op == "mul" else "add", (), (), "int64")
    func = context.kernels.setdefault(func, func)
    name = context.unique_node_name(result)
    context.graph.add(Node(name, "Size", func, (left, right), (result,), ()))
    return result
