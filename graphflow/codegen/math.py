"""Elementary functions (exp, log, tanh, erf, pow, …) for scalars and vectors.

In: a builder and float values.  Out: a value of the same type.  A float32 function is a polynomial
after a reduction of the argument; where processors have tables in registers, a subclass uses them.
`ERROR_ULPS` has the bound of its error in units in the last place.  Infinities, NaN, denormals and
signed zeros give what IEEE arithmetic gives; exp(0) = 1,
sigmoid(0) = 0.5, tanh(±0) = erf(±0) = ±0 are exact, and no result leaves the range of its
function.  No function has two sides of which lanes choose one: each lane takes the same
instructions.  Trigonometric functions and their inverses are in `trigonometry`.  Other hyperbolic
functions of float32 and their inverses call the C library in double precision, one lane at a time,
with an error of at most 0.51 units; functions of float64 all call it.

Coefficients are minimax fits (Lawson's algorithm, weighted by the result, rounded to float32 from
the lowest degree up).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from graphflow.base.errors import CodegenError
from graphflow.codegen.float_arithmetic import MANTISSA_BITS, ROUNDING, FloatArithmetic
from graphflow.codegen.trigonometry import (
    QUARTER_TURNS,
    arc_cosine,
    arc_sine,
    arc_tangent,
    trigonometric,
)
from graphflow.llvm import IrValue, int_constant, typed_constant
from graphflow.tir import ELEMENTARY

LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693145751953125, 1.428606765330187e-06
"""ln 2 in two parts; the first has so few digits that a whole number times it is exact."""

EXP = (
    0.4999999403953552,
    0.1666652113199234,
    0.041668280959129333,
    0.008368690498173237,
    0.0013819511514157057,
)
"""(exp(r) − 1 − r) / r² on |r| <= ln 2 / 2."""

EXP2_MINUS_1 = (
    0.6931471824645996, 0.24022649228572845, 0.05550367385149002,
    0.009618311189115047, 0.0013387383660301566, 0.0001538208598503843,
)  # fmt: skip
"""(2ᶠ − 1) / f on |f| <= ½."""

TANH_OFFSET = 0.25
"""tanh reduces its argument to this above n − ½ and n + ½: so no n but 0 gives results below ¼,
where (q + 1)·2ⁿ − 1 would lose a bit."""
HALF_EXPM1 = tuple(
    c * 2.0 ** (k + 1)
    for k, c in enumerate(
        (
            0.4999997317790985,
            0.1666693240404129,
            0.041671011596918106,
            0.008239890448749065,
            0.0016473440919071436,
        )
    )
)
"""((exp(2h) − 1) / 2 − h) / h² on −¼ <= 2h / ln 2 <= ¾, weighted for n > 0 where h is negative."""

TANH_MOST, ERF_MOST = 10.0, 3.98
"""From 9.02 and 3.92 on, tanh and erf are 1 in float32.

