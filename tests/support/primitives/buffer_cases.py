"""Random applications of the primitives on buffers and their annotations."""

from collections.abc import Callable
from functools import partial
from typing import Any

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const, floor_mod
from graphflow.base.fields import replace
from graphflow.schedule import (
    Schedule,
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
from support.primitives.refused_kernels import READ, ROW, TEMPORARY, i
from support.schedule_checks import kernel

Indices = tuple[IndexExpr, ...]


# Kernels ------------------------------------------------------------------------------------------


class BufferKernel(EffectKernel):
    """An effect kernel that nearly always computes in a temporary buffer, and often in private
    buffers of its loops."""

    def chance(self, percent: int) -> bool:
        return super().chance({15: 40, 50: 95}.get(percent, percent))


def buffer_kernel(number: Number, dtype: str = "int64") -> tir.PrimFunc:
    """A random kernel with temporary buffers, every third one with conditions on data."""
    return BufferKernel.of(number, number(0, 2) == 0, dtype).func()


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
        x, y, t = (self.buffer(name) for name in "xyt")
        u = replace(t, name="u")
        stages = []
        for buffers in ((x, y, t), (x, y, u), (x, y, u)):
            both = len(stages) > 0 and self.chance(30)
            self.readable = [x, t, y, u] if both else list(buffers)
            stages.append(self.statements_in_loops())
        first, second, last = stages
        first, second = (*self.filled(t), *first), (*self.filled(u), *second)
        return _func((x,), y, (tir.Allocate(t), *first, tir.Allocate(u), *second, *last))

    def filled(self, buffer: tir.Buffer) -> tir.Body:
        """A nest that stores each element, mostly."""
        names = [Var(self.fresh("z")) for _ in buffer.shape]
        store = tir.Store(buffer, tuple(names), tir.Literal(self.number(0, 5), "int64"))
        return tir.nest(tuple(zip(names, buffer.shape, strict=True)), (store,) * self.chance(70))


def twin_kernel(number: Number) -> tir.PrimFunc:
    """A random kernel with two temporary buffers of one type."""
    return TwinKernel.of(number, number(0, 2) == 0).func()


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


# What is refused ----------------------------------------------------------------------------------

CARRIED = ROW.format(
    "t = alloc(i32[1])\n    if data(x[0] < t[0]):\n        t[0] = x[i]\n    y[i] = x[i]"
)
OWN = "for i in {}(0, 16):\n    t = alloc(i32[1])\n    t[0] = x[i]\n    y[i] = t[0]"
TWO = (
    "t = alloc(i32[16])\nu = alloc({}[16])\nfor z in serial(0, 16):\n    t[z] = x[z]\n"
    "    u[z] = {}\nfor i in serial(0, 16):\n    y[i] = t[i]"
)
BOX = (
    "t = alloc(i32[4, 4])\nfor i in serial(0, 4):\n    for j in serial(0, 4):\n"
    "        t[i, j] = x[4*i + j]\n        y[4*i + j] = t[i, j]"
)
SECOND = tir.parse(
    "@primfunc\ndef block(c: out[i32[4, 4]], a: i32[16]):\n    for p in serial(0, 4):\n"
    "        for q in serial(0, 4):\n            c[p, q] = a[4*p + q]\n"
)


def given_to_call() -> tir.PrimFunc:
    """A buffer of two axes that a call writes by both."""
    body = BOX.replace("        y[4*i + j] = t[i, j]", "y[0] = t[1, 1]")
    return Schedule.of(kernel(body)).replace("i", SECOND).func


PADDED = """
t = alloc(i32[16])
with block("t_padding", padding_of="t", padding="value"):
    for p in serial(12, 16):
        t[p] = i32(0)
for i in serial(0, 12):
    t[i] = x[i]
for j in serial(0, 12):
    y[j] = t[j]
"""


BUFFER_CASES = (
    PrimitiveCase(delete_buffer, of_temporary(lambda f, b, n: ()), unread_kernel)
    .on(READ, "t")
    .refuses("dead", "nothing reads t", r"at i=\d+")
    .on(PADDED, "t")
    .refuses("", "t has padding that t_padding states"),
    PrimitiveCase(divide_dim, of_temporary(_factor), buffer_kernel)
    .on(READ, "t", 0, 3)
    .refuses("divisible", "3 does not divide axis 0 of t with extent 16"),
    PrimitiveCase(expand_dim, of_temporary(_expand), buffer_kernel)
    .on(READ, "t", 0, 0)
    .refuses("size", "an axis of 0 elements holds nothing")
    .given("t", 16, i)
    .refuses("scope", r"i is no loop around the access t\[z\]")
    .on(BOX, "t", 3, i)
    .refuses("range", r"i lies in \[0, 3\)", r"i=\d+, j=\d+")
    .on(
        "t = alloc(i32[16])\nfor i in serial(0, 15):\n"
        "    t[i] = x[i]\n    if i > 0:\n        y[i] = t[i - 1]"
    )
    .given("t", 16, i)
    .refuses(
        "values",
        "equal elements of t are accessed at equal i",
        r"t\[i - \d+\] at i'=\d+ would not see what t\[i\] at i=\d+ stores",
    )
    .on(
        "t = alloc(i32[4])\nwith t[0:4] as w:\n    for i in serial(0, 4):\n"
        "        w[i] = x[i]\n        y[i] = w[i]"
    )
    .given("t", 4, Var("i"))
    .refuses("scope", "i is no loop around the window w"),
    PrimitiveCase(lift_alloc, chosen(_to_lift), buffer_kernel, share=1)
    .on(OWN.format("parallel"), "t")
    .refuses("kind", "the iterations of i run at once, and would share t")
    .on(CARRIED, "t")
    .refuses(
        "carried",
        "each iteration of i stores t before it loads it",
        r"where data decide, t\[0\] at i'=\d+ would see what t\[0\] at i=\d+ stores",
    )
    .on(
        ROW.format(
            "t = alloc(i32[2])\n    t[1] = x[i]\n    if i >= 1:\n        y[i] = t[0]\n"
            "    t[0] = x[i]"
        )
    )
    .given("t")
    .refuses("carried", r".* does not hold.*would see what t\[0\]")
    .on("t = alloc(i32[1])\nt[0] = x[0]\ny[0] = t[0]", "t")
    .refuses("", "t is allocated outside all loops already")
    .on(
        ROW.format(
            "t = alloc(i32[1])\n    if data(x[0] < t[0]):\n        t[0] = x[i]\n    y[i] = x[i]"
        )
    )
    .given("y")
    .refuses("", "y is not allocated in k"),
    PrimitiveCase(mult_dim, of_temporary(_two_axes), buffer_kernel)
    .on(BOX, "t", 1, 1)
    .refuses("axes", "1 is one axis of t, and two are multiplied")
    .on(
        BOX.replace("t[i, j]\n", "t[i, j]\n        y[0] = t[i, j + 1]\n").replace(
            "y[4*i + j] = t[i, j]", "y[4*i + j] = t[0, j + 1]"
        )
    )
    .given("t", 0, 1)
    .refuses("range", r"accesses to axis 1 of t lie in \[0, 4\)", r"i=\d+, j=\d+")
    .on(given_to_call)
    .given(by=lambda f: Schedule.of(f).mult_dim("t", 1, 0))
    .refuses("calls", r"block would be no call of block any more: block has `c\[p, q\]`"),
    PrimitiveCase(parallelize_loop, chosen(on_loop), buffer_kernel, share=1)
    .on("for i in serial(1, 16):\n    y[i - 1] = x[i]\n    y[i] = x[i]", "i")
    .refuses("1", "the iterations of i are independent", r"i=\d+, i'=\d+")
    .on("t = alloc(i32[1])\nfor i in serial(0, 16):\n    t[0] = x[i]\n    y[i] = t[0] + t[0]")
    .given("i")
    .refuses("", r"t\[0\] and \[0\] do not meet")
    .on("for i in vectorized(0, 4):\n    for j in serial(0, 4):\n        y[4*i + j] = x[j]", "j")
    .refuses("", "j stands inside i, whose iterations are lanes"),
    PrimitiveCase(rearrange_dim, of_temporary(_order), buffer_kernel)
    .on(BOX, "t", (0, 0))
    .refuses("order", r"\[0, 0\] is no order of the axes of \[4, 4\]")
    .on(given_to_call)
    .given(by=lambda f: Schedule.of(f).rearrange_dim("t", (1, 0)))
    .refuses("calls", r"block would be no call of block any more: block has `c\[p, q\]`"),
    PrimitiveCase(resize_dim, of_temporary(_resize), circular_kernel, "of a circle")
    .on(READ, "t", 0, 0)
    .refuses("size", "an axis of 0 elements holds nothing")
    .given("t", 0, 16, i)
    .refuses("scope", "i is no loop around the allocation of t")
    .given("t", 0, 12)
    .refuses("range", r"accesses to axis 0 of t lie in \[0, 12\)", r"z=\d+")
    .on(TEMPORARY + "for i in serial(0, 16):\n    y[i] = t[i]", "t", 0, 4, 0, True)
    .refuses(
        "window",
        "4 elements along axis 0 of t are enough",
        r"t\[i\] at i'=\d+ would see what t\[z\] at z=\d+ stores",
    ),
    PrimitiveCase(resize_dim, of_temporary(_resize), buffer_kernel),
    PrimitiveCase(reuse_buffer, _twins, twin_kernel)
    .on(TWO.format("i8", "i8(1)"), "t", "u")
    .refuses("type", r"t: int32\[16\] in global memory is not u: int8\[16\] in global")
    .on(
        "for i in serial(0, 4):\n    t = alloc(i32[16])\n    t[0] = x[i]\n"
        "    y[i] = t[0]\nu = alloc(i32[16])\nu[0] = x[0]\ny[5] = u[0]"
    )
    .given("t", "u")
    .refuses("scope", "t is not allocated around u and before it")
    .on(TWO.format("i32", "x[z]"), "t", "u")
    .refuses(
        "dead",
        "t is not needed where u is",
        r"t\[i\] at i'=\d+ would see what u\[z\] at z=\d+ stores",
    ),
    PrimitiveCase(
        set_memory,
        of_temporary(lambda f, b, n: (("global", "scratch", "register")[n(0, 2)],)),
        buffer_kernel,
    )
    .on(READ, "t", "tape")
    .refuses("memory", "'tape' is none of global, scratch, register")
    .on("t = alloc(i32[16])\nfor i in parallel(0, 16):\n    t[i] = x[i]\n    y[i] = t[i]")
    .given("t", "register")
    .refuses("threads", r"the iterations of i share t at t\[i\], and registers belong to"),
    PrimitiveCase(
        set_precision,
        of_temporary(lambda f, b, n: (("int64", "float64")[n(0, 1)],)),
        partial(buffer_kernel, dtype="int32"),
    )
    .on(READ, "t", "int99")
    .refuses("type", "int99 is none of float32, float64, int8, int16, int32, int64,")
    .given("t", "int8")
    .refuses("exact", "int8 does not hold every int32", "2147483647")
    .on(
        TEMPORARY.replace("i32", "f32").replace("= x[z]", "= cast(f32, x[z])")
        + "t[0] += f32(1.0)\ny[0] = cast(i32, t[0])"
    )
    .given("t", "float64")
    .refuses("reduction", r"t\[0\] reduces by add in float32"),
    PrimitiveCase(sink_alloc, chosen(_to_sink), repeated_kernel, share=1.5)
    .on(READ, "x", "i")
    .refuses("private", "x is a parameter, which others see")
    .given("t", "i")
    .refuses("inside", "t is not touched in i alone")
    .on("t = alloc(i32[1])\n" + ROW.format("if i == 0:\n        t[0] = x[i]\n    y[i] = t[0]"))
    .given("t", "i")
    .refuses(
        "carried",
        "each iteration of i stores the elements of t before it reads",
        r"t\[0\] at i'=\d+ would not see what t\[0\] at i=\d+ stores",
    )
    .on(PADDED, "t", "j", "scratch")
    .refuses("", "private: t has padding that t_padding states"),
    PrimitiveCase(stage_window, _staged, buffer_kernel)
    .on(ROW.format("y[i] = x[i]"), "[0]", "x", "s", "scratch", ((Var("q"), 1),))
    .refuses("scope", r"q is no loop around \[0\]")
    .given("[0]", "x", "s", "scratch", ((0, 12),))
    .refuses("window", r"what \[0\] touches of x fits \[12\]", r"i=\d+")
    .on(ROW.format("if data(x[i] < i32(1)):\n        y[i + 1] = x[i]"), "i", "y", "s")
    .refuses("copied", "what is copied of y lies inside it", r"i=\d+")
    .on("for i in serial(0, 16):\n    t = alloc(i32[1])\n    t[0] = x[i]\n    y[i] = t[0]")
    .given("i", "t", "s")
    .refuses("", "t is allocated inside i already")
    .on("t = alloc(i32[16])\nfor i in serial(0, 16):\n    t[i] = x[i]\n    y[i] = t[i]")
    .given("[0]", "t", "u")
    .refuses("", "computes nothing that could be staged"),
    PrimitiveCase(stage_window, _staged_window, buffer_kernel, "stated"),
    PrimitiveCase(unroll_buffer, of_temporary(lambda f, b, n: (0,)), constant_kernel)
    .on("t = alloc(i32[20000])\nt[0] = x[0]\ny[0] = t[0]", "t", 0)
    .refuses("size", "20,000 buffers, and 10,000 is most")
    .on(READ, "t", 0)
    .refuses("constant", r"t\[z\] uses axis 0 of t at z")
    .on("t = alloc(i32[2])\nt[0] = x[0]\nt[1] = x[1]\ny[0] = t[2]", "t", 0)
    .refuses("range", ".* is outside the extent 2 of axis 0", r"t\[2\]")
    .on(PADDED, "t", 0)
    .refuses("", "t has padding that t_padding states"),
)
