"""Floats rounded to bytes: a float32 as the nearest number of a byte, saturated.

In: the expression `cast(u8, clip(round(v) + zero, 0, 255))`, or the same for int8; or that of the
integer `cast(i32, round(v)) + zero`, which says that v fits 32 bits.  Out: what it rounds, and the
bounds of that; of an unrolled loop that stores vectors of rounded quotients, what its iterations
have in common.  What always holds: the value is `cast(i32, clip(v, 0 − zero, 255 − zero)) + zero`,
rounded to the nearest number by the cast itself, which processors do in one instruction: bounds
that are whole numbers may be applied before rounding, since rounding keeps order and whole numbers,
and the sums are whole numbers of few digits.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from graphflow import tir
from graphflow.arith import Const, Var, variables
from graphflow.base.dtypes import BYTES, integer_limits
from graphflow.base.fields import replace
from graphflow.llvm import IrValue, typed_constant

RUN = 4
"""Vectors of 32-bit words of which one vector of bytes is made."""

WIDTHS = (8, 16)
"""The lanes of these vectors."""

FLOAT, WORD, HALF_WORD = "float32", "int32", "int16"


class Saturated(Struct, frozen=True):
    """`value`, a float32, is rounded; `zero` is a float32 that is a whole number, None for 0.

    `fits` says that the nearest integer of the value, and the sum with the zero point, fit 32 bits.
    """

    value: tir.Expr
    zero: tir.Expr | None
    low: int
    high: int
    fits: bool = False

    @property
    def bounds(self) -> tuple[IrValue, IrValue]:
        """The bounds as constants of float32."""
        return typed_constant(self.low, "float32"), typed_constant(self.high, "float32")

    @property
    def limits(self) -> tuple[IrValue, IrValue]:
        """The bounds as integers."""
        return typed_constant(self.low, WORD), typed_constant(self.high, WORD)

    def moved_by(self, count: int) -> Saturated:
        """The same with bounds and a zero point that are greater by so much."""
        match self.zero:
            case None:
                zero: tir.Expr = tir.Literal(float(count), FLOAT)
            case tir.Literal(value):
                zero = tir.Literal(float(value) + count, FLOAT)
            case given:
                zero = tir.Binary("add", given, tir.Literal(float(count), FLOAT))
        nothing = isinstance(zero, tir.Literal) and zero.value == 0
        moved = None if nothing else zero
        return replace(self, zero=moved, low=self.low + count, high=self.high + count)

    @property
    def lossless(self) -> str:
        """LLVM's flag of a truncation that loses nothing of a number in these bounds."""
        return "nsw" if self.low < 0 else "nuw"


def saturated(expr: tir.Cast) -> Saturated | None:
    """What an expression rounds to a byte; None where it computes something else.

    A signed byte that is kept as an unsigned one, `cast(u8, cast(i32, cast(i8, …)) + 128)`, is
    rounded with a zero point that is greater by 128.
    """
    match expr:
        case tir.Cast(
            tir.Binary("add", tir.Cast(tir.Cast(dtype="int8") as signed), tir.Literal(value=128)),
            "uint8",
        ):
            found = saturated(signed)
            return None if found is None else found.moved_by(128)
    if expr.dtype not in BYTES or expr.operand.dtype not in (FLOAT, WORD):
        return None
    low, high = integer_limits(expr.dtype)
    match expr.operand:
        case tir.Select(
            tir.Comparison("lt", one, tir.Literal() as below),
            tir.Literal() as first,
            tir.Select(
                tir.Comparison("gt", other, tir.Literal() as above), tir.Literal() as last, whole
            ),
        ) if below == first and above == last and one == other == whole:
            if (below.value, above.value) != (low, high):
                return None
        case _:
            return None
    match whole:
        case tir.Unary("round", value):
            found = Saturated(value, None, low, high)
        case tir.Binary("add", tir.Unary("round", value), zero) if _is_byte(zero):
            found = Saturated(value, zero, low, high)
        case tir.Cast(tir.Unary("round", value)):
            found = Saturated(value, None, low, high, fits=True)
        case tir.Binary("add", tir.Cast(tir.Unary("round", value)), zero) if _is_byte(zero):
            found = Saturated(value, _as_float(zero), low, high, fits=True)
        case _:
            return None
    return found if value.dtype == FLOAT else None  # an integer may be that of a float64


def _as_float(zero: tir.Expr) -> tir.Expr:
    """The float32 of a byte that was converted to an integer."""
    match zero:
        case tir.Literal(value):
            return tir.Literal(float(value), FLOAT)
        case tir.Cast(byte):
            return tir.Cast(byte, FLOAT)
    raise AssertionError(f"{zero} is no byte, see `_is_byte`")


