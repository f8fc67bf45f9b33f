"""Counts of what a kernel computes in one run: iterations, scalar operations, multiply-adds.

In: a kernel, or the axes of loops.  Out: a number.  Each is exact but for conditions, as its
function says.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

from graphflow import arith
from graphflow.tir.nodes import exprs, stmts
from graphflow.tir.traversal.accesses import sites
from graphflow.tir.traversal.matched import executed_axes, matched_variables


def multiply_add_count(func: stmts.PrimFunc) -> int:
    """The number of multiply-adds: iterations of the reductions whose terms contain a product.

    Under a condition `… % s == 0` one iteration in s is counted, and of a matched loop one; other
    conditions are not looked at, so taps in the padding count.
    """
    total = 0
    matched = matched_variables(func.body)
    for site in sites(func.body):
        stmt = site.stmt
        if isinstance(stmt, stmts.Reduce) and any(
            isinstance(e, exprs.Binary) and e.op == "mul" for e in exprs.walk_expr(stmt.value)
        ):
            divisors = (divisor for _, divisor in arith.congruences(site.domain.where))
            around = executed_axes(site.domain.axes, matched)
            total += iteration_count(around) // prod(divisors)
    return total


def operation_count(
    func: stmts.PrimFunc, at_once: Mapping[arith.Var, int] = MappingProxyType({})
) -> int:
    """The number of operations of one run of the kernel, on scalars, or on vectors in innermost
    loops of which so many iterations are done `at_once`.

    Literals count like operations, loads do not.  A matched loop counts as one iteration, and its
    test as one operation.
    """
    total = 0
    matched = matched_variables(func.body)
    for site in sites(func.body):
        value = getattr(site.stmt, "value", None)
        if value is not None:
            each = sum(1 for e in exprs.walk_expr(value) if not hasattr(e, "indices"))
            around = executed_axes(site.domain.axes, matched)
            tested = len(around) < len(site.domain.axes)
            lanes = at_once.get(around[-1].var, 1) if around else 1
            vectors = -(-iteration_count(around[-1:]) // lanes)
            times = iteration_count(around[:-1]) * vectors
            total += (each + isinstance(site.stmt, stmts.Reduce) + tested) * times
    return total


def iteration_count(axes: tuple[arith.Axis, ...]) -> int:
    """The product of the extents of the axes; 0 where an extent is not constant."""
    return prod(arith.constant_value(axis.stop - axis.start) or 0 for axis in axes)
