"""Kernels that keep rows of a tensor apart, fused into one: norms and softmaxes of several nodes.

In: kernels that follow each other, as one fused kernel.  Out: whether its stages meet at loops over
rows, and the kernel without intermediates that need not be stored.  What always holds: each value
is computed by the same operations as before; that stages may meet is proven by `joined_stages`, and
a value that is read in several places is computed again only if that costs less than to store it.

    before:  m = mean(x); d = x - m; v = mean(d * d); y = d / sqrt(v + e)     four passes or more
    after:   for rows: m = mean(x); v = mean((x - m) * (x - m)); y = (x - m) / sqrt(v + e)
"""

from __future__ import annotations

from math import prod

from graphflow import tir
from graphflow.arith import (
    IndexExpr,
    Var,
    constant_value,
    substitute,
    substitute_in,
    variables,
)
from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes import joined_stages

ROWS = 64
"""The least iterations over rows that threads share: fewer are uneven shares, and a step for each
stage has threads share the elements of a row as well."""

FEW_ELEMENTS = 1 << 14
"""Elements of a tensor for which one thread takes no longer than threads take to meet between the
stages: 64 KiB are in a second-level cache, and a pass over them takes about a microsecond."""

VECTOR = 16
"""Lanes of the widest vectors: rows along the last axis are shared in vectors."""


def keeps_axes(func: tir.PrimFunc) -> bool:
    """Whether a kernel reads and writes elements at its loop variables or at 0 alone, and reduces
    elements that it reads at all of its loops, as norms do and products of matrices do not."""
    if func.callee is not None or len(func.outputs) != 1 or tir.matched_variables(func.body):
        return False
    for access in tir.accesses(func.body):
        if not all(isinstance(i, Var) or constant_value(i) == 0 for i in access.indices):
            return False
    for site in tir.sites(func.body):
        if isinstance(site.stmt, tir.Reduce):
            around = {x.var for x in site.domain.axes if tir.iteration_count((x,)) != 1}
            loads = (e for e in tir.walk_expr(site.stmt.value) if isinstance(e, tir.Load))
            if not any(around <= _variables(load.indices) for load in loads):
                return False
        elif not isinstance(site.stmt, tir.Store | tir.For | tir.Block | tir.Allocate):
            return False
    return True


def reduces(func: tir.PrimFunc) -> bool:
    """Whether a kernel has a reduction."""
    return any(isinstance(stmt, tir.Reduce) for stmt in tir.walk(func.body))


def keeps_rows_apart(func: tir.PrimFunc) -> bool:
    """Whether the stages of a fused kernel meet at loops over rows, of which threads have enough.

    False where a step of that is refused, and where the stages have other axes in common than those
    that no stage reduces, such as a mask that serves several rows.  A single row is not cut at all.
    """
    try:
        schedule, shared = joined_stages(func)
    except ScheduleError:
        return False
    loops = [schedule.loop(place) for place in shared]
    reduced = [s.buffer.size for s in tir.walk(func.body) if isinstance(s, tir.Reduce)]
    if not reduced or prod(x.extent or 1 for x in loops) != min(reduced):
        return False
    largest = max(buffer.size for buffer in tir.buffers_of(func))
    if largest <= FEW_ELEMENTS:
        return True
    large = (a for a in tir.accesses(schedule.func.body) if a.buffer.size == largest)
    last = {access.indices[-1] for access in large}
    rows = prod(-(-(x.extent or 1) // (VECTOR if x.var in last else 1)) for x in loops)
    return rows >= ROWS


def recomputed(func: tir.PrimFunc) -> tir.PrimFunc:
    """`t[i] = f(i); … g(t[e])` → `… g(f(e))`, for intermediates of an elementwise stage.

    Each reader is executed as often as the stage was; if there are several, the stage computes one
    addition, subtraction or product, which takes less than a store and a load.
    """
    done = False
    while not done:
        done = True
        for buffer in [s.buffer for s in tir.walk(func.body) if isinstance(s, tir.Allocate)]:
            store = _elementwise(func, buffer)
            if store is not None and _may_recompute(func, store):
                func = _without(func, store)
                done = False
    return func


def _elementwise(func: tir.PrimFunc, buffer: tir.Buffer) -> tir.Store | None:
    """The store of the only stage that writes an intermediate; None where it is not elementwise."""
    writing = [
        stmt
        for stmt in func.body
        if any(write.buffer == buffer for write in tir.writes_in((stmt,)))
    ]
    return tir.in_order_store(tuple(writing), buffer.shape) if len(writing) == 1 else None


def _may_recompute(func: tir.PrimFunc, store: tir.Store) -> bool:
    readers = [
        site
        for site in tir.sites(func.body)
        if isinstance(site.stmt, tir.Store | tir.Reduce)
        and any(load.buffer == store.buffer for load in tir.loads_in((site.stmt,)))
    ]
    if any(tir.iteration_count(site.domain.axes) != store.buffer.size for site in readers):
        return False
    return len(readers) == 1 or _is_one_operation(store.value)


def _is_one_operation(value: tir.Expr) -> bool:
    if not isinstance(value, tir.Binary) or value.op not in ("add", "sub", "mul"):
        return False
    return all(isinstance(side, tir.Load | tir.Literal) for side in (value.left, value.right))


def _without(func: tir.PrimFunc, store: tir.Store) -> tir.PrimFunc:
    """The kernel without an intermediate: its value in the place of each load."""

    def change(expr: tir.Expr) -> tir.Expr:
        if not isinstance(expr, tir.Load) or expr.buffer != store.buffer:
            return expr
        at: dict[Var, IndexExpr] = {
            var: index
            for var, index in zip(store.indices, expr.indices, strict=True)
            if isinstance(var, Var)
        }
        (here,) = tir.map_indices(
            (store,), lambda e: substitute(e, at), lambda p: substitute_in(p, at)
        )
        assert isinstance(here, tir.Store)
        return here.value

    kept = tuple(
        stmt
        for stmt in func.body
        if not any(write.buffer == store.buffer for write in tir.writes_in((stmt,)))
        and not (isinstance(stmt, tir.Allocate) and stmt.buffer == store.buffer)
    )
    return tir.PrimFunc(func.name, func.params, tir.map_expressions(kept, change))


def _variables(indices: tuple[IndexExpr, ...]) -> set[Var]:
    return {var for index in indices for var in variables(index)}
