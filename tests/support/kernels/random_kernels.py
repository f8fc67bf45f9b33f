"""Random index expressions, predicates and kernels, drawn by a function that returns numbers.

In: `number(low, high)`, which gives a whole number between both: hypothesis draws them for property
tests (support/strategies.py), `random.Random.randint` for runs of many seeds.  Out: kernels that
are valid at a given stage: every access is in bounds, everything that is read was written before,
iterations of parallel and vectorized loops are independent.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from graphflow import arith, tir

Number: TypeAlias = Callable[[int, int], int]

SPECIAL_FLOATS = (0.0, -0.0, 1.0, -1.5, 0.1, float("inf"), float("-inf"), float("nan"), 1e-45, 3e38)

EXACT_UNARY = ("neg", "abs", "floor", "ceil", "round", "not")
"""Operators with one correct result bit by bit, as long as nothing is contracted to an FMA."""


def extremes(dtype: str) -> tuple[int, ...]:
    """Integers where arithmetic of an integer type wraps, traps or changes its sign."""
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    return (low, low + 1, high, high - 1, high // 2 + 1, *((-1, 0, 1) if low else (0, 1)))


DIVISORS = (1, 2, 3, 4, 5, 6, 8, 12)


def random_index(number: Number, names: Sequence[arith.Var], depth: int) -> arith.IndexExpr:
    """An expression of any kind over `names`, with small constants and at most 2^depth leaves."""
    if depth == 0 or number(0, 3) == 0:
        if number(0, 1):
            return arith.const(number(-9, 9))
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
            return arith.minimum(a, b)
        case 7:
            return arith.maximum(a, b)
    return a + b


def random_predicate(number: Number, names: Sequence[arith.Var], depth: int = 2) -> arith.Predicate:
    """A comparison of index expressions, or conjunctions, disjunctions, negations of them."""

    def index() -> arith.IndexExpr:
        return random_index(number, names, 2)

    def inner() -> arith.Predicate:
        return random_predicate(number, names, depth - 1)

    if depth == 0 or number(0, 1) == 0:
        match number(0, 3):
            case 0:
                return arith.at_least_zero(index())
            case 1:
                return arith.less_than(index(), index())
            case 2:
                return arith.equal(index(), index())
        return arith.within(index(), index(), index())
    kind = number(0, 2)
    if kind == 0:
        return arith.negation(inner())
    members = [inner() for _ in range(number(1, 3))]
    return arith.conjunction(members) if kind == 1 else arith.disjunction(members)


@dataclass(frozen=True)
class KernelOptions:
    """What random kernels may hold."""

    stage: str = "scheduled"
    dtypes: tuple[str, ...] = (
        "float32", "float64", "int8", "uint8", "int32", "uint32", "int64", "uint64", "bool",
    )  # fmt: skip
    unary: tuple[str, ...] = tir.UNARY
    binary: tuple[str, ...] = tir.BINARY
    loops_in_vector_loops: bool = True
    """Serial and unrolled loops inside vectorized ones."""
    assumptions: bool = False
    """`Assume`, all true, and stores of `Undef` that are overwritten before they are read."""
    marks: bool = True
    """Blocks annotated as stages of a user's schedule."""
    given: tuple[tuple[tuple[int, ...], str], ...] = ()
    """Shape and dtype of the first input, one of these where there are any."""
    extents: tuple[int, ...] = (1, 2, 3, 4, 5)
    literals: tuple[Any, ...] = ()
    """The only constants, where there are any."""
    casts: bool = True
    data_conditions: bool = True
    """Conditions on elements beside those on loops."""
    borders: bool = True
    """Reads that are in bounds only where the condition around holds."""


