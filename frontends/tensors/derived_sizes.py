"""Sizes that are computed from sizes: `n + m`, `2·n`, `n − 1`.

In: an operation on integers of which some are sizes.  Out: an integer where the sizes cancel, or
the tensor that holds the result in a run, which is a size itself, with bounds.  What always holds:
equal sums of sizes are one tensor, so that extents which agree are known to agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from graphflow.base.sizes import Size
from graphflow.frontends.tensors.context import ImportContext
from graphflow.graph import Node, Value
from graphflow.kernels.definitions import elementwise

Element: TypeAlias = "int | str"
"""An integer, or the tensor that holds a size."""


@dataclass(frozen=True, slots=True)
class Sum:
    """`offset + Σ factor · size` over some sizes, by the names of their tensors."""

    factors: tuple[tuple[str, int], ...]
    offset: int

    def plus(self, other: Sum, times: int = 1) -> Sum:
        """`self + times · other`."""
        found = dict(self.factors)
        for name, factor in other.factors:
            found[name] = found.get(name, 0) + times * factor
        kept = sorted((name, factor) for name, factor in found.items() if factor)
        return Sum(tuple(kept), self.offset + times * other.offset)

    def bounds(self, context: ImportContext) -> tuple[int, int]:
        """The least and the greatest value, for sizes that do not depend on each other."""
        ends = [
            sorted((factor * context.sizes[name].lo, factor * context.sizes[name].hi))
            for name, factor in self.factors
        ]
        return self.offset + sum(lo for lo, _ in ends), self.offset + sum(hi for _, hi in ends)

    def text(self, context: ImportContext) -> str:
        """The sum as users write it."""
        words = [
            context.sizes[name].name if factor == 1 else f"{factor}·{context.sizes[name].name}"
            for name, factor in self.factors
        ]
        if self.offset or not words:
            words.append(str(self.offset))
        return " + ".join(words).replace("+ -", "- ")


def _times(left: Sum, right: Sum) -> Sum | None:
    """The product, where one of both is a number."""
    if left.factors and right.factors:
        return None
    many, number = (left, right.offset) if left.factors else (right, left.offset)
    return Sum((), 0).plus(many, number)


_COMBINED: dict[str, Callable[[Sum, Sum], Sum | None]] = {
    "Add": lambda left, right: left.plus(right),
    "Sub": lambda left, right: left.plus(right, -1),
    "Mul": _times,
}

COMBINING = frozenset(_COMBINED)
"""The operators whose results are sums of sizes, where both operands are."""


def combined(context: ImportContext, op: str, left: Element, right: Element) -> Element | None:
    """`left op right` for one of `COMBINING`; None where that is no sum of sizes."""
    result = _COMBINED[op](_sum_of(context, left), _sum_of(context, right))
    return None if result is None else element_of(context, result)


def element_of(context: ImportContext, wanted: Sum) -> Element:
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
        context.sizes[known] = Size(wanted.text(context), *wanted.bounds(context))
    return known


def _sum_of(context: ImportContext, element: Element) -> Sum:
    if isinstance(element, int):
        return Sum((), element)
    return context.summed.get(element, Sum(((element, 1),), 0))


def _computed(context: ImportContext, wanted: Sum) -> str:
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
