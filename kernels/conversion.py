"""Copies and fills as kernels: a tensor from one layout into another, a constant into a region.

In: layouts, a dtype and the fill value.  Out: a `PrimFunc` over physical buffers, whose loops are
the axes of the target's box, its innermost axis innermost, and run only where something is
written.  What always holds: sources are read at logical elements only; without a fill value the
padding of the target is not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, product
from math import inf

from graphflow.arith import (
    FALSE,
    TRUE,
    AtLeastZero,
    IndexExpr,
    Interval,
    IsZero,
    Or,
    Predicate,
    Var,
    bounds,
    conjunction,
    conjuncts,
    const,
    evaluate,
    linear,
    simplify,
    simplify_predicate,
    substitute,
    substitute_in,
    terms_of,
)
from graphflow.base.errors import LayoutConflict
from graphflow.layout import Layout, Region, physical_vars, row_major
from graphflow.tir import (
    Block,
    Body,
    Buffer,
    Expr,
    For,
    If,
    IndexValue,
    Literal,
    Load,
    LoopKind,
    Param,
    PrimFunc,
    Role,
    Store,
    in_order_store,
    loads_in,
    map_expr,
    map_expressions,
    rename_buffers,
)

MOST_BOXES = 16
"""The most boxes that a region is filled by, each in a nest; else it is one guarded nest."""


def conversion(
    source: Layout,
    target: Layout,
    dtype: str,
    fill: Literal | None = None,
    name: str = "convert",
) -> PrimFunc:
    """`dst[p] = src[…]` where p holds an element of the tensor, else the fill value.

    Buffers `src` and `dst` have the physical shapes of the two layouts.  LayoutConflict where the
    layouts are of different logical shapes, or the fill value is of another dtype.
    """
    if source.logical_shape != target.logical_shape:
        raise LayoutConflict(
            f"{name}: no conversion from a layout of {list(source.logical_shape)} to one of "
            f"{list(target.logical_shape)}; the logical shapes must be the same"
        )
    if fill is not None and fill.dtype != dtype:
        raise LayoutConflict(f"{name}: cannot fill a {dtype} buffer with the {fill.dtype} {fill}")
    src, dst = source.buffer("src", dtype), target.buffer("dst", dtype)
    p = physical_vars(len(target.physical_shape))
    ranges: dict[Var, Interval] = {
        v: (0, n - 1) for v, n in zip(p, target.physical_shape, strict=True)
    }
    place = source.physical_index(target.logical_index(p))
    inside = target.is_logical()
    if 0 not in target.physical_shape:
        if fill is None:  # the target may be a window, a small part of its storage's box
            ranges = _tightened(inside, ranges) or ranges
            inside = simplify_predicate(inside, ranges)
        place = tuple(simplify(index, ranges) for index in place)
    copy: Body = (Store(dst, p, Load(src, place)),)
    if inside != TRUE:
        rest = () if fill is None else (Store(dst, p, fill),)
        copy = (If(inside, copy, rest),)
    order = _source_order(p, src.flat_index(place), ranges)
    nest = _nest(order, _sides(ranges[axis] for axis in order), copy)
    params = (Param(src, Role.INPUT), Param(dst, Role.OUTPUT))
    return PrimFunc(name, params, (Block(name, nest),))


def computed_in(
    func: PrimFunc, target: Layout, fill: Literal, name: str = "convert"
) -> PrimFunc | None:
    """An elementwise kernel with its output in a layout; None if `func` is no such kernel.

        for i: y[i] = f(i)  →  dst[p] = f(i of p) where p holds an element, else the fill value

    The inputs keep their buffers.  LayoutConflict as of `conversion`.
    """
    if len(func.outputs) != 1:
        return None
    (y,) = func.outputs
    store = in_order_store(func.body, y.shape)
    if store is None or any(load.buffer == y for load in loads_in(func.body)):
        return None
    loops = [index for index in store.indices if isinstance(index, Var)]
    copy = conversion(row_major(y.shape), target, y.dtype, fill, name)
    (src,) = copy.inputs

    def computed(expr: Expr) -> Expr:
        if not isinstance(expr, Load) or expr.buffer != src:
            return expr
        at = dict(zip(loops, expr.indices, strict=True))
        return map_expr(store.value, lambda e: _at(e, at))

    (dst,) = copy.outputs
    names = {buffer.name for buffer in func.inputs}
    free = next(n for k in count() if (n := f"dst{k or ''}") not in names)
    # Renamed first, as an operand may be called the same.
    body = map_expressions(rename_buffers(copy.body, {dst: replace(dst, name=free)}), computed)
    params = [Param(buffer, Role.INPUT) for buffer in func.inputs]
    return PrimFunc(name, (*params, Param(replace(dst, name=free), Role.OUTPUT)), body)


def _at(expr: Expr, at: Mapping[Var, IndexExpr]) -> Expr:
    """An expression with its indices substituted."""
    match expr:
        case Load():
            return Load(expr.buffer, tuple(substitute(e, at) for e in expr.indices))
        case IndexValue():
            return replace(expr, index=substitute(expr.index, at))
        case _:
            return expr


def _source_order(
    axes: Sequence[Var], place: IndexExpr, ranges: Mapping[Var, Interval]
) -> list[Var]:
    """The target's axes as loops: the innermost stays, the others by falling stride in the source.

    So where the innermost loop walks across cache lines of the source, the loop around it uses up
    those lines.
    """
    first = {axis: ranges[axis][0] or 0 for axis in axes}
    start = evaluate(place, first)

    def stride(axis: Var) -> float:
        moved = evaluate(place, {**first, axis: first[axis] + 1}) - start
        return abs(moved) or inf  # an axis of one element is no loop

    return [*sorted(axes[:-1], key=stride, reverse=True), *axes[-1:]]


def fill_region(
    layout: Layout, region: Region, dtype: str, value: Literal | Buffer, name: str = "fill"
) -> PrimFunc:
    """`dst[p] = value` for the points of one region; the rest of `dst` is left as it was.

    `dst` is the box of the layout.  The value is a constant, or the element of a buffer of rank 0,
    which becomes an input.  Each nest runs over one box of the region; what a box does not express
    is a condition in it.  LayoutConflict for a value of another dtype.
    """
    if value.dtype != dtype:
        raise LayoutConflict(f"{name}: cannot fill a {dtype} buffer with a {value.dtype} value")
    dst = layout.buffer("dst", dtype)
    stored = Load(value, ()) if isinstance(value, Buffer) else value
    nests = [
        _fill_nest(dst, axes, ranges, guard, stored, k)
        for k, (axes, ranges, guard) in enumerate(_boxes(region))
    ]
    body = tuple(Block(f"{name}{k}", nest) for k, nest in enumerate(nests))
    sources = (Param(value, Role.INPUT),) if isinstance(value, Buffer) else ()
    return PrimFunc(name, (*sources, Param(dst, Role.OUTPUT)), body)


Box = tuple[tuple[Var, ...], dict[Var, Interval], Predicate]
"""Axes, their ranges, and the predicate that remains to be tested inside these."""


def _fill_nest(
    dst: Buffer,
    axes: tuple[Var, ...],
    ranges: dict[Var, Interval],
    guard: Predicate,
    value: Literal | Load,
    number: int,
) -> Body:
    fresh = tuple(Var(f"{axis.name}_{number}") for axis in axes)
    renamed: dict[Var, IndexExpr] = dict(zip(axes, fresh, strict=True))
    stmt: Body = (Store(dst, fresh, value),)
    if guard != TRUE:
        stmt = (If(substitute_in(guard, renamed), stmt),)
    return _nest(fresh, _sides(ranges[axis] for axis in axes), stmt)


def _sides(ranges: Iterable[Interval]) -> list[tuple[int, int]]:
    """Begin and end of the loops over these ranges."""
    return [(low or 0, (high or 0) + 1) for low, high in ranges]


def _nest(names: Sequence[Var], sides: Sequence[tuple[int, int]], body: Body) -> Body:
    for var, (start, stop) in reversed(list(zip(names, sides, strict=True))):
        body = (For(var, const(start), const(stop), LoopKind.SERIAL, body),)
    return body


def _boxes(region: Region) -> Iterator[Box]:
    """The smallest box around each disjunct of the region's predicate that has points."""
    if 0 in region.shape:
        return
    whole: dict[Var, Interval] = {
        v: (0, n - 1) for v, n in zip(region.axes, region.shape, strict=True)
    }
    for disjunct in _disjuncts(region.predicate):
        ranges = _tightened(disjunct, whole)
        if ranges is None:
            continue
        guard = simplify_predicate(disjunct, ranges)
        if guard != FALSE:
            yield region.axes, ranges, guard


