"""Counts of what a kernel computes in one run: iterations, scalar operations, multiply-adds.

In: a kernel, or the axes of loops.  Out: a number.  Each is exact but for conditions, as its
function says.
"""

from __future__ import annotations

from math import prod

from graphflow import arith, tir


def multiply_adds(func: tir.PrimFunc) -> int:
    """The number of multiply-adds: iterations of the reductions whose terms contain a product.

    Under a condition `… % s == 0` one iteration in s is counted; other conditions are not looked
    at, so taps in the padding count.
    """
    total = 0
    for site in tir.sites(func.body):
        stmt = site.stmt
        if isinstance(stmt, tir.Reduce) and any(
            isinstance(e, tir.Binary) and e.op == "mul" for e in tir.walk_expr(stmt.value)
        ):
            divisors = (divisor for _, divisor in arith.congruences(site.domain.where))
            total += iteration_count(site.domain.axes) // prod(divisors)
    return total


def operations(func: tir.PrimFunc) -> int:
    """The number of scalar operations of one run of the kernel.

    Literals count like operations, loads do not.  A matched loop counts as one iteration, and its
    test as one operation.
    """
    total = 0
    matched = tir.matched_variables(func.body)
    for site in tir.sites(func.body):
        value = getattr(site.stmt, "value", None)
        if value is not None:
            each = sum(1 for e in tir.walk_expr(value) if not hasattr(e, "indices"))
            around = tuple(axis for axis in site.domain.axes if axis.var not in matched)
            tested = len(around) < len(site.domain.axes)
            total += (each + isinstance(site.stmt, tir.Reduce) + tested) * iteration_count(around)
    return total


def iteration_count(axes: tuple[arith.Axis, ...]) -> int:
    """The product of the extents of the axes; 0 where an extent is not constant."""
    return prod(arith.constant_value(axis.stop - axis.start) or 0 for axis in axes)
