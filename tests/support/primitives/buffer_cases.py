"""Random applications of the primitives on buffers and their annotations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const, floor_mod
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


BUFFER_CASES = (
    PrimitiveCase(delete_buffer, of_temporary(lambda f, b, n: ()), unread_kernel),
    PrimitiveCase(divide_dim, of_temporary(_factor), buffer_kernel),
    PrimitiveCase(expand_dim, of_temporary(_expand), buffer_kernel),
    PrimitiveCase(lift_alloc, chosen(_to_lift), buffer_kernel, share=1),
    PrimitiveCase(mult_dim, of_temporary(_two_axes), buffer_kernel),
    PrimitiveCase(parallelize_loop, chosen(on_loop), buffer_kernel, share=1),
    PrimitiveCase(rearrange_dim, of_temporary(_order), buffer_kernel),
    PrimitiveCase(resize_dim, of_temporary(_resize), circular_kernel),
    PrimitiveCase(resize_dim, of_temporary(_resize), buffer_kernel),
    PrimitiveCase(reuse_buffer, _twins, twin_kernel),
    PrimitiveCase(
        set_memory,
        of_temporary(lambda f, b, n: (("global", "scratch", "register")[n(0, 2)],)),
        buffer_kernel,
    ),
    PrimitiveCase(
        set_precision,
        of_temporary(lambda f, b, n: (("int64", "float64")[n(0, 1)],)),
        partial(buffer_kernel, dtype="int32"),
    ),
    PrimitiveCase(sink_alloc, chosen(_to_sink), repeated_kernel, share=1.5),
    PrimitiveCase(stage_window, _staged, buffer_kernel),
    PrimitiveCase(stage_window, _staged_window, buffer_kernel, "stated"),
    PrimitiveCase(unroll_buffer, of_temporary(lambda f, b, n: (0,)), constant_kernel),
)
