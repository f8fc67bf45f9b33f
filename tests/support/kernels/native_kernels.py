"""Random kernels that exercise code generation: vectors, masks, divisors, extremes of types.

In: a seed.  Out: a `NativeCase`: a lowered kernel, its inputs, and the parts of its parallel loop
in some order.  In addition to the features of random_kernels.py there are vectors of 1 to
17 lanes, masks that depend on data, divisors and exponents that vary, extremes of all integer
types, loops whose bounds depend on outer loops, buffers allocated in loops and conditions, and
reductions over lanes.

Outputs that are compared bit by bit have one correct result.  A multiplication whose result is
added may be contracted, so factors are powers of two in kernels that add floats; sums over lanes
may be reassociated, so floats are small integers there.  Floats are not cast to integers, because
one that does not fit has no defined value.  Elementary functions and sums of products are stored
and never read: `is_rounded` tells which outputs those are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Self, TypeAlias

from graphflow import tir
from graphflow.arith import TRUE, IndexExpr, Predicate, Var, as_index, const, minimum
from graphflow.base.dtypes import CARRIERS, FLOATING, STORED, UNSIGNED
from support.kernels.random_kernels import SPECIAL_FLOATS, KernelOptions, RandomKernel, extremes
from support.native import Slices
from support.strategies import input_arrays

INTEGERS = ("int8", "int16", "int32", "int64", *UNSIGNED)
SIGNED = ("int64", "int32")
"""One of them is in each kernel: their signs are tested by instructions of their own."""
ORDERED = (tir.ReduceOp.MIN, tir.ReduceOp.MAX)
MODERATE_FLOATS = (0.0, -0.0, 1.0, -1.5, 0.1, float("inf"), float("-inf"), float("nan"))
POWERS_OF_TWO = (1.0, -1.0, 2.0, -2.0, 0.5, 0.0, -0.0)

EXACT_ON_FLOATS = ("neg", "abs", "floor", "ceil", "round", "sqrt", "not")
FUNCTIONS = ("exp", "log", "tanh", "erf", "sigmoid", "pow", "fmod", *tir.TRIGONOMETRIC)

BITWISE = ("and", "or", "xor", "shl", "shr")

ROUNDED_TO = tuple(name for name in STORED if name != "float4_e2m1fn")
"""Stored types that values are rounded to; NaN as a float4 is a zero whose sign is that of NaN."""

EXPANDED = (tir.LoopKind.VECTORIZED, tir.LoopKind.UNROLLED)
KINDS_OF_SCOPE = {
    "register": (tir.LoopKind.VECTORIZED, tir.LoopKind.VECTORIZED, tir.LoopKind.UNROLLED),
    "scratch": (tir.LoopKind.VECTORIZED, tir.LoopKind.UNROLLED, tir.LoopKind.SERIAL),
}
UNROLLED_LIMIT = 6

Element: TypeAlias = Callable[["NativeKernel", tir.Buffer, tuple[IndexExpr, ...]], tir.Body]


@dataclass(frozen=True)
class Family:
    """What the kernels of one family compute with, so that all of it is exact."""

    floats: tuple[str, ...]
    binary: tuple[str, ...]
    reductions: tuple[tir.ReduceOp, ...]
    specials: tuple[float, ...] = SPECIAL_FLOATS


FAMILIES = {
    "integers": Family((), ("add", "sub", "mul", "div", "max", "min", "pow", *BITWISE),
                       tuple(tir.ReduceOp)),
    # Quotients are not contracted; denormals and overflow are exact as nothing is fused.
    "sums": Family(tir.FLOATS, ("add", "sub", "div", "max", "min", *BITWISE),
                   (tir.ReduceOp.ADD, *ORDERED)),
    # A power of two times anything moderate is exact, so its sum is the same, fused or not.
    "scaled sums": Family(tir.FLOATS, ("add", "sub", "mul", "max", "min", *BITWISE),
                          (tir.ReduceOp.ADD, *ORDERED), MODERATE_FLOATS),
    "products": Family(tir.FLOATS, ("mul", "div", "max", "min", *BITWISE),
                       (tir.ReduceOp.MUL, *ORDERED)),
}  # fmt: skip


@dataclass(frozen=True)
class NativeCase:
    """A kernel, inputs by name, and the order in which slices of its parallel loop run."""

    seed: int
    family: str
    func: tir.PrimFunc
    arrays: dict[str, Any]
    slices: Slices
    flush: bool
    """Denormals are flushed, in native code and in the interpreter."""


def native_case(seed: int) -> NativeCase:
    """The case of this seed, always the same."""
    random = Random(seed)
    family = random.choice(sorted(FAMILIES))
    flush = family != "integers" and random.random() < 0.25
    func = NativeKernel.of(random, family, flush).func()
    # Inputs may hold denormals; literals not where they are flushed, see `NativeKernel.of`.
    arrays = input_arrays(func, seed, True, FAMILIES[family].specials)
    return NativeCase(seed, family, func, arrays, _slices(random, func), flush)


def is_rounded(name: str) -> bool:
    """Whether an output is an elementary function or a sum of products, exact to some ulps only."""
    return name.startswith(("f", "s"))


def _slices(random: Random, func: tir.PrimFunc) -> Slices:
    extents = [
        loop.extent for loop in tir.loops_of(func.body) if loop.kind is tir.LoopKind.PARALLEL
    ]
    extent = (extents[0] or 0) if extents else 1
    cuts = sorted(random.sample(range(1, extent), random.randint(0, min(3, extent - 1))))
    parts = list(zip((0, *cuts), (*cuts, extent), strict=True))
    random.shuffle(parts)
    return tuple(parts)


@dataclass
class NativeKernel(RandomKernel):
    """A lowered kernel of one family."""

    family: Family = FAMILIES["integers"]
    literals: tuple[float, ...] = SPECIAL_FLOATS
    rounded: tuple[tuple[Element, str], ...] = ()
    """Makers of elements that are exact to some ulps, and prefixes of their buffers' names."""
    own: list[tir.Load] = field(default_factory=list)
    """Elements that this iteration has written and may read."""
    small: bool = False
    """One nest is the whole kernel."""
    stored_type: str = ""
    """A type that is only stored, of one input and perhaps of an output; "" for none."""
    stored: list[tir.Buffer] = field(default_factory=list)
    """The input of that type."""
    only: Element | None = None
    """What makes all elements of the nest at hand."""

    @classmethod
    def of(cls, random: Random, family: str, flush: bool) -> Self:
        """The kernel that `random` decides.

        With `flush`, literals are moderate: LLVM computes with constants as IEEE has it, so a
        constant that is a denormal, or whose quotient is one, is not flushed.
        """
        chosen = FAMILIES[family]
        integers = [random.choice(SIGNED), *random.sample(INTEGERS, 1)]
        floats = random.sample(chosen.floats, random.randint(1, 2)) if chosen.floats else []
        dtypes = (*floats, *(integers[:1] if floats else integers), "bool")
        unary = EXACT_ON_FLOATS if floats else ("neg", "abs", "not")
        options = KernelOptions("lowered", dtypes, unary, chosen.binary)
        literals = MODERATE_FLOATS if flush else chosen.specials
        # numpy's elementary functions promise nothing where denormals are flushed.
        rounded = ((cls.products, "s"),) if flush else ((cls.products, "s"), (cls.function, "f"))
        # Denormals that count as zeros may be kept by casts, which move bits.
        stored = random.choice(STORED) if not flush and random.random() < 0.4 else ""
        return cls(
            random.randint, options, family=chosen, literals=literals, rounded=rounded,
            stored_type=stored,
        )  # fmt: skip

    # -- stages

    def stages(self) -> int:
        """Half of the kernels are small: LLVM does more where a function does little."""
        self.small = self.chance(50)
        return 1 if self.small else super().stages()

    def shape(self) -> tuple[int, ...]:
        rank = self.number(0, 6)
        if rank == 0:
            return ()
        outer = tuple(self.number(1, 4) for _ in range(min(rank, 3) - 1))
        return (*outer, self.lanes())

    def lanes(self) -> int:
        """Most often as many as fill a vector, or one less."""
        return self.one_of((3, 3, 4, 7, 7, 8, 15, 16)) if self.chance(60) else self.number(1, 17)

    def inputs(self) -> list[tir.Buffer]:
        """One of each dtype, so that data decides and computes wherever it may.

        Some have the long axis first, so that lanes are apart.
        """
        for dtype in self.options.dtypes:
            shape = self.shape()
            shape = shape[::-1] if self.chance(50) else shape
            self.readable.append(tir.Buffer(self.fresh("x"), shape, dtype))
        if self.stored_type:
            self.stored = [tir.Buffer(self.fresh("x"), self.shape(), self.stored_type)]
        return [*self.readable, *self.stored]

    def stage(self, outputs: list[tir.Buffer], is_output: bool, parallel: bool) -> tir.Body:
        floats = [d for d in self.options.dtypes if d in tir.FLOATS]
        if is_output and self.stored_type in ROUNDED_TO and self.chance(30):
            return self.special_stage(
                outputs, NativeKernel.narrowed, "y", self.stored_type, parallel
            )
        if not (is_output and floats and self.chance(20)):
            return super().stage(outputs, is_output, parallel)
        element, prefix = self.one_of(self.rounded)
        return self.special_stage(outputs, element, prefix, self.one_of(floats), parallel)

    def special_stage(
        self, outputs: list[tir.Buffer], element: Element, prefix: str, dtype: str, parallel: bool
    ) -> tir.Body:
        """A nest around an output whose elements are all made by `element`; nothing reads it."""
        buffer = tir.Buffer(self.fresh(prefix), self.shape(), dtype)
        outputs.append(buffer)
        self.only = element
        body = super().nest(buffer, parallel)
        self.only = None
        return body

    # -- nests

    def nest(self, buffer: tir.Buffer, parallel: bool) -> tir.Body:
        """Loops that write all of `buffer`, and perhaps some that change part of it."""
        forms: list[Callable[[tir.Buffer, bool], tir.Body]] = [
            super().nest,
            super().nest,
            self.fold,
        ]
        if self.small:
            forms += [super().nest] * 4
        if buffer.shape:
            forms += [self.tiled, self.tiled]
        if len(buffer.shape) > 1:
            forms += [self.square]
        body = self.one_of(forms)(buffer, parallel)
        if not parallel and not self.small and self.chance(30):
            body += self.update(buffer, ())
        return body

    def loop(
        self,
        extent: int,
        make: Callable[[IndexExpr], tir.Body],
        kinds: Sequence[tir.LoopKind] = (
            tir.LoopKind.VECTORIZED,
            tir.LoopKind.UNROLLED,
            tir.LoopKind.SERIAL,
        ),
    ) -> tir.For:
        """`make(index)` for each index below `extent`; loops may count from another number."""
        kind = self.one_of(kinds)
        if kind is tir.LoopKind.UNROLLED and extent > UNROLLED_LIMIT:
            kind = kinds[0]
        first = self.number(1, 3) if self.chance(15) else 0
        var = Var(self.fresh("i"))
        self.ranges[var], self.loop_kinds[var] = first + extent, kind
        body = make(var - first)
        del self.ranges[var]
        return tir.For(var, const(first), const(first + extent), kind, body)

    def outer(
        self,
        extents: Sequence[int],
        parallel: bool,
        make: Callable[..., tir.Body],
        *done: IndexExpr,
    ) -> tir.Body:
        """Loops over `extents`, the first of them parallel, around `make(*indices)`."""
        if not extents and not parallel:
            return make(*done)
        kinds = (
            (tir.LoopKind.PARALLEL,) if parallel else (tir.LoopKind.SERIAL, tir.LoopKind.UNROLLED)
        )
        extent, *others = extents or (1,)

        def body(index: IndexExpr) -> tir.Body:
            # Where there is no axis, a parallel loop of one iteration is around.
            return self.outer(others, False, make, *done, *((index,) if extents else ()))

        return (self.loop(extent, body, kinds),)

    def tiled(self, buffer: tir.Buffer, parallel: bool) -> tir.Body:
        """A buffer of each row, filled, changed in part, and copied or combined into the output."""
        *outer, extent = buffer.shape

        def row(*indices: IndexExpr) -> tir.Body:
            tile = self.local((extent,), buffer.dtype)
            kinds = KINDS_OF_SCOPE[tile.scope]

            def plain(index: IndexExpr) -> tir.Body:
                return (tir.Store(buffer, (*indices, index), self.expr(buffer.dtype)),)

            def fill(index: IndexExpr) -> tir.Body:
                return (tir.Store(tile, (index,), self.expr(tile.dtype)),)

            def copy(index: IndexExpr) -> tir.Body:
                place = self.one_of((index, extent - 1 - index, self.index_in(tile)))
                value = self.expr(tile.dtype)
                if self.chance(60):
                    value = self.combined(tir.Load(tile, (as_index(place),)), value)
                return (tir.Store(buffer, (*indices, index), value),)

            condition = self.condition() if self.chance(35) else None
            body: tir.Body = (tir.Allocate(tile), self.loop(extent, fill, kinds))
            for _ in range(self.number(0, 2)):
                change = lambda index: self.changes(tile, (index,))  # noqa: E731
                body += (self.loop(self.number(1, extent), change, kinds),)
            self.readable.append(tile)
            body += (self.loop(extent, copy, kinds),)
            self.readable.remove(tile)
            if condition is None:
                return body
            other = (self.loop(extent, plain),)
            return (tir.If(condition, *((body, other) if self.chance(50) else (other, body))),)

        return self.outer(outer, parallel, row)

    def square(self, buffer: tir.Buffer, parallel: bool) -> tir.Body:
        """A local buffer of rows, read by columns."""
        *outer, columns, rows = buffer.shape
        kinds = (tir.LoopKind.VECTORIZED, tir.LoopKind.UNROLLED)

        def block(*indices: IndexExpr) -> tir.Body:
            tile = self.local((rows, columns), buffer.dtype)

            def fill(row: IndexExpr) -> tir.Body:
                def element(column: IndexExpr) -> tir.Body:
                    return (tir.Store(tile, (row, column), self.expr(tile.dtype, 1)),)

                return (self.loop(columns, element, kinds),)

            def read(column: IndexExpr) -> tir.Body:
                def element(row: IndexExpr) -> tir.Body:
                    value = self.combined(tir.Load(tile, (row, column)), self.expr(tile.dtype, 1))
                    return (tir.Store(buffer, (*indices, column, row), value),)

                return (self.loop(rows, element, kinds),)

            unrolled = (
                (tir.LoopKind.UNROLLED,) if tile.scope == "register" else (tir.LoopKind.SERIAL,)
            )
            return (
                tir.Allocate(tile),
                self.loop(rows, fill, unrolled),
                self.loop(columns, read, unrolled),
            )

        return self.outer(outer, parallel, block)

    def fold(self, buffer: tir.Buffer, parallel: bool) -> tir.Body:
        """A loop of any kind that reduces all its iterations to one element, or to a few."""
        dtype, op = buffer.dtype, self.reduce_op(buffer.dtype)
        few = bool(buffer.shape) and self.chance(40)
        outer = buffer.shape[:-1] if few else buffer.shape

        def reduction(*indices: IndexExpr) -> tir.Body:
            def start(index: IndexExpr) -> tir.Body:
                return (tir.Store(buffer, (*indices, index), self.fold_start(op, dtype)),)

            def step(index: IndexExpr) -> tir.Body:
                place = indices
                if few:
                    length = buffer.shape[-1]
                    last = index % length if self.chance(50) else minimum(index // 3, length - 1)
                    place = (*indices, as_index(last))
                stmt: tir.Stmt = tir.Reduce(op, buffer, place, self.fold_value(op, dtype))
                return (tir.If(self.condition(), (stmt,)),) if self.chance(50) else (stmt,)

            first = (
                self.loop(buffer.shape[-1], start)
                if few
                else tir.Store(buffer, indices, self.fold_start(op, dtype))
            )
            vector = (tir.LoopKind.VECTORIZED, tir.LoopKind.VECTORIZED, tir.LoopKind.SERIAL)
            return first, self.loop(self.lanes(), step, vector)

        return self.outer(outer, parallel, reduction)

    def fold_start(self, op: tir.ReduceOp, dtype: str) -> tir.Literal:
        if dtype in tir.FLOATS and op not in ORDERED:
            return tir.Literal(
                self.one_of((0.0, -0.0, 1.0, 2.0, float("-inf"), float("nan"))), dtype
            )
        return self.literal(dtype)

    def fold_value(self, op: tir.ReduceOp, dtype: str) -> tir.Expr:
        """Any value, unless the order of float operations would show."""
        if dtype not in tir.FLOATS or op in ORDERED:
            return self.expr(dtype)
        if op is tir.ReduceOp.ADD:
            return tir.Cast(self.comparison(1), dtype) if self.chance(50) else self.few(dtype)
        factors = [tir.Literal(self.one_of((1.0, -1.0, 2.0, 0.5)), dtype) for _ in range(2)]
        return tir.Select(self.condition(), *factors)

    def few(self, dtype: str) -> tir.Expr:
        return tir.IndexValue(self.index(9), dtype)

    def update(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...]) -> tir.Body:
        """Changes of some elements: each loop but a vectorized one may start or stop at another."""
        if len(indices) == len(buffer.shape):
            return self.changes(buffer, indices)
        extent = buffer.shape[len(indices)]
        last = len(indices) + 1 == len(buffer.shape)
        if last and self.chance(60):
            vector = lambda index: self.changes(buffer, (*indices, index))  # noqa: E731
            return (self.loop(extent, vector, (tir.LoopKind.VECTORIZED,)),)
        start, stop = self.span(extent)
        var = Var(self.fresh("i"))
        self.ranges[var], self.loop_kinds[var] = extent, tir.LoopKind.SERIAL
        body = self.update(buffer, (*indices, var))
        del self.ranges[var]
        return (tir.For(var, start, stop, tir.LoopKind.SERIAL, body),)

    def axis(self, extent: int, loops: list[tuple[Var, int]]) -> tuple[IndexExpr, Predicate]:
        """Most often one loop, because guards of divided ones hide what else is masked."""
        if self.chance(30):
            return super().axis(extent, loops)
        var = Var(self.fresh("i"))
        loops.append((var, extent))
        return var, TRUE

    def kinds(self, loops: list[tuple[Var, int]], parallel: bool) -> list[tir.LoopKind]:
        kinds = super().kinds(loops, parallel)
        if kinds and kinds[-1] is tir.LoopKind.SERIAL and self.chance(60):
            kinds[-1] = tir.LoopKind.VECTORIZED
        return kinds

    # -- statements

    def element(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...], loops: bool) -> tir.Body:
        if self.only is not None:
            return self.only(self, buffer, indices)
        kinds = [self.overwritten, self.overwritten, self.guarded_loop, self.private]
        if self.chance(40):
            return super().element(buffer, indices, loops)
        return self.one_of(kinds)(buffer, indices)

    def overwritten(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...]) -> tir.Body:
        dtype = buffer.dtype
        if not self.small or self.chance(30):
            first = tir.Store(buffer, indices, self.expr(dtype))
            return (first, *self.changes(buffer, indices))
        picked, literal = self.picked(dtype), self.literal(dtype)
        equal = tir.Comparison("eq", self.picked(dtype), literal)
        first = tir.Store(buffer, indices, tir.Select(equal, self.literal(dtype), picked))
        then = tir.Store(buffer, indices, self.picked(buffer.dtype))
        return (first, tir.If(self.sign_test(self.load_apart), (then,)))

    def picked(self, dtype: str) -> tir.Expr:
        """An element of a buffer whose lanes lie apart."""
        loads = [b for b in self.readable if b.dtype == dtype]
        return self.load_apart(self.one_of(loads)) if loads else self.literal(dtype)

    def load_apart(self, buffer: tir.Buffer) -> tir.Expr:
        """Lanes in places that are no neighbours, as far as the emitter can see."""
        names = tuple(self.ranges)
        if not names or buffer.scope == "register":
            return self.load(buffer)
        sums = [names[-1] * self.number(1, 3) + self.index(4) for _ in buffer.shape]
        return tir.Load(buffer, tuple(a % n for a, n in zip(sums, buffer.shape, strict=True)))

    def guarded_loop(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...]) -> tir.Body:
        start, *loop = self.reduction(buffer, indices, tir.LoopKind.SERIAL)
        return (start, tir.If(self.condition(), tuple(loop)))

    def private(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...]) -> tir.Body:
        """A buffer that one iteration owns, under a condition or not."""
        tile = tir.Buffer(self.fresh("t"), (self.number(1, 4),), buffer.dtype, "scratch")
        fill = lambda index: (tir.Store(tile, (index,), self.expr(tile.dtype, 1)),)  # noqa: E731
        body: tir.Body = (tir.Allocate(tile), self.loop(tile.size, fill, (tir.LoopKind.SERIAL,)))
        self.readable.append(tile)
        body += (
            tir.Store(buffer, indices, self.combined(self.load(tile), self.expr(tile.dtype, 1))),
        )
        self.readable.remove(tile)
        if self.chance(50):
            return body
        first = tir.Store(buffer, indices, self.expr(buffer.dtype, 1))
        return (first, tir.If(self.condition(), body))

    def changes(
        self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...], depth: int = 2
    ) -> tuple[tir.Stmt, ...]:
        """Writes of one element that was written before, under conditions or not."""
        own = tir.Load(buffer, indices)
        self.own.append(own)
        body = tuple(self.change(buffer, indices, depth) for _ in range(self.number(1, 2)))
        self.own.remove(own)
        return body

    def change(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...], depth: int) -> tir.Stmt:
        if depth and self.chance(60):
            condition = self.sign_test(self.load) if self.chance(40) else self.condition()
            then = self.changes(buffer, indices, depth - 1)
            orelse = self.changes(buffer, indices, depth - 1) if self.chance(35) else ()
            return tir.If(condition, then, orelse)
        picked = depth < 2 and self.chance(40)
        value = self.picked(buffer.dtype) if picked else self.expr(buffer.dtype, depth)
        if self.chance(30):
            return tir.Reduce(self.reduce_op(buffer.dtype), buffer, indices, value)
        return tir.Store(buffer, indices, value)

    def reduce_op(self, dtype: str) -> tir.ReduceOp:
        return self.one_of(self.family.reductions if dtype in tir.FLOATS else tuple(tir.ReduceOp))

    register_op = reduce_op

    def span(self, extent: int) -> tuple[IndexExpr, IndexExpr]:
        """Perhaps from or to somewhere that depends on the loops around, lanes seldom included."""
        kept = self.ranges
        if self.chance(70):
            self.ranges = {v: n for v, n in kept.items() if not self.is_vectorized(v)}
        start = self.index(extent) if self.chance(20) else const(0)
        stop = self.index(extent) + 1 if self.chance(20) else const(extent)
        self.ranges = kept
        return start, stop

    def is_vectorized(self, var: Var) -> bool:
        return self.loop_kinds[var] is tir.LoopKind.VECTORIZED

    def local(self, shape: tuple[int, ...], dtype: str) -> tir.Buffer:
        return tir.Buffer(self.fresh("t"), shape, dtype, self.one_of(("register", "scratch")))

    # -- outputs that are exact to some ulps

    def function(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...]) -> tir.Body:
        name = self.one_of(FUNCTIONS)
        operand = self.expr(buffer.dtype, 1)
        if name in ("pow", "fmod"):
            return (
                tir.Store(buffer, indices, tir.Binary(name, operand, self.expr(buffer.dtype, 1))),
            )
        return (tir.Store(buffer, indices, tir.Unary(name, operand)),)

    def narrowed(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...]) -> tir.Body:
        """A value rounded to the stored type, or an element of it as it is."""
        sources = [
            d for d in self.options.dtypes if (d in tir.FLOATS) == (buffer.dtype in FLOATING)
        ]
        sources = [d for d in sources if d != "bool"]
        if not sources:
            return (tir.Store(buffer, indices, self.load(self.stored[0])),)
        value = self.expr(self.one_of(sources), 1)
        carriers = CARRIERS[buffer.dtype]
        value = value if value.dtype in carriers else tir.Cast(value, carriers[0])
        rounded = tir.Cast(value, buffer.dtype)
        return (
            tir.Store(
                buffer, indices, tir.Select(self.condition(), rounded, self.load(self.stored[0]))
            ),
        )

    def products(self, buffer: tir.Buffer, indices: tuple[IndexExpr, ...]) -> tir.Body:
        """A sum of products, which may be contracted."""
        var, extent = Var(self.fresh("r")), self.number(1, 5)
        start = tir.Store(buffer, indices, self.literal(buffer.dtype))
        self.ranges[var], self.loop_kinds[var] = extent, tir.LoopKind.SERIAL
        value = tir.Binary("mul", self.leaf(buffer.dtype), self.leaf(buffer.dtype))
        del self.ranges[var]
        step = tir.Reduce(tir.ReduceOp.ADD, buffer, indices, value)
        return (start, tir.For(var, const(0), const(extent), tir.LoopKind.SERIAL, (step,)))

    # -- expressions

    def load(self, buffer: tir.Buffer) -> tir.Load:
        """Registers are indexed by what is known when code is emitted."""
        if buffer.scope != "register":
            return super().load(buffer)
        kept = self.ranges
        self.ranges = {v: n for v, n in kept.items() if self.loop_kinds[v] in EXPANDED}
        load = super().load(buffer)
        self.ranges = kept
        return load

    def index_in(self, buffer: tir.Buffer) -> IndexExpr:
        return self.load(buffer).indices[0]

    def condition(self) -> tir.Condition:
        if self.ranges and self.chance(25):
            return self.predicate()
        first = self.comparison(1)
        if self.chance(25):
            return tir.Binary(self.one_of(("and", "or")), first, self.comparison(1))
        return tir.Unary("not", first) if self.chance(15) else first

    def comparison(self, depth: int) -> tir.Expr:
        """Signs are tested often, as processors have instructions for that."""
        if self.chance(50):
            return self.sign_test(lambda buffer: self.leaf(buffer.dtype))
        return super().comparison(depth)

    def sign_test(self, operand: Callable[[tir.Buffer], tir.Expr]) -> tir.Comparison:
        integers = [b for b in self.readable if b.dtype in INTEGERS]
        numbers = [b for b in self.readable if b.dtype != "bool"]
        value = operand(self.one_of(integers if integers and self.chance(50) else numbers))
        dtype, negative = value.dtype, self.chance(70)
        if dtype in tir.FLOATS:
            return tir.Comparison("lt" if negative else "ge", value, tir.Literal(0.0, dtype))
        if dtype in UNSIGNED or self.chance(60):
            return tir.Comparison("lt" if negative else "ge", value, tir.Literal(0, dtype))
        return tir.Comparison("le" if negative else "gt", value, tir.Literal(-1, dtype))

    def leaf(self, dtype: str) -> tir.Expr:
        own = [load for load in self.own if load.dtype == dtype]
        if own and self.chance(35):
            return self.one_of(own)
        kindred = dtype != "bool" and (dtype in tir.FLOATS) == (self.stored_type in FLOATING)
        if self.stored and kindred and self.chance(25):
            return self.widened(dtype)
        return super().leaf(dtype)

    def widened(self, dtype: str) -> tir.Expr:
        """An element of the stored input, cast to `dtype`."""
        carriers = CARRIERS[self.stored_type]
        load = self.load(self.stored[0])
        return (
            tir.Cast(load, dtype)
            if dtype in carriers
            else tir.Cast(tir.Cast(load, carriers[0]), dtype)
        )

    def literal(self, dtype: str) -> tir.Literal:
        if dtype in tir.FLOATS:
            return tir.Literal(self.one_of(self.literals), dtype)
        if dtype == "bool" or self.chance(60):
            return super().literal(dtype)
        return tir.Literal(self.one_of(extremes(dtype)), dtype)

    def binary(self, dtype: str, depth: int) -> tir.Expr:
        if dtype == "bool":
            op = self.one_of(("and", "or", "add", "mul", "max", "min"))
        else:
            ops = [op for op in self.options.binary if dtype not in tir.FLOATS or op not in BITWISE]
            rare = [op for op in ("div", "pow") if op in ops]
            op = self.one_of(rare if rare and self.chance(25) else ops)
        left, right = self.expr(dtype, depth - 1), self.expr(dtype, depth - 1)
        if dtype in tir.FLOATS and op == "mul" and self.family.specials is MODERATE_FLOATS:
            right = tir.Literal(self.one_of(POWERS_OF_TWO), dtype)
        return tir.Binary(op, left, right)

    def combined(self, left: tir.Expr, right: tir.Expr) -> tir.Expr:
        ops = ("and", "or") if left.dtype == "bool" else ("max", "min")
        return tir.Binary(self.one_of(ops), left, right)

    def unary(self, dtype: str, depth: int) -> tir.Expr:
        if dtype in INTEGERS and self.chance(30):
            return tir.Unary("not", self.expr(dtype, depth - 1))
        return super().unary(dtype, depth)
