"""Copies and fills as kernels: a tensor from one layout into another, a constant into a region.

In: layouts, a dtype and the fill value.  Out: a `PrimFunc` over physical buffers, whose loops are
the axes of the target's box, its innermost axis innermost, and run only where something is
written.  What always holds: sources are read at logical elements only; without a fill value the
padding of the target is not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, product
from math import inf, prod

from graphflow import arith, tir
from graphflow.base.errors import LayoutConflict
from graphflow.base.fields import replace
from graphflow.kernels.recipes.analysis.positions import MOST_TURNS
from graphflow.layout import Layout, Region, physical_vars, row_major

MOST_BOXES = 16
"""The most boxes that a region is filled by, each in a nest; else it is one guarded nest."""


def conversion(
    source: Layout,
    target: Layout,
    dtype: str,
    fill: tir.Literal | None = None,
    name: str = "convert",
) -> tir.PrimFunc:
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
    ranges: dict[arith.Var, arith.Interval] = {
        v: (0, n - 1) for v, n in zip(p, target.physical_shape, strict=True)
    }
    place = source.physical_index(target.logical_index(p))
    inside = target.is_logical()
    if 0 not in target.physical_shape:
        if fill is None:  # the target may be a window, a small part of its storage's box
            ranges = _tightened(inside, ranges) or ranges
            inside = arith.simplify_predicate(inside, ranges)
        place = tuple(arith.simplify_index(index, ranges) for index in place)
    copy: tir.Body = (tir.Store(dst, p, tir.Load(src, place)),)
    if inside != arith.TRUE:
        rest = () if fill is None else (tir.Store(dst, p, fill),)
        copy = (tir.If(inside, copy, rest),)
    order = _source_order(p, src.flat_index(place), ranges)
    nest = _nest(order, _sides(ranges[axis] for axis in order), copy)
    params = (tir.Param(src, tir.Role.INPUT), tir.Param(dst, tir.Role.OUTPUT))
    return tir.PrimFunc(name, params, (tir.Block(name, nest),))


def ends_in_turns(layout: Layout) -> bool:
    """Whether a box has its padding behind few neighbours of its last axis alone, as 3 channels in
    places for 4 have it: with the padding, stores by turns fill whole vectors."""
    *outer, last = layout.physical_shape or (1,)
    rows, size = prod(outer), prod(layout.logical_shape)
    return 2 <= last <= MOST_TURNS and 0 < size < rows * last and size % rows == 0


def computed_in(func: tir.PrimFunc, target: Layout, fill: tir.Literal) -> tir.PrimFunc | None:
    """An elementwise kernel with its output in a layout; None if `func` is no such kernel.

        for i: y[i] = f(i)  →  dst[p] = f(i of p) where p holds an element, else the fill value

    The inputs keep their buffers.  LayoutConflict as of `conversion`.
    """
    if len(func.outputs) != 1:
        return None
    (y,) = func.outputs
    store = tir.in_order_store(func.body, y.shape)
    if store is None or any(load.buffer == y for load in tir.loads_in(func.body)):
        return None
    loops = [index for index in store.indices if isinstance(index, arith.Var)]
    copy = conversion(row_major(y.shape), target, y.dtype, fill)
    (src,) = copy.inputs

    def computed(expr: tir.Expr) -> tir.Expr:
        if not isinstance(expr, tir.Load) or expr.buffer != src:
            return expr
        at = dict(zip(loops, expr.indices, strict=True))
        return tir.map_expr(store.value, lambda e: _at(e, at))

    (dst,) = copy.outputs
    names = {buffer.name for buffer in func.inputs}
    free = next(n for k in count() if (n := f"dst{k or ''}") not in names)
    # Renamed first, as an operand may be called the same.
    body = tir.map_expressions(
        tir.rename_buffers(copy.body, {dst: replace(dst, name=free)}), computed
    )
    params = [tir.Param(buffer, tir.Role.INPUT) for buffer in func.inputs]
    return tir.PrimFunc(
        copy.name, (*params, tir.Param(replace(dst, name=free), tir.Role.OUTPUT)), body
    )


def _at(expr: tir.Expr, at: Mapping[arith.Var, arith.IndexExpr]) -> tir.Expr:
    """An expression with its indices substituted."""
    match expr:
        case tir.Load():
            return tir.Load(expr.buffer, tuple(arith.substitute(e, at) for e in expr.indices))
        case tir.IndexValue():
            return replace(expr, index=arith.substitute(expr.index, at))
        case _:
            return expr


def _source_order(
    axes: Sequence[arith.Var], place: arith.IndexExpr, ranges: Mapping[arith.Var, arith.Interval]
) -> list[arith.Var]:
    """The target's axes as loops: the innermost stays, the others by falling stride in the source.

    So where the innermost loop walks across cache lines of the source, the loop around it uses up
    those lines.
    """
    first = {axis: ranges[axis][0] or 0 for axis in axes}
    start = arith.evaluate(place, first)

    def stride(axis: arith.Var) -> float:
        moved = arith.evaluate(place, {**first, axis: first[axis] + 1}) - start
        return abs(moved) or inf  # an axis of one element is no loop

    return [*sorted(axes[:-1], key=stride, reverse=True), *axes[-1:]]


def fill_region(
    layout: Layout, region: Region, dtype: str, value: tir.Literal | tir.Buffer
) -> tir.PrimFunc:
    """`dst[p] = value` for the points of one region; the rest of `dst` is left as it was.

    `dst` is the box of the layout.  The value is a constant, or the element of a buffer of rank 0,
    which becomes an input.  Each nest runs over one box of the region; what a box does not express
    is a condition in it.  LayoutConflict for a value of another dtype.
    """
    if value.dtype != dtype:
        raise LayoutConflict(f"fill: cannot fill a {dtype} buffer with a {value.dtype} value")
    dst = layout.buffer("dst", dtype)
    stored = tir.Load(value, ()) if isinstance(value, tir.Buffer) else value
    nests = [
        _fill_nest(dst, axes, ranges, guard, stored, k)
        for k, (axes, ranges, guard) in enumerate(_boxes(region))
    ]
    body = tuple(tir.Block(f"fill{k}", nest) for k, nest in enumerate(nests))
    sources = (tir.Param(value, tir.Role.INPUT),) if isinstance(value, tir.Buffer) else ()
    return tir.PrimFunc("fill", (*sources, tir.Param(dst, tir.Role.OUTPUT)), body)


Box = tuple[tuple[arith.Var, ...], dict[arith.Var, arith.Interval], arith.Predicate]
"""Axes, their ranges, and the predicate that remains to be tested inside these."""


def _fill_nest(
    dst: tir.Buffer,
    axes: tuple[arith.Var, ...],
    ranges: dict[arith.Var, arith.Interval],
    guard: arith.Predicate,
    value: tir.Literal | tir.Load,
    number: int,
) -> tir.Body:
    fresh = tuple(arith.Var(f"{axis.name}_{number}") for axis in axes)
    renamed: dict[arith.Var, arith.IndexExpr] = dict(zip(axes, fresh, strict=True))
    stmt: tir.Body = (tir.Store(dst, fresh, value),)
    if guard != arith.TRUE:
        stmt = (tir.If(arith.substitute_in(guard, renamed), stmt),)
    return _nest(fresh, _sides(ranges[axis] for axis in axes), stmt)


def _sides(ranges: Iterable[arith.Interval]) -> list[tuple[int, int]]:
    """Begin and end of the loops over these ranges."""
    return [(low or 0, (high or 0) + 1) for low, high in ranges]


def _nest(names: Sequence[arith.Var], sides: Sequence[tuple[int, int]], body: tir.Body) -> tir.Body:
    for var, (start, stop) in reversed(list(zip(names, sides, strict=True))):
        body = (tir.For(var, arith.const(start), arith.const(stop), tir.LoopKind.SERIAL, body),)
    return body


def _boxes(region: Region) -> Iterator[Box]:
    """The smallest box around each disjunct of the region's predicate that has points."""
    if 0 in region.shape:
        return
    whole: dict[arith.Var, arith.Interval] = {
        v: (0, n - 1) for v, n in zip(region.axes, region.shape, strict=True)
    }
    for disjunct in _disjuncts(region.predicate):
        ranges = _tightened(disjunct, whole)
        if ranges is None:
            continue
        guard = arith.simplify_predicate(disjunct, ranges)
        if guard != arith.FALSE:
            yield region.axes, ranges, guard


