"""Index arithmetic of a kernel, proven to fit the words that native code computes with.

In: a kernel.  Out: nothing, or a VerifyError with the expression and its bound.  What always holds:
conditions, bounds of loops, indices, offsets into buffers in bytes, and every partial sum on the
way to one of them stay within signed words of 64 bits.  The interpreter computes with integers of
any size, so that a kernel beyond these would compute something else natively.

Scalars have no bounds here: in a program they are variables of loops, which are checked then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.errors import VerifyError

Ranges = Mapping[arith.Var, arith.Interval]


def require_index_words(func: tir.PrimFunc) -> None:
    """VerifyError where an index expression or an offset may leave a signed word of 64 bits."""
    _check(func, func.body, {})


def _check(func: tir.PrimFunc, body: tir.Body, ranges: Ranges) -> None:
    seen: set[object] = set()  # statements side by side mostly access the same elements
    for stmt in body:
        for what, expr in _parts(stmt, ranges, seen):
            part = arith.largest_part(expr, ranges)
            if part is not None and part > arith.WORD:
                raise VerifyError(
                    f"{func.name}: {what} may need numbers up to {part}, and native code computes "
                    f"indices in 64 bits, up to {arith.WORD}; use smaller factors or extents\n"
                    f"in\n{tir.to_text(func, stmt, 'here')}"
                )
        inside = ranges
        if isinstance(stmt, tir.For):
            low, high = arith.bounds(stmt.start, ranges)[0], arith.bounds(stmt.stop, ranges)[1]
            inside = {**ranges, stmt.var: (low, None if high is None else high - 1)}
        for below in tir.sub_bodies(stmt):
            _check(func, below, inside)


def _parts(
    stmt: tir.Stmt, ranges: Ranges, seen: set[object]
) -> Iterator[tuple[object, arith.IndexExpr]]:
    """What a statement computes with indices, without what is inside it, what was `seen`, and
    elements that are near enough."""
    if isinstance(stmt, tir.Assume):
        return  # nothing executes it
    nodes = [node for expr in tir.expressions_of(stmt) for node in tir.walk_expr(expr)]
    for expr in (*_expressions(stmt), *_expressions_in(nodes)):
        if expr not in seen:
            seen.add(expr)
            yield expr, expr
    for element in _elements(stmt, nodes):
        if element not in seen:
            seen.add(element)
            buffer, indices = element
            if _near(buffer, indices, ranges):
                continue
            yield from ((index, index) for index in indices)
            size = tir.DTYPES[buffer.dtype].itemsize
            steps = zip(indices, buffer.strides, strict=True)
            yield _Offset(*element), arith.weighted((index, size * step) for index, step in steps)


def _near(buffer: tir.Buffer, indices: tuple[arith.IndexExpr, ...], ranges: Ranges) -> bool:
    """Whether the offset of an element in bytes fits by a bound that needs no expression of it.

    With P(i) the largest part of the index i, and at least 1 for the coefficient of a variable that
    is always 0, no part of the offset `Σ step·i` is larger than `Σ step·P(i)`: terms of the same
    atom add up.  A rest (`x % c`) may become one term with the quotient in another index, and the
    coefficients of that are not bounded by P; then the answer is no.
    """
    size, most = tir.DTYPES[buffer.dtype].itemsize, 0
    for index, step in zip(indices, buffer.strides, strict=True):
        part = arith.largest_part(index, ranges)
        if part is None or any(isinstance(a, arith.FloorMod) for a, _ in arith.terms_of(index)[0]):
            return False
        most += max(part, 1) * max(size * step, 1)
    return most <= arith.WORD


class _Offset(Struct, frozen=True):
    """The name of an offset, which is made for messages alone."""

    buffer: tir.Buffer
    indices: tuple[arith.IndexExpr, ...]

    def __str__(self) -> str:
        where = ", ".join(map(str, self.indices))
        return f"the offset of {self.buffer.name}[{where}] in bytes"


def _expressions(stmt: tir.Stmt) -> Iterator[arith.IndexExpr]:
    """The bounds of a loop, and what a condition compares."""
    match stmt:
        case tir.For():
            yield from (stmt.start, stmt.stop, stmt.stop - stmt.start)
        case tir.If() if tir.is_predicate(stmt.condition):
            yield from _compared(cast(arith.Predicate, stmt.condition))
        case _:
            pass


def _expressions_in(nodes: Sequence[tir.Expr]) -> Iterator[arith.IndexExpr]:
    """The index expressions that stand in scalar expressions."""
    for node in nodes:
        if isinstance(node, tir.IndexValue):
            yield node.index
        elif isinstance(node, tir.Select) and tir.is_predicate(node.condition):
            yield from _compared(cast(arith.Predicate, node.condition))


def _elements(
    stmt: tir.Stmt, nodes: Sequence[tir.Expr]
) -> Iterator[tuple[tir.Buffer, tuple[arith.IndexExpr, ...]]]:
    """The elements that a statement itself accesses."""
    if isinstance(stmt, tir.Store | tir.Reduce):
        yield stmt.buffer, stmt.indices
    for node in nodes:
        if isinstance(node, tir.Load):
            yield node.buffer, node.indices


def _compared(predicate: arith.Predicate) -> Iterator[arith.IndexExpr]:
    """The expressions that a predicate compares with zero."""
    match predicate:
        case arith.AtLeastZero() | arith.IsZero():
            yield predicate.expr
        case arith.Not():
            yield predicate.member.expr
        case arith.And() | arith.Or():
            for member in predicate.members:
                yield from _compared(member)
        case arith.Truth():
            pass
