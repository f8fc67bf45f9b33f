"""Kernels whose stages meet in a loop over rows, and schedules that give each row its own memory.

Importing this module adds the families `rows` and `definition` and the way `private_rows`, which
are drawn only where a `Focus` names them: other seeds give what they gave without.  In half of the
kernels of `rows` something stands against a private buffer or against accumulators: an element of
another row, one that is not stored, or a condition inside the reduction.
"""

from collections.abc import Iterator
from math import isfinite

from graphflow.base.fields import replace
from graphflow.schedule import parallelize_loop, rfactor, sink_alloc, vectorize_loop
from graphflow.tir import (
    Allocate,
    Expr,
    For,
    Literal,
    PrimFunc,
    Reduce,
    accesses,
    loops_of,
    map_expressions,
    walk,
)
from support.kernels.random_kernels import KernelOptions, RandomKernel
from support.kernels.schedule_families import guarded, neutral, reduce, zero
from support.kernels.schedule_kernels import Sketch, family, indented, indexed, nest
from support.schedules.schedule_trial import Trial
from support.schedules.schedule_ways import WAYS

NEVER = 1e-12
"""The weight of what is drawn only by name."""


DEFINITIONS = KernelOptions(
    stage="definition",
    dtypes=("float64", "int32", "bool"),
    unary=("neg", "abs", "not"),
    binary=("add", "sub", "mul", "max", "min", "and", "or"),
)


@family(NEVER)
def definition(s: Sketch) -> None:
    """Whatever random_kernels.py makes: several stages of any shape, conditions, tiles."""
    s.exact = True

    def whole(expr: Expr) -> Expr:
        """Floats as small whole numbers; infinities and NaN stay."""
        if not isinstance(expr, Literal) or expr.dtype != "float64" or not isfinite(expr.value):
            return expr
        return Literal(float(round(expr.value)) if abs(expr.value) < 9 else 2.0, expr.dtype)

    func = RandomKernel(s.dice.between, DEFINITIONS).func()
    s.whole = replace(func, body=map_expressions(func.body, whole))


@family(NEVER)
def rows(s: Sketch) -> None:
    """A row of an intermediate and its sum, both read by what is left of the loop over rows."""
    s.exact = True
    dice = s.dice
    n, m = dice.between(2, 6), dice.between(1, 9)
    i, j, r, k = s.loops("i", "j", "r", "k")
    dtype = dice.among(("i32", "f32", "i8", "f64", "i64"))
    x, y = s.input("x", dtype, (n, m)), s.output(dtype, (n, m))
    used = [p.split(":")[0] for p in s.params]
    row, total = (next(t for t in (w, w + "2", w + "3") if t not in used) for w in ("row", "total"))
    s.lines += [f"{row} = alloc({dtype}[{n}, {m}])", f"{total} = alloc({dtype}[{n}])"]
    loads = [(indexed(x, (i, j)), dtype)]
    value = s.value(dtype, loads, 1, f"{j} % 2 == 0")
    least = dice.weighted({0: 8, 1: 1})
    store = [f"{indexed(row, (i, j))} = {value}"]
    if dice.chance(0.15):
        store = guarded(s, [i, j], [n, m], store[0], f"{indexed(row, (i, j))} = {zero(dtype)}")
    op = dice.weighted({"+": 4, "max": 2, "min": 1})
    start = [f"{total}[{i}] = {neutral(op, dtype)}"] if dice.chance(0.9) else []
    step = [reduce(op, f"{total}[{i}]", indexed(row, (i, r)))]
    test = dice.weighted({"": 6, f"{r} >= {i}": 1, f"{i} % 2 == 0": 1, f"{i} + {r} < {n}": 1})
    if test:
        step = [f"if {test}:", *indented(step)]
    other = dice.weighted({k: 5, f"{m - 1} - {k}": 2, f"({k} + 1) % {m}": 1})
    line = dice.weighted({i: 8, f"max({i} - 1, 0)": 1, f"({i} + 1) % {n}": 1})
    result = f"{indexed(row, (line, other))} {dice.among('+-')} {total}[{i}]"
    stages = [
        nest([(j, f"{least}, {m}")], store),
        start + nest([(r, m)], step),
        nest([(k, m)], [f"{indexed(y, (i, k))} = {result}"]),
    ]
    if dice.chance(0.1):
        stages = [stages[1], stages[0], stages[2]]
    s.block("compute", nest([(i, n)], [text for stage in stages for text in stage]))


def private_rows(t: Trial) -> None:
    """Buffers into loops, reductions into several accumulators, then loops that run at once."""
    for buffer in [s.buffer.name for s in walk(t.func.body) if isinstance(s, Allocate)]:
        found = [*loops_around_all(t.func, buffer)]
        if found:
            scope = t.dice.among(("register", "scratch"))
            t.step(sink_alloc, buffer, t.dice.among(found).var.name, scope)
    found = [loop for loop in t.loops() if any(isinstance(s, Reduce) for s in walk(loop.body))]
    for _ in range(2):
        if not found:
            break
        loop = t.dice.among(found)
        (buffer, *_) = (s.buffer.name for s in walk(loop.body) if isinstance(s, Reduce))
        along = t.dice.among(loops_of((loop,))).var.name
        t.step(rfactor, loop.var.name, along, buffer, t.dice.between(1, 5), t.name())
    for loop in t.loops():
        primitive = t.dice.among((parallelize_loop, vectorize_loop))
        if t.dice.chance(0.4):
            t.step(primitive, loop.var.name)


def loops_around_all(func: PrimFunc, buffer: str) -> Iterator[For]:
    """The loops in which all accesses to a buffer are."""
    everywhere = sum(a.buffer.name == buffer for a in accesses(func.body))
    for loop in loops_of(func.body):
        if sum(a.buffer.name == buffer for a in accesses(loop.body)) == everywhere > 0:
            yield loop


WAYS["private_rows"] = (NEVER, private_rows)
