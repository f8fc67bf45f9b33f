"""Emits scalar expressions: turns an expression into an LLVM value.

In: an expression, and the mask of the active lanes (None outside vectorized loops).  Out: a vector,
or a scalar where nothing in the expression depends on the lane.  What always holds: float
arithmetic is IEEE, except that a product and a sum may be contracted to an FMA; loads in the side
of a `Select` that is not taken are masked off, so they cannot access memory out of bounds.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import assert_never, cast

from graphflow import tir
from graphflow.arith import Predicate, conjuncts, negation
from graphflow.base.dtypes import DTYPES, STORED
from graphflow.base.errors import CodegenError
from graphflow.codegen.emit_index import Decision, Indices
from graphflow.codegen.emit_mask import Mask, lanes_where, mask_value
from graphflow.codegen.heights import above_zero
from graphflow.codegen.magnitudes import NUMBERS
from graphflow.codegen.math import Math
from graphflow.codegen.memory import Memory
from graphflow.codegen.rounded_quotients import (
    RoundedQuotients,
    bounded,
    bounds_before,
    moved_by,
)
from graphflow.codegen.saturated import Saturated, saturated, without_sign
from graphflow.codegen.stored import StoredTypes
from graphflow.llvm import (
    ELEMENTS,
    IrBuilder,
    IrValue,
    bool_constant,
    int_constant,
    mangled,
    typed_constant,
)

FLOAT_OPERATIONS = {
    "add": "fadd contract",
    "sub": "fsub contract",
    "mul": "fmul contract",
    "div": "fdiv",
}
INTEGER_OPERATIONS = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "and": "and",
    "or": "or",
    "xor": "xor",
}
FLOAT_COMPARISONS = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}


class Expressions:
    """Emits the expressions of one kernel."""

    def __init__(self, builder: IrBuilder, indices: Indices, memory: Memory, math: Math) -> None:
        self.builder = builder
        self.indices = indices
        self.memory = memory
        self.math = math
        self.stored = StoredTypes(builder)

    def emit(self, expr: tir.Expr, mask: Mask | None) -> IrValue:
        """The value of `expr` in the active lanes."""
        match expr:
            case tir.Literal():
                return _literal(expr)
            case tir.Load():
                return self.memory.load(expr.buffer, expr.indices, mask)
            case tir.IndexValue():
                return self.cast(self.indices.vector(expr.index), "int64", expr.dtype)
            case tir.Unary():
                return self._unary(expr, mask)
            case tir.Binary():
                left, right = self.emit(expr.left, mask), self.emit(expr.right, mask)
                return self.combine(expr.op, expr.dtype, left, right)
            case tir.Comparison():
                left, right = self.emit(expr.left, mask), self.emit(expr.right, mask)
                return self.compare(expr.op, expr.left.dtype, left, right)
            case tir.Select():
                return self._select(expr, mask)
            case tir.Cast() if (rounded := saturated(expr)) is not None:
                whole = self._saturated(rounded, mask)
                return self.builder.convert(f"trunc {rounded.lossless}", whole, "i8")
            case tir.Cast(tir.Cast() as byte, "int32") if (rounded := saturated(byte)) is not None:
                return self._saturated(rounded, mask)
            case tir.Cast():
                return self.cast(self.emit(expr.operand, mask), expr.operand.dtype, expr.dtype)
            case tir.Undef():
                raise CodegenError("an expression still holds undef; lower it before emitting")
        assert_never(expr)

    # ---- operators

    def combine(self, op: str, dtype: str, left: IrValue, right: IrValue) -> IrValue:
        """A binary operator on two values of `dtype`."""
        if op in ("max", "min"):
            return self._extremum(op, dtype, left, right)
        if dtype in tir.FLOATS:
            if op == "pow":
                return self.math.power(left, right)
            if op == "fmod":
                return self.math.remainder(left, right)
            if op in FLOAT_OPERATIONS:
                return self.builder.binary(FLOAT_OPERATIONS[op], left, right)
        elif op == "div":
            return self.integer_div(dtype, left, right)
        elif dtype == "bool" and op in ("add", "mul"):
            return self.builder.binary("or" if op == "add" else "and", left, right)
        elif op == "pow" and dtype != "bool":
            return self._integer_power(dtype, left, right)
        elif op in ("shl", "shr") and dtype != "bool":
            return self._shift(op, dtype, left, right)
        elif op in INTEGER_OPERATIONS:
            return self.builder.binary(INTEGER_OPERATIONS[op], left, right)
        raise CodegenError(f"operator {op} is not defined on {dtype}")

    def _extremum(self, op: str, dtype: str, left: IrValue, right: IrValue) -> IrValue:
        if dtype in tir.FLOATS:
            return self.math.extremum(op, left, right)
        return self.builder.intrinsic(f"{sign_of(dtype)}{op}", left, right)

    def integer_div(self, dtype: str, left: IrValue, right: IrValue) -> IrValue:
        """Truncated division; x / 0 gives 0, and the lowest number divided by −1 itself.

        The processor's division traps on these operands, also in inactive lanes, whose operands may
        be anything.  So magnitudes are divided, which cannot overflow, by a divisor of at least 1.
        The divisor is frozen, because division by poison is undefined.  Freezing and then replacing
        a zero is not enough: LLVM 22 may read a frozen undefined value from two different
        registers.
        """
        b = self.builder
        operation = f"{sign_of(dtype)}div"
        if right.is_constant and right.lanes == 1 and right.text not in ("0", "-1"):
            # Never undefined; poison gives poison.
            return b.binary(operation, left, right)
        zero, one = (int_constant(i, right.element) for i in (0, 1))
        right = b.freeze(right)
        if dtype in tir.UNSIGNED:
            quotient = b.binary("udiv", left, b.intrinsic("umax", right, one))
        else:
            size = b.intrinsic("umax", self._absolute(right), one)
            quotient = b.binary("udiv", self._absolute(left), size)
            opposite = b.compare("icmp slt", b.binary("xor", left, right), zero)
            quotient = b.select(opposite, b.binary("sub", zero, quotient), quotient)
        return b.select(b.compare("icmp eq", right, zero), zero, quotient)

    def _absolute(self, x: IrValue) -> IrValue:
        """|x|; the lowest number gives itself, which read as unsigned is its magnitude."""
        name = f"llvm.abs.{mangled(x.element, x.lanes)}"
        return self.builder.call(name, x.element, x, bool_constant(False), lanes=x.lanes)

    def _shift(self, op: str, dtype: str, x: IrValue, bits: IrValue) -> IrValue:
        """`x` shifted; by its width or more, what is left is zeros or copies of the sign."""
        b, width = self.builder, 8 * tir.DTYPES[dtype].itemsize
        most = b.intrinsic("umin", bits, int_constant(width - 1, bits.element))
        if op == "shr" and dtype not in tir.UNSIGNED:
            return b.binary("ashr", x, most)
        moved = b.binary("shl" if op == "shl" else "lshr", x, most)
        inside = b.compare("icmp ult", bits, int_constant(width, bits.element))
        return b.select(inside, moved, int_constant(0, x.element))

    def _integer_power(self, dtype: str, base: IrValue, exponent: IrValue) -> IrValue:
        """By squaring, modulo 2^bits; a negative exponent gives 1 / base ** -exponent truncated."""
        b = self.builder
        zero, one = (int_constant(i, base.element) for i in (0, 1))
        result, square = one, base
        for bit in range(8 * tir.DTYPES[dtype].itemsize):
            wanted = b.compare(
                "icmp ne", b.binary("and", exponent, int_constant(1 << bit, base.element)), zero
            )
            result = b.select(wanted, b.binary("mul", result, square), result)
            square = b.binary("mul", square, square)
        if dtype in tir.UNSIGNED:
            return result
        # ±1 to a negative power is what squaring gives: both have an order that divides 2^bits.
        is_unit = b.binary(
            "or",
            b.compare("icmp eq", base, one),
            b.compare("icmp eq", base, int_constant(-1, base.element)),
        )
        negative = b.compare("icmp slt", exponent, zero)
        vanishes = b.binary("and", negative, b.binary("xor", is_unit, bool_constant(True)))
        return b.select(vanishes, zero, result)

    def _unary(self, expr: tir.Unary, mask: Mask | None) -> IrValue:
        x = self.emit(expr.operand, mask)
        if expr.op == "not":
            return self.builder.binary("xor", x, int_constant(-1, x.element))
        if expr.op == "bits":
            return self.builder.convert("bitcast", x, f"i{8 * DTYPES[expr.dtype].itemsize}")
        if expr.dtype in tir.FLOATS:
            return self.math.unary(expr.op, x)
        if expr.op == "neg":
            return self.builder.binary("sub", int_constant(0, x.element), x)
        if expr.op in ("floor", "ceil", "round") or (
            expr.op == "abs" and expr.dtype in tir.UNSIGNED
        ):
            return x
        if expr.op == "abs":
            return self._absolute(x)
        raise CodegenError(f"operator {expr.op} is not defined on {expr.dtype}")

    def compare(self, op: str, dtype: str, left: IrValue, right: IrValue) -> IrValue:
        if dtype in tir.FLOATS:
            return self.builder.compare(f"fcmp {FLOAT_COMPARISONS[op]}", left, right)
        sign = "" if op in ("eq", "ne") else sign_of(dtype)
        return self.builder.compare(f"icmp {sign}{op}", left, right)

    def cast(self, x: IrValue, source: str, target: str) -> IrValue:
        """A value of dtype `source` as one of dtype `target`."""
        if source == target:
            return x
        if source in STORED:
            return self.stored.load(x, source, target)
        if target in STORED:
            return self.stored.store(x, source, target)
        if target == "bool":
            operation = "fcmp une" if source in tir.FLOATS else "icmp ne"
            return self.builder.compare(operation, x, typed_constant(0, source))
        to, bits = ELEMENTS[target], 8 * tir.DTYPES[target].itemsize
        if source in tir.FLOATS and target in tir.FLOATS:
            narrows = target == "float32"
            return self.builder.rounded(x, to) if narrows else self.builder.convert("fpext", x, to)
        if target in tir.FLOATS:
            return self.builder.convert(f"{sign_of(source)}itofp", x, to)
        if source in tir.FLOATS:
            return self._whole_number(x, target)
        held = 1 if source == "bool" else 8 * tir.DTYPES[source].itemsize
        if held == bits:
            return x
        widen = "sext" if sign_of(source) == "s" else "zext"
        return self.builder.convert("trunc" if held > bits else widen, x, to)

    def _whole_number(self, x: IrValue, target: str) -> IrValue:
        """A float truncated to an integer; unspecified where the result does not fit `target`."""
        to, bits = ELEMENTS[target], 8 * tir.DTYPES[target].itemsize
        # A wider signed integer holds what is unsigned, and casts of floats to those are
        # instructions of every processor; but nothing is wider than uint64.
        wide = bits + (target in tir.UNSIGNED)
        operation, between = ("fptoui", "i64") if wide > 64 else ("fptosi", _holding(wide))
        # Out of range is poison to LLVM; freezing keeps it a number, whichever.
        whole = self.builder.freeze(self.builder.convert(operation, x, between))
        return whole if between == to else self.builder.convert("trunc", whole, to)

    def _saturated(self, of: Saturated, mask: Mask | None) -> IrValue:
        """A float32 as a number of a byte, in 32 bits: bounded, rounded to a whole number, and the
        zero point added.

        It is in the range of the byte whatever the float is.
        """
        b = self.builder
        match of.value:
            case tir.Binary("div", left, right):
                dividend, sizes = without_sign(left)
                x = b.freeze(self.dividend(dividend, mask) if sizes else self.emit(left, mask))
                scale = b.freeze(self.emit(right, mask))
                zero = self.zero_point(of, mask)
                if scale.lanes == 1 < x.lanes and (zero is None or zero.lanes == 1):
                    return RoundedQuotients(self.math, scale, of.bounds, zero, sizes).of(x)
                number = b.binary("fdiv", self.math.absolute(x) if sizes else x, scale)
            case value:
                number, zero = b.freeze(self.emit(value, mask)), self.zero_point(of, mask)
        if of.fits:
            # Bounds of integers are part of the instruction that narrows them.
            raised = b.intrinsic("smax", moved_by(b, b.nearest(number), zero), of.limits[0])
            return b.intrinsic("smin", raised, of.limits[1])
        bounds = bounds_before(b, of.bounds, zero)
        return moved_by(b, b.nearest(bounded(b, number, *bounds)), zero)

    def dividend(self, expr: tir.Expr, mask: Mask | None) -> IrValue:
        """What a quotient that is rounded to a byte divides the absolute value of; where that is no
        number it is any one.

        What numbers below zero are raised from, a maximum of integers raises, for which a processor
        has more units than for one of floats.
        """
        x = above_zero(expr)
        if x is None or x.dtype != NUMBERS:
            return self.emit(expr, mask)
        b = self.builder
        bits = b.convert("bitcast", self.emit(x, mask), "i32")
        raised = b.intrinsic("smax", *b.matched(bits, typed_constant(0, "int32")))
        return b.convert("bitcast", raised, "float")

    def zero_point(self, of: Saturated, mask: Mask | None = None) -> IrValue | None:
        """The zero point, if there is one; without a mask it depends on no lane."""
        return None if of.zero is None else self.emit(of.zero, mask)

    def bounded_above(self, of: Saturated, mask: Mask) -> IrValue:
        """What is rounded, at most the largest number that the zero point does not carry beyond the
        byte, or whatever fits 32 bits; NaN stays one."""
        b = self.builder
        number = b.freeze(self.emit(of.value, mask))
        if of.fits:
            return number
        _, most = bounds_before(b, of.bounds, self.zero_point(of))
        # In this order of operands it is one instruction of x86.
        return b.select(b.compare("fcmp olt", most, number), most, number)

    def quotients(self, of: Saturated, scale: tir.Expr, magnitudes: bool) -> RoundedQuotients:
        """What rounds quotients by a scale, of numbers or of their magnitudes; neither the scale
        nor the zero point depends on a lane."""
        divisor, zero = self.builder.freeze(self.emit(scale, None)), self.zero_point(of)
        return RoundedQuotients(self.math, divisor, of.bounds, zero, magnitudes)

    # ---- choices

    def _select(self, expr: tir.Select, mask: Mask | None) -> IrValue:
        truth = self.truth(expr.condition, mask)
        if isinstance(truth, bool):
            return self.emit(expr.if_true if truth else expr.if_false, mask)
        if isinstance(truth, IrValue) and truth.lanes == 1:
            return self._select_one(truth, expr, mask)
        assert mask is not None
        b, by_index = self.builder, tir.is_predicate(expr.condition)
        yes, no = (lanes_where(b, mask, truth, holds, by_index) for holds in (True, False))
        if_true = self._side(expr.if_true, mask, yes)
        if_false = self._side(expr.if_false, mask, no)
        condition = truth if isinstance(truth, IrValue) else mask_value(b, Mask(truth))
        if by_index:
            return b.select(condition, if_true, if_false)
        if self._may_read_outside(expr.if_true) or self._may_read_outside(expr.if_false):
            # The same bits that decided which lanes each side was read in.
            condition = b.freeze(condition)
        return b.select(condition, if_true, if_false)

    def _side(self, expr: tir.Expr, outer: Mask, inner: Mask) -> IrValue:
        if inner.count == 0:
            return typed_constant(0, expr.dtype)
        return self.emit(expr, inner if self._may_read_outside(expr) else outer)

    def _select_one(self, truth: IrValue, expr: tir.Select, mask: Mask | None) -> IrValue:
        sides = (expr.if_true, expr.if_false)
        if any(self._may_read_outside(side) for side in sides):
            if_true, if_false = (partial(self._whole, side, mask) for side in sides)
            # A branch on poison or on memory that was never written would be undefined.
            return self.builder.choose(self.builder.freeze(truth), if_true, if_false)
        a, b = (self.emit(side, mask) for side in sides)
        return self.builder.select(truth, a, b)

    def _whole(self, expr: tir.Expr, mask: Mask | None) -> IrValue:
        return self.builder.splat(self.emit(expr, mask), mask.width if mask else 1)

    def _may_read_outside(self, expr: tir.Expr) -> bool:
        loads = (node for node in tir.walk_expr(expr) if isinstance(node, tir.Load))
        return not all(self.memory.surely_inside(n.buffer, n.indices) for n in loads)

    def truth(self, condition: tir.Condition, mask: Mask | None) -> Decision:
        """A condition: known at compile time, known per lane, an i1, or a vector of i1."""
        if tir.is_predicate(condition):
            predicate = self.indices.resolved_predicate(cast(Predicate, condition))
            return self.indices.truth(predicate)
        return self.emit(cast(tir.Expr, condition), mask)

    def given(self, condition: tir.Condition, truth: Decision, mask: Mask, holds: bool) -> Mask:
        """The lanes of `mask` in which the condition whose `truth` is given holds, or fails."""
        if not tir.is_predicate(condition):
            return lanes_where(self.builder, mask, truth, holds)
        predicate = cast(Predicate, condition)
        resolved = self.indices.resolved_predicate(predicate if holds else negation(predicate))
        if not conjuncts(resolved):
            return lanes_where(self.builder, mask, self.indices.truth(resolved), by_index=True)
        for member in conjuncts(resolved):
            mask = lanes_where(self.builder, mask, self.indices.truth(member), by_index=True)
        return mask


@lru_cache(maxsize=1024)  # unrolled loops have the same few
def _literal(expr: tir.Literal) -> IrValue:
    return typed_constant(expr.value, expr.dtype)


def sign_of(dtype: str) -> str:
    """`s` for signed integers, `u` for unsigned ones and bools, as in LLVM's `sdiv` and `udiv`."""
    return "u" if dtype in tir.UNSIGNED or dtype == "bool" else "s"


def _holding(bits: int) -> str:
    """The type to which a float is converted on its way to an integer of so many bits."""
    return "i32" if bits <= 32 else "i64"
