"""Random applications of the primitives on buffers and their annotations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const, floor_div, floor_mod
from graphflow.schedule import (
    delete_buffer,
    divide_dim,
    expand_dim,
    lift_alloc,
    mult_dim,
    parallelize_loop,
    rearrange_dim,
    resize_dim,
    reuse_buffer,
    set_memory,
    set_precision,
    sink_alloc,
    stage_window,
    unroll_buffer,
)
from support.kernels.effect_kernels import EffectKernel
from support.kernels.random_kernels import Number
from support.primitives.choices import SCOPES, Arguments, Choices, chosen, on_loop
from support.primitives.primitive_cases import PrimitiveCase

Indices = tuple[IndexExpr, ...]


# Kernels ------------------------------------------------------------------------------------------


class BufferKernel(EffectKernel):
    """An effect kernel that nearly always computes in a temporary buffer, and often in private
    buffers of its loops."""

    def chance(self, percent: int) -> bool:
        return super().chance({15: 40, 50: 95}.get(percent, percent))


def buffer_kernel(number: Number, dtype: str = "int64") -> tir.PrimFunc:
    """A random kernel with temporary buffers, every third one with conditions on data."""
    return BufferKernel(number, data_conditions=number(0, 2) == 0, dtype=dtype).func()


def circular_kernel(number: Number) -> tir.PrimFunc:
    """A loop that stores an element of a buffer and reads one stored a few iterations before, at
    times after a stage that filled all of it."""
    n, lag, first = number(4, 9), number(0, 3), number(0, 1)
    i, j = Var("i"), Var("j")
    x, y, t = (tir.Buffer(name, (n,), "int64") for name in "xyt")
    store = tir.Store(t, (i,), tir.Load(x, (i,)))
    read = tir.Store(y, (i,), tir.Load(t, (floor_mod(i - lag, n),)))
    body: tir.Body = (store, read) if number(0, 3) else (read, store)
    text = _for(i, first * lag, n, body)
    filled = (
        (_for(j, 0, n, (tir.Store(t, (j,), tir.Literal(1, "int64")),)),)
        if number(0, 3) == 0
        else ()
    )
    return _func((x,), y, (tir.Allocate(t), *filled, text))


def constant_kernel(number: Number) -> tir.PrimFunc:
    """A buffer kernel in which accesses to temporary buffers mostly have a constant first index."""
    func = buffer_kernel(number)
    for buffer in temporaries(func):

        def place(indices: Indices, extent: int = buffer.shape[0]) -> Indices:
            if number(0, 9) == 0:
                return indices
            return (const(number(0, extent - 1)), *indices[1:])

        func = replace(func, body=tir.redirect_accesses(func.body, buffer, buffer, place))
    return func


def unread_kernel(number: Number) -> tir.PrimFunc:
    """A buffer kernel in which few loads of temporary buffers are left."""
    func = buffer_kernel(number)
    private = temporaries(func)
    some = number(0, 1) * 30

    def change(expr: tir.Expr) -> tir.Expr:
        if isinstance(expr, tir.Load) and expr.buffer in private and number(0, 99) >= some:
            return tir.Literal(2, "int64")
        return expr

    return replace(func, body=tir.map_expressions(func.body, change))


def repeated_kernel(number: Number) -> tir.PrimFunc:
    """A buffer kernel whose work is done three times, with the same temporary buffer, which is
    mostly filled each time."""
    func = buffer_kernel(number)
    outside = tuple(stmt for stmt in func.body if isinstance(stmt, tir.Allocate))
    work: tir.Body = tuple(stmt for stmt in func.body if not isinstance(stmt, tir.Allocate))
    for stmt in outside if number(0, 3) else ():
        names = [Var(f"z{axis}") for axis in range(len(stmt.buffer.shape))]
        store = tir.Store(stmt.buffer, tuple(names), tir.Literal(1, "int64"))
        work = (*tir.nest(tuple(zip(names, stmt.buffer.shape, strict=True)), (store,)), *work)
    return replace(func, body=(*outside, _for(Var("o"), 0, 3, work)))


class TwinKernel(EffectKernel):
    """An effect kernel with two temporary buffers of one type."""

    def func(self) -> tir.PrimFunc:
        x, y, t = (tir.Buffer(name, self.shape(), "int64") for name in "xyt")
        u = replace(t, name="u")
        first = self.stage([x, y, t])
        second = self.stage([x, t, y, u] if self.chance(30) else [x, y, u])
        last = self.stage([x, t, y, u] if self.chance(30) else [x, y, u])
        first, second = (*self.filled(t), *first), (*self.filled(u), *second)
        return _func((x,), y, (tir.Allocate(t), *first, tir.Allocate(u), *second, *last))

    def filled(self, buffer: tir.Buffer) -> tir.Body:
        """A nest that stores each element, mostly."""
        names = [Var(self.fresh("z")) for _ in buffer.shape]
        store = tir.Store(buffer, tuple(names), tir.Literal(self.number(0, 5), "int64"))
        return tir.nest(tuple(zip(names, buffer.shape, strict=True)), (store,) * self.chance(70))


def twin_kernel(number: Number) -> tir.PrimFunc:
    """A random kernel with two temporary buffers of one type."""
    return TwinKernel(number, data_conditions=number(0, 2) == 0).func()


def _for(var: Var, start: int, stop: int, body: tir.Body) -> tir.For:
    return tir.For(var, const(start), const(stop), tir.LoopKind.SERIAL, body)


def _func(inputs: tuple[tir.Buffer, ...], output: tir.Buffer, body: tir.Body) -> tir.PrimFunc:
    params = (*(tir.Param(x, tir.Role.INPUT) for x in inputs), tir.Param(output, tir.Role.OUTPUT))
    return tir.PrimFunc("kernel", params, body)


# Arguments ----------------------------------------------------------------------------------------


def temporaries(func: tir.PrimFunc) -> list[tir.Buffer]:
    return [stmt.buffer for stmt in tir.walk(func.body) if isinstance(stmt, tir.Allocate)]


def _temporary(func: tir.PrimFunc, number: Number) -> tir.Buffer | None:
    found = temporaries(func)
    return found[number(0, len(found) - 1)] if found else None


def of_temporary(
    arguments: Callable[[tir.PrimFunc, tir.Buffer, Number], Arguments],
) -> Callable[[tir.PrimFunc, Number], Arguments]:
    """Arguments that begin with the name of a temporary buffer."""

    def found(func: tir.PrimFunc, number: Number) -> Arguments:
        buffer = _temporary(func, number)
        rest = None if buffer is None else arguments(func, buffer, number)
        return None if buffer is None or rest is None else (buffer.name, *rest)

    return found


def _resize(func: tir.PrimFunc, buffer: tir.Buffer, number: Number) -> Arguments:
    if not buffer.shape:
        return None
    dim = number(0, len(buffer.shape) - 1)
    fold = number(0, 2) > 0
    offset = 0 if fold else number(0, 1)
    return dim, number(1, buffer.shape[dim] + 1), offset, fold


def _expand(func: tir.PrimFunc, buffer: tir.Buffer, number: Number) -> Arguments:
    touched = [a for a in tir.accesses(func.body) if a.buffer == buffer]
    around = [{axis.var for axis in a.domain.axes} for a in touched]
    shared = sorted(set.intersection(*around), key=str) if around else []
    index = shared[number(0, len(shared) - 1)] if shared and number(0, 1) else const(number(0, 3))
    return number(1, 5), index


def _order(func: tir.PrimFunc, buffer: tir.Buffer, number: Number) -> Arguments:
    return ((1, 0),) if len(buffer.shape) == 2 else None


def _factor(func: tir.PrimFunc, buffer: tir.Buffer, number: Number) -> Arguments:
    return None if not buffer.shape else (number(0, len(buffer.shape) - 1), number(1, 4))


def _two_axes(func: tir.PrimFunc, buffer: tir.Buffer, number: Number) -> Arguments:
    return ((0, 1), (1, 0))[number(0, 1)] if len(buffer.shape) == 2 else None


def _to_lift(c: Choices) -> Arguments:
    """An allocation, mostly one in a loop, and how many loops it leaves."""
    inner = [s.buffer for loop in c.loops() for s in loop.body if isinstance(s, tir.Allocate)]
    found = temporaries(c.func) if c.dice.chance(0.1) else inner
    return (c.dice.among(found).name, c.dice.weighted({1: 3, 2: 1})) if found else None


def _to_sink(c: Choices) -> Arguments:
    """An allocation, a loop, mostly one around all accesses to it, and a memory."""
    found = temporaries(c.func)
    if not found or not c.loops():
        return None
    buffer = c.dice.among(found)
    touched = [a for a in tir.accesses(c.func.body) if a.buffer == buffer]
    around = [{axis.var.name for axis in a.domain.axes} for a in touched]
    shared = sorted(set.intersection(*around)) if around else []
    loops = [loop.var.name for loop in c.loops()]
    names = shared if shared and c.dice.chance(0.6) else loops
    return buffer.name, c.dice.among(names), c.dice.among(SCOPES)


def _twins(func: tir.PrimFunc, number: Number) -> Arguments:
    """The buffers t and u, or the last two temporary ones."""
    names = [buffer.name for buffer in temporaries(func)]
    names = ["t", "u"] if {"t", "u"} <= set(names) else names
    return tuple(names[-2:]) if len(names) > 1 else None


def _outer_loop(func: tir.PrimFunc, number: Number) -> Arguments:
    loops = [loop.var.name for loop in tir.loops_of(func.body)]
    return (loops[number(0, len(loops) - 1)],) if loops else None


def _staged(func: tir.PrimFunc, number: Number) -> Arguments:
    buffers, loops = tir.buffers_of(func), _outer_loop(func, number)
    return loops and (loops[0], buffers[number(0, len(buffers) - 1)].name, "staged")


def _staged_window(func: tir.PrimFunc, number: Number) -> Arguments:
    """A stated window that holds the whole buffer, and a little around it."""
    found = _staged(func, number)
    if not found:
        return None
    buffer = next(b for b in tir.buffers_of(func) if b.name == found[1])
    window = tuple((-number(0, 2), extent + number(2, 4)) for extent in buffer.shape)
    return (*found, "scratch", window)


# Rewrites without conditions ----------------------------------------------------------------------


def moved(func: tir.PrimFunc, name: str, shape: tuple[int, ...], place: Any) -> tir.PrimFunc:
    old = called(func, name)
    new = replace(old, shape=shape)

    def allocated(stmt: tir.Stmt) -> tir.Stmt:
        return tir.Allocate(new) if stmt == tir.Allocate(old) else stmt

    return replace(
        func, body=tir.map_body(tir.redirect_accesses(func.body, old, new, place), allocated)
    )


def called(func: tir.PrimFunc, name: str) -> tir.Buffer:
    return next(buffer for buffer in temporaries(func) if buffer.name == name)


def _resized(
    func: tir.PrimFunc, name: str, dim: int, size: int, offset: int, fold: bool
) -> tir.PrimFunc | None:
    shape = called(func, name).shape

    def place(e: Indices) -> Indices:
        index = e[dim] - offset
        return (*e[:dim], floor_mod(index, size) if fold else index, *e[dim + 1 :])

    return moved(func, name, (*shape[:dim], size, *shape[dim + 1 :]), place)


def _expanded(func: tir.PrimFunc, name: str, size: int, index: IndexExpr) -> tir.PrimFunc:
    shape = (size, *called(func, name).shape)
    return moved(func, name, shape, lambda e: (index, *e))


def _transposed(func: tir.PrimFunc, name: str, order: tuple[int, int]) -> tir.PrimFunc:
    n, m = called(func, name).shape
    return moved(func, name, (m, n), lambda e: (e[1], e[0]))


def _divided(func: tir.PrimFunc, name: str, dim: int, factor: int) -> tir.PrimFunc | None:
    shape = called(func, name).shape
    if shape[dim] % factor:
        return None
    parts = (*shape[:dim], shape[dim] // factor, factor, *shape[dim + 1 :])

    def place(e: Indices) -> Indices:
        return (*e[:dim], floor_div(e[dim], factor), floor_mod(e[dim], factor), *e[dim + 1 :])

    return moved(func, name, parts, place)


def _multiplied(func: tir.PrimFunc, name: str, dim: int, other: int) -> tir.PrimFunc:
    shape = called(func, name).shape
    return moved(func, name, (shape[0] * shape[1],), lambda e: (shape[other] * e[dim] + e[other],))


def _unrolled(func: tir.PrimFunc, name: str, dim: int) -> tir.PrimFunc | None:
    old = called(func, name)
    shape = (*old.shape[:dim], *old.shape[dim + 1 :])
    for value in range(old.shape[dim]):
        part = tir.Buffer(f"{name}_part{value}", shape, old.dtype)

        def is_own(indices: Indices, value: int = value) -> bool:
            return indices[dim] is const(value)

        func = _split_off(func, old, part, dim, is_own)
    left = any(a.buffer == old for a in tir.accesses(func.body))
    return None if left else _without(func, old)


def _split_off(
    func: tir.PrimFunc,
    old: tir.Buffer,
    part: tir.Buffer,
    dim: int,
    is_own: Callable[[Indices], bool],
) -> tir.PrimFunc:
    def on_expr(expr: tir.Expr) -> tir.Expr:
        if isinstance(expr, tir.Load) and expr.buffer == old and is_own(expr.indices):
            return tir.Load(part, (*expr.indices[:dim], *expr.indices[dim + 1 :]))
        return expr

    def on_stmt(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
        if stmt == tir.Allocate(old):
            return stmt, tir.Allocate(part)
        if isinstance(stmt, tir.Store | tir.Reduce) and stmt.buffer == old and is_own(stmt.indices):
            kept = (*stmt.indices[:dim], *stmt.indices[dim + 1 :])
            return replace(stmt, buffer=part, indices=kept)
        return stmt

    return replace(func, body=tir.map_body(tir.map_expressions(func.body, on_expr), on_stmt))


def _without(func: tir.PrimFunc, buffer: tir.Buffer) -> tir.PrimFunc:
    """The kernel without the allocation of a buffer and the writes to it."""

    def change(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
        gone = isinstance(stmt, tir.Allocate | tir.Store | tir.Reduce) and stmt.buffer == buffer
        return () if gone else stmt

    return replace(func, body=tir.map_body(func.body, change))


def _deleted(func: tir.PrimFunc, name: str) -> tir.PrimFunc:
    return _without(func, called(func, name))


def _reused(func: tir.PrimFunc, name: str, other: str) -> tir.PrimFunc:
    kept, gone = called(func, name), called(func, other)

    def change(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
        return () if stmt == tir.Allocate(gone) else stmt

    return replace(func, body=tir.rename_buffers(tir.map_body(func.body, change), {gone: kept}))


def _lifted(func: tir.PrimFunc, name: str, levels: int) -> tir.PrimFunc | None:
    old = called(func, name)
    if levels > 1:
        return None

    def change(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
        if isinstance(stmt, tir.For) and tir.Allocate(old) in stmt.body:
            rest = tuple(inner for inner in stmt.body if inner != tir.Allocate(old))
            return tir.Allocate(old), replace(stmt, body=rest)
        return stmt

    body = tir.map_body(func.body, change)
    return None if body == func.body else replace(func, body=body)


def _sunk(func: tir.PrimFunc, name: str, loop: str, _scope: str) -> tir.PrimFunc | None:
    old = called(func, name)
    inside = next(stmt.body for stmt in tir.loops_of(func.body) if stmt.var.name == loop)
    if tir.Allocate(old) in tir.walk(inside) or not any(
        a.buffer == old for a in tir.accesses(inside)
    ):
        return None

    def change(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
        if stmt == tir.Allocate(old):
            return ()
        if isinstance(stmt, tir.For) and stmt.var.name == loop:
            return replace(stmt, body=(tir.Allocate(old), *stmt.body))
        return stmt

    return replace(func, body=tir.map_body(func.body, change))


def _rescoped(func: tir.PrimFunc, name: str, scope: Any) -> tir.PrimFunc:
    old = called(func, name)
    return replace(func, body=tir.rename_buffers(func.body, {old: replace(old, scope=scope)}))


def _retyped(func: tir.PrimFunc, name: str, dtype: str) -> tir.PrimFunc:
    old = called(func, name)
    new = replace(old, dtype=dtype)

    def on_expr(expr: tir.Expr) -> tir.Expr:
        if isinstance(expr, tir.Load) and expr.buffer == old:
            return tir.Cast(tir.Load(new, expr.indices), old.dtype)
        return expr

    def on_stmt(stmt: tir.Stmt) -> tir.Stmt:
        if isinstance(stmt, tir.Store | tir.Reduce) and stmt.buffer == old:
            return replace(stmt, buffer=new, value=tir.Cast(stmt.value, dtype))
        return tir.Allocate(new) if stmt == tir.Allocate(old) else stmt

    return replace(func, body=tir.map_body(tir.map_expressions(func.body, on_expr), on_stmt))


def _parallel(func: tir.PrimFunc, loop: str) -> tir.PrimFunc:
    def change(stmt: tir.Stmt) -> tir.Stmt:
        if isinstance(stmt, tir.For) and stmt.var.name == loop:
            return replace(stmt, kind=tir.LoopKind.PARALLEL)
        return stmt

    return replace(func, body=tir.map_body(func.body, change))


def _copied(func: tir.PrimFunc, loop: str, name: str, staged: str, *_: Any) -> tir.PrimFunc | None:
    """The loop on a copy of the whole buffer, which is copied back after each iteration."""
    old = next(buffer for buffer in tir.buffers_of(func) if buffer.name == name)
    new = replace(old, name=staged)

    def copy(target: tir.Buffer, source: tir.Buffer, prefix: str) -> tir.Body:
        names = [Var(f"{prefix}{axis}") for axis in range(len(old.shape))]
        store = tir.Store(target, tuple(names), tir.Load(source, tuple(names)))
        return tir.nest(tuple(zip(names, old.shape, strict=True)), (store,))

    def change(stmt: tir.Stmt) -> tir.Stmt:
        if not isinstance(stmt, tir.For) or stmt.var.name != loop:
            return stmt
        body = tir.redirect_accesses(stmt.body, old, new, lambda e: e)
        back = copy(old, new, "out") if body != stmt.body and old not in func.inputs else ()
        return replace(stmt, body=(tir.Allocate(new), *copy(new, old, "in"), *body, *back))

    touched = [
        a for s in tir.loops_of(func.body) if s.var.name == loop for a in tir.accesses(s.body)
    ]
    return replace(func, body=tir.map_body(func.body, change)) if touched else None


BUFFER_CASES = (
    PrimitiveCase(delete_buffer, of_temporary(lambda f, b, n: ()), _deleted, unread_kernel),
    PrimitiveCase(divide_dim, of_temporary(_factor), _divided, buffer_kernel),
    PrimitiveCase(expand_dim, of_temporary(_expand), _expanded, buffer_kernel),
    PrimitiveCase(lift_alloc, chosen(_to_lift), _lifted, buffer_kernel, share=1),
    PrimitiveCase(mult_dim, of_temporary(_two_axes), _multiplied, buffer_kernel),
    PrimitiveCase(parallelize_loop, chosen(on_loop), _parallel, buffer_kernel, share=1),
    PrimitiveCase(rearrange_dim, of_temporary(_order), _transposed, buffer_kernel),
    PrimitiveCase(resize_dim, of_temporary(_resize), _resized, circular_kernel),
    PrimitiveCase(resize_dim, of_temporary(_resize), _resized, buffer_kernel),
    PrimitiveCase(reuse_buffer, _twins, _reused, twin_kernel),
    PrimitiveCase(
        set_memory,
        of_temporary(lambda f, b, n: (("global", "scratch", "register")[n(0, 2)],)),
        _rescoped,
        buffer_kernel,
    ),
    PrimitiveCase(
        set_precision,
        of_temporary(lambda f, b, n: (("int64", "float64")[n(0, 1)],)),
        _retyped,
        partial(buffer_kernel, dtype="int32"),
    ),
    PrimitiveCase(sink_alloc, chosen(_to_sink), _sunk, repeated_kernel, share=1.5),
    PrimitiveCase(stage_window, _staged, _copied, buffer_kernel),
    PrimitiveCase(stage_window, _staged_window, _copied, buffer_kernel, "stated"),
    PrimitiveCase(unroll_buffer, of_temporary(lambda f, b, n: (0,)), _unrolled, constant_kernel),
)
