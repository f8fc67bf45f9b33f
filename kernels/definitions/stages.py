"""Building blocks of compute definitions, which are all sequences of named stages.

In: buffers, loop variables, scalar expressions.  Out: `Block`s.  A stage is one loop nest over the
axes of the buffer that it writes, in axis order; a reduction stage stores its initial value inside
those loops and then runs the reduction loops.  The caller chooses unique names for loop variables
and blocks.  Nothing here knows an operator, a layout or a target.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from graphflow import arith, tir
from graphflow.base.dtypes import FLOATING
from graphflow.base.errors import InvalidModel, UnsupportedOp

Shape: TypeAlias = tuple[int, ...]
Loop: TypeAlias = tuple[arith.Var, int]
"""A loop variable and its extent; it runs from 0."""


def loops_over(names: str | Sequence[str], shape: Sequence[int]) -> tuple[Loop, ...]:
    """One loop for each axis; `names` are the variables, or a prefix that is numbered from 0."""
    if isinstance(names, str):
        names = [f"{names}{axis}" for axis in range(len(shape))]
    return tuple((arith.Var(name), extent) for name, extent in zip(names, shape, strict=True))


def indices_of(loops: Iterable[Loop]) -> tuple[arith.IndexExpr, ...]:
    """The loop variables as indices."""
    return tuple(var for var, _ in loops)


def element(buffer: tir.Buffer, loops: Iterable[Loop]) -> tir.Load:
    """The element of a buffer at the loop variables."""
    return tir.Load(buffer, indices_of(loops))


def ranges_of(loops: Iterable[Loop]) -> dict[arith.Var, arith.Interval]:
    """The interval of each loop variable; an empty loop is treated like one of extent 1."""
    return {var: (0, max(extent, 1) - 1) for var, extent in loops}


def matched(var: arith.Var, extent: int, value: tir.Expr, body: tir.Body) -> tir.For:
    """`body` with `var` bound to the int64 `value`, executed only if `0 <= value < extent`."""
    test = tir.If(tir.Comparison("eq", tir.IndexValue(var), value), body)
    return tir.For(var, arith.const(0), arith.const(extent), tir.LoopKind.SERIAL, (test,))


def elementwise_stage(
    name: str, out: tir.Buffer, loops: Sequence[Loop], value: tir.Expr
) -> tir.Block:
    """`for loops: out[loops] = value`; the loops are the axes of `out`."""
    return store_stage(name, out, loops, indices_of(loops), value)


def cleared(out: tir.Buffer) -> tir.Block:
    """A stage that fills `out` with zeros, for later stages that write only some elements."""
    return elementwise_stage("cleared", out, loops_over("z", out.shape), literal(0, out.dtype))


def store_stage(
    name: str,
    out: tir.Buffer,
    loops: Sequence[Loop],
    indices: Sequence[arith.IndexLike],
    value: tir.Expr,
) -> tir.Block:
    """`for loops: out[indices] = value`."""
    where = tuple(arith.as_index(index) for index in indices)
    return tir.Block(name, tir.nest(loops, (tir.Store(out, where, value),)))


def reduction_stage(
    name: str,
    op: tir.ReduceOp,
    out: tir.Buffer,
    loops: Sequence[Loop],
    reduce_loops: Sequence[Loop],
    value: tir.Expr,
    *,
    indices: Sequence[arith.IndexExpr] | None = None,
    init: tir.Expr | None = None,
    where: arith.Predicate = arith.TRUE,
) -> tir.Block:
    """`for loops: out[indices] = init; for reduce_loops: if where: out[indices] ⊕= value`.

    `indices` are by default the variables of `loops`, `init` is by default the neutral element.
    Conditions of `where` that always hold within the extents are dropped.
    """
    target = indices_of(loops) if indices is None else tuple(indices)
    update: tir.Stmt = tir.Reduce(op, out, target, value)
    guard = arith.simplify_predicate(where, ranges_of((*loops, *reduce_loops)))
    if guard != arith.TRUE:
        update = tir.If(guard, (update,))
    start = tir.Store(out, target, neutral(op, out.dtype) if init is None else init)
    return tir.Block(name, tir.nest(loops, (start, *tir.nest(reduce_loops, (update,)))))


def neutral(op: tir.ReduceOp, dtype: str) -> tir.Literal:
    """The element `e` with `e ⊕ x = x` for each `x` of `dtype`."""
    if op is tir.ReduceOp.ADD:
        return literal(0, dtype)
    if op is tir.ReduceOp.MUL:
        return literal(1, dtype)
    if dtype in tir.FLOATS:
        return tir.Literal(float("inf") if op is tir.ReduceOp.MIN else float("-inf"), dtype)
    if dtype == "bool":
        return tir.Literal(op is tir.ReduceOp.MIN, dtype)
    limits = np.iinfo(dtype)
    return tir.Literal(int(limits.max if op is tir.ReduceOp.MIN else limits.min), dtype)


def require_floats(what: str, dtype: str) -> None:
    """Raise `UnsupportedOp`, which begins with `what`, for a dtype of integers."""
    if dtype not in tir.FLOATS:
        raise UnsupportedOp(f"{what} of {dtype} is not built; cast the input to float32")


def literal(value: float, dtype: str) -> tir.Literal:
    """`value` as a constant of `dtype`."""
    if dtype in FLOATING:
        return tir.Literal(float(value), dtype)
    return tir.Literal(bool(value) if dtype == "bool" else int(value), dtype)


def fresh(wanted: str, taken: set[str]) -> str:
    """A name that is not `taken`, and is from now on."""
    name = wanted
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def kernel_of_stages(
    name: str, inputs: Sequence[tir.Buffer], outputs: Sequence[tir.Buffer], body: Sequence[tir.Stmt]
) -> tir.PrimFunc:
    """A PrimFunc whose parameters are the inputs, then the outputs.

    A buffer between two statements of the body is allocated in front of the first one, which writes
    it.
    """
    allocated = {stmt.buffer for stmt in tir.walk(tuple(body)) if isinstance(stmt, tir.Allocate)}
    there = allocated.union(inputs, outputs)
    statements: list[tir.Stmt] = []
    for stmt in body:
        made = dict.fromkeys(write.buffer for write in tir.writes_in((stmt,)))
        statements += [tir.Allocate(buffer) for buffer in made if buffer not in there]
        there.update(made)
        statements.append(stmt)
    params = [tir.Param(buffer, tir.Role.INPUT) for buffer in inputs]
    params += [tir.Param(buffer, tir.Role.OUTPUT) for buffer in outputs]
    # Operators such as `and` are words of Python, which the text form cannot have as a name.
    plain = name if tir.is_identifier(name) else f"{name}_"
    return tir.PrimFunc(plain, tuple(params), tuple(statements))


def with_inputs(func: tir.PrimFunc, inputs: Iterable[tir.Buffer], body: tir.Body) -> tir.PrimFunc:
    """A kernel with the name and the outputs of `func`, these inputs and this body."""
    others = (param for param in func.params if param.role is not tir.Role.INPUT)
    own = (tir.Param(buffer, tir.Role.INPUT) for buffer in inputs)
    return tir.PrimFunc(func.name, (*own, *others), body)


def elementwise_kernel(
    name: str,
    inputs: Sequence[tir.Buffer],
    y: tir.Buffer,
    loops: Sequence[Loop],
    value: tir.Expr,
) -> tir.PrimFunc:
    """A kernel of one elementwise stage of its name."""
    return kernel_of_stages(name, inputs, (y,), (elementwise_stage(name, y, loops, value),))


def nest_kernel(
    name: str,
    inputs: Sequence[tir.Buffer],
    y: tir.Buffer,
    loops: Sequence[Loop],
    body: tir.Body,
    first: tir.Stmt | None = None,
) -> tir.PrimFunc:
    """A kernel of one nest, which is a stage of its name; `first` is a statement in front of it."""
    stage = tir.Block(name, tir.nest(loops, body))
    return kernel_of_stages(name, inputs, (y,), (stage,) if first is None else (first, stage))


def linearize(indices: Sequence[arith.IndexExpr], shape: Sequence[int]) -> arith.IndexExpr:
    """The row-major position of `indices` in `shape`."""
    position: arith.IndexExpr = arith.const(0)
    for index, extent in zip(indices, shape, strict=True):
        position = position * extent + index
    return position


def delinearize(
    position: arith.IndexExpr, shape: Sequence[int], loops: Sequence[Loop]
) -> tuple[arith.IndexExpr, ...]:
    """The indices in `shape` of a row-major `position`, simplified within the ranges of `loops`.

    `position` must lie inside `shape` for every point of `loops`.
    """
    ranges = ranges_of(loops)
    indices: list[arith.IndexExpr] = []
    step = 1
    for axis in reversed(range(len(shape))):
        extent = max(shape[axis], 1)
        index = arith.simplify_index(arith.floor_div(position, step), ranges)
        # The outermost index needs no remainder: the position is inside the shape.
        if any(n != 1 for n in shape[:axis]):
            index = index % extent
        indices.append(arith.simplify_index(index, ranges) if extent > 1 else arith.const(0))
        step *= extent
    return tuple(reversed(indices))


def normalized_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """`axes` counted from the front, ascending.

    Raises `InvalidModel` if one is out of range or occurs twice.
    """
    wanted = list(axes)
    found = sorted(axis + rank if axis < 0 else axis for axis in wanted)
    if any(not 0 <= axis < rank for axis in found):
        raise InvalidModel(f"axes {wanted} do not all exist: the tensor has rank {rank}")
    if len(set(found)) != len(found):
        raise InvalidModel(f"axes {wanted} name an axis twice (rank {rank})")
    return tuple(found)
