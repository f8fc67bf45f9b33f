"""Sizes that data decides: numbers that kernels compute in a run, with bounds known at import.

In: a count that a kernel makes, such as the number of an iteration, and its bounds.  Out: a size
like others, for which extents are proven; what is computed from it is computed by kernels.  What
always holds: it is one number in all nodes of the graph that holds it, and within its bounds in
each run, since the kernels that make it cannot give another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

import numpy as np

from graphflow.base.sizes import Size, SizeFormula
from graphflow.frontends.tensors.context import ImportContext
from graphflow.graph import Node, Value
from graphflow.kernels.definitions import elementwise
from graphflow.tir import BinaryOp, PrimFunc


def add_data_size(context: ImportContext, tensor: str, size: Size) -> None:
    """Make a count that kernels compute a size: an int64 without axes, within the bounds."""
    context.sizes[tensor] = size
    context.data_sizes[tensor] = None


def is_of_data(context: ImportContext, elements: Iterable[int | str]) -> bool:
    """Whether data decides one of some numbers and sizes."""
    return not context.data_sizes.keys().isdisjoint(elements)


def size_by_kernels(
    context: ImportContext, size: Size, formula: SizeFormula, operands: Sequence[str]
) -> str:
    """Add the kernels that compute a formula, whose result is a size; returns its tensor."""
    match formula.kind:
        case "product":
            result = reduce(lambda a, b: count_kernel(context, "mul", a, b), operands)
        case "lesser":
            numbers = [_number(context, one) for one in formula.numbers]
            result = reduce(lambda a, b: count_kernel(context, "min", a, b), [*operands, *numbers])
        case "quotient":
            result = _quotient(context, formula, operands)
    add_data_size(context, result, size)
    return result


def _quotient(context: ImportContext, formula: SizeFormula, operands: Sequence[str]) -> str:
    *factors, offset, divisor = formula.numbers
    parts = [
        one if factor == 1 else count_kernel(context, "mul", one, _number(context, factor))
        for factor, one in zip(factors, operands, strict=True)
    ]
    parts += [_number(context, offset)] if offset else []
    result = reduce(lambda a, b: count_kernel(context, "add", a, b), parts)
    if divisor == 1:
        return result
    by, rest = _number(context, divisor), context.unique_tensor_name("size")
    func = elementwise.modulo((), (), False, "int64")  # not negative, so the quotient rounds down
    add_size_kernel(context, func, (result, by), rest)
    return count_kernel(context, "div", count_kernel(context, "sub", result, rest), by)


def _number(context: ImportContext, number: int) -> str:
    return context.new_constant(f"number.{number}", np.array(number, np.int64))


def count_kernel(context: ImportContext, op: BinaryOp, left: str, right: str) -> str:
    """Add a kernel that combines two counts; returns the tensor that holds the result."""
    result = context.unique_tensor_name("size")
    add_size_kernel(context, elementwise.binary(op, (), (), "int64"), (left, right), result)
    return result


def add_size_kernel(
    context: ImportContext, func: PrimFunc, names: Sequence[str], result: str
) -> None:
    """Add a kernel with one output that computes with sizes, and its output `result`."""
    func, (output,) = context.kernels.setdefault(func, func), func.outputs
    context.graph.add_value(Value(result, output.dtype, output.shape))
    name = context.unique_node_name(result)
    context.graph.add(Node(name, "Size", func, tuple(names), (result,), ()))