def without_sign(x: tir.Expr) -> tuple[tir.Expr, bool]:
    """What a dividend is the absolute value of, and whether it is one."""
    match x:
        case tir.Unary("abs", value):
            return value, True
    return x, False


def saturated_word(expr: tir.Cast) -> Saturated | None:
    """What an expression rounds to a byte, from which it subtracts a number that is known, if any,
    in 16 bits: a number in other bounds; None where it computes something else."""
    match expr:
        case tir.Cast(
            tir.Binary("sub", tir.Cast(tir.Cast() as byte, "int32"), tir.Literal(int(less))),
            "int16",
        ):
            found = saturated(byte)
            return None if found is None else found.moved_by(-less)
        case tir.Cast(tir.Cast(tir.Cast() as byte, "int32"), "int16"):
            return saturated(byte)
    return None


def packable(store: tir.Store, loops: set[Var]) -> Saturated | None:
    """What a store rounds to a byte, or to such a word, with a zero point that all iterations of
    `loops` share; None where it stores anything else, or quotients, of which `RoundedQuotients`
    makes bytes."""
    rounded = None
    if isinstance(store.value, tir.Cast):
        rounded = saturated(store.value) or saturated_word(store.value)
    if rounded is None or (isinstance(rounded.value, tir.Binary) and rounded.value.op == "div"):
        return None
    if rounded.zero is None:
        return rounded
    parts = tir.walk_expr(rounded.zero)
    return rounded if all(_is_of_all(part, loops) for part in parts) else None


class QuotientRuns(NamedTuple):
    """The iterations of an unrolled loop over `var`, each of which stores bytes of quotients in
    lanes; the scale and the zero point are those of all."""

    var: Var
    iterations: range
    lanes: tir.For
    store: tir.Store
    rounded: Saturated
    quotient: tir.Binary
    width: int
    """The lanes of a vector."""
    less: tir.Expr | None = None
    """What is subtracted of the bytes, if anything is."""

    @property
    def in_words(self) -> bool:
        """Whether bytes, or what is left of them, are stored in 16 bits."""
        return self.store.value.dtype == HALF_WORD

    @property
    def together(self) -> int:
        """Of how many iterations one vector is stored."""
        return RUN // 2 if self.in_words else RUN


@tir.kept_by_node
def quotient_runs(loop: tir.For) -> QuotientRuns | None:
    """The stores of an unrolled loop whose iterations round a vector of quotients each to bytes, or
    to words of bytes less a number; None where it does anything else."""
    match loop:
        case tir.For(
            start=Const(value=first),
            stop=Const(value=end),
            body=(
                tir.For(
                    start=Const(value=begin),
                    stop=Const(value=stop),
                    kind=tir.LoopKind.VECTORIZED,
                    body=(tir.Store(value=tir.Cast() as value) as store,),
                ) as lanes,
            ),
        ) if (end - first) % RUN == 0 and stop - begin in WIDTHS:
            byte, less = _in_half_words(value)
            rounded = saturated(byte)
        case _:
            return None
    match rounded:
        case Saturated(tir.Binary("div") as quotient, zero):
            shared = [one for one in (quotient.right, zero, less) if one is not None]
        case _:
            return None
    if not all(_is_of_all(e, {loop.var, lanes.var}) for one in shared for e in tir.walk_expr(one)):
        return None
    width = stop - begin
    return QuotientRuns(loop.var, range(first, end), lanes, store, rounded, quotient, width, less)


def _in_half_words(expr: tir.Cast) -> tuple[tir.Cast, tir.Expr | None]:
    """The byte of which an expression is a word, and what that subtracts of it; the expression
    itself where it is no such word."""
    match expr:
        case tir.Cast(tir.Binary("sub", tir.Cast(tir.Cast() as byte, "int32"), less), "int16"):
            return byte, less
        case tir.Cast(tir.Cast(tir.Cast() as byte, "int32"), "int16"):
            return byte, None
    return expr, None


def _is_of_all(expr: tir.Expr, loops: set[Var]) -> bool:
    """Whether a part of an expression is a number that does not depend on `loops`."""
    match expr:
        case tir.Load():
            return not any(variables(index) & loops for index in expr.indices)
        case _:
            return isinstance(expr, tir.Literal | tir.Cast | tir.Binary)


def _is_byte(zero: tir.Expr) -> bool:
    """Whether a float32 is a byte, converted."""
    match zero:
        case tir.Cast(operand):
            return operand.dtype in BYTES
        case tir.Literal(value):
            return float(value).is_integer() and abs(value) < 256
        case _:
            return False
