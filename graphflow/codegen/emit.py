"""Emits statements: turns a lowered kernel into the text of an LLVM module.

In: a lowered `PrimFunc` (no `Assume`, no `Undef`), the symbol to define, a `Target`.  Out: a module
that defines `void symbol(ptr buffers, i64 lo, i64 hi)`.  `buffers` points to one pointer per
parameter; each is aligned to its element type, and no two overlap.  The call executes the
iterations `lo` to `hi - 1` of the kernel's parallel loop, counted from 0.

What always holds: the emitter knows loops and buffers, and no operator.  Unrolled loops are
unrolled here, so that indices of register buffers are constants before LLVM sees them.  The order
of instructions is that of the statements, where iterations of unrolled loops take no turns
(`unrolled_chains`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from typing import assert_never, cast

from graphflow import tir
from graphflow.arith import Const, IndexExpr, Interval, Var, bounds, const, terms_of, variables
from graphflow.base.errors import CodegenError
from graphflow.base.target import Target
from graphflow.codegen.call_operands import CallOperands
from graphflow.codegen.emit_expr import Expressions, sign_of
from graphflow.codegen.emit_index import Indices, Lanes
from graphflow.codegen.emit_interleaved import store_by_turns, stores_by_turns
from graphflow.codegen.emit_mask import Mask, mask_value
from graphflow.codegen.emit_memory import Address, Memory
from graphflow.codegen.instruction_set import (
    instruction_for,
    moves_bytes,
    multiplies_matrices,
    writers_for,
)
from graphflow.codegen.magnitudes import greatest, greatest_lane, magnitude_buffers
from graphflow.codegen.math import NARROWEST_HALVED
from graphflow.codegen.matrices import (
    MatrixRegisters,
    MatrixWindow,
    is_matrix_product,
    matrix_window,
    sums_of_products,
)
from graphflow.codegen.saturated import RUN, RUN_BYTES, QuotientRuns, quotient_runs
from graphflow.codegen.unrolled_chains import UnrolledChains, unrolled_chains
from graphflow.llvm import IrValue, int_constant, mangled, typed_constant

MOST_STAGES = 32
"""Stages in one LLVM function: LLVM's simplification of induction variables takes time quadratic in
the number of successive loops, ten seconds for five hundred of them."""

MAX_VECTORS = 4
"""Machine vectors that one vectorized loop may span."""

MAX_LINES = 1_000_000
"""Most lines of LLVM IR for one kernel; LLVM takes a minute and several gigabytes for these."""


def emit_ir(func: tir.PrimFunc, symbol: str, target: Target) -> str:
    """The LLVM module of `func` before optimization; `CodegenError` where it cannot be emitted."""
    _check_parallel(func)
    _check_axes(func, target)
    parts = _parts(func)
    names = [f"{symbol}.body"] if len(parts) == 1 else [f"part{k}" for k in range(len(parts))]
    magnitudes = magnitude_buffers(func)
    made = [PartEmitter(part, target, magnitudes) for part in parts]
    functions = [f.function(name) for f, name in zip(made, names, strict=True)]
    declared = {name: text for f in made for name, text in f.builder.declarations.items()}
    width = 8 * target.vector_bytes
    lines = [
        *(declared[name] for name in sorted(declared)),
        *(line for function in functions for line in function),
        *_wrapper(func, symbol, list(zip(names, parts, strict=True))),
        f'attributes #0 = {{ noinline nounwind "stackrealign" "prefer-vector-width"="{width}" }}',
        "attributes #1 = { nounwind }",
    ]
    return "\n".join(lines) + "\n"


def _parts(func: tir.PrimFunc) -> list[tir.PrimFunc]:
    """The kernel itself, or several kernels of at most `MOST_STAGES` statements each.

    A kernel is split only if it is longer than that and its parts share no allocation and have no
    parallel loop.  Each part has those parameters that it accesses.
    """
    body = func.body
    shared = any(isinstance(stmt, tir.Allocate) for stmt in body)
    threads = any(loop.kind is tir.LoopKind.PARALLEL for loop in tir.loops_of(body))
    if len(body) <= MOST_STAGES or shared or threads:
        return [func]
    pieces = [body[k : k + MOST_STAGES] for k in range(0, len(body), MOST_STAGES)]
    return [replace(func, params=_used(func, piece), body=piece) for piece in pieces]


def _used(func: tir.PrimFunc, body: tir.Body) -> tuple[tir.Param, ...]:
    touched = {access.buffer for access in tir.accesses(body)}
    touched |= {window.buffer for window in tir.windows_in(body)}
    return tuple(param for param in func.params if param.buffer in touched)


def _wrapper(
    func: tir.PrimFunc, symbol: str, parts: Sequence[tuple[str, tir.PrimFunc]]
) -> list[str]:
    """The entry point of a kernel in several parts, which it calls in order."""
    lines = [f'define void @"{symbol}"(ptr %buffers, i64 %lo, i64 %hi) #1 {{']
    numbers = {param.buffer: number for number, param in enumerate(func.params)}
    for number in range(len(func.params)):
        lines.append(f"  %a{number} = getelementptr ptr, ptr %buffers, i64 {number}")
        lines.append(f"  %p{number} = load ptr, ptr %a{number}, align 8")
    for name, part in parts:
        passed = [f"ptr %p{numbers[param.buffer]}" for param in part.params]
        lines.append(f'  tail call void @"{name}"({", ".join((*passed, "i64 %lo", "i64 %hi"))})')
    return [*lines, "  ret void", "}"]


class PartEmitter:
    """An LLVM function that executes a kernel, or some of its stages."""

    def __init__(
        self, func: tir.PrimFunc, target: Target, magnitudes: frozenset[tir.Buffer]
    ) -> None:
        self.func = func
        self.target = target
        self.magnitudes = magnitudes
        self.builder, math = writers_for(target, "body")
        self.indices = Indices(self.builder)
        self.memory = Memory(self.builder, self.indices, target)
        self.expressions = Expressions(self.builder, self.indices, self.memory, math)
        self.matrices = MatrixRegisters(self.builder, self.memory)
        self.in_matrices = multiplies_matrices(target) and any(
            is_matrix_product(call.definition) for call in tir.calls_in(func.body)
        )

    def function(self, name: str) -> list[str]:
        """The definition of the function, called `name`."""
        for number, param in enumerate(self.func.params):
            self.memory.add_parameter(param.buffer, IrValue(f"%p{number}", "ptr"))
        self._body(self.func.body, None)
        self.matrices.close()
        parameters = ", ".join((*self._parameters(), "i64 %lo", "i64 %hi"))
        return [
            f'define internal void @"{name}"({parameters}) #0 {{',
            "entry:",
            *self.builder.entry,
            "  br label %body",
            "body:",
            *self.builder.lines,
            "  ret void",
            "}",
        ]

    def _parameters(self) -> list[str]:
        texts: list[str] = []
        for number, param in enumerate(self.func.params):
            read_only = " readonly" if param.role is tir.Role.INPUT else ""
            size, aligned = param.buffer.bytes, tir.DTYPES[param.buffer.dtype].itemsize
            held = f" dereferenceable({size})" if size else ""
            texts.append(f"ptr noalias{read_only} align {aligned}{held} %p{number}")
        return texts

    # ---- statements

    def _body(self, body: tir.Body, mask: Mask | None) -> None:
        rest = body
        while rest:
            by_turns = () if mask is None else stores_by_turns(rest, mask, self.memory)
            if mask is not None and by_turns:
                values = [self.expressions.emit(store.value, mask) for store in by_turns]
                store_by_turns(by_turns, values, mask, self.memory)
            else:
                self._stmt(rest[0], mask)
            rest = rest[max(len(by_turns), 1) :]
            if len(self.builder.lines) > MAX_LINES:
                raise CodegenError(
                    f"kernel {self.func.name} has more than {MAX_LINES} instructions; unroll fewer "
                    "of its loops"
                )

    def _stmt(self, stmt: tir.Stmt, mask: Mask | None) -> None:
        match stmt:
            case tir.Store():
                value = self.expressions.emit(stmt.value, mask)
                self.memory.store(stmt.buffer, stmt.indices, value, mask)
                self.matrices.forget()
            case tir.Reduce():
                self._reduce(stmt, mask)
                self.matrices.forget()
            case tir.For():
                self._for(stmt, mask)
            case tir.If():
                self.emit_if(stmt, mask)
            case tir.Allocate():
                self.memory.allocate(stmt.buffer, cleared=self.in_matrices)
            case tir.NamedWindow():
                self._body(tir.performed(stmt), mask)
            case tir.Let():
                self._let(stmt, mask)
            case tir.Block():
                self._body(stmt.body, mask)
            case tir.Call():
                instruction = instruction_for(stmt, self.target) if mask is None else None
                operands = CallOperands(
                    stmt, self.builder, self.indices, self.memory, self.matrices
                )
                if instruction is None or not operands.emit(instruction):
                    self._body(tir.performed(stmt), mask)
            case tir.Assume():
                raise CodegenError(
                    f"kernel {self.func.name} still holds an assume ({stmt.unless}); "
                    "remove assumptions before emitting"
                )
            case _:
                assert_never(stmt)

    def _let(self, let: tir.Let, mask: Mask | None) -> None:
        """Emit the body of a let with its value as a virtual register.

        An instruction whose parameter is a window of it takes an address, so then the value is
        stored; in lanes there are no instructions.
        """
        if mask is None and any(
            w.buffer == let.buffer for call in tir.calls_in(let.body) for w in call.windows
        ):
            self._body(tir.performed(let), mask)
            return
        value = self.expressions.emit(let.value, mask)
        with self.memory.named(let.buffer, value):
            self._body(let.body, mask)

    def _reduce(self, stmt: tir.Reduce, mask: Mask | None) -> None:
        address = self.memory.address(stmt.buffer, stmt.indices)
        value = self.expressions.emit(stmt.value, mask)
        if mask is not None and address.stride == 0:
            self._fold(stmt, value, mask)
            return
        if mask is not None and address.stride is None:
            # One lane after the other, because two lanes may have the same element.
            for lane in mask.lanes():
                only = Mask(tuple(i == lane for i in range(mask.width)), mask.dynamic)
                self._reduce_under(stmt, value, only)
            return
        self._reduce_under(stmt, value, mask)

    def _reduce_under(self, stmt: tir.Reduce, value: IrValue, mask: Mask | None) -> None:
        """Load, combine and store what a mask admits."""
        old = self.memory.load(stmt.buffer, stmt.indices, mask)
        self.memory.store(stmt.buffer, stmt.indices, self._combined(stmt, old, value), mask)

    def _combined(self, stmt: tir.Reduce, old: IrValue, value: IrValue) -> IrValue:
        if stmt.buffer in self.magnitudes:
            return greatest(self.builder, old, value)
        return self.expressions.combine(stmt.op.value, stmt.buffer.dtype, old, value)

    def _fold(self, stmt: tir.Reduce, value: IrValue, mask: Mask) -> None:
        """Reduce all lanes into the one element that they share."""
        b = self.builder
        dtype = stmt.buffer.dtype
        raw = b.splat(value, mask.width)
        if dtype == "bool":
            raw = b.readable(raw)
        if not mask.is_full:
            idle = typed_constant(tir.neutral_literal(stmt.op, dtype), dtype)
            raw = b.select(mask_value(b, mask), raw, idle)
        if stmt.buffer in self.magnitudes:
            folded = greatest_lane(b, raw)
        else:
            folded = self._folded(stmt.op, dtype, raw)
        old = self.memory.load(stmt.buffer, stmt.indices, mask)
        self.memory.store(stmt.buffer, stmt.indices, self._combined(stmt, old, folded), mask)

    def _folded(self, op: tir.ReduceOp, dtype: str, raw: IrValue) -> IrValue:
        """All lanes of a vector combined, in any order: the iterations commute by declaration."""
        b = self.builder
        floating = dtype in tir.FLOATS
        if floating and op.selects and raw.lanes >= NARROWEST_HALVED:
            return self.expressions.math.extreme_lane(op.value, raw)
        name = f"llvm.vector.reduce.{_horizontal(op, dtype)}.{mangled(raw.element, raw.lanes)}"
        ordered = floating and op in (tir.ReduceOp.ADD, tir.ReduceOp.MUL)
        first = (typed_constant(-0.0 if op is tir.ReduceOp.ADD else 1.0, dtype),) if ordered else ()
        return b.call(name, raw.element, *first, raw, flags="reassoc" if ordered else "")

    # ---- loops

    def _for(self, loop: tir.For, mask: Mask | None) -> None:
        sums = self._kept_sums(loop)
        if not sums:
            self._loop(loop, mask)
            return
        with self.matrices.keeping(sums):
            self._loop(loop, mask)

    def _loop(self, loop: tir.For, mask: Mask | None) -> None:
        match loop.kind:
            case tir.LoopKind.SERIAL:
                self._serial(loop, mask)
            case tir.LoopKind.PARALLEL:
                self._parallel(loop)
            case tir.LoopKind.UNROLLED:
                self._unrolled(loop, mask)
            case tir.LoopKind.VECTORIZED:
                self._vectorized(loop, mask)
            case _:
                assert_never(loop.kind)

    def _serial(self, loop: tir.For, mask: Mask | None) -> None:
        start, stop = self.indices.resolved(loop.start), self.indices.resolved(loop.stop)
        low, high = bounds(start, self.indices.ranges)[0], bounds(stop, self.indices.ranges)[1]
        fewest, most = bounds(stop - start, self.indices.ranges)
        if most is not None and most <= 0:
            return
        if fewest == most == 1:
            with self.indices.bound(loop.var, start):
                self._body(loop.body, mask)
            return
        interval = (low, None if high is None else high - 1)
        first, last = self.indices.value(start), self.indices.value(stop)
        may_be_empty = fewest is None or fewest < 1
        value, body = tir.matched_value(loop), loop.body
        if (limit := self._count_limit(loop, interval, mask)) is not None:
            last, may_be_empty = self.builder.intrinsic("smin", last, limit), True
            body = cast(tir.If, body[0]).then
            loop = loop.around(body)
        if (begin := self._count_begin(loop, interval, mask)) is not None:
            first, may_be_empty = self.builder.intrinsic("smax", first, begin), True
            body = cast(tir.If, body[0]).then
        if value is None:
            self.matrices.forget()
            with (
                self.builder.counted(first, last, may_be_empty) as index,
                self.indices.running(loop.var, index, interval),
            ):
                self._body(body, mask)
            self.matrices.forget()
        elif may_be_empty:
            with self.builder.when(self.builder.compare("icmp slt", first, last)):
                self._matched(loop, value, (first, last), interval, mask)
        else:
            self._matched(loop, value, (first, last), interval, mask)

    def _kept_sums(self, loop: tir.For) -> tuple[MatrixWindow, ...]:
        """The sums of matrix products that stay in registers while a loop runs.

        None where it does more than such products, where which sums they add to changes from
        iteration to iteration, and where it runs in a loop that keeps them already.
        """
        if self.matrices.is_keeping or not self.in_matrices:
            return ()
        return tuple(
            matrix_window(self.memory.address(window.buffer, window.starts), window, shape)
            for window, shape in sums_of_products(loop) or ()
        )

    def _count_limit(self, loop: tir.For, interval: Interval, mask: Mask | None) -> IrValue | None:
        """Where a loop can end, as the rest of it does nothing: at the first iteration whose index
        is not below a count.  None for other loops."""
        counted = tir.counted_index(loop)
        if counted is None:
            return None
        index, count = counted
        least = index - (self._step(loop, index) - 1)
        return self._iteration_at(loop, least, count, interval, mask)

    def _count_begin(self, loop: tir.For, interval: Interval, mask: Mask | None) -> IrValue | None:
        """Where a loop can begin, as it does nothing before: at the first iteration whose index is
        above a count.  None for other loops."""
        counted = tir.counted_begin(loop)
        if counted is None:
            return None
        index, count = counted
        return self._iteration_at(loop, index - self._step(loop, index), count, interval, mask)

    def _step(self, loop: tir.For, index: IndexExpr) -> int:
        return dict(terms_of(index)[0])[loop.var]

    def _iteration_at(
        self,
        loop: tir.For,
        index: IndexExpr,
        count: tir.Expr,
        interval: Interval,
        mask: Mask | None,
    ) -> IrValue | None:
        """The last iteration, at least number 0, whose index is at most a count; None where numbers
        on the way might not fit a word."""
        if self.indices.lanes is not None:
            return None
        factor = self._step(loop, index)
        with self.indices.bound(loop.var, const(0)):
            rest = self.indices.resolved(index)
        (low, high), (first, last) = bounds(rest, self.indices.ranges), interval
        if low is None or high is None or first is None or first < 0 or last is None:
            return None
        if low + factor - 1 < 0:
            return None
        b = self.builder
        # Between these limits no sum overflows, whatever the memory holds.
        number = b.intrinsic("smax", b.freeze(self.expressions.emit(count, mask)), int_constant(0))
        most = max(factor * last + high + factor, 0)
        number = b.intrinsic("smin", number, int_constant(most))
        below = b.binary("sub nsw", number, self.indices.value(rest))
        return b.binary("udiv", b.intrinsic("smax", below, int_constant(0)), int_constant(factor))

    def _matched(
        self,
        loop: tir.For,
        value: tir.Expr,
        limits: tuple[IrValue, IrValue],
        interval: Interval,
        mask: Mask | None,
    ) -> None:
        """Emit the one iteration that a matched loop can have, if `value` is within the bounds."""
        b = self.builder
        index = self.expressions.emit(value, mask)
        assert index.lanes == 1, "where lanes match apart, the loop around is emitted as serial"
        # One number for the test and for the addresses, also where memory was never written.
        index = b.opaque(index)
        first, last = limits
        inside = b.binary(
            "and", b.compare("icmp sge", index, first), b.compare("icmp slt", index, last)
        )
        (test,) = loop.body
        assert isinstance(test, tir.If)
        with b.when(inside), self.indices.running(loop.var, index, interval):
            self._body(test.then, mask)

    def _parallel(self, loop: tir.For) -> None:
        start = self.indices.resolved(loop.start)
        low, high = bounds(start, self.indices.ranges)[0], bounds(loop.stop, {})[1]
        interval = (low, None if high is None else high - 1)
        first = self.builder.binary("add nsw", IrValue("%lo", "i64"), self.indices.value(start))
        last = self.builder.binary("add nsw", IrValue("%hi", "i64"), self.indices.value(start))
        with (
            self.builder.counted(first, last, may_be_empty=True) as index,
            self.indices.running(loop.var, index, interval),
        ):
            self._body(loop.body, None)

    def _unrolled(self, loop: tir.For, mask: Mask | None) -> None:
        chains = unrolled_chains(loop) if mask is None else None
        if chains is not None:
            self._side_by_side(chains)
            return
        runs = quotient_runs(loop) if mask is None and moves_bytes(self.target) else None
        if runs is not None and self._in_bytes(runs):
            return
        start, extent = self._constant_extent(loop)
        for step in range(extent):
            with self.indices.bound(loop.var, start + step):
                self._body(loop.body, mask)

    def _side_by_side(self, chains: UnrolledChains) -> None:
        parts = [(replace(chains.lanes, body=(stmt,)),) for stmt in chains.lanes.body]
        for points in chains.rounds():
            for part, point in product(parts, points):
                with ExitStack() as bound:
                    for var, value in zip(chains.variables, point, strict=True):
                        bound.enter_context(self.indices.bound(var, const(value)))
                    self._body(part, None)

    def _in_bytes(self, runs: QuotientRuns) -> bool:
        """Whether quotients were stored as vectors of bytes, each those of several iterations:
        where these follow one another in memory."""
        step, stored = RUN_BYTES // RUN, runs.store
        mask = Mask((True,) * step)

        @contextmanager
        def iteration(number: int) -> Iterator[None]:
            lanes = Lanes(Var(f"{runs.lanes.var}.lane"), step, step)
            with (
                self.indices.bound(runs.var, const(number)),
                self.indices.vectorized(runs.lanes.var, runs.lanes.start, lanes),
            ):
                yield

        places: list[Address] = []
        for number in runs.iterations:
            with iteration(number):
                places.append(self.memory.address(stored.buffer, stored.indices))
        for number, place in enumerate(places):
            first = places[number - number % RUN]
            behind = first.constant + step * (number % RUN)
            if place.stride != 1 or place != replace(first, constant=behind):
                return False
        quotients = self.expressions.quotients(runs.rounded, runs.quotient.right)
        for begin in range(0, len(places), RUN):
            vectors: list[IrValue] = []
            for number in runs.iterations[begin : begin + RUN]:
                with iteration(number):
                    x = self.expressions.emit(runs.quotient.left, mask)
                    vectors.append(self.builder.splat(self.builder.freeze(x), step))
            self.memory.store_window(places[begin], quotients.bytes_of(vectors))
        return True

    def _constant_extent(self, loop: tir.For) -> tuple[IndexExpr, int]:
        start, stop = self.indices.resolved(loop.start), self.indices.resolved(loop.stop)
        extent = stop - start
        if not isinstance(extent, Const):
            raise CodegenError(
                f"kernel {self.func.name}: the {loop.kind.value} loop over {loop.var} runs from "
                f"{start} to {stop}; its extent must be a constant: make it serial or divide it"
            )
        return start, max(extent.value, 0)

    def _vectorized(self, loop: tir.For, mask: Mask | None) -> None:
        start, extent = self._constant_extent(loop)
        assert mask is None, "a loop around a vectorized loop is emitted as a serial one"
        if extent == 0:
            return
        if extent == 1:
            with self.indices.bound(loop.var, start):
                self._body(loop.body, None)
            return
        width = 1 << (extent - 1).bit_length()
        if width > MAX_VECTORS * self.target.computed_lanes("float32"):
            raise CodegenError(
                f"kernel {self.func.name}: vectorized loop {loop.var} has {extent} lanes, more "
                f"than {MAX_VECTORS} vectors of {self.target.name}; divide it first"
            )
        lanes = Lanes(Var(f"{loop.var}.lane"), extent, width)
        if not _fits_lanes(loop):
            self._serial(loop, None)
            return
        with self.indices.vectorized(loop.var, start, lanes):
            self._body(loop.body, Mask((True,) * extent + (False,) * (width - extent)))

    # ---- conditions

    def emit_if(self, stmt: tir.If, mask: Mask | None) -> None:
        truth = self.expressions.truth(stmt.condition, mask)
        if isinstance(truth, bool):
            self._body(stmt.then if truth else stmt.orelse, mask)
        elif isinstance(truth, IrValue) and truth.lanes == 1:
            if not tir.is_predicate(stmt.condition):
                # A branch on memory that was never written would be undefined.
                truth = self.builder.freeze(truth)
            if not stmt.orelse:
                with self.builder.when(truth):
                    self._body(stmt.then, mask)
                self.matrices.forget()
                return
            with self.builder.either(truth) as otherwise:
                self._body(stmt.then, mask)
                otherwise()
                self.matrices.forget()
                self._body(stmt.orelse, mask)
            self.matrices.forget()
        else:
            assert mask is not None
            # Both masks first: `then` may overwrite what the condition reads.
            sides = ((stmt.then, True), (stmt.orelse, False))
            inner = [
                (body, self.expressions.given(stmt.condition, truth, mask, holds))
                for body, holds in sides
                if body
            ]
            for body, lanes in inner:
                if lanes.count:
                    self._body(body, lanes)


@tir.kept_by_node  # an unrolled loop around it emits it many times
def _fits_lanes(loop: tir.For) -> bool:
    """Whether each statement in the body can be emitted once, for all lanes of a vector.

    It cannot if the bounds of an inner loop depend on the lane, if a matched loop selects a
    different iteration per lane, or if a lane would need a buffer of its own.
    """
    dependent = {loop.var}
    lets = {stmt.buffer for stmt in tir.walk(loop.body) if isinstance(stmt, tir.Let)}
    for stmt in tir.walk(loop.body):
        match stmt:
            case tir.Allocate() if stmt.buffer not in lets:
                return False
            case tir.For() if dependent & (variables(stmt.start) | variables(stmt.stop)):
                return False
            case tir.For() if stmt.kind is tir.LoopKind.VECTORIZED:
                return False
            case tir.For() if _matches_apart(stmt, loop.var):
                return False
            case _:
                pass
    return True


def _matches_apart(stmt: tir.For, lane: Var) -> bool:
    value = tir.matched_value(stmt)
    return value is not None and lane in tir.expression_variables(value)


def _horizontal(op: tir.ReduceOp, dtype: str) -> str:
    """The name of LLVM's reduction over the lanes of a vector."""
    if dtype == "bool":
        return "or" if op in (tir.ReduceOp.ADD, tir.ReduceOp.MAX) else "and"
    if op in (tir.ReduceOp.ADD, tir.ReduceOp.MUL):
        return f"f{op.value}" if dtype in tir.FLOATS else op.value
    if dtype in tir.FLOATS:
        return "fmaximum" if op is tir.ReduceOp.MAX else "fminimum"
    return f"{sign_of(dtype)}{op.value}"