@dataclass
class RandomKernel:
    """One kernel in the making; what it holds is decided by the numbers drawn."""

    number: Number
    options: KernelOptions
    readable: list[tir.Buffer] = field(default_factory=list)
    """Buffers all of whose elements have been written."""
    names: int = 0
    ranges: dict[arith.Var, int] = field(default_factory=dict)
    """Loop variables and scalars in scope, none negative, each with what it stays below."""
    scalars: dict[arith.Var, int] = field(default_factory=dict)
    """The scalars among them, which are in scope everywhere."""
    loop_kinds: dict[arith.Var, tir.LoopKind] = field(default_factory=dict)

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def chance(self, percent: int) -> bool:
        return self.number(0, 99) < percent

    def one_of(self, items: Sequence[Any]) -> Any:
        return items[self.number(0, len(items) - 1)]

    def shape(self) -> tuple[int, ...]:
        return tuple(self.one_of(self.options.extents) for _ in range(self.number(0, 3)))

    def func(self) -> tir.PrimFunc:
        inputs = self.inputs()
        outputs: list[tir.Buffer] = []
        body: list[tir.Stmt] = []
        # In a lowered kernel a parallel loop is the whole work, so there is one nest alone.
        parallel = self.options.stage != "definition" and self.chance(40)
        alone = parallel and self.options.stage == "lowered"
        stages = 1 if alone else self.stages()
        for stage in range(stages):
            last = stage == stages - 1
            body += self.stage(outputs, last or self.chance(40), parallel and (alone or last))
        params = [tir.Param(b, tir.Role.INPUT) for b in inputs] + [
            tir.Param(b, tir.Role.OUTPUT) for b in outputs
        ]
        return tir.PrimFunc("kernel", tuple(params), tuple(body))

    def stages(self) -> int:
        return self.number(1, 3)

    def inputs(self) -> list[tir.Buffer]:
        return [self.input() for _ in range(self.number(1, 2))]

    def input(self) -> tir.Buffer:
        given = self.options.given
        if given and not self.readable:
            shape, dtype = self.one_of(given)
        else:
            shape, dtype = self.shape(), self.one_of(self.options.dtypes)
        separators = (1,) if len(shape) > 1 and self.chance(20) else ()
        buffer = tir.Buffer(self.fresh("x"), shape, dtype, "global", separators)
        self.readable.append(buffer)
        return buffer

    def stage(self, outputs: list[tir.Buffer], is_output: bool, parallel: bool) -> tir.Body:
        """A nest that writes all of a new buffer, with its allocation unless it is an output."""
        shape, dtype = self.shape(), self.one_of(self.options.dtypes)
        scopes = {"definition": ("global",), "lowered": ("scratch",)}.get(
            self.options.stage, ("global", "scratch", "register")
        )
        scope = "global" if is_output else self.one_of(scopes)
        buffer = tir.Buffer(self.fresh("y" if is_output else "t"), shape, dtype, scope)
        nest = self.nest(buffer, parallel)
        if self.chance(60):
            marked = self.chance(30) and self.options.marks
            notes = ((tir.BlockNote.PREPROC, "pad"),) if marked else ()
            nest = (tir.Block(self.fresh("block "), nest, notes),)
        self.readable.append(buffer)
        if is_output:
            outputs.append(buffer)
            return nest
        return (tir.Allocate(buffer), *nest)

    # -- loops

    def nest(self, buffer: tir.Buffer, parallel: bool) -> tir.Body:
        """Loops over all elements of `buffer`, some of them divided, around one write each."""
        loops: list[tuple[arith.Var, int]] = []
        indices: list[arith.IndexExpr] = []
        inside: list[arith.Predicate] = []
        for extent in buffer.shape:
            axis, guard = self.axis(extent, loops)
            indices.append(axis)
            inside.append(guard)
        kinds = self.kinds(loops, parallel)
        vector = tir.LoopKind.VECTORIZED in kinds
        self.ranges = {**self.scalars, **dict(loops)}
        self.loop_kinds = {var: kind for (var, _), kind in zip(loops, kinds, strict=True)}
        body = self.element(
            buffer, tuple(indices), not vector or self.options.loops_in_vector_loops
        )
        guard = arith.conjunction(inside)
        if guard != arith.TRUE:
            body = (tir.If(guard, body),)
        self.ranges = dict(self.scalars)
        for (var, extent), kind in zip(reversed(loops), reversed(kinds), strict=True):
            body = (tir.For(var, arith.const(0), arith.const(extent), kind, body),)
        return body

    def axis(
        self, extent: int, loops: list[tuple[arith.Var, int]]
    ) -> tuple[arith.IndexExpr, arith.Predicate]:
        """One loop or two over an axis, the index it makes, and when that is inside."""
        if self.options.stage == "definition" or not self.chance(30):
            var = arith.Var(self.fresh("i"))
            loops.append((var, extent))
            return var, arith.TRUE
        factor = self.number(2, 4)
        outer, inner = arith.Var(self.fresh("io")), arith.Var(self.fresh("ii"))
        loops += [(outer, -(-extent // factor)), (inner, factor)]
        index = outer * factor + inner
        return index, arith.TRUE if extent % factor == 0 else arith.less_than(index, extent)

    def kinds(self, loops: list[tuple[arith.Var, int]], parallel: bool) -> list[tir.LoopKind]:
        kinds = [tir.LoopKind.SERIAL for _ in loops]
        if self.options.stage == "definition":
            return kinds
        for n in range(len(loops)):
            if self.chance(25):
                kinds[n] = tir.LoopKind.UNROLLED
        if loops and self.chance(50):
            kinds[-1] = tir.LoopKind.VECTORIZED
        if loops and parallel:
            kinds[0] = tir.LoopKind.PARALLEL
        return kinds

    # -- statements

    def element(
        self, buffer: tir.Buffer, indices: tuple[arith.IndexExpr, ...], loops: bool
    ) -> tir.Body:
        """Statements that write `buffer[indices]`."""
        kinds = ["store", "branches", "data branches"]
        if loops:
            kinds += ["reduction"] * 2
            if self.options.stage != "definition":
                kinds.append("registers")
        head = self.assumptions(buffer, indices)
        match self.one_of(kinds):
            case "store":
                return (*head, tir.Store(buffer, indices, self.expr(buffer.dtype)))
            case "branches":
                return (*head, self.branches(buffer, indices, self.predicate()))
            case "data branches":
                return (*head, self.branches(buffer, indices, self.comparison(1)))
            case "reduction":
                return (*head, *self.reduction(buffer, indices, tir.LoopKind.SERIAL))
            case _:
                return (*head, *self.registers(buffer, indices))

    def branches(
        self, buffer: tir.Buffer, indices: tuple[arith.IndexExpr, ...], condition: tir.Condition
    ) -> tir.If:
        then = tir.Store(buffer, indices, self.expr(buffer.dtype))
        return tir.If(condition, (then,), (tir.Store(buffer, indices, self.expr(buffer.dtype)),))

    def assumptions(self, buffer: tir.Buffer, indices: tuple[arith.IndexExpr, ...]) -> tir.Body:
        if not self.options.assumptions or not self.chance(50):
            return ()
        read = self.load(self.readable[0])
        claim = tir.Comparison("eq", read, tir.Undef(read.dtype))
        return (
            tir.Assume(self.predicate(), claim),
            tir.Store(buffer, indices, tir.Undef(buffer.dtype)),
        )

    def reduction(
        self, buffer: tir.Buffer, indices: tuple[arith.IndexExpr, ...], kind: tir.LoopKind
    ) -> tir.Body:
        """An initial store, then a loop around a reduction, which a border may leave out."""
        start = tir.Store(buffer, indices, self.literal(buffer.dtype))
        var, extent = arith.Var(self.fresh("r")), self.number(1, 3)
        start_at, stop_at = self.span(extent)
        self.ranges[var], self.loop_kinds[var] = extent, kind
        step: tir.Stmt = tir.Reduce(
            self.reduce_op(buffer.dtype), buffer, indices, self.expr(buffer.dtype)
        )
        if self.chance(40):
            step = tir.If(self.predicate(), (step,))
        del self.ranges[var]
        return (start, tir.For(var, start_at, stop_at, kind, (step,)))

    def reduce_op(self, dtype: str) -> tir.ReduceOp:
        return self.one_of((tir.ReduceOp.MIN, tir.ReduceOp.MAX, tir.ReduceOp.ADD, tir.ReduceOp.MUL))

    def span(self, extent: int) -> tuple[arith.IndexExpr, arith.IndexExpr]:
        """Where a loop of at most `extent` iterations starts and stops."""
        return arith.const(0), arith.const(extent)

    def registers(self, buffer: tir.Buffer, indices: tuple[arith.IndexExpr, ...]) -> tir.Body:
        """A tile, mostly of registers: a reduction in unrolled loops fills it, and the element is
        their sum."""
        size = self.number(1, 4)
        op = self.register_op(buffer.dtype)
        scopes = ("register", "register", "scratch", "global")
        scope = self.one_of(scopes) if self.options.stage == "scheduled" else "register"
        tile = tir.Buffer(self.fresh("acc"), (size,), buffer.dtype, scope)

        def unrolled(make: Callable[[arith.Var], tir.Stmt]) -> tir.For:
            var = arith.Var(self.fresh("u"))
            self.ranges[var], self.loop_kinds[var] = size, tir.LoopKind.UNROLLED
            body = (make(var),)
            del self.ranges[var]
            return tir.For(var, arith.const(0), arith.const(size), tir.LoopKind.UNROLLED, body)

        step, extent = arith.Var(self.fresh("r")), self.number(1, 3)
        fill = unrolled(lambda u: tir.Store(tile, (u,), self.literal(tile.dtype)))
        self.ranges[step], self.loop_kinds[step] = extent, tir.LoopKind.SERIAL
        add = unrolled(lambda u: tir.Reduce(op, tile, (u,), self.expr(tile.dtype)))
        del self.ranges[step]
        loop = tir.For(step, arith.const(0), arith.const(extent), tir.LoopKind.SERIAL, (add,))
        start = tir.Store(buffer, indices, self.literal(buffer.dtype))
        total = unrolled(lambda u: tir.Reduce(op, buffer, indices, tir.Load(tile, (u,))))
        return (tir.Allocate(tile), fill, loop, start, total)

    def register_op(self, dtype: str) -> tir.ReduceOp:
        return tir.ReduceOp.ADD

    # -- indices

    def index(self, extent: int) -> arith.IndexExpr:
        """An index expression that stays in `0 <= … < extent`."""
        fitting = [v for v, n in self.ranges.items() if n <= extent]
        if fitting and self.chance(50):
            var = self.one_of(fitting)
            return var + self.number(0, extent - self.ranges[var])
        if not self.ranges or self.chance(15):
            return arith.const(self.number(0, extent - 1))
        free = random_index(self.number, tuple(self.ranges), 1)
        if self.chance(70):
            return free % extent
        return arith.minimum(arith.maximum(free, 0), extent - 1)

    def predicate(self) -> arith.Predicate:
        if not self.ranges:
            return arith.TRUE
        return random_predicate(self.number, tuple(self.ranges))

    def guard(self) -> tir.Condition:
        """A condition on loops, or on elements."""
        if self.options.data_conditions and self.chance(40):
            return self.comparison(1)
        return self.predicate()

    def load(self, buffer: tir.Buffer) -> tir.Load:
        return tir.Load(buffer, tuple(self.index(extent) for extent in buffer.shape))

    # -- scalar expressions

    def expr(self, dtype: str, depth: int = 2) -> tir.Expr:
        if depth == 0:
            return self.leaf(dtype)
        kinds = ["leaf", "binary", "binary", "unary", "select"]
        if dtype == "bool":
            kinds.append("comparison")
        elif self.options.casts:
            kinds.append("cast")
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

    def leaf(self, dtype: str) -> tir.Expr:
        loads = [b for b in self.readable if b.dtype == dtype]
        if loads and self.chance(75):
            return self.load(self.one_of(loads))
        if dtype != "bool" and self.ranges and self.chance(30):
            return tir.IndexValue(random_index(self.number, tuple(self.ranges), 1), dtype)
        return self.literal(dtype)

    def literal(self, dtype: str) -> tir.Literal:
        if self.options.literals:
            value = self.one_of(self.options.literals)
            return tir.Literal(float(value) if dtype in tir.FLOATS else value, dtype)
        if dtype in tir.FLOATS:
            return tir.Literal(
                self.one_of(SPECIAL_FLOATS if self.chance(20) else (0.0, 1.0, 0.1)), dtype
            )
        if dtype == "bool":
            return tir.Literal(self.chance(50), dtype)
        return tir.Literal(self.number(0 if dtype in tir.UNSIGNED else -9, 9), dtype)

    def binary(self, dtype: str, depth: int) -> tir.Expr:
        legal = {"bool": ("and", "or")}.get(dtype, tir.BINARY[:7])
        ops = [op for op in legal if op in self.options.binary]
        op = self.one_of(ops or ["or" if dtype == "bool" else "add"])
        if op in ("div", "pow") and dtype not in tir.FLOATS:
            return tir.Binary(
                op, self.expr(dtype, depth - 1), tir.Literal(self.one_of((1, 2, 3)), dtype)
            )
        return tir.Binary(op, self.expr(dtype, depth - 1), self.expr(dtype, depth - 1))

    def unary(self, dtype: str, depth: int) -> tir.Expr:
        legal = {"bool": ("not",)}.get(
            dtype, tir.UNARY[:-2] if dtype in tir.FLOATS else ("neg", "abs")
        )
        ops = [op for op in legal if op in self.options.unary]
        operand = self.expr(dtype, depth - 1)
        return tir.Unary(self.one_of(ops), operand) if ops else operand

    def comparison(self, depth: int) -> tir.Expr:
        dtype = self.one_of(self.options.dtypes)
        left, right = self.expr(dtype, depth - 1), self.expr(dtype, depth - 1)
        return tir.Comparison(self.one_of(tir.COMPARISONS), left, right)

    def select(self, dtype: str, depth: int) -> tir.Expr:
        condition = self.guard()
        sides = self.expr(dtype, depth - 1), self.expr(dtype, depth - 1)
        border = [b for b in self.readable if b.dtype == dtype and b.shape and self.ranges]
        border = [b for b in border if b.scope != "register"]
        if border and self.options.borders and self.chance(40):
            return self.bordered(self.one_of(border), sides[1])
        return tir.Select(condition, *sides)

    def bordered(self, buffer: tir.Buffer, outside: tir.Expr) -> tir.Select:
        """A read that is in bounds only where the condition of its select holds."""
        load = self.load(buffer)
        index = self.one_of(tuple(self.ranges)) + self.number(-2, 2)
        inside = arith.within(index, 0, buffer.shape[0])
        return tir.Select(inside, tir.Load(buffer, (index, *load.indices[1:])), outside)

    def cast(self, dtype: str, depth: int) -> tir.Expr:
        """From an integer or bool: a float that does not fit an integer has no defined value."""
        sources = [d for d in self.options.dtypes if dtype in tir.FLOATS or d not in tir.FLOATS]
        return tir.Cast(self.expr(self.one_of(sources or [dtype]), depth - 1), dtype)


@dataclass
class UserKernel(RandomKernel):
    """A kernel as users write it, to be built: with scalars, windows and `inout` parameters, and
    with nests that change parts of these, in which a loop of any kind stands at any depth."""

    changed: list[tir.Buffer] = field(default_factory=list)
    """The `inout` parameters."""
    own: list[tir.Load] = field(default_factory=list)
    """The element that this iteration changes."""
    alone: bool = False
    """One nest is the whole kernel, and threads share its outermost loop."""

    def func(self) -> tir.PrimFunc:
        inputs, outputs = self.inputs(), list[tir.Buffer]()
        self.scalars = {
            arith.Var(self.fresh("n")): self.number(1, 6) for _ in range(self.number(0, 2))
        }
        self.ranges = dict(self.scalars)
        for _ in range(self.number(0, 2)):
            self.changed.append(tir.Buffer(self.fresh("a"), self.shape(), self.dtype()))
        self.readable += self.changed
        body: tir.Body = ()
        self.alone = bool(self.changed) and self.chance(40)
        for stage in range(1 if self.alone else self.number(1, 3)):
            if self.alone or (self.changed and self.chance(65)):
                body += self.update(self.one_of(self.changed))
            else:
                is_output = stage == 0 or self.chance(40)
                body += self.stage(outputs, is_output, self.chance(30))
        params = [
            *(tir.Param(b, tir.Role.INPUT, self.chance(20)) for b in inputs),
            *(tir.Param(b, tir.Role.INOUT, self.chance(20)) for b in self.changed),
            *(tir.Param(b, tir.Role.OUTPUT) for b in outputs),
        ]
        return tir.PrimFunc(
            "kernel", tuple(params), (*self.limits(), *body), scalars=tuple(self.scalars)
        )

    def dtype(self) -> str:
        return str(self.one_of(self.options.dtypes))

    def limits(self) -> tir.Body:
        """What the kernel assumes of its scalars."""
        wrong = tir.Literal(False, "bool")
        return tuple(
            tir.Assume(arith.within(n, 0, stop), wrong) for n, stop in self.scalars.items()
        )

    def kinds(self, loops: list[tuple[arith.Var, int]], parallel: bool) -> list[tir.LoopKind]:
        kinds = super().kinds(loops, parallel)
        inner = self.number(0, max(len(loops) - 1, 0))
        if loops and kinds[inner] is not tir.LoopKind.VECTORIZED and self.chance(30):
            kinds[inner] = tir.LoopKind.PARALLEL
        return kinds

    def leaf(self, dtype: str) -> tir.Expr:
        if self.own and self.own[0].dtype == dtype and self.chance(50):
            return self.own[0]
        return super().leaf(dtype)

    def update(self, buffer: tir.Buffer) -> tir.Body:
        """A nest in which each iteration changes an element of its own, once or several times."""
        self.readable.remove(buffer)
        places = [self.place(extent) for extent in buffer.shape]
        loops = [(var, stop, True) for _, var, stop in places if var is not None]
        loops += [
            (arith.Var(self.fresh("r")), self.number(1, 3), False) for _ in range(self.number(0, 2))
        ]
        order = sorted(range(len(loops)), key=lambda _: self.number(0, 99))
        if self.alone:
            order.sort(key=lambda k: not loops[k][2])
        indices = tuple(index for index, _, _ in places)
        body = self.around([loops[k] for k in order], buffer, indices)
        self.readable.append(buffer)
        return body

    def place(self, extent: int) -> tuple[arith.IndexExpr, arith.Var | None, int]:
        """An index along an axis, the loop that it is one-to-one with, and where that stops."""
        if self.chance(15):
            return arith.const(self.number(0, extent - 1)), None, 0
        var, stop = arith.Var(self.fresh("i")), self.number(1, extent)
        first = self.number(0, extent - stop)
        return (var + first if self.chance(60) else first + stop - 1 - var), var, stop

    def around(
        self,
        loops: list[tuple[arith.Var, int, bool]],
        buffer: tir.Buffer,
        indices: tuple[arith.IndexExpr, ...],
        lanes: bool = False,
    ) -> tir.Body:
        """The change of an element in these loops, of which the last ones may run at once where
        they are one-to-one with an axis."""
        first = self.alone and len(self.ranges) == len(self.scalars)
        if not first and self.chance(15):
            return (tir.If(self.guard(), self.around(loops, buffer, indices, lanes)),)
        if not loops:
            return (self.change(buffer, indices),)
        (var, stop, at_once), *inner = loops
        kinds = [tir.LoopKind.SERIAL, tir.LoopKind.SERIAL, tir.LoopKind.UNROLLED]
        if at_once and not lanes:
            kinds += [tir.LoopKind.PARALLEL] * 3 + [tir.LoopKind.VECTORIZED]
        kind = tir.LoopKind.PARALLEL if first and at_once else self.one_of(kinds)
        end: arith.IndexExpr = arith.const(stop)
        if kind in (tir.LoopKind.SERIAL, tir.LoopKind.PARALLEL) and self.ranges and self.chance(20):
            end = arith.minimum(self.one_of(tuple(self.ranges)) + self.number(0, 1), stop)
        self.ranges[var] = stop
        body = self.around(inner, buffer, indices, lanes or kind is tir.LoopKind.VECTORIZED)
        del self.ranges[var]
        return (tir.For(var, arith.const(0), end, kind, body),)

    def change(self, buffer: tir.Buffer, indices: tuple[arith.IndexExpr, ...]) -> tir.Stmt:
        if self.chance(40):
            op = self.reduce_op(buffer.dtype)
            return tir.Reduce(op, buffer, indices, self.expr(buffer.dtype))
        self.own = [tir.Load(buffer, indices)]
        value = self.expr(buffer.dtype)
        self.own = []
        return tir.Store(buffer, indices, value)
