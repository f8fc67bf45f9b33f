"""Parses index expressions and predicates, and locates errors in the text.

In: nodes of Python's own syntax tree.  Out: expressions of `graphflow.arith` in normal form.
Anything outside the grammar raises `ParseError` with the line, the column and the text of the line.
"""

from __future__ import annotations

import ast
from itertools import pairwise

from graphflow import arith
from graphflow.base.errors import ParseError


class IndexParser:
    """Reads the parts of a kernel's text that hold indices; `text` is shown in errors.

    `first_line` is the number that errors give its first line.
    """

    def __init__(self, text: str, first_line: int = 1) -> None:
        self.text = text
        self.lines = text.splitlines()
        self.first_line = first_line

    def error(self, node: ast.AST, message: str) -> ParseError:
        """A `ParseError` that points at `node`."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        return self.error_at(line, column, message)

    def error_at(self, line: int, column: int, message: str) -> ParseError:
        """A `ParseError` that points at a place in `text`; lines count from 1, columns from 0."""
        shown = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        where = f"line {line + self.first_line - 1}, column {column + 1}"
        return ParseError(f"{where}: {message}\n    {shown}\n    {' ' * column}^")

    def tree(self, otherwise: str) -> ast.expr:
        """The syntax tree of the text, which is one expression of Python; else ParseError."""
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            raise self.error_at(error.lineno or 1, (error.offset or 1) - 1, otherwise) from None
        except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes, deep nesting
            raise self.error_at(1, 0, f"{otherwise}: {error}") from None

    def name(self, node: ast.expr) -> str:
        """A name, dots included."""
        name = dotted_name(node)
        if name is None:
            raise self.error(node, "expected a name")
        return name

    def integer(self, node: ast.expr) -> int:
        """An integer with an optional minus."""
        match node:
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.integer(operand)
        raise self.error(node, "expected an integer")

    def index(self, node: ast.expr) -> arith.IndexExpr:
        """An index expression in normal form."""
        try:
            return self._index_node(node)
        except ValueError as error:
            raise self.error(node, str(error)) from error

    def _index_node(self, node: ast.expr) -> arith.IndexExpr:
        match node:
            case ast.Constant():
                return arith.const(self.integer(node))
            case ast.Name() | ast.Attribute():
                return arith.Var(self.name(node))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.index(operand)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.index(left) + self.index(right)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self.index(left) - self.index(right)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self.index(left) * self.index(right)
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
                return self.index(left) // self.integer(right)
            case ast.BinOp(left=left, op=ast.Mod(), right=right):
                return self.index(left) % self.integer(right)
            case ast.Call(func=ast.Name(id="min"), args=[left, right]):
                return arith.minimum(self.index(left), self.index(right))
            case ast.Call(func=ast.Name(id="max"), args=[left, right]):
                return arith.maximum(self.index(left), self.index(right))
        raise self.error(
            node, "not an index expression (integers, loop variables, + - * // % min max)"
        )

    def predicate(self, node: ast.expr) -> arith.Predicate:
        """An index predicate in normal form; comparisons may be chained."""
        match node:
            case ast.Constant(value=bool(value)):
                return arith.Truth(value)
            case ast.BoolOp(op=ast.And(), values=values):
                return arith.conjunction(self.predicate(value) for value in values)
            case ast.BoolOp(op=ast.Or(), values=values):
                return arith.disjunction(self.predicate(value) for value in values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return arith.negation(self.predicate(operand))
            case ast.Compare():
                sides = [self.index(side) for side in (node.left, *node.comparators)]
                return arith.conjunction(
                    self._index_comparison(node, op, *pair)
                    for op, pair in zip(node.ops, pairwise(sides), strict=True)
                )
        raise self.error(node, "not an index predicate; a condition on data reads data(…)")

    def _index_comparison(
        self, node: ast.expr, op: ast.cmpop, left: arith.IndexExpr, right: arith.IndexExpr
    ) -> arith.Predicate:
        match op:
            case ast.Lt():
                return arith.less_than(left, right)
            case ast.LtE():
                return arith.at_most(left, right)
            case ast.Gt():
                return arith.less_than(right, left)
            case ast.GtE():
                return arith.at_most(right, left)
            case ast.Eq():
                return arith.equal(left, right)
            case ast.NotEq():
                return arith.negation(arith.equal(left, right))
        raise self.error(node, "indices compare with < <= > >= == != only")


def parse_predicate(text: str) -> arith.Predicate:
    """The predicate that a text stands for, such as `4*i + j < 14`; ParseError where it is none."""
    parser = IndexParser(text.strip())
    return parser.predicate(parser.tree("no predicate"))


def parse_index(text: str) -> arith.IndexExpr:
    """The index expression that a text stands for, such as `4*i + j`; ParseError for others."""
    parser = IndexParser(text.strip())
    return parser.index(parser.tree("no index expression"))


def dotted_name(node: ast.expr | None) -> str | None:
    """A name, dots included, or None."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            head = dotted_name(value)
            return None if head is None else f"{head}.{attr}"
    return None
