"""Parses the scalar expressions of the text form of kernels.

In: nodes of Python's own syntax tree, and the buffers declared so far.  Out: expressions over their
elements.  Anything outside the grammar raises `ParseError` with the line, the column and the text
of the line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import cast

import numpy as np

from graphflow.arith import IndexExpr
from graphflow.base.dtypes import DTYPES, FLOATING
from graphflow.tir.checks.check_types import expression_errors
from graphflow.tir.nodes import elementary, exprs, printer
from graphflow.tir.parsing.parse_index import IndexParser, dotted_name

_DTYPES = {text: dtype for dtype, text in printer.DTYPE_TEXT.items()}
_UNARY_CALLS = tuple(op for op in elementary.UNARY if op not in printer.UNARY_SIGNS)
_BINARY_CALLS: tuple[exprs.BinaryOp, ...] = ("max", "min", "pow", "fmod")
_BINARY_NODES: dict[type[ast.operator], exprs.BinaryOp] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "shr",
}
_COMPARISON_NODES: dict[type[ast.cmpop], exprs.ComparisonOp] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}


class ExpressionParser(IndexParser):
    """Reads the parts of a kernel's text that hold scalar expressions and their types."""

    def __init__(self, text: str, first_line: int) -> None:
        super().__init__(text, first_line)
        self.buffers: dict[str, exprs.Buffer] = {}
        """The buffers declared so far, by name."""
        self.fields: dict[str, exprs.Buffer] = {}
        """The fields of the configurations above, by name."""

    # -- types and elements

    def type_of(self, node: ast.Subscript) -> tuple[str, tuple[int, ...]]:
        """The dtype and the shape that a type such as `f32[4, 8]` states."""
        return self.dtype(node.value), tuple(self.integer(e) for e in elements(node.slice))

    def dtype(self, node: ast.expr) -> str:
        """The dtype that a name such as `f32` states."""
        name = dotted_name(node)
        if name not in _DTYPES:
            raise self.error(node, f"expected an element type, one of {', '.join(_DTYPES)}")
        return _DTYPES[name]

    def declared(self, node: ast.Subscript) -> exprs.Buffer:
        """The buffer in front of the brackets."""
        name = self.name(node.value)
        if name not in self.buffers:
            known = ", ".join(self.buffers) or "none"
            raise self.error(node, f"no buffer is called {name}; declared so far: {known}")
        return self.buffers[name]

    def element(self, node: ast.Subscript) -> tuple[exprs.Buffer, tuple[IndexExpr, ...]]:
        """The buffer and the indices of `x[i, j]`."""
        return self.declared(node), tuple(self.index(e) for e in elements(node.slice))

    # -- scalar expressions

    def condition(self, node: ast.expr) -> exprs.Condition:
        """`data(value)`, or an index predicate."""
        match node:
            case ast.Call(func=ast.Name(id="data"), args=[inner], keywords=[]):
                return self.expr(inner)
        return self.predicate(node)

    def expr(self, node: ast.expr) -> exprs.Expr:
        """A scalar expression; its types are not checked."""
        match node:
            case ast.Subscript():
                return exprs.Load(*self.element(node))
            case ast.Attribute() if dotted_name(node) in self.fields:
                return exprs.Load(self.fields[self.name(node)], ())
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return exprs.Unary("neg", self.expr(operand))
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return exprs.Unary("not", self.expr(operand))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY_NODES:
                return exprs.Binary(_BINARY_NODES[type(op)], self.expr(left), self.expr(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if (
                type(op) in _COMPARISON_NODES
            ):
                return exprs.Comparison(
                    _COMPARISON_NODES[type(op)], self.expr(left), self.expr(right)
                )
            case ast.Call(func=ast.Name(id=word)):
                return self._call(node, word)
            case ast.Constant():
                raise self.error(node, "a number needs its element type, such as f32(1.0)")
        raise self.error(node, "not a scalar expression")

    def checked(self, expr: exprs.Expr) -> exprs.Expr:
        """The expression; ParseError where an operator has operands that it does not take, or an
        element has another number of indices than its buffer has axes."""
        for node in exprs.walk_expr(expr):
            if isinstance(node, exprs.Load) and len(node.indices) != len(node.buffer.shape):
                shape = list(node.buffer.shape)
                raise self.error_at(1, 0, f"{node.buffer.name} has the axes {shape}")
        problem = next(expression_errors(expr), None)
        if problem is not None:
            raise self.error_at(1, 0, problem)
        return expr

    def _call(self, node: ast.Call, word: str) -> exprs.Expr:
        if word in _DTYPES:
            return self._literal(node, _DTYPES[word])
        if node.keywords:
            raise self.error(node, f"{word} takes no keywords")
        match word, node.args:
            case "index", [index, dtype]:
                return exprs.IndexValue(self.index(index), self.dtype(dtype))
            case "select", [condition, if_true, if_false]:
                return exprs.Select(
                    self.condition(condition), self.expr(if_true), self.expr(if_false)
                )
            case "cast", [dtype, operand]:
                return exprs.Cast(self.expr(operand), self.dtype(dtype))
            case "undef", [dtype]:
                return exprs.Undef(self.dtype(dtype))
            case _, [operand] if word in _UNARY_CALLS:
                return exprs.Unary(word, self.expr(operand))
            case _, [left, right] if word in _BINARY_CALLS:
                return exprs.Binary(word, self.expr(left), self.expr(right))
        raise self.error(node, f"{word} with {len(node.args)} arguments is not in the text form")

    def _literal(self, node: ast.Call, dtype: str) -> exprs.Literal:
        match node:
            case ast.Call(args=[value], keywords=[]):
                number = self._number(value)
            case ast.Call(args=[], keywords=[ast.keyword(arg="bits", value=value)]):
                number = _from_bits(self.integer(value), dtype)
            case _:
                raise self.error(node, "a literal has one number, or bits=…")
        if isinstance(number, bool) != (dtype == "bool"):
            raise self.error(node, f"{printer.DTYPE_TEXT[dtype]} cannot hold {number}")
        if isinstance(number, float) and dtype not in FLOATING:
            raise self.error(node, f"{printer.DTYPE_TEXT[dtype]} needs an integer, not {number}")
        literal = exprs.Literal(number, dtype)
        try:
            literal.bits()
        except OverflowError as error:
            message = f"{number} does not fit in {printer.DTYPE_TEXT[dtype]}"
            raise self.error(node, message) from error
        return literal

    def _number(self, node: ast.expr) -> float | int | bool:
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return value
            case ast.Name(id="inf" | "nan" as word):
                return float(word)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._number(operand)
        raise self.error(node, "expected a number, inf or nan")


def parse_expression(text: str, buffers: Iterable[exprs.Buffer]) -> exprs.Expr:
    """The scalar expression that a text stands for, such as `x[4*i] * f32(2.0)`, over buffers and
    fields; ParseError where it is none, or where its types are wrong."""
    parser = _over(buffers, text)
    return parser.checked(parser.expr(parser.tree("no scalar expression")))


def parse_condition(text: str, buffers: Iterable[exprs.Buffer]) -> exprs.Condition:
    """`data(value)`, or an index predicate, as `parse_expression` reads values."""
    parser = _over(buffers, text)
    condition = parser.condition(parser.tree("no condition"))
    return (
        condition if exprs.is_predicate(condition) else parser.checked(cast(exprs.Expr, condition))
    )


def _over(buffers: Iterable[exprs.Buffer], text: str) -> ExpressionParser:
    parser = ExpressionParser(text.strip(), 1)
    for buffer in buffers:
        (parser.fields if buffer.is_field else parser.buffers)[buffer.name] = buffer
    return parser


def elements(node: ast.expr) -> list[ast.expr]:
    """The indices between the brackets of a subscript."""
    return node.elts if isinstance(node, ast.Tuple) else [node]


def _from_bits(bits: int, dtype: str) -> float | int | bool:
    size = DTYPES[dtype].itemsize
    number = np.frombuffer((bits % (1 << 8 * size)).to_bytes(size, "little"), DTYPES[dtype])[0]
    return number.item()  # type: ignore[no-any-return]
