"""Loops that are guarded by a count: the iterations before which and behind which they do nothing.

In: a serial loop whose body is guarded by a comparison of an index with a count that memory holds.
Out: the first iteration that does something, and the one behind the last that does, as values.
"""

from __future__ import annotations

from graphflow import tir
from graphflow.arith import IndexExpr, Interval, bounds, const, terms_of
from graphflow.codegen.emit_expr import Expressions
from graphflow.codegen.emit_mask import Mask
from graphflow.llvm import IrValue, int_constant


def end_of_counted(
    loop: tir.For, interval: Interval, expressions: Expressions, mask: Mask | None
) -> IrValue | None:
    """Where a loop can end, as the rest of it does nothing: at the first iteration whose index is
    not below a count.  None for other loops."""
    counted = tir.counted_index(loop)
    if counted is None:
        return None
    index, count = counted
    least = index - (_step(loop, index) - 1)
    return _iteration_at(loop, least, count, interval, expressions, mask)


def begin_of_counted(
    loop: tir.For, interval: Interval, expressions: Expressions, mask: Mask | None
) -> IrValue | None:
    """Where a loop can begin, as it does nothing before: at the first iteration whose index is
    above a count.  None for other loops."""
    counted = tir.counted_begin(loop)
    if counted is None:
        return None
    index, count = counted
    return _iteration_at(loop, index - _step(loop, index), count, interval, expressions, mask)


def _step(loop: tir.For, index: IndexExpr) -> int:
    return dict(terms_of(index)[0])[loop.var]


def _iteration_at(
    loop: tir.For,
    index: IndexExpr,
    count: tir.Expr,
    interval: Interval,
    expressions: Expressions,
    mask: Mask | None,
) -> IrValue | None:
    """The last iteration, at least number 0, whose index is at most a count; None where numbers on
    the way might not fit a word."""
    b, indices = expressions.builder, expressions.indices
    if indices.lanes is not None:
        return None
    factor = _step(loop, index)
    with indices.bound(loop.var, const(0)):
        rest = indices.resolved(index)
    (low, high), (first, last) = bounds(rest, indices.ranges), interval
    if low is None or high is None or first is None or first < 0 or last is None:
        return None
    if low + factor - 1 < 0:
        return None
    # Between these limits no sum overflows, whatever the memory holds.
    number = b.intrinsic("smax", b.freeze(expressions.emit(count, mask)), int_constant(0))
    most = max(factor * last + high + factor, 0)
    number = b.intrinsic("smin", number, int_constant(most))
    below = b.binary("sub nsw", number, indices.value(rest))
    return b.binary("udiv", b.intrinsic("smax", below, int_constant(0)), int_constant(factor))
