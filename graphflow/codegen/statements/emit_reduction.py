"""Emits reductions: statements that combine a value with an element of a buffer.

In: a `Reduce` of a lowered kernel, the mask of the lanes in which it is executed.  Out: its
instructions, in the builder.  What always holds: lanes that share one element are folded first, and
lanes that may share one take turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from graphflow import tir
from graphflow.codegen.emit_expr import Expressions, sign_of
from graphflow.codegen.emit_mask import Mask, mask_value
from graphflow.codegen.heights import height_of
from graphflow.codegen.magnitudes import greatest, greatest_lane
from graphflow.codegen.math import NARROWEST_HALVED
from graphflow.llvm import IrValue, mangled, typed_constant


class Reductions:
    """Emits the reductions of one kernel.

    The buffers in `magnitudes` hold magnitudes alone.  Those of `heights` hold maxima of heights,
    beside each the greatest bits of what these are of (`graphflow/codegen/heights.py`).
    """

    def __init__(
        self,
        expressions: Expressions,
        magnitudes: Set[tir.Buffer],
        heights: Mapping[tir.Buffer, tir.Buffer],
    ) -> None:
        self.expressions = expressions
        self.memory = expressions.memory
        self.builder = expressions.builder
        self.magnitudes = magnitudes
        self.heights = heights
        self.signs = frozenset(heights.values())

    def emit(self, stmt: tir.Reduce, mask: Mask | None) -> None:
        """Combine a value with the element of `stmt`, in each lane that the mask admits."""
        address = self.memory.address(stmt.buffer, stmt.indices)
        raised = height_of(stmt.value) if stmt.buffer in self.heights else None
        value = self.expressions.emit(stmt.value if raised is None else raised, mask)
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
        combined = self.expressions.combine(stmt.op.value, stmt.buffer.dtype, old, value)
        return self.builder.computed_here(combined) if stmt.buffer in self.signs else combined

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


def _horizontal(op: tir.ReduceOp, dtype: str) -> str:
    """The name of LLVM's reduction over the lanes of a vector."""
    if dtype == "bool":
        return "or" if op in (tir.ReduceOp.ADD, tir.ReduceOp.MAX) else "and"
    if op in (tir.ReduceOp.ADD, tir.ReduceOp.MUL):
        return f"f{op.value}" if dtype in tir.FLOATS else op.value
    if dtype in tir.FLOATS:
        return "fmaximum" if op is tir.ReduceOp.MAX else "fminimum"
    return f"{sign_of(dtype)}{op.value}"