What is computed of these is 1 too, and not the number before it: `x · (1 + erf(x))` is 0 for a
large negative x then, and not x · 2⁻²⁴."""

ERFC_EXPONENT = (
    -1.6279070377349854, -0.9184474349021912, -0.14827924966812134, 0.027641577646136284,
    0.00021149693930055946, -0.0023832484148442745, 0.0009002508013509214,
    -0.00016596019850112498, 1.2916467312606983e-05,
)  # fmt: skip
"""log₂(1 − erf(x)) / x on 0 < x <= ERF_MOST, weighted by its share in the error of erf."""

LOG = (
    0.3333390951156616, -0.2500133812427521, 0.19963103532791138, -0.16577567160129547,
    0.14914384484291077, -0.14267529547214508, 0.08701511472463608,
)  # fmt: skip
"""(log(1 + m) − m + m²/2) / m³ on √½ − 1 <= m < √2 − 1."""

BIAS = 127
SQRT_HALF_BITS = 0x3F3504F3
"""√½ as a float32: log reduces its argument to [√½, √2), for which its polynomial is fitted."""
SMALLEST_NORMAL = 2.0**-126

LOG2_SERIES = tuple(2 / ((2 * k + 1) * 0.6931471805599453) for k in range(9))
"""log₂((1 + s) / (1 − s)) / s in s²; used in double precision, so the plain series will do."""
EXP2_SERIES = tuple(
    0.6931471805599453**k / f
    for k, f in enumerate((1, 1, 2, 6, 24, 120, 720, 5040, 40320, 362880, 3628800))
)
"""2ʳ in r, for |r| <= ½, in double precision."""

NARROWEST_HALVED = 4
"""Lanes of the smallest register, whose halves are exchanged in place."""

ERROR_ULPS = {
    "exp": 1.0, "log": 1.5, "sigmoid": 2.5, "tanh": 2.5, "erf": 1.75,
    "atan": 1.5, "asin": 1.5, "acos": 1.5,
}  # fmt: skip
"""Bounds of the errors of float32 functions, in units in the last place of the exact result."""

LIBRARY = tuple(name for name, function in ELEMENTARY.items() if function.library)


class Math(FloatArithmetic):
    """Elementary functions written with one builder, by instructions that every processor has."""

    def unary(self, name: str, x: IrValue) -> IrValue:
        """`name` of a float32 or float64 value, a name of `tir.UNARY`."""
        match name:
            case "neg":
                return self.negated(x)
            case "abs":
                return self.absolute(x)
            case "sqrt" | "floor" | "ceil":
                return self.builder.intrinsic(name, x)
            case "round":
                return self.builder.intrinsic("roundeven", x)
            case "sigmoid":
                return self._sigmoid(x)
            case _ if x.element == "double" and name in LIBRARY:
                return self.each_lane(name, x)
            case _ if name in QUARTER_TURNS:
                return trigonometric(self, name, x)
            case "exp":
                return self.exp(x)
            case "log":
                return self._log(x)
            case "tanh":
                return self._tanh(x)
            case "erf":
                return self._erf(x)
            case "atan":
                return arc_tangent(self, x)
            case "asin":
                return arc_sine(self, x)
            case "acos":
                return arc_cosine(self, x)
            case _ if name in LIBRARY:
                return self.by_library(name, x)
        raise CodegenError(f"operator {name} is not defined on floats")

    def power(self, x: IrValue, y: IrValue) -> IrValue:
        """`x` to the power of `y`, as C's pow; small whole exponents are multiplications."""
        if x.element == "double":
            return self.each_lane("pow", x, y)
        for exponent in (1.0, 2.0, 3.0):
            if y.text == typed_constant(exponent, "float32").text:
                return self.repeated(x, int(exponent))
        return self._power(x, y)

    def extremum(self, name: str, x: IrValue, y: IrValue) -> IrValue:
        """`max` or `min`; NaN propagates, and −0.0 is below +0.0."""
        b = self.builder
        dtype = "float32" if x.element == "float" else "float64"
        if name == "max":
            for operand, other in ((x, y), (y, x)):
                if operand.text == typed_constant(0.0, dtype).text:
                    # One comparison does for NaN and for both zeros.
                    return b.select(b.compare("fcmp ugt", other, operand), other, operand)
        return self.extremum_of(name, *b.matched(x, y))

    def extremum_of(self, name: str, x: IrValue, y: IrValue) -> IrValue:
        """`extremum` of two values of one type."""
        return self.builder.intrinsic("maximum" if name == "max" else "minimum", x, y)

    def magnitude_within(self, x: IrValue, most: IrValue) -> IrValue:
        """The absolute value of a float32, at most the positive number `most`, which a NaN
        becomes."""
        b, size = self.builder, self.absolute(x)
        # In this order of operands it is one instruction of x86.
        return b.select(b.compare("fcmp olt", size, most), size, most)

    def quiet_magnitude_within(self, x: IrValue, most: IrValue) -> IrValue:
        """The same, but a signalling NaN may stay a NaN."""
        return self.magnitude_within(x, most)

    def extreme_lane(self, name: str, vector: IrValue) -> IrValue:
        """`max` or `min` of the lanes of a vector, at least four of them and a power of two.

        Half by half, for LLVM's own lowering decides about NaN and signs of zero in scalar
        registers: 50 instructions that wait for each other.
        """
        return self.folded(vector, partial(self.extremum, name))

    def folded(self, vector: IrValue, chosen: Callable[[IrValue, IrValue], IrValue]) -> IrValue:
        """What remains of the lanes of a vector when of each two one is `chosen`."""
        b, folded = self.builder, vector
        while folded.lanes > NARROWEST_HALVED:
            half = folded.lanes // 2
            folded = chosen(b.part(folded, 0, half), b.part(folded, half, half))
        for places in ([2, 3, 0, 1], [1, 0, 3, 2]):
            folded = chosen(folded, b.shuffled(folded, folded, places))
        return b.extract(folded, 0)

    # ---- float32

    def exp(self, x: IrValue) -> IrValue:
        """exp(x) with an error of at most one unit."""
        return self.exp_by_polynomial(x)

    def exp_by_polynomial(self, x: IrValue) -> IrValue:
        """x = n·ln 2 + r; exp(r) by a polynomial, times 2ⁿ; the error is at most 0.89 units.

        Where the result is zero, as for scores that a mask excludes, nothing is computed of x: a
        product that is too small for a number takes a processor many times as long.
        """
        b = self.builder
        # Beyond these the result is infinite or zero; NaN passes both comparisons.
        x = self._at_most(x, 89.0)
        zero, vanishes = self.constant(0.0, x), b.compare("fcmp olt", x, self.constant(-104.0, x))
        _, r, rounded = self.reduced(b.select(vanishes, zero, x), ROUNDING)
        scaled = self._scaled(self.polynomial(r, (1.0, 1.0, *EXP)), rounded)
        return b.select(vanishes, zero, scaled)

    def reduced(self, x: IrValue, rounding: float) -> tuple[IrValue, IrValue, IrValue]:
        """n, r = x − n·ln 2 and n + `rounding`, where n is x / ln 2 rounded as `rounding` says."""
        rounded = self.fma(x, self.constant(LOG2_E, x), rounding)
        n = self.builder.binary("fsub", rounded, self.constant(rounding, x))
        r = self.fma(n, self.constant(-LN2_HIGH, x), x)
        return n, self.fma(n, self.constant(-LN2_LOW, x), r), rounded

    def _at_most(self, x: IrValue, limit: float) -> IrValue:
        """`x`, but `limit` where it is larger; NaN stays."""
        b = self.builder
        most = self.constant(limit, x)
        return b.select(b.compare("fcmp ogt", x, most), most, x)

    def _scaled(self, x: IrValue, rounded: IrValue) -> IrValue:
        """x·2ⁿ for ½ < x < 2 and |n| <= 252, rounded once; `rounded` is n + `ROUNDING`.

        Two products, of which the first is exact; NaN stays, whatever n is then.
        """
        b = self.builder
        exponent = self._exponent(rounded)
        mask = int_constant(-1 << MANTISSA_BITS, "i32")
        half = b.binary("and", b.binary("ashr", exponent, int_constant(1, "i32")), mask)
        x = b.binary("fmul", x, self._power_of_two(half))
        return b.binary("fmul", x, self._power_of_two(b.binary("sub", exponent, half)))

    def _power_of_two(self, exponent: IrValue) -> IrValue:
        """2ⁿ for −127 < n < 128, from n·2²³."""
        b = self.builder
        one = int_constant(BIAS << MANTISSA_BITS, "i32")
        return b.convert("bitcast", b.binary("add", exponent, one), "float")

    def _exponent(self, rounded: IrValue) -> IrValue:
        """n·2²³, whose bits are those of an exponent; `rounded` is n + `ROUNDING`."""
        bits = self.builder.convert("bitcast", rounded, "i32")
        return self.builder.binary("shl", bits, int_constant(MANTISSA_BITS, "i32"))

    def _sigmoid(self, x: IrValue) -> IrValue:
        """With e = exp(−|x|): 1 / (1 + e), or e / (1 + e) left of zero, which keeps denormals."""
        b = self.builder
        one = self.constant(1.0, x)
        size = self.negated(self.absolute(x))
        # Not by the table, whose error would make that of the quotient 2.1 units.
        e = self.unary("exp", size) if x.element == "double" else self.exp_by_polynomial(size)
        left = b.compare("fcmp olt", x, self.constant(0.0, x))
        return b.binary("fdiv", b.select(left, e, one), b.binary("fadd", e, one))

    def _times_polynomial(self, x: IrValue, coefficients: Sequence[float]) -> IrValue:
        """x times a polynomial of x; only the last sum rounds at the size of the result."""
        first, *rest = coefficients
        tail = self.builder.binary(
            "fmul", self.builder.binary("fmul", x, x), self.polynomial(x, rest)
        )
        return self.fma(x, self.constant(first, x), tail)

    def _tanh(self, x: IrValue) -> IrValue:
        """t / (t + 1) for t = (exp(2|x|) − 1) / 2, with the sign of x.

        With |x| = n·ln 2 / 2 + h and q = (exp(2h) − 1) / 2, t is q·2ⁿ + (2ⁿ − 1) / 2.
        """
        b = self.builder
        one, half = self.constant(1.0, x), self.constant(0.5, x)
        size = self._at_most(self.absolute(x), TANH_MOST)
        shifted = self.fma(size, self.constant(2 * LOG2_E, x), -TANH_OFFSET)
        n, power = self._rounded(shifted)
        h = self.fma(n, self.constant(-LN2_HIGH / 2, x), size)
        h = self.fma(n, self.constant(-LN2_LOW / 2, x), h)
        q = self.fma(b.binary("fmul", h, h), self.polynomial(h, HALF_EXPM1), h)
        t = self.fma(q, power, self.fma(power, half, -0.5))
        return self.copysign(b.binary("fdiv", t, b.binary("fadd", t, one)), x)

    def _erf(self, x: IrValue) -> IrValue:
        size = self._at_most(self.absolute(x), ERF_MOST)
        return self.copysign(self.erf_of_size(size), x)

    def erf_of_size(self, size: IrValue) -> IrValue:
        """erf(|x|), perhaps with the other sign, for |x| <= `ERF_MOST`; NaN stays.

        2ʸ − 1, which is −erf, for a polynomial y of |x|.

        With y = n + f and q = 2ᶠ − 1, 2ʸ − 1 is q·2ⁿ + (2ⁿ − 1).
        """
        b = self.builder
        y = self._times_polynomial(size, ERFC_EXPONENT)
        n, power = self._rounded(y)
        q = self._times_polynomial(b.binary("fsub", y, n), EXP2_MINUS_1)
        return self.fma(q, power, b.binary("fsub", power, self.constant(1.0, size)))

    def _rounded(self, x: IrValue) -> tuple[IrValue, IrValue]:
        """n and 2ⁿ, n the whole number next to x, |x| <= 126; NaN gives NaN and any number."""
        b = self.builder
        biased = self.constant(ROUNDING + BIAS, x)
        rounded = b.binary("fadd", x, biased)
        power = b.convert("bitcast", self._exponent(rounded), "float")
        return b.binary("fsub", rounded, biased), power

    def _log(self, x: IrValue) -> IrValue:
        """x = 2ⁿ·(1 + m) with 1 + m around 1; log(1 + m) by a polynomial, plus n·ln 2."""
        b = self.builder
        tiny = b.compare("fcmp olt", x, self.constant(SMALLEST_NORMAL, x))
        normal = b.select(tiny, b.binary("fmul", x, self.constant(2.0**23, x)), x)
        bits = b.convert("bitcast", normal, "i32")
        above = b.binary("sub", bits, int_constant(SQRT_HALF_BITS, "i32"))
        n = b.binary("ashr", above, int_constant(MANTISSA_BITS, "i32"))
        shift = b.binary("shl", n, int_constant(MANTISSA_BITS, "i32"))
        fraction = b.convert("bitcast", b.binary("sub", bits, shift), "float")
        m = b.binary("fsub", fraction, self.constant(1.0, x))
        exponent = b.convert("sitofp", n, "float")
        shifted = b.binary("fsub", exponent, self.constant(23.0, x))
        exponent = b.select(tiny, shifted, exponent)
        square = b.binary("fmul", m, m)
        tail = b.binary("fmul", b.binary("fmul", square, m), self.polynomial(m, LOG))
        tail = self.fma(exponent, self.constant(LN2_LOW, x), tail)
        tail = self.fma(square, self.constant(-0.5, x), tail)
        result = self.fma(exponent, self.constant(LN2_HIGH, x), b.binary("fadd", m, tail))
        return self._log_specials(x, result)

    def _log_specials(self, x: IrValue, result: IrValue) -> IrValue:
        b = self.builder
        zero, infinite = self.constant(0.0, x), self.constant(float("inf"), x)
        ordinary = b.compare("fcmp olt", x, infinite)
        result = b.select(ordinary, result, x)
        at_zero = b.compare("fcmp oeq", x, zero)
        result = b.select(at_zero, self.constant(float("-inf"), x), result)
        below = b.compare("fcmp olt", x, zero)
        return b.select(below, self.constant(float("nan"), x), result)

    # ---- powers, in double precision inside

    def _power(self, x: IrValue, y: IrValue) -> IrValue:
        b = self.builder
        x, y = b.matched(x, y)
        one = self.constant(1.0, x)
        size = self.absolute(x)
        wide_y = b.convert("fpext", y, "double")
        product = b.binary("fmul", self._log2(b.convert("fpext", size, "double")), wide_y)
        result = b.convert("fptrunc", self._exp2(product), "float")
        result = self._power_sign(x, y, result)
        # pow(x, 0) and pow(1, y) are 1, NaN or not; so is pow(−1, ±inf).
        infinite_y = b.compare("fcmp oeq", self.absolute(y), self.constant(float("inf"), x))
        minus_one = b.binary("and", b.compare("fcmp oeq", x, self.constant(-1.0, x)), infinite_y)
        trivial = b.binary("or", b.compare("fcmp oeq", x, one), minus_one)
        trivial = b.binary("or", trivial, b.compare("fcmp oeq", y, self.constant(0.0, x)))
        return b.select(trivial, one, result)

    def _power_sign(self, x: IrValue, y: IrValue, size: IrValue) -> IrValue:
        """`size` = |x|ʸ with its sign; NaN for a finite negative x and a y that is not whole."""
        b = self.builder
        whole = b.compare("fcmp oeq", self.unary("floor", y), y)
        half = b.binary("fmul", y, self.constant(0.5, y))
        even = b.compare("fcmp oeq", self.unary("floor", half), half)
        odd = b.binary("and", whole, b.binary("xor", even, IrValue("true", "i1")))
        negative = b.compare("icmp slt", b.convert("bitcast", x, "i32"), int_constant(0, "i32"))
        flipped = b.binary("and", odd, negative)
        result = b.select(flipped, self.negated(size), size)
        below = b.compare("fcmp olt", x, self.constant(0.0, x))
        finite = b.compare("fcmp ogt", x, self.constant(float("-inf"), x))
        fraction = b.binary("and", finite, b.compare("fcmp une", self.unary("floor", y), y))
        undefined = b.binary("and", below, fraction)
        return b.select(undefined, self.constant(float("nan"), x), result)

    def _log2(self, x: IrValue) -> IrValue:
        """log₂ of a double that was a float: 0, positive, infinite or NaN; never denormal."""
        b = self.builder
        bits = b.convert("bitcast", x, "i64")
        above = b.binary("sub", bits, int_constant(0x3FE6A09E667F3BCD))
        n = b.binary("ashr", above, int_constant(52))
        fraction = b.convert(
            "bitcast", b.binary("sub", bits, b.binary("shl", n, int_constant(52))), "double"
        )
        one = self.constant(1.0, x)
        s = b.binary("fdiv", b.binary("fsub", fraction, one), b.binary("fadd", fraction, one))
        series = self.polynomial(b.binary("fmul", s, s), LOG2_SERIES)
        result = self.fma(series, s, b.convert("sitofp", n, "double"))
        infinite = self.constant(float("inf"), x)
        result = b.select(b.compare("fcmp olt", x, infinite), result, x)
        at_zero = b.compare("fcmp oeq", x, self.constant(0.0, x))
        return b.select(at_zero, self.constant(float("-inf"), x), result)

    def _exp2(self, x: IrValue) -> IrValue:
        """2ˣ for a double whose result will be rounded to float."""
        b = self.builder
        high, low = self.constant(200.0, x), self.constant(-200.0, x)
        x = b.select(b.compare("fcmp ogt", x, high), high, x)
        x = b.select(b.compare("fcmp olt", x, low), low, x)
        n = b.intrinsic("roundeven", x)
        series = self.polynomial(b.binary("fsub", x, n), EXP2_SERIES)
        whole = b.freeze(b.convert("fptosi", n, "i32"))
        biased = b.convert("sext", b.binary("add", whole, int_constant(1023, "i32")), "i64")
        scale = b.convert("bitcast", b.binary("shl", biased, int_constant(52)), "double")
        return b.binary("fmul", series, scale)
