"""Matched loops: a loop over all positions whose body runs only at a position read from data.

    for row in serial(start, stop):
        if data(index(row, i64) == value):
            body

This is how a definition gathers or scatters without index expressions that depend on data: to every
analysis `row` is a variable in `[start, stop)`, and `body` may or may not run.  The interpreter and
the emitter do not iterate: they evaluate `value` once, and run `body` once with `row` bound to it
if it lies in `[start, stop)`.  This is exact because:

- `value` does not depend on `row`, reads no buffer that `body` writes, and contains no `undef`, so
  every iteration compares `row` with the same number;
- the comparison is in int64, where iterations have distinct values of `row`, so at most one
  iteration satisfies it; if `value` is out of range none does, and no memory is accessed;
- expressions have no side effects, so the other iterations do nothing.

A loop with `start >= stop` evaluates nothing, and `value` may then be a load out of bounds.  An
implementation must therefore test the bounds before it evaluates `value`.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import cast

from graphflow.arith import (
    Axis,
    IndexExpr,
    Predicate,
    Var,
    predicate_variables,
    terms_of,
    variables,
)
from graphflow.tir.nodes import exprs, stmts
from graphflow.tir.traversal.visit import loops_of, writes_in


def matched_value(loop: stmts.For) -> exprs.Expr | None:
    """The value that a matched loop's variable must equal; None for any other loop."""
    if loop.kind is not stmts.LoopKind.SERIAL or len(loop.body) != 1:
        return None
    (test,) = loop.body
    if (
        not isinstance(test, stmts.If)
        or test.orelse
        or not isinstance(test.condition, exprs.Comparison)
    ):
        return None
    condition = test.condition
    if condition.op != "eq":
        return None
    for side, value in (
        (condition.left, condition.right),
        (condition.right, condition.left),
    ):
        if side == exprs.IndexValue(loop.var, "int64") and _is_invariant(
            value, loop.var, test.then
        ):
            return value
    return None


def counted_index(loop: stmts.For) -> tuple[IndexExpr, exprs.Load] | None:
    """The index and the count of a loop that does something only while `index < count`.

    The index grows with the variable, and the loop writes no count.  None for any other loop.
    """
    found = index_below_count(loop)
    return found if found is not None and _is_counted(loop, *found) else None


def index_below_count(loop: stmts.For) -> tuple[IndexExpr, exprs.Load] | None:
    """The index and the count of a serial loop that does something only where `index < count`;
    the index may as well fall.  None for any other loop."""
    if loop.kind is not stmts.LoopKind.SERIAL or len(loop.body) != 1:
        return None
    match loop.body[0]:
        case stmts.If(
            exprs.Comparison("lt", exprs.IndexValue(index, "int64"), exprs.Load() as count),
            _,
            (),
        ):
            return index, count
    return None


def counted_begin(loop: stmts.For) -> tuple[IndexExpr, exprs.Load] | None:
    """The index and the count of a loop that does something only where `count < index`.

    As for `counted_index`, the index grows with the variable, and the loop writes no count.
    """
    if loop.kind is not stmts.LoopKind.SERIAL or len(loop.body) != 1:
        return None
    match loop.body[0]:
        case stmts.If(
            exprs.Comparison("lt", exprs.Load() as count, exprs.IndexValue(index, "int64")), _, ()
        ):
            return (index, count) if _is_counted(loop, index, count) else None
    return None


def lasting_condition(loop: stmts.For) -> exprs.Expr | None:
    """The condition of a loop that does nothing from the first iteration on where it fails.

    It is the same in each iteration but for what the body writes, and a body that does not run
    writes nothing.  None for any other loop.
    """
    if loop.kind is not stmts.LoopKind.SERIAL or len(loop.body) != 1:
        return None
    match loop.body[0]:
        case stmts.If(condition, _, ()) if not exprs.is_predicate(condition):
            test = cast(exprs.Expr, condition)
            undefined = any(isinstance(node, exprs.Undef) for node in exprs.walk_expr(test))
            return None if undefined or loop.var in expression_variables(test) else test
    return None


def _is_counted(loop: stmts.For, index: IndexExpr, count: exprs.Load) -> bool:
    """Whether an index grows with the variable of a loop that does not write a count."""
    if count.indices or count.buffer in {w.buffer for w in writes_in(loop.body)}:
        return False
    rest = index - _factor(index, loop.var) * loop.var
    return _factor(index, loop.var) > 0 and loop.var not in variables(rest)


def _factor(index: IndexExpr, var: Var) -> int:
    return dict(terms_of(index)[0]).get(var, 0)


def matched_variables(body: stmts.Body) -> frozenset[Var]:
    """The variables of the matched loops in `body`; each such loop runs its body at most once."""
    return frozenset(loop.var for loop in loops_of(body) if matched_value(loop) is not None)


def ended_variables(func: stmts.PrimFunc) -> frozenset[Var]:
    """The variables of the loops that end where numbers which the kernel computes say so."""
    given = {param.buffer for param in func.params}

    def ends(loop: stmts.For) -> bool:
        counted = counted_index(loop)
        if counted is not None:
            return counted[1].buffer not in given
        return matched_value(loop) is None and lasting_condition(loop) is not None

    return frozenset(loop.var for loop in loops_of(func.body) if ends(loop))


def executed_axes(axes: Sequence[Axis], matched: Set[Var]) -> tuple[Axis, ...]:
    """The axes without those of `matched` loops, whose bodies run once at the most."""
    return tuple(axis for axis in axes if axis.var not in matched)


def expression_variables(expr: exprs.Expr) -> frozenset[Var]:
    """The loop variables that occur in `expr`: in indices of loads, as numbers, in predicates."""
    found: set[Var] = set()
    for node in exprs.walk_expr(expr):
        match node:
            case exprs.Load():
                found.update(var for index in node.indices for var in variables(index))
            case exprs.IndexValue():
                found.update(variables(node.index))
            case exprs.Select() if exprs.is_predicate(node.condition):
                found.update(predicate_variables(cast(Predicate, node.condition)))
            case _:
                pass
    return frozenset(found)


def _is_invariant(value: exprs.Expr, var: Var, body: stmts.Body) -> bool:
    """Whether `value` is the same in each iteration of a loop over `var` that runs `body`."""
    if var in expression_variables(value):
        return False
    written = {stmt.buffer for stmt in writes_in(body)}
    return not any(
        isinstance(node, exprs.Undef) or (isinstance(node, exprs.Load) and node.buffer in written)
        for node in exprs.walk_expr(value)
    )
