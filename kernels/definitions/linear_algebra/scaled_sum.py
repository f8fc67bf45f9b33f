"""Scaling a sum of products through one of its operands, instead of scaling the result.

In: a kernel, and which of its operands are constants.  Out: the kernel with the constant factors
and summands that follow its sum moved into the operands of the sum, and how these operands are
computed.

    before:  t[i] = b[i]; for k: t[i] += x[…, k] · w[…, i, k]
             y[i] = t[i] · a[i] + c[i]
    after:   y[i] = b'[i]; for k: y[i] += x[…, k] · w'[…, i, k]
             with w' = w · a and b' = b · a + c

Error bound.  Let the sum have n terms, the stages f multiplications and g additions, u be half the
distance from 1.0 to the next number, and nothing overflow or underflow.  Then both kernels return

    y + e  with  |e| ≤ γ · (Σ |w x a| + |b a| + Σ |c a|),  γ = m u / (1 - m u),  m = n + 1 + f + g

where `a` are the products of all factors that apply to a term.  The roundings of a term are counted
as Higham does (Accuracy and Stability of Numerical Algorithms, 3.1), for any order of the sum: it
takes at most n of them to add a term and 1 to multiply x by w.  A term w x then meets the f + g
operations of the stages; in the scaled sum its weight met f multiplications before, and nothing
follows.  A summand b or c meets at most f + g operations, before the n additions or after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

from msgspec import Struct

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const, constant_value, substitute, variables
from graphflow.base.fields import replace
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.stages import Shape


class Vector(Struct, frozen=True):
    """A constant with an element for each element of the output `axes` that it varies along.

    `value` is the expression of an element, over operands of the kernel and the variables of
    `axis_variable`.  `shape` are the extents of the axes, (1,) if there are none.
    """

    axes: tuple[int, ...]
    shape: Shape
    value: tir.Expr

    @property
    def operand(self) -> str | None:
        """The operand that has these elements already, in this shape; None if none has."""
        value = self.value
        if isinstance(value, tir.Load) and value.indices == self.indices(axis_variable):
            return value.buffer.name
        return None

    def indices(self, at: Callable[[int], IndexExpr]) -> tuple[IndexExpr, ...]:
        """The index of an element, where `at(axis)` is the position along an axis of the output."""
        return tuple(at(axis) for axis in self.axes) or (const(0),)

    def kernel(self) -> tir.PrimFunc:
        """The kernel that computes the elements, `y`, from the operands in their order of use."""
        read = [e.buffer for e in tir.walk_expr(self.value) if isinstance(e, tir.Load)]
        out = tir.Buffer("y_", self.shape, self.value.dtype)
        loops = [
            (axis_variable(axis), n) for axis, n in zip(self.axes or (0,), self.shape, strict=True)
        ]
        return stages.elementwise_kernel(
            "vector", tuple(dict.fromkeys(read)), out, loops, self.value
        )


class ScaledWeight(Struct, frozen=True):
    """An operand times the factor of a scaled sum; its axis `axes[k]` is axis k of the factor."""

    name: str
    axes: tuple[int, ...]


class Shift(Struct, frozen=True):
    """The first value of a scaled sum."""


class ScaledSum(Struct, frozen=True):
    """A kernel whose sum is scaled through its operands.

    `inputs` says what is bound to each of its inputs: an operand of the old kernel by name, such an
    operand scaled, or the `shift`.  `gone` are the buffers inside the old kernel that this one does
    not compute.
    """

    func: tir.PrimFunc
    inputs: tuple[str | ScaledWeight | Shift, ...]
    factor: Vector
    shift: Vector | None
    gone: frozenset[str]


def axis_variable(axis: int) -> Var:
    """The variable that stands for the position along an axis of the output."""
    return Var(f"i{axis}")


def scaled_weight(weight: Shape, factor: Shape, axes: Sequence[int], dtype: str) -> tir.PrimFunc:
    """`y[j…] = w[j…] · a[j[axes]…]`, where `a` is of shape `factor`."""
    w, a, y = (
        tir.Buffer("w", weight, dtype),
        tir.Buffer("a", factor, dtype),
        tir.Buffer("y", weight, dtype),
    )
    loops = stages.loops_over("j", weight)
    at = stages.indices_of(loops)
    chosen = tuple(at[axis] for axis in axes) or (const(0),)
    value = tir.Binary("mul", tir.Load(w, at), tir.Load(a, chosen))
    return stages.elementwise_kernel("scaled", (w, a), y, loops, value)


class NotScalable(Exception):
    """Why the sum of a kernel cannot be scaled through its operands."""


def scaled_sum(func: tir.PrimFunc, constants: frozenset[str]) -> ScaledSum:
    """`func` with its sum scaled through its operands.

    `constants` are the inputs whose elements are known before a run.  Raises NotScalable unless

    1. the kernel has one reduction stage, which stores first values and adds products of floats;
    2. the stages that follow, at least one of which multiplies, are elementwise, and each reads the
       result of the one before in one place, once, and adds, subtracts or multiplies constants;
    3. the first values are constants;
    4. each product has a constant factor that is read once, and varies along all axes of the output
       along which what it is to be multiplied by does.

    As many stages are taken as meet the second condition; the others remain.
    """
    total = _sum_of(func)
    taken = _stages_after(func, total, constants)
    if taken.factor is None:
        raise NotScalable(f"nothing multiplies the sum {total.target.name} by constants alone")
    whole = taken.after(_first_value(total, constants))
    shape = total.target.shape
    factor = _vector(taken.factor, shape)
    shift = None if whole.summand is None else _vector(whole.summand, shape)
    weights = [_weight(update, factor, constants) for update in total.updates]
    return _rewritten(func, total, taken, factor, shift, weights)


class _Sum(Struct, frozen=True):
    """The stage of a sum: it stores `start` and then adds `updates`, to the same elements."""

    target: tir.Buffer
    start: tir.Store
    updates: tuple[tir.Reduce, ...]


class _Affine(Struct, frozen=True):
    """What stages make of a sum t: `t · factor + summand`, where None is 1 and 0.

    `result` is the buffer with it, `stages` are the names of the blocks.
    """

    result: tir.Buffer
    factor: tir.Expr | None = None
    summand: tir.Expr | None = None
    stages: tuple[str, ...] = ()

    def then(self, stage: _Affine) -> _Affine:
        """This, and then another stage."""
        names = (*self.stages, *stage.stages)
        factor = _joined("mul", self.factor, stage.factor)
        return _Affine(stage.result, factor, stage.after(self.summand).summand, names)

    def after(self, start: tir.Expr | None) -> _Affine:
        """The same of a sum with a first value."""
        moved = None if start is None else _joined("mul", start, self.factor)
        return replace(self, summand=_joined("add", moved, self.summand))


def _joined(
    op: Literal["add", "mul"], left: tir.Expr | None, right: tir.Expr | None
) -> tir.Expr | None:
    """The sum or the product of two numbers, None being 0 or 1."""
    if left is None or right is None:
        return right if left is None else left
    return tir.Binary(op, left, right)


def _sum_of(func: tir.PrimFunc) -> _Sum:
    updates = [s for s in tir.walk(func.body) if isinstance(s, tir.Reduce)]
    targets = {s.buffer for s in updates}
    if len(targets) != 1 or len(func.outputs) != 1:
        raise NotScalable(f"{func.name} reduces into {len(targets)} buffers, and not into one")
    (target,) = targets
    if target.dtype not in tir.FLOATS or any(s.op is not tir.ReduceOp.ADD for s in updates):
        raise NotScalable(f"{target.name} is no sum of floats")
    stages = [s for s in func.body if isinstance(s, tir.Block)]
    writing = [s for s in stages if any(w.buffer == target for w in tir.writes_in(s.body))]
    if len(writing) != 1 or target in func.outputs:
        raise NotScalable(f"{target.name} is no result between two stages")
    (block,) = writing
    start = tir.nest_of(block.body)[1][0]
    writes = list(tir.writes_in(block.body))
    if not isinstance(start, tir.Store) or len(writes) != len(updates) + 1:
        raise NotScalable(
            f"the stage of {target.name} does more than to store a value and add to it"
        )
    if any(w.buffer != target or w.indices != start.indices for w in writes):
        raise NotScalable(f"the stage of {target.name} adds to other elements than it stores")
    if any(load.buffer == target for load in tir.loads_in((block,))):
        raise NotScalable(f"the stage of {target.name} reads what it sums")
    return _Sum(target, start, tuple(updates))


def _stages_after(func: tir.PrimFunc, total: _Sum, constants: frozenset[str]) -> _Affine:
    """What the stages behind a sum make of it, as far as they are affine with constants."""
    done = _Affine(total.target)
    while done.result not in func.outputs:
        readers = [
            stmt
            for stmt in func.body
            if any(load.buffer == done.result for load in tir.loads_in((stmt,)))
        ]
        if len(readers) != 1 or not isinstance(readers[0], tir.Block):
            break
        stage = _affine_stage(readers[0], done.result, constants)
        if stage is None:
            break
        done = done.then(stage)
    return done


def _affine_stage(block: tir.Block, read: tir.Buffer, constants: frozenset[str]) -> _Affine | None:
    """The stage as an affine function of the buffer `read`; None if it is none."""
    written = next(iter(tir.writes_in(block.body))).buffer
    store = tir.in_order_store(block.body, read.shape)
    if store is None or (written.shape, written.dtype) != (read.shape, read.dtype):
        return None
    at = {v: axis_variable(axis) for axis, v in enumerate(_loop_variables(store))}
    parts = _affine(store.value, tir.Load(read, store.indices), constants)
    if parts is None:
        return None
    factor, summand = (None if e is None else _at_axes(e, at, read.shape) for e in parts)
    return _Affine(written, factor, summand, (block.name,))


def _loop_variables(store: tir.Store) -> Iterator[Var]:
    for index in store.indices:
        assert isinstance(index, Var), "an elementwise stage stores at its loop variables"
        yield index


def _at_axes(expr: tir.Expr, at: Mapping[Var, IndexExpr], shape: Shape) -> tir.Expr:
    """The expression over the variables of axes; at 0 along those of one element."""
    single = {axis_variable(axis): const(0) for axis, n in enumerate(shape) if n == 1}

    def placed(e: tir.Expr) -> tir.Expr:
        if not isinstance(e, tir.Load):
            return e
        moved = (substitute(index, dict(at)) for index in e.indices)
        return tir.Load(e.buffer, tuple(substitute(index, dict(single)) for index in moved))

    return tir.map_expr(expr, placed)


def _affine(
    expr: tir.Expr, operand: tir.Load, constants: frozenset[str]
) -> tuple[tir.Expr | None, tir.Expr | None] | None:
    """`expr` as `operand · factor + summand`; None if it is not of this form."""
    if expr == operand:
        return None, None
    if not isinstance(expr, tir.Binary) or expr.op not in ("add", "sub", "mul"):
        return None
    if _is_constant(expr.right, constants):
        inner, other = _affine(expr.left, operand, constants), expr.right
    elif _is_constant(expr.left, constants) and expr.op != "sub":
        inner, other = _affine(expr.right, operand, constants), expr.left
    else:
        return None
    if inner is None:
        return None
    factor, summand = inner
    if expr.op == "mul":
        moved = None if summand is None else tir.Binary("mul", summand, other)
        return _joined("mul", factor, other), moved
    if expr.op == "sub" and summand is not None:
        return factor, tir.Binary("sub", summand, other)
    minus = tir.Literal(-1.0, other.dtype)
    added = other if expr.op == "add" else tir.Binary("mul", other, minus)
    return factor, _joined("add", summand, added)


def _is_constant(expr: tir.Expr, constants: frozenset[str]) -> bool:
    """Whether an expression only adds, subtracts and multiplies constants."""
    match expr:
        case tir.Literal():
            return True
        case tir.Load():
            return expr.buffer.name in constants
        case tir.Binary():
            sides = (_is_constant(side, constants) for side in (expr.left, expr.right))
            return expr.op in ("add", "sub", "mul") and all(sides)
    return False


def _first_value(total: _Sum, constants: frozenset[str]) -> tir.Expr | None:
    """The first value of the sum over the variables of axes, None for 0."""
    start, target = total.start.value, total.start.indices
    if isinstance(start, tir.Literal):
        return None if start.value == 0 else start
    if not isinstance(start, tir.Load) or start.buffer.name not in constants:
        raise NotScalable(f"the first values of {total.target.name} are no constants")
    indices: list[IndexExpr] = []
    for index in start.indices:
        axis = next((k for k, e in enumerate(target) if e is index), None)
        if axis is None and constant_value(index) is None:
            raise NotScalable(
                f"{start.buffer.name} is not indexed by the axes of {total.target.name}"
            )
        indices.append(index if axis is None else axis_variable(axis))
    return _at_axes(tir.Load(start.buffer, tuple(indices)), {}, total.target.shape)


def _vector(value: tir.Expr, shape: Shape) -> Vector:
    loads = (e for e in tir.walk_expr(value) if isinstance(e, tir.Load))
    used = {v for load in loads for index in load.indices for v in variables(index)}
    axes = tuple(axis for axis in range(len(shape)) if axis_variable(axis) in used)
    return Vector(axes, tuple(shape[axis] for axis in axes) or (1,), value)


def _weight(
    update: tir.Reduce, factor: Vector, constants: frozenset[str]
) -> tuple[tir.Load, ScaledWeight]:
    """The constant factor of a product to multiply by `factor`."""
    read = [e.buffer for e in tir.walk_expr(update.value) if isinstance(e, tir.Load)]
    refusal = f"no constant is a factor of what is added to {update.buffer.name}"
    for load in _factors(update.value):
        name = load.buffer.name
        if name not in constants or load.dtype != update.buffer.dtype:
            continue
        axes = [_axis_along(load, update.indices[axis]) for axis in factor.axes]
        fits = [
            axis is not None and load.buffer.shape[axis] == extent
            for axis, extent in zip(axes, factor.shape, strict=False)
        ]
        if read.count(load.buffer) != 1:
            refusal = f"{name} is read twice in what is added to {update.buffer.name}"
        elif not all(fits):
            missing = factor.axes[fits.index(False)]
            refusal = (
                f"the factor varies along axis {missing} of {update.buffer.name}, and {name} does "
                "not"
            )
        elif len(set(axes)) < len(axes):
            refusal = f"two axes of {update.buffer.name} are one axis of {name}"
        else:
            return load, ScaledWeight(name, tuple(axis for axis in axes if axis is not None))
    raise NotScalable(refusal)


def _axis_along(load: tir.Load, index: IndexExpr) -> int | None:
    """The axis of a tensor that is indexed by `index`, None if none is."""
    return next((axis for axis, e in enumerate(load.indices) if e is index), None)


def _factors(value: tir.Expr) -> Iterator[tir.Load]:
    """The loads whose product `value` is, as far as it is one."""
    if isinstance(value, tir.Load):
        yield value
    elif isinstance(value, tir.Binary) and value.op == "mul":
        yield from _factors(value.left)
        yield from _factors(value.right)


def _rewritten(
    func: tir.PrimFunc,
    total: _Sum,
    taken: _Affine,
    factor: Vector,
    shift: Vector | None,
    weights: Sequence[tuple[tir.Load, ScaledWeight]],
) -> ScaledSum:
    names = {buffer.name for buffer in tir.buffers_of(func)}
    scaled: dict[ScaledWeight, tir.Buffer] = {}
    exchanged: dict[tir.Reduce, tir.Reduce] = {}
    for update, (load, what) in zip(total.updates, weights, strict=True):
        if what not in scaled:
            scaled[what] = replace(load.buffer, name=stages.fresh(f"{what.name}_scaled", names))
        made = tir.Load(scaled[what], load.indices)
        value = tir.map_expr(update.value, partial(_exchanged, load, made))
        exchanged[update] = replace(update, buffer=taken.result, value=value)
    first, held = total.start.value, None
    if shift is not None:
        held = tir.Buffer(stages.fresh("shift", names), shift.shape, total.target.dtype)
        first = tir.Load(held, shift.indices(lambda axis: total.start.indices[axis]))
    start = tir.Store(taken.result, total.start.indices, first)
    gone = _results(func, total, taken)

    def changed(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
        match stmt:
            case tir.Store() if stmt is total.start:
                return start
            case tir.Reduce():
                return exchanged[stmt]
            case tir.Block() if stmt.name in taken.stages:
                return ()
            case tir.Allocate() if stmt.buffer == total.target:
                return () if taken.result in func.outputs else tir.Allocate(taken.result)
            case tir.Allocate() if stmt.buffer in gone or stmt.buffer == taken.result:
                return ()
            case _:
                return stmt

    body = tir.map_body(func.body, changed)
    used = {load.buffer for load in tir.loads_in(body)}
    bound: list[tuple[tir.Buffer, str | ScaledWeight | Shift]] = []
    for operand in func.inputs:
        bound += [(operand, operand.name)] if operand in used else []
        bound += [(made, what) for what, made in scaled.items() if what.name == operand.name]
    bound += [] if held is None else [(held, Shift())]
    params = [tir.Param(buffer, tir.Role.INPUT) for buffer, _ in bound]
    params += [tir.Param(buffer, tir.Role.OUTPUT) for buffer in func.outputs]
    return ScaledSum(
        tir.PrimFunc(func.name, tuple(params), body),
        tuple(what for _, what in bound),
        factor,
        shift,
        frozenset(buffer.name for buffer in gone),
    )


def _results(func: tir.PrimFunc, total: _Sum, taken: _Affine) -> set[tir.Buffer]:
    """The buffers that held the sum and what the stages made of it, but for the last of these."""
    stages = [s for s in func.body if isinstance(s, tir.Block) and s.name in taken.stages]
    return {total.target, *(w.buffer for w in tir.writes_in(tuple(stages)))} - {taken.result}


def _exchanged(before: tir.Load, after: tir.Load, expr: tir.Expr) -> tir.Expr:
    return after if expr == before else expr
