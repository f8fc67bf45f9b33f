"""Emits loops: chooses how the iterations of each are emitted, and writes out those of unrolled and
vectorized ones.

In: a loop, and the mask of the lanes in which it is executed, None where it is in no lanes.  Out:
its instructions.  Loops that run are those of `running_loops`.  The iterations of an unrolled loop
are emitted one after the other, unless they gain by being emitted together:

    chains           statements of several iterations take turns      unrolled_chains
    narrow stores    bytes and words of several iterations as one     packed_stores, quotient_stores
    products         several in one instruction                       shared_products

What always holds: the variable of an unrolled loop is a constant where its body is emitted, so that
indices of register buffers are.  The body of a vectorized loop is emitted once, for all lanes, or,
where it cannot be, the loop as a serial one.
"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import product
from typing import assert_never

from graphflow import tir
from graphflow.arith import Var, const, variables
from graphflow.base.errors import CodegenError
from graphflow.base.fields import replace
from graphflow.codegen.emit_index import Lanes
from graphflow.codegen.emit_mask import Mask
from graphflow.codegen.saturated import quotient_runs
from graphflow.codegen.statements.kept_sums import KeptSums
from graphflow.codegen.statements.packed_stores import PackedStores
from graphflow.codegen.statements.part_writers import EmitBody, PartWriters
from graphflow.codegen.statements.quotient_stores import QuotientStores
from graphflow.codegen.statements.running_loops import RunningLoops
from graphflow.codegen.statements.shared_products import SharedProducts
from graphflow.codegen.statements.unrolled_chains import UnrolledChains, unrolled_chains

MAX_VECTORS = 4
"""Machine vectors that one vectorized loop may span."""


class Loops:
    """Emits the loops of one part of a kernel; `emit_body` emits what an iteration executes."""

    def __init__(self, writers: PartWriters, kept: KeptSums, emit_body: EmitBody) -> None:
        self._writers, self._indices = writers, writers.indices
        self._kept, self._emit_body = kept, emit_body
        self._products = SharedProducts(writers)
        self._running = RunningLoops(writers, self._products, emit_body)

    def emit(self, loop: tir.For, mask: Mask | None) -> None:
        """Emit a loop of any kind, with its sums of matrix products in registers if they may be."""
        kept = self._kept.while_running(loop)
        if kept is None:
            self._loop(loop, mask)
            return
        with kept:
            self._loop(loop, mask)

    def _loop(self, loop: tir.For, mask: Mask | None) -> None:
        match loop.kind:
            case tir.LoopKind.SERIAL:
                if mask is not None or not self._products.emit_serial(loop):
                    self._running.serial(loop, mask)
            case tir.LoopKind.PARALLEL:
                self._running.parallel(loop)
            case tir.LoopKind.UNROLLED:
                if mask is not None or not self._together(loop):
                    self._one_by_one(loop, mask)
            case tir.LoopKind.VECTORIZED:
                self._vectorized(loop, mask)
            case _:
                assert_never(loop.kind)

    def _one_by_one(self, loop: tir.For, mask: Mask | None) -> None:
        """Emit the iterations of an unrolled loop one after the other."""
        start, extent = self._writers.constant_extent(loop)
        for _ in self._indices.bound_to_each(loop.var, start, extent):
            self._emit_body(loop.body, mask)

    def _together(self, loop: tir.For) -> bool:
        """Whether the iterations of an unrolled loop were emitted together: where any of these ways
        is one for it; nothing is emitted otherwise."""
        chains = unrolled_chains(loop)
        if chains is not None:
            self._side_by_side(chains)
            return True
        if self._products.emit_unrolled(loop):
            return True
        runs = quotient_runs(loop)
        return runs is not None and QuotientStores(runs, self._writers).emit()

    def _side_by_side(self, chains: UnrolledChains) -> None:
        """Emit chains, each statement of them for several iterations, and their last stores as one
        where these may be packed."""
        packed = PackedStores(chains, self._writers.expressions, self._writers.memory)
        packs = packed.possible(self._writers.target.computed_lanes("float32"))
        body = chains.lanes.body[:-1] if packs else chains.lanes.body
        parts = [(replace(chains.lanes, body=(stmt,)),) for stmt in body]
        for points in chains.rounds():
            for part, point in product(parts, points):
                with ExitStack() as bound:
                    for var, value in zip(chains.variables, point, strict=True):
                        bound.enter_context(self._indices.bound(var, const(value)))
                    self._emit_body(part, None)
            if packs:
                packed.emit(points)
                self._writers.matrices.forget()

    def _vectorized(self, loop: tir.For, mask: Mask | None) -> None:
        """Emit the body of a vectorized loop once, in lanes."""
        start, extent = self._writers.constant_extent(loop)
        assert mask is None, "a loop around a vectorized loop is emitted as a serial one"
        if extent == 0:
            return
        if extent == 1:
            with self._indices.bound(loop.var, start):
                self._emit_body(loop.body, None)
            return
        width, target = 1 << (extent - 1).bit_length(), self._writers.target
        if width > MAX_VECTORS * target.computed_lanes("float32"):
            raise CodegenError(
                f"kernel {self._writers.func.name}: vectorized loop {loop.var} has {extent} lanes, "
                f"more than {MAX_VECTORS} vectors of {target.name}; divide it first"
            )
        lanes = Lanes(Var(f"{loop.var}.lane"), extent, width)
        if not _fits_lanes(loop):
            self._running.serial(loop, None)
            return
        with self._indices.vectorized(loop.var, start, lanes):
            self._emit_body(loop.body, Mask((True,) * extent + (False,) * (width - extent)))


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
