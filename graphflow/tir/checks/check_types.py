"""Type checking of statements: each violated rule gives one sentence that says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

from graphflow.base.dtypes import CARRIERS, DTYPES, FLOATING, FLOATS, STORED, integer_limits
from graphflow.tir.nodes import elementary, exprs, printer, stmts
from graphflow.tir.traversal.visit import expressions_of

ON_FLOATS = ("add", "sub", "mul", "div", "max", "min", "pow", "fmod")
ON_INTEGERS = tuple(op for op in exprs.BINARY if op != "fmod")
ON_BOOLS = ("and", "or", "xor", "add", "mul", "max", "min")
"""Binary operators; on bools `add` is or and `mul` is and, as in numpy."""

UNARY_ON_INTEGERS = ("neg", "abs", "not")


def type_errors(stmt: stmts.Stmt) -> Iterator[str]:
    """A sentence for each type rule that `stmt` itself, not a body below it, violates."""
    for expr in expressions_of(stmt):
        yield from expression_errors(expr)
    match stmt:
        case stmts.Store() | stmts.Reduce() if stmt.value.dtype != stmt.buffer.dtype:
            yield f"{stmt.buffer.name} holds {stmt.buffer.dtype}, the value is {stmt.value.dtype}"
        case stmts.Reduce() if stmt.buffer.dtype in STORED:
            yield f"{stmt.buffer.name} holds {stmt.buffer.dtype}, in which nothing is computed"
        case stmts.If():
            yield from _condition_errors(stmt.condition)
        case stmts.Assume():
            yield from _condition_errors(stmt.unless)
            yield from _condition_errors(stmt.claim)
        case _:
            pass


def expression_errors(expr: exprs.Expr) -> Iterator[str]:
    """A sentence for each type rule that an expression violates."""
    for node in exprs.walk_expr(expr):
        yield from _node_errors(node)


def _condition_errors(condition: exprs.Condition) -> Iterator[str]:
    if not exprs.is_predicate(condition) and (dtype := cast(exprs.Expr, condition).dtype) != "bool":
        yield f"the condition {printer.expr_text(cast(exprs.Expr, condition))} is {dtype}, not bool"


def _node_errors(node: exprs.Expr) -> Iterator[str]:
    if node.dtype not in DTYPES:
        yield f"{node.dtype} is not an element type; there are {', '.join(DTYPES)}"
        return
    match node:
        case exprs.Literal():
            yield from _literal_errors(node)
        case exprs.Unary():
            yield from _unary_errors(node)
        case exprs.Binary():
            yield from _operand_errors(node, exprs.BINARY)
            if node.op in exprs.BINARY and node.op not in _binary_operators(node.dtype):
                yield f"{node.op} does not take {node.dtype} operands"
        case exprs.Comparison():
            yield from _operand_errors(node, exprs.COMPARISONS)
        case exprs.Select():
            yield from _condition_errors(node.condition)
            if node.if_true.dtype != node.if_false.dtype:
                yield f"select gives {node.if_true.dtype} or {node.if_false.dtype}"
        case exprs.IndexValue():
            if node.dtype in ("bool", *STORED):
                yield f"the index {node.index} is a number, not a {node.dtype}"
        case exprs.Cast():
            yield from _cast_errors(node)
        case exprs.Load() | exprs.Undef():
            pass


def _cast_errors(node: exprs.Cast) -> Iterator[str]:
    source, target = node.operand.dtype, node.dtype
    for stored, other in ((source, target), (target, source)):
        if source != target and stored in STORED and other not in CARRIERS[stored]:
            carriers = " and ".join(CARRIERS[stored])
            yield f"{stored} is cast to and from {carriers} only, not {source} to {target}"


def _unary_errors(node: exprs.Unary) -> Iterator[str]:
    if node.op not in elementary.UNARY:
        yield f"{node.op} is not a unary operator"
    elif node.op not in _unary_operators(node.operand.dtype):
        yield f"{node.op} does not take a {node.operand.dtype} operand"


def _unary_operators(dtype: str) -> tuple[str, ...]:
    if dtype in STORED:
        return ()
    if dtype in FLOATS:
        return tuple(op for op in elementary.UNARY if op != "not")
    return ("not",) if dtype == "bool" else UNARY_ON_INTEGERS


def _binary_operators(dtype: str) -> tuple[str, ...]:
    if dtype in STORED:
        return ()
    if dtype in FLOATS:
        return ON_FLOATS
    return ON_BOOLS if dtype == "bool" else ON_INTEGERS


def _operand_errors(
    node: exprs.Binary | exprs.Comparison, operators: tuple[str, ...]
) -> Iterator[str]:
    if node.op not in operators:
        yield f"{node.op} is not one of {', '.join(operators)}"
    if node.left.dtype != node.right.dtype:
        yield f"{node.op} of {node.left.dtype} and {node.right.dtype}; cast one of them"
    if isinstance(node, exprs.Comparison) and node.left.dtype in STORED:
        yield f"{node.op} does not take {node.left.dtype} operands"


def _literal_errors(node: exprs.Literal) -> Iterator[str]:
    boolean = node.dtype == "bool"
    if boolean and not isinstance(node.value, bool | np.bool_):
        yield f"the bool literal is {node.value!r}"
    elif not boolean and node.dtype not in FLOATING:
        low, high = integer_limits(node.dtype)
        if node.value != node.value or node.value in (float("inf"), float("-inf")):
            yield f"{node.value} is not an integer"
        elif int(node.value) != node.value or not low <= node.value <= high:
            yield f"{node.value} is not a value of {node.dtype}"
