"""Sine, cosine and tangent of float32, for scalars and vectors.

In: the arithmetic of a builder and a float32 value.  Out: a value of the same type, with an error
of at most 0.51 units in the last place.  All computation is in double precision, where plain Taylor
series suffice: their truncation error is below 1e-11 of the result, while rounding to float32 has a
relative error of 6e-8.

Arguments of magnitude `LIMIT` or more, infinities and NaN go to the C library, one lane at a time:
their reduction needs more bits of π than two doubles hold.  A vector without such a lane skips the
calls.
"""

from __future__ import annotations

from graphflow.codegen.float_arithmetic import FloatArithmetic
from graphflow.llvm import IrValue, int_constant, typed_constant

LIMIT = 2.0**30
"""Below this the number of quarter turns fits an int32, and π/2 in two parts is exact enough."""

TWO_OVER_PI = 0.6366197723675814
HALF_PI_HIGH, HALF_PI_LOW = 1.5707963267948966, 6.123233995736766e-17

SINE = tuple((-1) ** k / f for k, f in enumerate((1, 6, 120, 5040, 362880, 39916800, 6227020800)))
"""sin(r) / r in r², for |r| <= π/4."""
COSINE = tuple((-1) ** k / f for k, f in enumerate((1, 2, 24, 720, 40320, 3628800, 479001600)))
"""cos(r) in r², for |r| <= π/4."""

QUARTER_TURNS = {"sin": 0, "cos": 1, "tan": 0}
"""By how many quarter turns the function is ahead of the sine."""


def trigonometric(math: FloatArithmetic, name: str, x: IrValue) -> IrValue:
    """`sin`, `cos` or `tan` of a float32 value."""
    b = math.builder
    near = b.compare("fcmp olt", math.absolute(x), typed_constant(LIMIT, "float32"))
    # A branch on poison would be undefined; lanes that do not run may hold it.
    near = b.freeze(near)
    if near.lanes > 1:
        reduce_and = f"llvm.vector.reduce.and.v{near.lanes}i1"
        near = b.call(reduce_and, "i1", b.readable(near))
    return b.choose(near, lambda: _reduced(math, name, x), lambda: math.by_library(name, x))


def _reduced(math: FloatArithmetic, name: str, x: IrValue) -> IrValue:
    """x = n·π/2 + r; n decides which series is taken, and its sign."""
    b = math.builder
    wide = b.convert("fpext", x, "double")
    turns = b.intrinsic("roundeven", b.binary("fmul", wide, typed_constant(TWO_OVER_PI, "float64")))
    r = math.fma(turns, typed_constant(-HALF_PI_HIGH, "float64"), wide)
    r = math.fma(turns, typed_constant(-HALF_PI_LOW, "float64"), r)
    square = b.binary("fmul", r, r)
    sine = b.binary("fmul", math.polynomial(square, SINE), r)
    cosine = math.polynomial(square, COSINE)
    quadrant = b.freeze(b.convert("fptosi", turns, "i32"))
    quadrant = b.binary("add", quadrant, int_constant(QUARTER_TURNS[name], "i32"))
    odd = _bit(math, quadrant, 1)
    if name == "tan":
        above = b.select(odd, math.negated(cosine), sine)
        result = b.binary("fdiv", above, b.select(odd, sine, cosine))
    else:
        size = b.select(odd, cosine, sine)
        result = b.select(_bit(math, quadrant, 2), math.negated(size), size)
    result = b.convert("fptrunc", result, "float")
    if name == "cos":
        return result
    # The reduction loses the sign of a zero.
    return b.select(b.compare("fcmp oeq", x, typed_constant(0.0, "float32")), x, result)


def _bit(math: FloatArithmetic, number: IrValue, bit: int) -> IrValue:
    b = math.builder
    only = b.binary("and", number, int_constant(bit, "i32"))
    return b.compare("icmp ne", only, int_constant(0, "i32"))
