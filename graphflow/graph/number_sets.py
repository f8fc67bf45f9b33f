"""Sets of numbers of which all elements of a tensor are, as the definitions of its kernels show.

In: a graph, and which expressions have only numbers of a set.  Out: whether a value of the graph
has no element outside of the set, NaN aside.  What always holds: a value is in a set if what its
kernel stores is, whatever the layout, and its own buffers with it; UNKNOWN counts as no.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from graphflow import tir
from graphflow.base.dtypes import DTYPES
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.value import Array

Holds: TypeAlias = Callable[[tir.Expr], bool]
"""Whether all numbers that an expression has are in the set."""


Operation: TypeAlias = tir.Cast | tir.Unary | tir.Binary | tir.Select


class NumberSet(ABC):
    """A set of numbers, and which values of a graph have no element outside of it but NaN."""

    def __init__(self, graph: OperatorGraph) -> None:
        self._graph = graph
        self._known: dict[str, bool] = {}

    @abstractmethod
    def has_all(self, array: Array) -> bool:
        """Whether each element of an array is in the set, or NaN."""

    @abstractmethod
    def keeps(self, expr: Operation, holds: Holds) -> bool:
        """Whether an operation has only numbers of the set; `holds` says that of its operands."""

    def holds(self, value: str) -> bool:
        """Whether each element of `value` is in the set, or NaN."""
        if value not in self._known:
            # What its own kernel reads of it is what that stores.
            self._known[value] = True
            self._known[value] = self._found(value)
        return self._known[value]

    def _found(self, value: str) -> bool:
        if value in self._graph.inputs:
            return False
        array = self._graph.initializers.get(value)
        if array is not None:
            return self.has_all(array)
        maker = self._graph.producer(value)
        return maker is not None and maker.has_definition and self._all_stored(maker)

    def _all_stored(self, node: Node) -> bool:
        """Whether all that a node writes is in the set, its own buffers included."""
        bound = node.bound

        def holds(expr: tir.Expr) -> bool:
            match expr:
                case tir.Literal():
                    return self.has_all(np.asarray(expr.value, DTYPES[expr.dtype]))
                case tir.Load():
                    source = bound.get(expr.buffer.name)
                    return source is None or self.holds(source)
                case tir.Cast() | tir.Unary() | tir.Binary() | tir.Select():
                    return self.keeps(expr, holds)
                case _:
                    return False

        for stmt in tir.walk(node.func.body):
            match stmt:
                case tir.Store() | tir.Reduce(op=tir.ReduceOp.MAX | tir.ReduceOp.MIN):
                    if not holds(stmt.value):
                        return False
                case tir.Reduce() | tir.Call():
                    return False
                case _:
                    pass
        return True


class NonNegative(NumberSet):
    """Numbers that do not compare as less than zero: −0.0 and +∞ are among them."""

    def has_all(self, array: Array) -> bool:
        return not bool(np.less(array, 0).any())

    def keeps(self, expr: Operation, holds: Holds) -> bool:
        if expr.dtype not in tir.FLOATS:
            return False  # integers wrap around
        match expr:
            case tir.Cast():
                return expr.operand.dtype in tir.FLOATS and holds(expr.operand)
            case tir.Unary():
                return expr.op in ("abs", "exp", "sqrt") or (
                    expr.op in ("round", "floor") and holds(expr.operand)
                )
            case tir.Binary(op="mul") if expr.left == expr.right:
                return True
            case tir.Binary():
                both = expr.op in ("add", "mul", "max", "min")
                return both and holds(expr.left) and holds(expr.right)
            case tir.Select():
                return _selects_none_below(expr, holds, ())


def _selects_none_below(expr: tir.Expr, holds: Holds, known: tuple[tir.Expr, ...]) -> bool:
    """Whether `expr`, of which each branch is a number of `known` or one that `holds`, is never
    below zero; no number in `known` is."""
    if not isinstance(expr, tir.Select):
        return expr in known or holds(expr)
    return all(
        _selects_none_below(branch, holds, (*known, *_not_below_zero(expr.condition, taken)))
        for taken, branch in ((True, expr.if_true), (False, expr.if_false))
    )


def _not_below_zero(condition: tir.Condition, taken: bool) -> Iterator[tir.Expr]:
    """What is no number below zero where a condition holds (`taken`), or does not.

    A comparison with NaN is false, so that the operand may be NaN, but the bound may not.
    """
    if not isinstance(condition, tir.Comparison):
        return
    above, below = ("gt", "ge"), ("lt", "le")
    for operand, bound, tells in (
        (condition.left, condition.right, above if taken else below),
        (condition.right, condition.left, below if taken else above),
    ):
        if condition.op in tells and isinstance(bound, tir.Literal) and bound.value >= 0:
            yield operand
