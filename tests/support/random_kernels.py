"""Random index expressions, predicates and kernels, drawn by a function that returns numbers.

In: `number(low, high)`, which gives a whole number between both: hypothesis draws them for property
tests (support/strategies.py), `random.Random.randint` for runs of many seeds.  Out: kernels that
are valid at a given stage: every access is in bounds, everything that is read was written before,
iterations of parallel and vectorized loops are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from graphflow.arith import (
    TRUE,
    IndexExpr,
    Predicate,
    Var,
    at_least_zero,
    conjunction,
    const,
    disjunction,
    equal,
    less_than,
    maximum,
    minimum,
    negation,
    within,
)
from graphflow.tir import (
    BINARY,
    COMPARISONS,
    FLOATS,
    UNARY,
    UNSIGNED,
    Allocate,
    Assume,
    Binary,
    Block,
    BlockNote,
    Body,
    Buffer,
    Cast,
    Comparison,
    Condition,
    Expr,
    For,
    If,
    IndexValue,
    Literal,
    Load,
    LoopKind,
    Param,
    PrimFunc,
    Reduce,
    ReduceOp,
    Role,
    Select,
    Stmt,
    Store,
    Unary,
    Undef,
)

Number: TypeAlias = Callable[[int, int], int]

SPECIAL_FLOATS = (0.0, -0.0, 1.0, -1.5, 0.1, float("inf"), float("-inf"), float("nan"), 1e-45, 3e38)

EXACT_UNARY = ("neg", "abs", "floor", "ceil", "round", "not")
EXACT_BINARY = ("add", "sub", "mul", "max", "min", "and", "or")
"""Operators with one correct result bit by bit, as long as nothing is contracted to an FMA."""


def extremes(dtype: str) -> tuple[int, ...]:
    """Integers where arithmetic of an integer type wraps, traps or changes its sign."""
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    return (low, low + 1, high, high - 1, high // 2 + 1, *((-1, 0, 1) if low else (0, 1)))


DIVISORS = (1, 2, 3, 4, 5, 6, 8, 12)


def random_index(number: Number, names: Sequence[Var], depth: int) -> IndexExpr:
    """An expression of any kind over `names`, with small constants and at most 2^depth leaves."""
    if depth == 0 or number(0, 3) == 0:
        if number(0, 1):
            return const(number(-9, 9))
        return names[number(0, len(names) - 1)]
    kind = number(0, 8)
    a = random_index(number, names, depth - 1)
    if kind == 0:
        return a * number(-6, 6)
    divisor = DIVISORS[number(0, len(DIVISORS) - 1)]
    if kind < 4:
        # The last is one of the shapes that splitting and fusing of loops leave behind.
        return (a // divisor, a % divisor, (a // divisor) * divisor + a % divisor)[kind - 1]
    b = random_index(number, names, depth - 1)
    match kind:
        case 4:
            return a - b
        case 5:
            return (a + b * divisor) // divisor
        case 6:
            return minimum(a, b)
        case 7:
            return maximum(a, b)
    return a + b


def random_predicate(number: Number, names: Sequence[Var], depth: int = 2) -> Predicate:
    """A comparison of index expressions, or conjunctions, disjunctions, negations of them."""

    def index() -> IndexExpr:
        return random_index(number, names, 2)

    def inner() -> Predicate:
        return random_predicate(number, names, depth - 1)

    if depth == 0 or number(0, 1) == 0:
        match number(0, 3):
            case 0:
                return at_least_zero(index())
            case 1:
                return less_than(index(), index())
            case 2:
                return equal(index(), index())
        return within(index(), index(), index())
    kind = number(0, 2)
    if kind == 0:
        return negation(inner())
    members = [inner() for _ in range(number(1, 3))]
    return conjunction(members) if kind == 1 else disjunction(members)


@dataclass(frozen=True)
class KernelOptions:
    """What random kernels may hold."""

    stage: str = "scheduled"
    dtypes: tuple[str, ...] = (
        "float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64", "bool",
    )  # fmt: skip
    unary: tuple[str, ...] = UNARY
    binary: tuple[str, ...] = BINARY
    loops_in_vector_loops: bool = True
    """Serial and unrolled loops inside vectorized ones."""
    assumptions: bool = False
    """`Assume`, all true, and stores of `Undef` that are overwritten before they are read."""
    marks: bool = True
    """Blocks annotated as stages of a user's schedule."""
    given: tuple[tuple[tuple[int, ...], str], ...] = ()
    """Shape and dtype of the first input, one of these where there are any."""
    extents: tuple[int, ...] = (1, 2, 3, 4, 5)


