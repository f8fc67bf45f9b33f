"""Emits the statements of a kernel as an LLVM function.

In: a lowered `PrimFunc` (no `Assume`, no `Undef`), a `Target`, the buffers that hold magnitudes
alone.  Out: the lines of the function.  What always holds: unrolled loops are unrolled here, so
that indices of register buffers are constants before LLVM sees them.  The order of instructions is
that of the statements, where iterations of unrolled loops take no turns (`unrolled_chains`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from typing import assert_never, cast

from graphflow import tir
from graphflow.arith import (
    Const,
    IndexExpr,
    Interval,
    Predicate,
    Var,
    bounds,
    const,
    variables,
)
from graphflow.base.errors import CodegenError
from graphflow.base.target import Target
from graphflow.codegen.call_operands import CallOperands
from graphflow.codegen.emit_expr import Expressions
from graphflow.codegen.emit_index import Indices, Lanes
from graphflow.codegen.emit_mask import Mask
from graphflow.codegen.instruction_set import (
    byte_taker,
    instruction_for,
    paired_products,
    product_in_lanes,
    shares_dot_products,
    word_taker,
    writers_for,
)
from graphflow.codegen.matrices import (
    MatrixRegisters,
    MatrixWindow,
    begun_sums,
    is_matrix_product,
    matrix_window,
    sums_of_products,
)
from graphflow.codegen.memory import Address, Memory
from graphflow.codegen.saturated import (
    QuotientRuns,
    quotient_runs,
    without_sign,
)
from graphflow.codegen.statements.counted_loops import begin_of_counted, end_of_counted
from graphflow.codegen.statements.emit_interleaved import store_by_turns, stores_by_turns
from graphflow.codegen.statements.emit_reduction import Reductions
from graphflow.codegen.statements.lane_products import adds_products, emit_together
from graphflow.codegen.statements.packed_stores import PackedStores
from graphflow.codegen.statements.paired_products import (
    emit_in_pairs,
    may_be_paired,
    product_to_pair,
)
from graphflow.codegen.statements.unrolled_chains import UnrolledChains, unrolled_chains
from graphflow.codegen.statements.whole_products import WholeProducts
from graphflow.codegen.transposed_sums import transposed_sums
from graphflow.llvm import IrValue, call_text, int_constant

MAX_VECTORS = 4
"""Machine vectors that one vectorized loop may span."""

MAX_LINES = 1_000_000
"""Most lines of LLVM IR for one kernel; LLVM takes a minute and several gigabytes for these."""


RANGE = ("i64 %lo", "i64 %hi", "ptr %worker")
"""The last parameters: the iterations to execute, and how threads meet behind a phase."""


class PartEmitter:
    """An LLVM function that executes a kernel, or some of its stages."""

    def __init__(
        self,
        func: tir.PrimFunc,
        target: Target,
        magnitudes: frozenset[tir.Buffer],
        heights: Mapping[tir.Buffer, tir.Buffer],
    ) -> None:
        self.func = func
        self.target = target
        self.builder, math = writers_for(target, "body")
        self.indices = Indices(self.builder)
        in_lanes = product_in_lanes(target)
        self.shared_product = in_lanes if shares_dot_products(target) else None
        self.paired_products = paired_products(target)
        self.wholes = WholeProducts(self.paired_products, self.indices)
        transposed = frozenset[str]() if in_lanes is None else transposed_sums(func, in_lanes)
        self.memory = Memory(self.builder, self.indices, target, transposed)
        self.expressions = Expressions(self.builder, self.indices, self.memory, math)
        self.reductions = Reductions(self.expressions, magnitudes, heights)
        self.matrices = MatrixRegisters(self.builder, self.memory)
        self.in_phases = tir.in_phases(func)
        products = [c for c in tir.calls_in(func.body) if is_matrix_product(c.definition)]
        performed = [instruction_for(call, target) is not None for call in products]
        self.in_matrices = bool(performed) and all(performed)

    def function(self, name: str) -> list[str]:
        """The definition of the function, called `name`."""
        for number, param in enumerate(self.func.params):
            read_only = param.role is tir.Role.INPUT
            self.memory.add_parameter(param.buffer, IrValue(f"%p{number}", "ptr"), read_only)
        self._body(self.func.body, None)
        self.matrices.close()
        parameters = ", ".join((*self._parameters(), *RANGE))
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
            # What other threads write between two phases, LLVM must not keep in registers.
            alone = "" if self.in_phases and not read_only else " noalias"
            texts.append(f"ptr{alone}{read_only} align {aligned}{held} %p{number}")
        return texts

    # ---- statements

    def _body(self, body: tir.Body, mask: Mask | None) -> None:
        rest = body
        while rest:
            if self._begins_products(rest, mask):
                rest = rest[2:]
                continue
            by_turns = () if mask is None else stores_by_turns(rest, mask, self.memory)
            if mask is not None and by_turns:
                values = [self.expressions.emit(store.value, lanes) for store, lanes in by_turns]
                store_by_turns(by_turns, values, self.memory)
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
                self.reductions.emit(stmt, mask)
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
                whole = self.wholes.unrolled(loop) if mask is None else None
                if whole is None or not self._in_pairs(self._calls_to_pair(whole)):
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
        if (limit := end_of_counted(loop, interval, self.expressions, mask)) is not None:
            last, may_be_empty = self.builder.intrinsic("smin", last, limit), True
            body = cast(tir.If, body[0]).then
            loop = loop.around(body)
        if (begin := begin_of_counted(loop, interval, self.expressions, mask)) is not None:
            first, may_be_empty = self.builder.intrinsic("smax", first, begin), True
            body = cast(tir.If, body[0]).then
        goes_on = None
        if mask is None and (lasting := tir.lasting_condition(loop.around(body))) is not None:
            goes_on, body = partial(self._frozen, lasting), cast(tir.If, body[0]).then
        if value is None:
            self.matrices.forget()
            with (
                self.builder.counted(first, last, may_be_empty, goes_on) as index,
                self.indices.running(loop.var, index, interval),
            ):
                self._iteration(loop, body, mask)
            self.matrices.forget()
        elif may_be_empty:
            with self.builder.when(self.builder.compare("icmp slt", first, last)):
                self._matched(loop, value, (first, last), interval, mask)
        else:
            self._matched(loop, value, (first, last), interval, mask)

    def _frozen(self, condition: tir.Expr) -> IrValue:
        """The value of a condition; a branch on memory that was never written would be
        undefined."""
        return self.builder.freeze(self.expressions.emit(condition, None))

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

    def _begins_products(self, body: tir.Body, mask: Mask | None) -> bool:
        """Emit a loop that fills sums of matrix products and the loop of these, with which a body
        begins; False, with nothing emitted, where it begins with anything else."""
        if mask is not None or not self.in_matrices or len(body) < 2 or self.matrices.is_keeping:
            return False
        begun = begun_sums(body[0], body[1])
        if begun is None:
            return False
        sums, rows = [], []
        for (window, shape), row in begun:
            sums.append(
                matrix_window(self.memory.address(window.buffer, window.starts), window, shape)
            )
            address = None if row is None else self.memory.window(row, shape[1:])
            if row is not None and (address is None or address.place.local):
                return False
            rows.append(address)
        with self.matrices.keeping(sums, rows):
            self._loop(cast(tir.For, body[1]), None)
        return True

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
            self._iteration(loop, loop.body, None)
        if self.in_phases:
            self._meet()

    def _meet(self) -> None:
        """Emit the meeting of the threads that share the loops of a kernel in phases."""
        worker = IrValue("%worker", "ptr")
        with self.builder.when(self.builder.compare("icmp ne", worker, IrValue("null", "ptr"))):
            meeting = self.builder.emit("load ptr, ptr %worker, align 8", "ptr")
            self.builder.do(call_text(meeting.text, "void", [worker]))

    def _unrolled(self, loop: tir.For, mask: Mask | None) -> None:
        chains = unrolled_chains(loop) if mask is None else None
        if chains is not None:
            self._side_by_side(chains)
            return
        if mask is None and self._in_dot_products(loop):
            return
        runs = quotient_runs(loop) if mask is None else None
        if runs is not None and self._in_bytes(runs):
            return
        start, extent = self._constant_extent(loop)
        for _ in self.indices.bound_to_each(loop.var, start, extent):
            self._body(loop.body, mask)

    def _in_dot_products(self, loop: tir.For) -> bool:
        """Whether the products of an unrolled nest were emitted, several in one dot product.

        Nothing is emitted where a condition is not decided, or sums are in the usual order.
        """
        if self.shared_product is None or not adds_products(loop, self.shared_product):
            return self._in_pairs(self._calls_to_pair(loop))
        found = [*self._products_in((loop,))]
        calls = [call for call in found if call is not None and call.is_transposed("c")]
        if not calls or len(calls) < len(found):
            return False
        self._emit_each(emit_together(calls, self.builder, self.memory))
        return True

    def _in_pairs(self, calls: list[CallOperands]) -> bool:
        """Whether products were emitted, two in one multiplication: where there are any."""
        if calls:
            self._emit_each(emit_in_pairs(calls, self.builder, self.memory))
        return bool(calls)

    def _iteration(self, loop: tir.For, body: tir.Body, mask: Mask | None) -> None:
        """Emit what an iteration of a loop executes, given its index.

        Loops of products inside of it, whose bounds follow from the index, may execute all the
        iterations they can have, as they do but for borders.  Code of its own has the products of
        all of these in pairs: it is the same for each tile, and so LLVM keeps pairs of weights.
        """
        limits = self.wholes.limits(loop, body) if mask is None else {}
        if not limits:
            self._body(body, mask)
            return
        b = self.builder
        tests = [
            b.compare("icmp eq", self.indices.value(end), int_constant(limit))
            for end, limit in limits.items()
        ]
        with b.either(reduce(partial(b.binary, "and"), tests)) as otherwise:
            with self.wholes.assuming(limits):
                self._body(body, None)
            otherwise()
            self._body(body, None)

    def _calls_to_pair(self, loop: tir.For) -> list[CallOperands]:
        """The calls of a nest whose products are emitted two in one multiplication; none where it
        does anything else, a condition is not decided, or there is nothing to be paired."""
        if product_to_pair(loop.body, self.paired_products) is None:
            return []
        found = [*self._products_in((loop,))]
        calls = [call for call in found if call is not None]
        return calls if len(calls) == len(found) and may_be_paired(calls) else []

    def _emit_each(self, calls: Sequence[CallOperands]) -> None:
        """Emit calls of products that the target has."""
        for call in calls:
            instruction = instruction_for(call.call, self.target)
            assert instruction is not None, "the target has the product"
            instruction.emit(call)

    def _products_in(self, body: tir.Body) -> Iterator[CallOperands | None]:
        """The calls of an unrolled nest that run, with their windows placed; None for each that has
        no place, and where a condition is not decided."""
        for stmt in body:
            match stmt:
                case tir.For():
                    start, extent = self._constant_extent(stmt)
                    for _ in self.indices.bound_to_each(stmt.var, start, extent):
                        yield from self._products_in(stmt.body)
                case tir.If():
                    truth = self.indices.decided(
                        self.indices.resolved_predicate(cast(Predicate, stmt.condition))
                    )
                    if truth is None:
                        yield None
                    elif truth:
                        yield from self._products_in(stmt.then)
                case tir.Call():
                    call = CallOperands(
                        stmt, self.builder, self.indices, self.memory, self.matrices
                    )
                    yield call if call.placed() else None

    def _side_by_side(self, chains: UnrolledChains) -> None:
        packed = PackedStores(chains, self.expressions, self.memory)
        packs = packed.possible(self.target.computed_lanes("float32"))
        body = chains.lanes.body[:-1] if packs else chains.lanes.body
        parts = [(replace(chains.lanes, body=(stmt,)),) for stmt in body]
        for points in chains.rounds():
            for part, point in product(parts, points):
                with ExitStack() as bound:
                    for var, value in zip(chains.variables, point, strict=True):
                        bound.enter_context(self.indices.bound(var, const(value)))
                    self._body(part, None)
            if packs:
                packed.emit(points)
                self.matrices.forget()

    def _in_bytes(self, runs: QuotientRuns) -> bool:
        """Whether quotients were stored as vectors of bytes, or of words, each those of several
        iterations: where these follow one another in memory."""
        take = (word_taker if runs.in_words else byte_taker)(self.target)
        step, stored, together = runs.width, runs.store, runs.together
        if take is None or step != self.target.computed_lanes("float32"):
            return False
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
            first = places[number - number % together]
            behind = first.constant + step * (number % together)
            if place.stride != 1 or place != replace(first, constant=behind):
                return False
        dividend, sizes = without_sign(runs.quotient.left)
        quotients = self.expressions.quotients(runs.rounded, runs.quotient.right, sizes)
        less = None if runs.less is None else self.expressions.emit(runs.less, None)
        for begin in range(0, len(places), together):
            vectors: list[IrValue] = []
            for number in runs.iterations[begin : begin + together]:
                with iteration(number):
                    x = self.expressions.dividend(dividend, mask)
                    vectors.append(self.builder.splat(self.builder.freeze(x), step))
            if runs.in_words:
                found = quotients.words_of(vectors, take, less)
            else:
                found = quotients.bytes_of(vectors, take)
            self.memory.store_window(places[begin], found)
        return True

    def _constant_extent(self, loop: tir.For) -> tuple[IndexExpr, int]:
        if isinstance(loop.start, Const) and isinstance(loop.stop, Const):
            return loop.start, max(loop.stop.value - loop.start.value, 0)
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
