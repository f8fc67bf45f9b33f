"""Counts of what a kernel computes in one run: iterations, scalar operations, multiply-adds.

In: a kernel, or the axes of loops.  Out: a number.  Each is exact but for conditions, as its
function says.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt, prod
from types import MappingProxyType

from graphflow import arith
from graphflow.base.fields import replace
from graphflow.tir.nodes import exprs, stmts
from graphflow.tir.traversal.accesses import Site, sites
from graphflow.tir.traversal.matched import (
    ended_variables,
    executed_axes,
    matched_variables,
)


def multiply_add_count(func: stmts.PrimFunc) -> int:
    """The number of multiply-adds: iterations of the reductions whose terms contain a product.

    Under a condition `… % s == 0` one iteration in s is counted; other conditions are not looked
    at, so taps in the padding count.  Loops that data ends count as of `executed_sites`.
    """
    total = 0
    for site in executed_sites(func):
        stmt = site.stmt
        if isinstance(stmt, stmts.Reduce) and any(
            isinstance(e, exprs.Binary) and e.op == "mul" for e in exprs.walk_expr(stmt.value)
        ):
            divisors = (divisor for _, divisor in arith.congruences(site.domain.where))
            total += iteration_count(site.domain.axes) // prod(divisors)
    return total


def operation_count(
    func: stmts.PrimFunc, at_once: Mapping[arith.Var, int] = MappingProxyType({})
) -> int:
    """The number of operations of one run of the kernel, on scalars, or on vectors in innermost
    loops of which so many iterations are done `at_once`.

    Literals count like operations, loads do not.  The test of a matched loop is one operation, and
    loops that data ends count as of `executed_sites`.
    """
    total = 0
    for site, executed in zip(sites(func.body), executed_sites(func), strict=True):
        value = getattr(site.stmt, "value", None)
        if value is not None:
            each = sum(1 for e in exprs.walk_expr(value) if not hasattr(e, "indices"))
            around = executed.domain.axes
            tested = len(around) < len(site.domain.axes)
            lanes = at_once.get(around[-1].var, 1) if around else 1
            vectors = -(-iteration_count(around[-1:]) // lanes)
            times = iteration_count(around[:-1]) * vectors
            total += (each + isinstance(site.stmt, stmts.Reduce) + tested) * times
    return total


def executed_sites(func: stmts.PrimFunc) -> tuple[Site, ...]:
    """The statements of a kernel, each with the loops around it as often as they run by estimate.

    A matched loop runs its body once and is left out.  A loop that ends where numbers of the kernel
    say so has the root of its iterations, which is as many times one as it is less than all.
    """
    matched, ended = matched_variables(func.body), ended_variables(func)

    def estimated(axis: arith.Axis) -> arith.Axis:
        if axis.var not in ended:
            return axis
        return replace(
            axis, start=arith.const(0), stop=arith.const(isqrt(iteration_count((axis,))))
        )

    def executed(site: Site) -> Site:
        axes = tuple(map(estimated, executed_axes(site.domain.axes, matched)))
        return replace(site, domain=replace(site.domain, axes=axes))

    found = sites(func.body)
    return tuple(map(executed, found)) if matched or ended else tuple(found)


def iteration_count(axes: tuple[arith.Axis, ...]) -> int:
    """The product of the extents of the axes; 0 where an extent is not constant."""
    return prod(arith.constant_value(axis.stop - axis.start) or 0 for axis in axes)
