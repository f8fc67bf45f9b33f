"""Trigonometric functions of float32 and their inverses, for scalars and vectors.

In: the arithmetic of a builder and a float32 value.  Out: a value of the same type.

Sine, cosine and tangent have an error of at most 0.51 units in the last place.  All computation is
in double precision, where plain Taylor series suffice: their truncation error is below 1e-11 of the
result, while rounding to float32 has a relative error of 6e-8.

The inverses are odd polynomials in float32 after a reduction of the argument, by a reciprocal or by
asin(x) = π/2 − 2·asin(√((1 − x)/2)); `ERROR_ULPS` of `codegen/math.py` bounds their errors.  Their
coefficients are minimax fits as there.

Arguments of the former that have a magnitude of `LIMIT` or more, infinities and NaN go to the C
library, one lane at a time: their reduction needs more bits of π than two doubles hold.  A vector
without such a lane skips the calls.
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

ATAN = (
    -0.33333298563957214, 0.1999852955341339, -0.14264015853405, 0.10950880497694016,
    -0.08399306237697601, 0.05788138881325722, -0.031096985563635826, 0.010868685320019722,
    -0.0017828206764534116,
)  # fmt: skip
"""(atan(t) − t) / t³ in t², for 0 < t <= 1."""

ASIN = (
    0.16666752099990845, 0.074953094124794, 0.04546914994716644, 0.024184780195355415,
    0.04215829819440842,
)  # fmt: skip
"""(asin(t) − t) / t³ in t², for 0 < t <= ½."""

HALF_PI_NEAR, HALF_PI_REST = 1.5707963705062866, -4.371138828673793e-08
"""π/2 in two float32."""

QUARTER_TURNS = {"sin": 0, "cos": 1, "tan": 0}
"""By how many quarter turns the function is ahead of the sine."""


def trigonometric(math: FloatArithmetic, name: str, x: IrValue) -> IrValue:
    """`sin`, `cos` or `tan` of a float32 value."""
    b = math.builder
    near = b.compare("fcmp olt", math.absolute(x), typed_constant(LIMIT, "float32"))
    return math.where_all(near, lambda: _reduced(math, name, x), lambda: math.by_library(name, x))


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


def arc_tangent(math: FloatArithmetic, x: IrValue) -> IrValue:
    """atan(|x|) is π/2 − atan(1/|x|) above 1; with the sign of x."""
    b = math.builder
    size, one = math.absolute(x), math.constant(1.0, x)
    above = b.compare("fcmp ogt", size, one)
    t = b.select(above, b.binary("fdiv", one, size), size)
    square = b.binary("fmul", t, t)
    tail = b.binary("fmul", b.binary("fmul", square, t), math.polynomial(square, ATAN))
    rest = b.binary("fsub", b.binary("fsub", math.constant(HALF_PI_REST, x), tail), t)
    beyond = b.binary("fadd", math.constant(HALF_PI_NEAR, x), rest)
    return math.copysign(b.select(above, beyond, b.binary("fadd", t, tail)), x)


def arc_sine(math: FloatArithmetic, x: IrValue) -> IrValue:
    """asin(|x|) with the sign of x; NaN beyond 1."""
    b = math.builder
    outer, t, tail = _halved(math, x)
    high, twice = math.constant(HALF_PI_NEAR, x), b.binary("fadd", t, t)
    # The first difference may round at twice the unit of the result; what it lost is added.
    near = b.binary("fsub", high, twice)
    lost = b.binary("fsub", b.binary("fsub", high, near), twice)
    rest = math.fma(tail, math.constant(-2.0, x), HALF_PI_REST)
    near_one = b.binary("fadd", near, b.binary("fadd", lost, rest))
    return math.copysign(b.select(outer, near_one, b.binary("fadd", t, tail)), x)


def arc_cosine(math: FloatArithmetic, x: IrValue) -> IrValue:
    """acos(x): 2·asin(√((1 − |x|)/2)), or π less that, and between −½ and ½ π/2 − asin(x)."""
    b = math.builder
    outer, t, tail = _halved(math, x)
    high, low = math.constant(HALF_PI_NEAR, x), math.constant(HALF_PI_REST, x)
    negative = b.compare("fcmp olt", x, math.constant(0.0, x))
    twice = b.binary("fadd", t, t)
    near_one = math.fma(tail, math.constant(2.0, x), twice)
    rest = math.fma(tail, math.constant(-2.0, x), 2 * HALF_PI_REST)
    pi = math.constant(2 * HALF_PI_NEAR, x)
    opposite = b.binary("fadd", b.binary("fsub", pi, twice), rest)
    inner = b.binary("fsub", low, math.copysign(tail, x))
    inner = b.binary("fadd", high, b.binary("fsub", inner, x))
    return b.select(outer, b.select(negative, opposite, near_one), inner)


def _halved(math: FloatArithmetic, x: IrValue) -> tuple[IrValue, IrValue, IrValue]:
    """Whether |x| > ½, t, and asin(t) − t: t is |x|, or there √((1 − |x|)/2), both at most ½."""
    b = math.builder
    size, half = math.absolute(x), math.constant(0.5, x)
    outer = b.compare("fcmp ogt", size, half)
    shrunk = math.fma(size, math.constant(-0.5, x), 0.5)
    square = b.select(outer, shrunk, b.binary("fmul", size, size))
    t = b.select(outer, b.intrinsic("sqrt", shrunk), size)
    tail = b.binary("fmul", b.binary("fmul", square, t), math.polynomial(square, ASIN))
    return outer, t, tail
