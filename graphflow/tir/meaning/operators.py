"""The semantics of each scalar operator, as a function of numpy scalars.

This is the one precise definition of what `expr` states in prose: the interpreter calls these
functions, and tests compare native code with them.  In: numpy scalars of one dtype.  Out: a numpy
scalar, of that dtype unless the operator says otherwise.  Callers suppress numpy's floating-point
warnings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, assert_never

import numpy as np

from graphflow.base.dtypes import DTYPES, FLOATING, integer_limits
from graphflow.tir.nodes.elementary import ELEMENTARY
from graphflow.tir.nodes.stmts import ReduceOp

Scalar = Any
"""A numpy scalar; numpy's stubs do not follow arithmetic on scalars of unknown type."""


def _maximum(a: Scalar, b: Scalar) -> Scalar:
    """The larger; NaN if either is NaN; +0.0 above −0.0."""
    if a > b:
        return a
    if a < b:
        return b
    if a == b:
        return b if _is_negative(a) else a
    return a if a != a else b


def _minimum(a: Scalar, b: Scalar) -> Scalar:
    """The smaller; NaN if either is NaN; −0.0 below +0.0."""
    if a < b:
        return a
    if a > b:
        return b
    if a == b:
        return a if _is_negative(a) else b
    return a if a != a else b


def _is_negative(number: Scalar) -> bool:
    return math.copysign(1.0, number) < 0


def _divide(a: Scalar, b: Scalar) -> Scalar:
    """IEEE division of floats; integers truncate and wrap, and a divisor of zero gives zero."""
    if isinstance(a, np.floating):
        return a / b
    if b == 0:
        return b
    quotient = abs(int(a)) // abs(int(b))
    return _wrapped(quotient if (a < 0) == (b < 0) else -quotient, a)


def _power(a: Scalar, b: Scalar) -> Scalar:
    """`a ** b`; an integer to a negative power is the quotient `1 / a ** -b` as of `divide`."""
    if isinstance(a, np.floating):
        return a**b
    base, exponent = int(a), int(b)
    if exponent >= 0:
        return _wrapped(pow(base, exponent, 1 << 64), a)
    return _wrapped((base if exponent % 2 else 1) if abs(base) == 1 else 0, a)


def _wrapped(value: int, like: Scalar) -> Scalar:
    """`value` modulo 2^bits, in the dtype of `like`."""
    bits = 8 * like.dtype.itemsize
    return np.uint64(value % (1 << bits)).astype(like.dtype)


def _in_double(function: Callable[[Scalar], Scalar]) -> Callable[[Scalar], Scalar]:
    """`function` computed in double precision and rounded once to the operand's dtype."""
    return lambda x: type(x)(float(function(np.float64(x))))


def logical_not(x: Scalar) -> Scalar:
    """The other bool; of an integer, every bit inverted."""
    return ~x


def bits_of(x: Scalar) -> Scalar:
    """The bits of a float, as an unsigned integer of its width."""
    return x.view(f"uint{8 * x.dtype.itemsize}")


def negate(x: Scalar) -> Scalar:
    """`−x`; of a zero the zero with the other sign, of an integer modulo 2^bits."""
    return -x


UNARY_FUNCTIONS: dict[str, Callable[[Scalar], Scalar]] = {
    "neg": negate,
    "abs": abs,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "not": logical_not,
    "bits": bits_of,
    **{name: _in_double(function.meaning) for name, function in ELEMENTARY.items()},
}
"""By the names of `elementary.UNARY`; `round` takes halves to the even neighbour."""

BINARY_FUNCTIONS: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _divide,
    "max": _maximum,
    "min": _minimum,
    "pow": _power,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "fmod": np.fmod,
}
"""By the names of `expr.BINARY`; of bools `add` is or and `mul` is and; of integers `and`,
`or` and `xor` are bitwise."""


class _Conversions(dict[Scalar, Scalar]):
    """What `astype` makes of scalars, kept for each that was asked for."""

    def __init__(self, target: np.dtype[Any]) -> None:
        self.target = target

    def __missing__(self, value: Scalar) -> Scalar:
        made = self[value] = value.astype(self.target)
        return made


FEW_VALUES = ("bool", "int8", "uint8", "int16", "uint16")
"""Types with so few values that all conversions of them can be kept: at most 65536."""

EXACT_IN_DOUBLE = (*FLOATING, "int32", "uint32")
"""Types whose values Python's floats have."""


@cache
def cast_function(source: str, target: str) -> Callable[[Scalar], Scalar]:
    """The conversion of scalars of one type to another: numpy's `astype`, bit for bit.

    On a scalar that takes 1 to 4 microseconds, as it makes an array; a value that is kept takes
    0.03, and a constructor of floats 0.1.
    """
    kind = DTYPES[target]
    if source == target:
        return lambda x: x
    if source in FEW_VALUES:
        return _Conversions(kind).__getitem__
    if source in EXACT_IN_DOUBLE and target in FLOATING:
        make: Callable[[float], Scalar] = kind.type
        return lambda x: make(float(x))
    return lambda x: x.astype(kind)


def undefined_value(dtype: str, value: float) -> Scalar:
    """`value` in `dtype`, or an extreme of an integer type that cannot hold it."""
    target = DTYPES[dtype]
    if dtype in FLOATING:
        with np.errstate(over="ignore"):
            return np.asarray(value, target)[()]
    if dtype == "bool":
        return np.bool_(value != 0)
    low, high = integer_limits(dtype)
    fits = math.isfinite(value) and low <= value <= high
    extreme = high if low == 0 else low
    return np.asarray(int(value) if fits else extreme, target)[()]


def neutral_literal(op: ReduceOp, dtype: str) -> float | int | bool:
    """The element `e` of `dtype` with `e ⊕ x = x` for each x: of floating sums it is −0.0."""
    floating = dtype in FLOATING
    match op:
        case ReduceOp.ADD:
            return -0.0 if floating else False if dtype == "bool" else 0
        case ReduceOp.MUL:
            return 1.0 if floating else True if dtype == "bool" else 1
        case ReduceOp.MIN | ReduceOp.MAX:
            low: float | int | bool
            high: float | int | bool
            if floating:
                low, high = -math.inf, math.inf
            else:
                low, high = (False, True) if dtype == "bool" else integer_limits(dtype)
            return low if op is ReduceOp.MAX else high
    assert_never(op)
