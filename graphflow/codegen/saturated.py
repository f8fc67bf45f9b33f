"""Floats rounded to bytes: a float32 as the nearest number of a byte, saturated.

In: the expression `cast(u8, clip(round(v) + zero, 0, 255))`, or the same for int8.  Out: what it
rounds, and the bounds of that.  What always holds: the value is `cast(i32, clip(v, 0 − zero, 255 −
zero)) + zero`, rounded to the nearest number by the cast itself, which processors do in one
instruction: bounds that are whole numbers may be applied before rounding, since rounding keeps
order and whole numbers, and the sums are whole numbers of few digits.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphflow import tir
from graphflow.base.dtypes import BYTES, integer_limits


@dataclass(frozen=True, slots=True)
class Saturated:
    """`value`, a float32, is rounded; `zero` is a float32 that is a whole number, None for 0."""

    value: tir.Expr
    zero: tir.Expr | None
    low: int
    high: int

    @property
    def lossless(self) -> str:
        """LLVM's flag of a truncation that loses nothing of a number in these bounds."""
        return "nsw" if self.low < 0 else "nuw"


def saturated(expr: tir.Cast) -> Saturated | None:
    """What an expression rounds to a byte; None where it computes something else."""
    if expr.dtype not in BYTES or expr.operand.dtype != "float32":
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
            return Saturated(value, None, low, high)
        case tir.Binary("add", tir.Unary("round", value), zero) if _is_byte(zero):
            return Saturated(value, zero, low, high)
        case _:
            return None


def _is_byte(zero: tir.Expr) -> bool:
    """Whether a float32 is a byte, converted."""
    match zero:
        case tir.Cast(operand):
            return operand.dtype in BYTES
        case tir.Literal(value):
            return float(value).is_integer() and abs(value) < 256
        case _:
            return False