def _disjuncts(predicate: arith.Predicate) -> tuple[arith.Predicate, ...]:
    """The conjunctions whose disjunction a predicate is; itself where these exceed `MOST_BOXES`."""
    choices = [
        part.members if isinstance(part, arith.Or) else (part,)
        for part in arith.conjuncts(predicate)
    ]
    found = tuple(arith.conjunction(chosen) for chosen in product(*choices))
    return found if len(found) <= MOST_BOXES else (predicate,)


def _tightened(
    predicate: arith.Predicate, ranges: dict[arith.Var, arith.Interval]
) -> dict[arith.Var, arith.Interval] | None:
    """The ranges narrowed by the linear conjuncts of a predicate; None where no point is left."""
    before, after = ranges, narrowed(arith.conjuncts(predicate), ranges)
    while before != after:
        if any(low is None or high is None or low > high for low, high in after.values()):
            return None
        before, after = after, narrowed(arith.conjuncts(predicate), after)
    return after


def narrowed(
    conditions: Iterable[arith.Predicate], ranges: Mapping[arith.Var, arith.Interval]
) -> dict[arith.Var, arith.Interval]:
    """The ranges that linear conditions leave of the given ones, which may be open.

    Conditions of other forms narrow nothing.  A round for each variable, and one more, finds what
    follows through all of them; several conditions together may exclude more.
    """
    found = dict(ranges)
    sides = [side for condition in conditions for side in _at_least_zero(condition)]
    for _ in range(len(found) + 1):
        for side in sides:
            for atom, k in arith.terms_of(side)[0]:
                if isinstance(atom, arith.Var) and atom in found:
                    most = arith.bounds(side - atom * k, found)[1]
                    if most is not None:
                        found[atom] = _cut(found[atom], -most, k)
    return found


def _at_least_zero(condition: arith.Predicate) -> tuple[arith.IndexExpr, ...]:
    """The expressions that are at least zero where a condition holds."""
    match condition:
        case arith.AtLeastZero(expr=expr):
            return (expr,)
        case arith.IsZero(expr=expr):
            return (expr, -expr)
        case _:
            return ()


def _cut(interval: arith.Interval, least: int, k: int) -> arith.Interval:
    """The part of an interval in which `k` times a number is at least `least`."""
    low, high = interval
    if k > 0:
        end = -(-least // k)
        return (end if low is None else max(low, end)), high
    end = least // k
    return low, (end if high is None else min(high, end))