def _disjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """The conjunctions whose disjunction a predicate is; itself where these exceed `MOST_BOXES`."""
    choices = [part.members if isinstance(part, Or) else (part,) for part in conjuncts(predicate)]
    found = tuple(conjunction(chosen) for chosen in product(*choices))
    return found if len(found) <= MOST_BOXES else (predicate,)


def _tightened(predicate: Predicate, ranges: dict[Var, Interval]) -> dict[Var, Interval] | None:
    """The ranges narrowed by the linear conjuncts of a predicate; None where no point is left."""
    found = dict(ranges)
    before: dict[Var, Interval] = {}
    while before != found:
        before = dict(found)
        for part in conjuncts(predicate):
            if isinstance(part, AtLeastZero):
                _cut(part.expr, found)
            elif isinstance(part, IsZero):
                _cut(part.expr, found)
                _cut(-part.expr, found)
        if any(low is None or high is None or low > high for low, high in found.values()):
            return None
    return found


def _cut(expr: IndexExpr, ranges: dict[Var, Interval]) -> None:
    """Narrows the range of each variable by `expr >= 0`, the others at their best."""
    terms, constant = terms_of(expr)
    for var, k in terms:
        if not isinstance(var, Var):
            continue
        rest = linear([term for term in terms if term[0] is not var], constant)
        most = bounds(rest, ranges)[1]
        low, high = ranges[var]
        if most is None or low is None or high is None:
            continue
        if k > 0:
            ranges[var] = (max(low, -(most // k)), high)
        else:
            ranges[var] = (low, min(high, most // -k))
