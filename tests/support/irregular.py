"""Random kernels for which no recipe has a fast variant, and graphs of them with pinned layouts.

`irregular_kernels` draws definitions as `strategies.primfuncs` does.  Some of their stages carry
values from one iteration to the next, have triangular loops, allocate inside loops and conditions,
write an output in several parts, partly or twice, write two buffers in one nest, or are
conditional; some inputs are never read, and some buffers have no elements.  `graphs` draws one to
three nodes of such kernels.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from graphflow.arith import IndexExpr, Var, at_least_zero, const
from graphflow.graph import Node, OperatorGraph, Value
from graphflow.layout import Layout
from graphflow.tir import (
    Allocate,
    Binary,
    Block,
    Body,
    Buffer,
    Expr,
    For,
    If,
    Load,
    LoopKind,
    PrimFunc,
    Reduce,
    ReduceOp,
    Select,
    Stmt,
    Store,
)
from support.random_kernels import KernelOptions, RandomKernel
from support.random_layouts import random_layout
from support.strategies import FLOAT_KERNELS, INTEGER_KERNELS, Draw, numbers

STAGES = (
    "carried",
    "selected",
    "triangular",
    "parts",
    "partial",
    "twice",
    "allocated",
    "branch allocates",
    "imperfect",
    "shifted",
    "conditional",
    "empty",
)


@st.composite
def irregular_kernels(draw: Draw, options: KernelOptions) -> tuple[PrimFunc, frozenset[str]]:
    """A definition, and those of its outputs that it does not write everywhere."""
    kernel = _Irregular(numbers(draw), options)
    func = kernel.func()
    return func, frozenset(kernel.partial)


@dataclass
class _Irregular(RandomKernel):
    partial: list[str] = field(default_factory=list)

    def input(self) -> Buffer:
        buffer = super().input()
        if len(self.readable) > 1 and self.chance(15):
            self.readable.pop()  # nobody reads it
        return buffer

    def stage(self, outputs: list[Buffer], is_output: bool, parallel: bool) -> Body:
        if self.chance(35):
            return super().stage(outputs, is_output, parallel)
        kind = self.one_of(STAGES)
        shape = self.shape()
        if (
            kind in ("carried", "selected", "triangular", "parts", "partial", "imperfect")
            and not shape
        ):
            shape = (self.one_of(self.options.extents),)
        if kind in ("partial", "empty"):
            is_output = True
        if kind == "empty":
            shape = (*shape, 0)
        buffer = Buffer(
            self.fresh("y" if is_output else "t"), shape, self.one_of(self.options.dtypes)
        )
        body = self.irregular(kind, buffer)
        if self.chance(40):
            body = (Block(self.fresh("block "), body),)
        if kind in ("partial", "empty"):
            self.partial.append(buffer.name)
        else:
            self.readable.append(buffer)
        if is_output:
            outputs.append(buffer)
            return body
        return (Allocate(buffer), *body)

    def irregular(self, kind: str, buffer: Buffer) -> Body:
        match kind:
            case "carried":
                return self.carried(buffer)
            case "selected":
                return self.around(buffer, self.selected)
            case "triangular":
                return self.around(buffer, self.triangular)
            case "parts" | "partial":
                return self.parts(buffer, kind == "parts")
            case "twice":
                return (*self.nest(buffer, False), *self.around(buffer, self.again))
            case "allocated":
                return self.around(buffer, self.allocated)
            case "branch allocates":
                return self.around(buffer, self.branching)
            case "imperfect":
                return self.imperfect(buffer)
            case "shifted":
                return self.around(buffer, self.plain, start=self.one_of((1, 3)))
            case "conditional":
                first, second = self.nest(buffer, False), self.nest(buffer, False)
                return (If(self.comparison(1), first, second),)
            case _:
                return self.nest(buffer, False)

    def around(
        self, buffer: Buffer, body: Any, start: int = 0, sides: tuple[int, int] | None = None
    ) -> Body:
        """Loops over a buffer, the outermost over `sides`, with the body that `body` makes."""
        loops = [Var(self.fresh("i")) for _ in buffer.shape]
        spans = [(start, start + n) for n in buffer.shape]
        if sides is not None:
            spans[0] = sides
        self.ranges = (
            {v: high for v, (_, high) in zip(loops, spans, strict=True)} if not start else {}
        )
        stmts: Body = body(buffer, tuple(v - start for v in loops))
        self.ranges = {}
        for var, (low, high) in zip(reversed(loops), reversed(spans), strict=True):
            stmts = (For(var, const(low), const(high), LoopKind.SERIAL, stmts),)
        return stmts

    def plain(self, buffer: Buffer, indices: tuple[IndexExpr, ...]) -> Body:
        return (Store(buffer, indices, self.expr(buffer.dtype)),)

    def again(self, buffer: Buffer, indices: tuple[IndexExpr, ...]) -> Body:
        old, value = Load(buffer, indices), self.expr(buffer.dtype)
        if self.chance(50):
            return (Reduce(self.one_of(tuple(ReduceOp)), buffer, indices, value),)
        return (Store(buffer, indices, self.combined(old, value)),)

    def combined(self, left: Expr, right: Expr) -> Expr:
        return Binary("or" if left.dtype == "bool" else self.one_of(("max", "min")), left, right)

    def carried(self, buffer: Buffer) -> Body:
        axis = self.number(0, len(buffer.shape) - 1)

        def body(buffer: Buffer, indices: tuple[IndexExpr, ...]) -> Body:
            before = tuple(e - 1 if k == axis else e for k, e in enumerate(indices))
            value = self.expr(buffer.dtype)
            later = Store(buffer, indices, self.combined(Load(buffer, before), value))
            first = Store(buffer, indices, self.expr(buffer.dtype))
            return (If(at_least_zero(indices[axis] - 1), (later,), (first,)),)

        return self.around(buffer, body)

    def selected(self, buffer: Buffer, indices: tuple[IndexExpr, ...]) -> Body:
        """A value carried by a select: one store, as of an elementwise kernel."""
        axis = self.number(0, len(indices) - 1)
        before = tuple(e - 1 if k == axis else e for k, e in enumerate(indices))
        inside = at_least_zero(indices[axis] - 1)
        old = Select(inside, Load(buffer, before), self.literal(buffer.dtype))
        return (Store(buffer, indices, self.combined(old, self.expr(buffer.dtype))),)

    def triangular(self, buffer: Buffer, indices: tuple[IndexExpr, ...]) -> Body:
        axis = self.number(0, len(indices) - 1)
        var = Var(self.fresh("r"))
        start = Store(buffer, indices, self.literal(buffer.dtype))
        self.ranges[var] = buffer.shape[axis]
        value = self.expr(buffer.dtype)
        del self.ranges[var]
        step: Stmt = Reduce(self.one_of(tuple(ReduceOp)), buffer, indices, value)
        low, high = const(0), indices[axis] + 1
        if self.chance(40):
            low, high = indices[axis], const(buffer.shape[axis])  # type: ignore[assignment]
        return (start, For(var, low, high, LoopKind.SERIAL, (step,)))

    def parts(self, buffer: Buffer, whole: bool) -> Body:
        """Nests over the beginning and the end of the first axis, or over one of them alone."""
        extent = buffer.shape[0]
        cut = self.number(0, extent)
        sides = [(0, cut), (cut, extent)]
        if not whole:
            sides = [self.one_of(sides)]
        body: list[Stmt] = []
        for side in sides:
            body += self.around(buffer, self.plain, sides=side)
        return tuple(body)

    def allocated(self, buffer: Buffer, indices: tuple[IndexExpr, ...]) -> Body:
        tile = Buffer(self.fresh("t"), (self.one_of((1, 2, 3)),), buffer.dtype)
        var, other = Var(self.fresh("u")), Var(self.fresh("u"))
        size = tile.shape[0]
        self.ranges[var] = size
        fill = Store(tile, (var,), self.expr(buffer.dtype))
        del self.ranges[var]
        step = Reduce(self.one_of(tuple(ReduceOp)), buffer, indices, Load(tile, (other,)))
        return (
            Allocate(tile),
            For(var, const(0), const(size), LoopKind.SERIAL, (fill,)),
            Store(buffer, indices, self.literal(buffer.dtype)),
            For(other, const(0), const(size), LoopKind.SERIAL, (step,)),
        )

    def branching(self, buffer: Buffer, indices: tuple[IndexExpr, ...]) -> Body:
        one = Buffer(self.fresh("t"), (), buffer.dtype)
        then = (
            Allocate(one),
            Store(one, (), self.expr(buffer.dtype)),
            Store(buffer, indices, self.combined(Load(one, ()), self.expr(buffer.dtype))),
        )
        condition = self.comparison(1) if self.chance(50) else self.predicate()
        return (If(condition, then, self.plain(buffer, indices)),)

    def imperfect(self, buffer: Buffer) -> Body:
        """For each index of the first axis an element of another buffer, then a row of this one."""
        beside = Buffer(self.fresh("t"), buffer.shape[:1], self.one_of(self.options.dtypes))
        outer = Var(self.fresh("i"))
        inner = [Var(self.fresh("i")) for _ in buffer.shape[1:]]
        self.ranges = {outer: buffer.shape[0]}
        head = Store(beside, (outer,), self.expr(beside.dtype))
        self.ranges |= dict(zip(inner, buffer.shape[1:], strict=True))
        value = self.expr(buffer.dtype)
        if beside.dtype == buffer.dtype:
            value = self.combined(Load(beside, (outer,)), value)
        body: Body = (Store(buffer, (outer, *inner), value),)
        self.ranges = {}
        for var, extent in zip(reversed(inner), reversed(buffer.shape[1:]), strict=True):
            body = (For(var, const(0), const(extent), LoopKind.SERIAL, body),)
        nest = For(outer, const(0), const(buffer.shape[0]), LoopKind.SERIAL, (head, *body))
        return (Allocate(beside), nest)


@dataclass(frozen=True)
class Case:
    """A graph, layouts for some of its inner values, and how to run it.

    `unwritten` are values that their kernels do not write everywhere; no node reads them.
    """

    graph: OperatorGraph
    pins: dict[str, Layout]
    fused: bool
    seed: int
    unwritten: frozenset[str]


@st.composite
def graphs(draw: Draw) -> Case:
    """One to three nodes, most of which read what those before them wrote."""
    numbers = draw(st.sampled_from([FLOAT_KERNELS, INTEGER_KERNELS]))
    extents = draw(st.sampled_from([(1, 2, 3, 4, 5), (1, 3, 9, 17)]))
    options = replace(numbers, stage="definition", extents=extents, marks=False)
    graph = OperatorGraph()
    made: list[str] = []
    unwritten: set[str] = set()
    for k in range(draw(st.integers(1, 3))):
        known = tuple(dict.fromkeys(_kind(graph, name) for name in made))
        func, partial = draw(irregular_kernels(replace(options, given=known)))
        inputs = tuple(_bound(graph, buffer, made) for buffer in func.inputs)
        outputs = tuple(f"v{k}_{buffer.name}" for buffer in func.outputs)
        graph.add(Node(f"n{k}", "kernel", func, inputs, outputs))
        for buffer, name in zip(func.outputs, outputs, strict=True):
            if buffer.name in partial:
                unwritten.add(name)
            else:
                made.append(name)
    read = {value for node in graph.nodes for value in node.inputs}
    every = [value for node in graph.nodes for value in node.outputs]
    graph.set_outputs([v for v in every if v not in read or draw(st.booleans())])
    rng = random.Random(draw(st.integers(0, 10**6)))
    pinned = [v for v in every if rng.random() < 0.4 and graph.values[v].shape]
    pins = {v: random_layout(rng, graph.values[v].shape) for v in pinned}
    return Case(graph, pins, rng.random() < 0.5, rng.randrange(10**6), frozenset(unwritten))


def _kind(graph: OperatorGraph, name: str) -> tuple[tuple[int, ...], str]:
    return graph.values[name].shape, graph.values[name].dtype


def _bound(graph: OperatorGraph, buffer: Buffer, made: list[str]) -> str:
    """The newest value that fits a parameter; a new graph input where there is none."""
    wanted = (buffer.shape, buffer.dtype)
    found = next((v for v in (*reversed(made), *graph.inputs) if _kind(graph, v) == wanted), None)
    if found is not None:
        return found
    name = f"in{len(graph.inputs)}"
    graph.add_value(Value(name, buffer.dtype, buffer.shape))
    graph.set_inputs([*graph.inputs, name])
    return name
