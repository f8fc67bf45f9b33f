"""The kernels between the parts of a branch or a loop: what decides, and what is carried on.

In: shapes and element types of conditions, trip counts and tensors.  Out: a PrimFunc each.  What
always holds: they are executed as they are, over row-major memory, and not planned; one that writes
a row of a tensor leaves the others.
"""

from __future__ import annotations

from functools import partial, reduce

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const
from graphflow.base.sizes import SizeFormula
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.indexing import as_int64
from graphflow.kernels.definitions.scalar_functions import (
    add,
    compared,
    divide,
    multiply,
    remainder,
    subtract,
)
from graphflow.kernels.definitions.stages import Shape


def condition_flag(shape: Shape) -> tir.PrimFunc:
    """`flag = condition`, which is one bool."""
    condition = tir.Buffer("condition", shape, "bool")
    return _flag("condition", (condition,), _only(condition))


def loop_begins(trips: tuple[Shape, str] | None, condition: Shape | None) -> tir.PrimFunc:
    """`flag = condition and 0 < trips`, for those that a loop has."""
    return _loop_flag("loop_begins", condition, None, trips)


def loop_goes_on(condition: Shape | None, trips: tuple[Shape, str] | None) -> tir.PrimFunc:
    """`flag = condition and number + 1 < trips`, for those that a loop has; `number` is an
    int64."""
    return _loop_flag("loop_goes_on", condition, tir.Buffer("number", (), "int64"), trips)


def next_number() -> tir.PrimFunc:
    """`following = number + 1`; both may be the same memory."""
    number, following = tir.Buffer("number", (), "int64"), tir.Buffer("following", (), "int64")
    store = tir.Store(following, (), add(tir.Load(number, ()), 1))
    return _straight("next_number", (number,), following, store)


def computed_size(formula: SizeFormula, count: int) -> tir.PrimFunc:
    """A size that follows from `count` others by a formula."""
    operands = tuple(tir.Buffer(f"size{k}", (), "int64") for k in range(count))
    values: list[tir.Expr] = [tir.Load(buffer, ()) for buffer in operands]
    numbers: list[tir.Expr] = [tir.Literal(number, "int64") for number in formula.numbers]
    match formula.kind:
        case "product":
            value = reduce(multiply, values)
        case "lesser":
            value = reduce(partial(tir.Binary, "min"), [*values, *numbers])
        case "quotient":
            *factors, offset, divisor = numbers
            value = reduce(add, map(multiply, values, factors), offset)
            if formula.numbers[-1] != 1:
                value = divide(subtract(value, remainder(value, divisor, False)), divisor)
    size = tir.Buffer("size", (), "int64")
    return _straight("computed_size", operands, size, tir.Store(size, (), value))


def take_row(x_shape: Shape, axis: int, reverse: bool, dtype: str = "float32") -> tir.PrimFunc:
    """`row = x[…, number, …]` with `number` on `axis`, from the end with `reverse`."""
    x, number = tir.Buffer("x", x_shape, dtype), tir.Buffer("number", (), "int64")
    y = tir.Buffer("y", (*x_shape[:axis], *x_shape[axis + 1 :]), dtype)
    place, loops = Var("place"), stages.loops_over("i", y.shape)
    at = stages.indices_of(loops)
    store = tir.Store(y, at, tir.Load(x, (*at[:axis], place, *at[axis:])))
    position = _position(number, x_shape[axis], reverse)
    body = (stages.matched(place, x_shape[axis], position, tir.nest(loops, (store,))),)
    return stages.nest_kernel("take_row", (x, number), y, (), body, stages.cleared(y))


def kept_violation(shape: Shape, dtype: str, lo: int, hi: int) -> tir.PrimFunc:
    """`y = before` where that is not from `lo` to `hi`, else `y = now`."""
    before, now = tir.Buffer("before", shape, dtype), tir.Buffer("now", shape, dtype)
    y, loops = tir.Buffer("y", shape, dtype), stages.loops_over("i", shape)
    earlier, later = stages.element(before, loops), stages.element(now, loops)
    wide, wrong = as_int64(earlier), earlier
    value = tir.Select(compared("lt", wide, lo), wrong, later)
    value = tir.Select(compared("gt", wide, hi), wrong, value)
    return stages.elementwise_kernel("kept_violation", (before, now), y, loops, value)


def _position(number: tir.Buffer, extent: int, reverse: bool) -> tir.Expr:
    position = tir.Load(number, ())
    if not reverse:
        return position
    return subtract(tir.Literal(extent - 1, "int64"), position)


def put_row(
    row_shape: Shape, extent: int, axis: int, reverse: bool, dtype: str = "float32"
) -> tir.PrimFunc:
    """`y[…, number, …] = row` with `number` on `axis`, from the end with `reverse`; other elements
    of y stay as they are."""
    row, number = tir.Buffer("row", row_shape, dtype), tir.Buffer("number", (), "int64")
    y = tir.Buffer("y", (*row_shape[:axis], extent, *row_shape[axis:]), dtype)
    place, position = Var("place"), _position(number, extent, reverse)
    loops = stages.loops_over("i", row_shape)
    at = stages.indices_of(loops)
    store = tir.Store(y, (*at[:axis], place, *at[axis:]), tir.Load(row, at))
    body = (stages.matched(place, extent, position, tir.nest(loops, (store,))),)
    return stages.nest_kernel("put_row", (row, number), y, (), body)


def _loop_flag(
    name: str,
    condition: Shape | None,
    number: tir.Buffer | None,
    trips: tuple[Shape, str] | None,
) -> tir.PrimFunc:
    inputs: list[tir.Buffer] = []
    value: tir.Expr = tir.Literal(True, "bool")
    if condition is not None:
        inputs.append(tir.Buffer("condition", condition, "bool"))
        value = _only(inputs[-1])
    if number is not None:
        inputs.append(number)
    if trips is not None:
        inputs.append(tir.Buffer("trips", *trips))
        done: tir.Expr = tir.Literal(0, "int64")
        if number is not None:
            done = add(tir.Load(number, ()), 1)
        goes_on = tir.Comparison("lt", done, as_int64(_only(inputs[-1])))
        value = tir.Select(value, goes_on, tir.Literal(False, "bool"))
    return _flag(name, tuple(inputs), value)


def _only(buffer: tir.Buffer) -> tir.Load:
    """The only element of a buffer."""
    zeros: tuple[IndexExpr, ...] = tuple(const(0) for _ in buffer.shape)
    return tir.Load(buffer, zeros)


def _flag(name: str, inputs: tuple[tir.Buffer, ...], value: tir.Expr) -> tir.PrimFunc:
    flag = tir.Buffer("flag", (), "bool")
    return _straight(name, inputs, flag, tir.Store(flag, (), value))


def _straight(
    name: str, inputs: tuple[tir.Buffer, ...], y: tir.Buffer, store: tir.Store
) -> tir.PrimFunc:
    return stages.nest_kernel(name, inputs, y, (), (store,))
