"""Random kernels for which no recipe has a fast variant, and graphs of them with pinned layouts.

`irregular_kernels` draws definitions as `strategies.primfuncs` does.  Some of their stages carry
values from one iteration to the next, have triangular loops, allocate inside loops and conditions,
write an output in several parts, partly or twice, write two buffers in one nest, or are
conditional; some inputs are never read, and some buffers have no elements.  `graphs` draws one to
three nodes of such kernels.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from graphflow import tir
from graphflow.arith import IndexExpr, Var, at_least_zero, const
from graphflow.base.fields import replace
from graphflow.graph import Node, OperatorGraph, Value
from graphflow.layout import Layout
from support.kernels.random_kernels import KernelOptions, RandomKernel
from support.models.random_layouts import random_layout
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
def irregular_kernels(draw: Draw, options: KernelOptions) -> tuple[tir.PrimFunc, frozenset[str]]:
    """A definition, and those of its outputs that it does not write everywhere."""
    kernel = _Irregular(numbers(draw), options)
    func = kernel.func()
    return func, frozenset(kernel.partial)


@dataclass
class _Irregular(RandomKernel):
    partial: list[str] = field(default_factory=list)

    def input(self) -> tir.Buffer:
        buffer = super().input()
        if len(self.readable) > 1 and self.chance(15):
            self.readable.pop()  # nobody reads it
        return buffer

    def stage(self, outputs: list[tir.Buffer], is_output: bool, parallel: bool) -> tir.Body:
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
        buffer = tir.Buffer(
            self.fresh("y" if is_output else "t"), shape, self.one_of(self.options.dtypes)
        )
        body = self.irregular(kind, buffer)
        if self.chance(40):
            body = (tir.Block(self.fresh("block "), body),)
        if kind in ("partial", "empty"):
            self.partial.append(buffer.name)
        else:
            self.readable.append(buffer)
        if is_output:
            outputs.append(buffer)
            return body
        return (tir.Allocate(buffer), *body)

    def irregular(self, kind: str, buffer: tir.Buffer) -> tir.Body:
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
                return (tir.If(self.comparison(1), first, second),)
            case _:
                return self.nest(buffer, False)

    def around(
        self, buffer: tir.Buffer, body: Any, start: int = 0, sides: tuple[int, int] | None = None
    ) -> tir.Body:
        """Loops over a buffer, the outermost over `sides`, with the body that `body` makes."""
        loops = [Var(self.fresh("i")) for _ in buffer.shape]
        spans = [(start, start + n) for n in buffer.shape]
        if sides is not None:
            spans[0] = sides
        self.ranges = (
            {v: high for v, (_, high) in zip(loops, spans, strict=True)} if not start else {}
        )
        stmts: tir.Body = body(buffer, tuple(v - start for v in loops))
        self.ranges = {}
        for var, (low, high) in zip(reversed(loops), reversed(spans), strict=True):
            stmts = (tir.For(var, const(low), const(high), tir.LoopKind.SERIAL, stmts),)
        return stmts

    def plain(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...]) -> tir.Body:
        return (tir.Store(buffer, indices, self.expr(buffer.dtype)),)

    def again(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...]) -> tir.Body:
        old, value = tir.Load(buffer, indices), self.expr(buffer.dtype)
        if self.chance(50):
            return (tir.Reduce(self.one_of(tuple(tir.ReduceOp)), buffer, indices, value),)
        return (tir.Store(buffer, indices, self.combined(old, value)),)

    def combined(self, left: tir.Expr, right: tir.Expr) -> tir.Expr:
        return tir.Binary(
            "or" if left.dtype == "bool" else self.one_of(("max", "min")), left, right
        )

    def carried(self, buffer: tir.Buffer) -> tir.Body:
        axis = self.number(0, len(buffer.shape) - 1)

        def body(buffer: tir.Buffer, indices: tuple[IndexExpr, ...]) -> tir.Body:
            before = tuple(e - 1 if k == axis else e for k, e in enumerate(indices))
            value = self.expr(buffer.dtype)
            later = tir.Store(buffer, indices, self.combined(tir.Load(buffer, before), value))
            first = tir.Store(buffer, indices, self.expr(buffer.dtype))
            return (tir.If(at_least_zero(indices[axis] - 1), (later,), (first,)),)

        return self.around(buffer, body)

    def selected(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...]) -> tir.Body:
        """A value carried by a select: one store, as of an elementwise kernel."""
        axis = self.number(0, len(indices) - 1)
        before = tuple(e - 1 if k == axis else e for k, e in enumerate(indices))
        inside = at_least_zero(indices[axis] - 1)
        old = tir.Select(inside, tir.Load(buffer, before), self.literal(buffer.dtype))
        return (tir.Store(buffer, indices, self.combined(old, self.expr(buffer.dtype))),)

    def triangular(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...]) -> tir.Body:
        axis = self.number(0, len(indices) - 1)
        var = Var(self.fresh("r"))
        start = tir.Store(buffer, indices, self.literal(buffer.dtype))
        self.ranges[var] = buffer.shape[axis]
        value = self.expr(buffer.dtype)
        del self.ranges[var]
        step: tir.Stmt = tir.Reduce(self.one_of(tuple(tir.ReduceOp)), buffer, indices, value)
        low, high = const(0), indices[axis] + 1
        if self.chance(40):
            low, high = indices[axis], const(buffer.shape[axis])  # type: ignore[assignment]
        return (start, tir.For(var, low, high, tir.LoopKind.SERIAL, (step,)))

    def parts(self, buffer: tir.Buffer, whole: bool) -> tir.Body:
        """Nests over the beginning and the end of the first axis, or over one of them alone."""
        extent = buffer.shape[0]
        cut = self.number(0, extent)
        sides = [(0, cut), (cut, extent)]
        if not whole:
            sides = [self.one_of(sides)]
        body: list[tir.Stmt] = []
        for side in sides:
            body += self.around(buffer, self.plain, sides=side)
        return tuple(body)

    def allocated(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...]) -> tir.Body:
        tile = tir.Buffer(self.fresh("t"), (self.one_of((1, 2, 3)),), buffer.dtype)
        var, other = Var(self.fresh("u")), Var(self.fresh("u"))
        size = tile.shape[0]
        self.ranges[var] = size
        fill = tir.Store(tile, (var,), self.expr(buffer.dtype))
        del self.ranges[var]
        step = tir.Reduce(
            self.one_of(tuple(tir.ReduceOp)), buffer, indices, tir.Load(tile, (other,))
        )
        return (
            tir.Allocate(tile),
            tir.For(var, const(0), const(size), tir.LoopKind.SERIAL, (fill,)),
            tir.Store(buffer, indices, self.literal(buffer.dtype)),
            tir.For(other, const(0), const(size), tir.LoopKind.SERIAL, (step,)),
        )

    def branching(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...]) -> tir.Body:
        one = tir.Buffer(self.fresh("t"), (), buffer.dtype)
        then = (
            tir.Allocate(one),
            tir.Store(one, (), self.expr(buffer.dtype)),
            tir.Store(buffer, indices, self.combined(tir.Load(one, ()), self.expr(buffer.dtype))),
        )
        return (tir.If(self.guard(), then, self.plain(buffer, indices)),)

    def imperfect(self, buffer: tir.Buffer) -> tir.Body:
        """For each index of the first axis an element of another buffer, then a row of this one."""
        beside = tir.Buffer(self.fresh("t"), buffer.shape[:1], self.one_of(self.options.dtypes))
        outer = Var(self.fresh("i"))
        inner = [Var(self.fresh("i")) for _ in buffer.shape[1:]]
        self.ranges = {outer: buffer.shape[0]}
        head = tir.Store(beside, (outer,), self.expr(beside.dtype))
        self.ranges |= dict(zip(inner, buffer.shape[1:], strict=True))
        value = self.expr(buffer.dtype)
        if beside.dtype == buffer.dtype:
            value = self.combined(tir.Load(beside, (outer,)), value)
        body: tir.Body = (tir.Store(buffer, (outer, *inner), value),)
        self.ranges = {}
        for var, extent in zip(reversed(inner), reversed(buffer.shape[1:]), strict=True):
            body = (tir.For(var, const(0), const(extent), tir.LoopKind.SERIAL, body),)
        nest = tir.For(outer, const(0), const(buffer.shape[0]), tir.LoopKind.SERIAL, (head, *body))
        return (tir.Allocate(beside), nest)


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


def _bound(graph: OperatorGraph, buffer: tir.Buffer, made: list[str]) -> str:
    """The newest value that fits a parameter; a new graph input where there is none."""
    wanted = (buffer.shape, buffer.dtype)
    found = next((v for v in (*reversed(made), *graph.inputs) if _kind(graph, v) == wanted), None)
    if found is not None:
        return found
    name = f"in{len(graph.inputs)}"
    graph.add_value(Value(name, buffer.dtype, buffer.shape))
    graph.set_inputs([*graph.inputs, name])
    return name