def _check_axes(func: tir.PrimFunc, target: Target) -> None:
    """CodegenError for a buffer with more axes after flattening than the target's memory has."""
    most = target.buffer_axes
    if most is None:
        return
    for buffer in tir.buffers_of(func):
        axes = len(buffer.separators) + 1
        if axes > most:
            raise CodegenError(
                f"buffer {buffer.name} has {axes} axes after flattening, and {target.name} has "
                f"{most}; declare it with fewer separators"
            )


def _check_parallel(func: tir.PrimFunc) -> None:
    """CodegenError if there is a second parallel loop, or a statement beside the parallel loop.

    Every call executes the whole kernel for its part of the iterations, so a statement beside the
    loop would be executed once per call.
    """
    loops = [
        s for s in tir.walk(func.body) if isinstance(s, tir.For) and s.kind is tir.LoopKind.PARALLEL
    ]
    if not loops:
        return
    body: tir.Body = func.body
    while True:
        inner = tuple(s for s in body if not isinstance(s, tir.Allocate))
        if len(inner) != 1 or not isinstance(inner[0], tir.Block | tir.For):
            break
        if inner[0] is loops[0] and len(loops) == 1:
            return
        if isinstance(inner[0], tir.For):
            break
        body = inner[0].body
    raise CodegenError(
        f"kernel {func.name}: the parallel loop over {loops[-1].var} must be the only one and the "
        "outermost statement, since every slice of it runs the whole kernel; make others serial"
    )