@dataclass
class RandomKernel:
    """One kernel in the making; what it holds is decided by the numbers drawn."""

    number: Number
    options: KernelOptions
    readable: list[Buffer] = field(default_factory=list)
    """Buffers all of whose elements have been written."""
    names: int = 0
    ranges: dict[Var, int] = field(default_factory=dict)
    """Loop variables and scalars in scope, none negative, each with what it stays below."""
    scalars: dict[Var, int] = field(default_factory=dict)
    """The scalars among them, which are in scope everywhere."""
    loop_kinds: dict[Var, LoopKind] = field(default_factory=dict)

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def chance(self, percent: int) -> bool:
        return self.number(0, 99) < percent

    def one_of(self, items: Sequence[Any]) -> Any:
        return items[self.number(0, len(items) - 1)]

    def shape(self) -> tuple[int, ...]:
        return tuple(self.one_of(self.options.extents) for _ in range(self.number(0, 3)))

    def func(self) -> PrimFunc:
        inputs = self.inputs()
        outputs: list[Buffer] = []
        body: list[Stmt] = []
        # In a lowered kernel a parallel loop is the whole work, so there is one nest alone.
        parallel = self.options.stage != "definition" and self.chance(40)
        alone = parallel and self.options.stage == "lowered"
        stages = 1 if alone else self.stages()
        for stage in range(stages):
            last = stage == stages - 1
            body += self.stage(outputs, last or self.chance(40), parallel and (alone or last))
        params = [Param(b, Role.INPUT) for b in inputs] + [Param(b, Role.OUTPUT) for b in outputs]
        return PrimFunc("kernel", tuple(params), tuple(body))

    def stages(self) -> int:
        return self.number(1, 3)

    def inputs(self) -> list[Buffer]:
        return [self.input() for _ in range(self.number(1, 2))]

    def input(self) -> Buffer:
        given = self.options.given
        if given and not self.readable:
            shape, dtype = self.one_of(given)
        else:
            shape, dtype = self.shape(), self.one_of(self.options.dtypes)
        separators = (1,) if len(shape) > 1 and self.chance(20) else ()
        buffer = Buffer(self.fresh("x"), shape, dtype, "global", separators)
        self.readable.append(buffer)
        return buffer

    def stage(self, outputs: list[Buffer], is_output: bool, parallel: bool) -> Body:
        """A nest that writes all of a new buffer, with its allocation unless it is an output."""
        shape, dtype = self.shape(), self.one_of(self.options.dtypes)
        scopes = {"definition": ("global",), "lowered": ("scratch",)}.get(
            self.options.stage, ("global", "scratch", "register")
        )
        scope = "global" if is_output else self.one_of(scopes)
        buffer = Buffer(self.fresh("y" if is_output else "t"), shape, dtype, scope)
        nest = self.nest(buffer, parallel)
        if self.chance(60):
            marked = self.chance(30) and self.options.marks
            notes = ((BlockNote.PREPROC, "pad"),) if marked else ()
            nest = (Block(self.fresh("block "), nest, notes),)
        self.readable.append(buffer)
        if is_output:
            outputs.append(buffer)
            return nest
        return (Allocate(buffer), *nest)

    # -- loops

    def nest(self, buffer: Buffer, parallel: bool) -> Body:
        """Loops over all elements of `buffer`, some of them divided, around one write each."""
        loops: list[tuple[Var, int]] = []
        indices: list[IndexExpr] = []
        inside: list[Predicate] = []
        for extent in buffer.shape:
            axis, guard = self.axis(extent, loops)
            indices.append(axis)
            inside.append(guard)
        kinds = self.kinds(loops, parallel)
        vector = LoopKind.VECTORIZED in kinds
        self.ranges = {**self.scalars, **dict(loops)}
        self.loop_kinds = {var: kind for (var, _), kind in zip(loops, kinds, strict=True)}
        body = self.element(
            buffer, tuple(indices), not vector or self.options.loops_in_vector_loops
        )
        guard = conjunction(inside)
        if guard != TRUE:
            body = (If(guard, body),)
        self.ranges = dict(self.scalars)
        for (var, extent), kind in zip(reversed(loops), reversed(kinds), strict=True):
            body = (For(var, const(0), const(extent), kind, body),)
        return body

    def axis(self, extent: int, loops: list[tuple[Var, int]]) -> tuple[IndexExpr, Predicate]:
        """One loop or two over an axis, the index it makes, and when that is inside."""
        if self.options.stage == "definition" or not self.chance(30):
            var = Var(self.fresh("i"))
            loops.append((var, extent))
            return var, TRUE
        factor = self.number(2, 4)
        outer, inner = Var(self.fresh("io")), Var(self.fresh("ii"))
        loops += [(outer, -(-extent // factor)), (inner, factor)]
        index = outer * factor + inner
        return index, TRUE if extent % factor == 0 else less_than(index, extent)

    def kinds(self, loops: list[tuple[Var, int]], parallel: bool) -> list[LoopKind]:
        kinds = [LoopKind.SERIAL for _ in loops]
        if self.options.stage == "definition":
            return kinds
        for n in range(len(loops)):
            if self.chance(25):
                kinds[n] = LoopKind.UNROLLED
        if loops and self.chance(50):
            kinds[-1] = LoopKind.VECTORIZED
        if loops and parallel:
            kinds[0] = LoopKind.PARALLEL
        return kinds

    # -- statements

    def element(self, buffer: Buffer, indices: tuple[IndexExpr, ...], loops: bool) -> Body:
        """Statements that write `buffer[indices]`."""
        kinds = ["store", "branches", "data branches"]
        if loops:
            kinds += ["reduction"] * 2
            if self.options.stage != "definition":
                kinds.append("registers")
        head = self.assumptions(buffer, indices)
        match self.one_of(kinds):
            case "store":
                return (*head, Store(buffer, indices, self.expr(buffer.dtype)))
            case "branches":
                return (*head, self.branches(buffer, indices, self.predicate()))
            case "data branches":
                return (*head, self.branches(buffer, indices, self.comparison(1)))
            case "reduction":
                return (*head, *self.reduction(buffer, indices, LoopKind.SERIAL))
            case _:
                return (*head, *self.registers(buffer, indices))

    def branches(self, buffer: Buffer, indices: tuple[IndexExpr, ...], condition: Condition) -> If:
        then = Store(buffer, indices, self.expr(buffer.dtype))
        return If(condition, (then,), (Store(buffer, indices, self.expr(buffer.dtype)),))

    def assumptions(self, buffer: Buffer, indices: tuple[IndexExpr, ...]) -> Body:
        if not self.options.assumptions or not self.chance(50):
            return ()
        read = self.load(self.readable[0])
        claim = Comparison("eq", read, Undef(read.dtype))
        return (Assume(self.predicate(), claim), Store(buffer, indices, Undef(buffer.dtype)))

    def reduction(self, buffer: Buffer, indices: tuple[IndexExpr, ...], kind: LoopKind) -> Body:
        """An initial store, then a loop around a reduction, which a border may leave out."""
        start = Store(buffer, indices, self.literal(buffer.dtype))
        var, extent = Var(self.fresh("r")), self.number(1, 3)
        start_at, stop_at = self.span(extent)
        self.ranges[var], self.loop_kinds[var] = extent, kind
        step: Stmt = Reduce(self.reduce_op(buffer.dtype), buffer, indices, self.expr(buffer.dtype))
        if self.chance(40):
            step = If(self.predicate(), (step,))
        del self.ranges[var]
        return (start, For(var, start_at, stop_at, kind, (step,)))

    def reduce_op(self, dtype: str) -> ReduceOp:
        return self.one_of((ReduceOp.MIN, ReduceOp.MAX, ReduceOp.ADD, ReduceOp.MUL))

    def span(self, extent: int) -> tuple[IndexExpr, IndexExpr]:
        """Where a loop of at most `extent` iterations starts and stops."""
        return const(0), const(extent)

    def registers(self, buffer: Buffer, indices: tuple[IndexExpr, ...]) -> Body:
        """A tile, mostly of registers: a reduction in unrolled loops fills it, and the element is
        their sum."""
        size = self.number(1, 4)
        op = self.register_op(buffer.dtype)
        scopes = ("register", "register", "scratch", "global")
        scope = self.one_of(scopes) if self.options.stage == "scheduled" else "register"
        tile = Buffer(self.fresh("acc"), (size,), buffer.dtype, scope)

        def unrolled(make: Callable[[Var], Stmt]) -> For:
            var = Var(self.fresh("u"))
            self.ranges[var], self.loop_kinds[var] = size, LoopKind.UNROLLED
            body = (make(var),)
            del self.ranges[var]
            return For(var, const(0), const(size), LoopKind.UNROLLED, body)

        step, extent = Var(self.fresh("r")), self.number(1, 3)
        fill = unrolled(lambda u: Store(tile, (u,), self.literal(tile.dtype)))
        self.ranges[step], self.loop_kinds[step] = extent, LoopKind.SERIAL
        add = unrolled(lambda u: Reduce(op, tile, (u,), self.expr(tile.dtype)))
        del self.ranges[step]
        loop = For(step, const(0), const(extent), LoopKind.SERIAL, (add,))
        start = Store(buffer, indices, self.literal(buffer.dtype))
        total = unrolled(lambda u: Reduce(op, buffer, indices, Load(tile, (u,))))
        return (Allocate(tile), fill, loop, start, total)

    def register_op(self, dtype: str) -> ReduceOp:
        return ReduceOp.ADD

    # -- indices

    def index(self, extent: int) -> IndexExpr:
        """An index expression that stays in `0 <= … < extent`."""
        fitting = [v for v, n in self.ranges.items() if n <= extent]
        if fitting and self.chance(50):
            var = self.one_of(fitting)
            return var + self.number(0, extent - self.ranges[var])
        if not self.ranges or self.chance(15):
            return const(self.number(0, extent - 1))
        free = random_index(self.number, tuple(self.ranges), 1)
        if self.chance(70):
            return free % extent
        return minimum(maximum(free, 0), extent - 1)

    def predicate(self) -> Predicate:
        if not self.ranges:
            return TRUE
        return random_predicate(self.number, tuple(self.ranges))

    def load(self, buffer: Buffer) -> Load:
        return Load(buffer, tuple(self.index(extent) for extent in buffer.shape))

    # -- scalar expressions

    def expr(self, dtype: str, depth: int = 2) -> Expr:
        if depth == 0:
            return self.leaf(dtype)
        kinds = ["leaf", "binary", "binary", "unary", "select"]
        kinds += ["comparison"] if dtype == "bool" else ["cast"]
        match self.one_of(kinds):
            case "binary":
                return self.binary(dtype, depth)
            case "unary":
                return self.unary(dtype, depth)
            case "select":
                return self.select(dtype, depth)
            case "comparison":
                return self.comparison(depth)
            case "cast":
                return self.cast(dtype, depth)
        return self.leaf(dtype)

    def leaf(self, dtype: str) -> Expr:
        loads = [b for b in self.readable if b.dtype == dtype]
        if loads and self.chance(75):
            return self.load(self.one_of(loads))
        if dtype != "bool" and self.ranges and self.chance(30):
            return IndexValue(random_index(self.number, tuple(self.ranges), 1), dtype)
        return self.literal(dtype)

    def literal(self, dtype: str) -> Literal:
        if dtype in FLOATS:
            return Literal(
                self.one_of(SPECIAL_FLOATS if self.chance(20) else (0.0, 1.0, 0.1)), dtype
            )
        if dtype == "bool":
            return Literal(self.chance(50), dtype)
        return Literal(self.number(0 if dtype in UNSIGNED else -9, 9), dtype)

    def binary(self, dtype: str, depth: int) -> Expr:
        legal = {"bool": ("and", "or")}.get(dtype, BINARY[:7])
        ops = [op for op in legal if op in self.options.binary]
        op = self.one_of(ops or ["or" if dtype == "bool" else "add"])
        if op in ("div", "pow") and dtype not in FLOATS:
            return Binary(op, self.expr(dtype, depth - 1), Literal(self.one_of((1, 2, 3)), dtype))
        return Binary(op, self.expr(dtype, depth - 1), self.expr(dtype, depth - 1))

    def unary(self, dtype: str, depth: int) -> Expr:
        legal = {"bool": ("not",)}.get(dtype, UNARY[:-1] if dtype in FLOATS else ("neg", "abs"))
        ops = [op for op in legal if op in self.options.unary]
        operand = self.expr(dtype, depth - 1)
        return Unary(self.one_of(ops), operand) if ops else operand

    def comparison(self, depth: int) -> Expr:
        dtype = self.one_of(self.options.dtypes)
        left, right = self.expr(dtype, depth - 1), self.expr(dtype, depth - 1)
        return Comparison(self.one_of(COMPARISONS), left, right)

    def select(self, dtype: str, depth: int) -> Expr:
        condition = self.comparison(1) if self.chance(40) else self.predicate()
        sides = self.expr(dtype, depth - 1), self.expr(dtype, depth - 1)
        border = [b for b in self.readable if b.dtype == dtype and b.shape and self.ranges]
        border = [b for b in border if b.scope != "register"]
        if border and self.chance(40):
            return self.bordered(self.one_of(border), sides[1])
        return Select(condition, *sides)

    def bordered(self, buffer: Buffer, outside: Expr) -> Select:
        """A read that is in bounds only where the condition of its select holds."""
        load = self.load(buffer)
        index = self.one_of(tuple(self.ranges)) + self.number(-2, 2)
        inside = within(index, 0, buffer.shape[0])
        return Select(inside, Load(buffer, (index, *load.indices[1:])), outside)

    def cast(self, dtype: str, depth: int) -> Expr:
        """From an integer or bool: a float that does not fit an integer has no defined value."""
        sources = [d for d in self.options.dtypes if dtype in FLOATS or d not in FLOATS]
        return Cast(self.expr(self.one_of(sources or [dtype]), depth - 1), dtype)


@dataclass
class UserKernel(RandomKernel):
    """A kernel as users write it, to be built: with scalars, windows and `inout` parameters, and
    with nests that change parts of these, in which a loop of any kind stands at any depth."""

    changed: list[Buffer] = field(default_factory=list)
    """The `inout` parameters."""
    own: list[Load] = field(default_factory=list)
    """The element that this iteration changes."""
    alone: bool = False
    """One nest is the whole kernel, and threads share its outermost loop."""

    def func(self) -> PrimFunc:
        inputs, outputs = self.inputs(), list[Buffer]()
        self.scalars = {Var(self.fresh("n")): self.number(1, 6) for _ in range(self.number(0, 2))}
        self.ranges = dict(self.scalars)
        for _ in range(self.number(0, 2)):
            self.changed.append(Buffer(self.fresh("a"), self.shape(), self.dtype()))
        self.readable += self.changed
        body: Body = ()
        self.alone = bool(self.changed) and self.chance(40)
        for stage in range(1 if self.alone else self.number(1, 3)):
            if self.alone or (self.changed and self.chance(65)):
                body += self.update(self.one_of(self.changed))
            else:
                is_output = stage == 0 or self.chance(40)
                body += self.stage(outputs, is_output, self.chance(30))
        params = [
            *(Param(b, Role.INPUT, self.chance(20)) for b in inputs),
            *(Param(b, Role.INOUT, self.chance(20)) for b in self.changed),
            *(Param(b, Role.OUTPUT) for b in outputs),
        ]
        return PrimFunc(
            "kernel", tuple(params), (*self.limits(), *body), scalars=tuple(self.scalars)
        )

    def dtype(self) -> str:
        return str(self.one_of(self.options.dtypes))

    def limits(self) -> Body:
        """What the kernel assumes of its scalars."""
        wrong = Literal(False, "bool")
        return tuple(Assume(within(n, 0, stop), wrong) for n, stop in self.scalars.items())

    def kinds(self, loops: list[tuple[Var, int]], parallel: bool) -> list[LoopKind]:
        kinds = super().kinds(loops, parallel)
        inner = self.number(0, max(len(loops) - 1, 0))
        if loops and kinds[inner] is not LoopKind.VECTORIZED and self.chance(30):
            kinds[inner] = LoopKind.PARALLEL
        return kinds

    def leaf(self, dtype: str) -> Expr:
        if self.own and self.own[0].dtype == dtype and self.chance(50):
            return self.own[0]
        return super().leaf(dtype)

    def update(self, buffer: Buffer) -> Body:
        """A nest in which each iteration changes an element of its own, once or several times."""
        self.readable.remove(buffer)
        places = [self.place(extent) for extent in buffer.shape]
        loops = [(var, stop, True) for _, var, stop in places if var is not None]
        loops += [
            (Var(self.fresh("r")), self.number(1, 3), False) for _ in range(self.number(0, 2))
        ]
        order = sorted(range(len(loops)), key=lambda _: self.number(0, 99))
        if self.alone:
            order.sort(key=lambda k: not loops[k][2])
        indices = tuple(index for index, _, _ in places)
        body = self.around([loops[k] for k in order], buffer, indices)
        self.readable.append(buffer)
        return body

    def place(self, extent: int) -> tuple[IndexExpr, Var | None, int]:
        """An index along an axis, the loop that it is one-to-one with, and where that stops."""
        if self.chance(15):
            return const(self.number(0, extent - 1)), None, 0
        var, stop = Var(self.fresh("i")), self.number(1, extent)
        first = self.number(0, extent - stop)
        return (var + first if self.chance(60) else first + stop - 1 - var), var, stop

    def around(
        self,
        loops: list[tuple[Var, int, bool]],
        buffer: Buffer,
        indices: tuple[IndexExpr, ...],
        lanes: bool = False,
    ) -> Body:
        """The change of an element in these loops, of which the last ones may run at once where
        they are one-to-one with an axis."""
        first = self.alone and len(self.ranges) == len(self.scalars)
        if not first and self.chance(15):
            condition = self.comparison(1) if self.chance(40) else self.predicate()
            return (If(condition, self.around(loops, buffer, indices, lanes)),)
        if not loops:
            return (self.change(buffer, indices),)
        (var, stop, at_once), *inner = loops
        kinds = [LoopKind.SERIAL, LoopKind.SERIAL, LoopKind.UNROLLED]
        if at_once and not lanes:
            kinds += [LoopKind.PARALLEL] * 3 + [LoopKind.VECTORIZED]
        kind = LoopKind.PARALLEL if first and at_once else self.one_of(kinds)
        end: IndexExpr = const(stop)
        if kind in (LoopKind.SERIAL, LoopKind.PARALLEL) and self.ranges and self.chance(20):
            end = minimum(self.one_of(tuple(self.ranges)) + self.number(0, 1), stop)
        self.ranges[var] = stop
        body = self.around(inner, buffer, indices, lanes or kind is LoopKind.VECTORIZED)
        del self.ranges[var]
        return (For(var, const(0), end, kind, body),)

    def change(self, buffer: Buffer, indices: tuple[IndexExpr, ...]) -> Stmt:
        if self.chance(40):
            op = self.reduce_op(buffer.dtype)
            return Reduce(op, buffer, indices, self.expr(buffer.dtype))
        self.own = [Load(buffer, indices)]
        value = self.expr(buffer.dtype)
        self.own = []
        return Store(buffer, indices, value)
