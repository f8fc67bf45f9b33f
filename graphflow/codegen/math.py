"""Elementary functions (exp, log, tanh, erf, pow, …) for scalars and vectors.

In: a builder and float values.  Out: a value of the same type.  A float32 function is a polynomial
after a reduction of the argument, with an error of at most 2 units in the last place (sigmoid:
2.5).  Infinities, NaN, denormals and signed zeros give what IEEE arithmetic gives; exp(0) = 1,
sigmoid(0) = 0.5 and tanh(0) = 0 are exact.  Sine, cosine and tangent are in `trigonometry`.
Inverse trigonometric and hyperbolic functions of float32 call the C library in double precision,
one lane at a time, with an error of at most 0.51 units; functions of float64 all call it.

Coefficients are minimax fits (Lawson's algorithm, weighted by the result, rounded to float32 from
the lowest degree up); those of erf are N. Juffa's.
"""

from __future__ import annotations

from graphflow.base.errors import CodegenError
from graphflow.codegen.emit_builder import IrBuilder, IrValue, integer, literal
from graphflow.codegen.float_arithmetic import FloatArithmetic
from graphflow.codegen.trigonometry import QUARTER_TURNS, trigonometric
from graphflow.tir import TRIGONOMETRIC

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

TANH_LIMIT = 0.55
TANH = (
    -0.33333316445350647, 0.13332544267177582, -0.0538475476205349,
    0.02105071395635605, -0.0062428489327430725,
)  # fmt: skip
"""(tanh(x) − x) / x³ as a polynomial in x², below TANH_LIMIT."""

LOG = (
    0.3333390951156616, -0.2500133812427521, 0.19963103532791138, -0.16577567160129547,
    0.14914384484291077, -0.14267529547214508, 0.08701511472463608,
)  # fmt: skip
"""(log(1 + m) − m + m²/2) / m³ on √½ − 1 <= m < √2 − 1."""

ERF_LIMIT = 0.927734375
ERF_SMALL = (
    1.28379166e-1, -3.76125336e-1, 1.12819925e-1,
    -2.67681349e-2, 4.99119423e-3, -5.96761703e-4,
)  # fmt: skip
"""(erf(x) − x) / x as a polynomial in x², up to ERF_LIMIT."""
ERF_LARGE = (
    -6.34846687e-1, -1.06777877e-1, 2.42546219e-2,
    -3.88396438e-3, 3.83197126e-4, -1.72853470e-5,
)  # fmt: skip
ERF_LARGE_FIRST = -1.28717512e-1
"""log(1 − erf(x)) = −x + x·(ERF_LARGE_FIRST + x·ERF_LARGE(x)), beyond ERF_LIMIT."""

MANTISSA_BITS, BIAS = 23, 127
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

RANGE_MIN, RANGE_MAX = 0b0100, 0b0101
"""vrangeps: the smaller, the larger, with the sign that comparing gives."""
RANGE_INTRINSICS: dict[int, tuple[int, IrValue, tuple[IrValue, ...]]] = {
    4: (128, integer(-1, "i8"), ()),
    8: (256, integer(-1, "i8"), ()),
    16: (512, integer(-1, "i16"), (integer(4, "i32"),)),
}
"""By lanes: bits of the vector, the mask of all lanes, and the rounding argument if any."""

LIBRARY = ("exp", "log", "tanh", "erf", *TRIGONOMETRIC)


class Math(FloatArithmetic):
    """Elementary functions written with one builder; `has_avx512` allows its scaling and ranges."""

    def __init__(self, builder: IrBuilder, has_avx512: bool) -> None:
        super().__init__(builder)
        self.has_avx512 = has_avx512

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
            case _ if name in TRIGONOMETRIC:
                return self.by_library(name, x)
            case "exp":
                return self._exp(x)
            case "log":
                return self._log(x)
            case "tanh":
                return self._tanh(x)
            case "erf":
                return self._erf(x)
        raise CodegenError(f"operator {name} is not defined on floats")

    def power(self, x: IrValue, y: IrValue) -> IrValue:
        """`x` to the power of `y`, as C's pow; small whole exponents are multiplications."""
        if x.element == "double":
            return self.each_lane("pow", x, y)
        for exponent in (1.0, 2.0, 3.0):
            if y.text == literal(exponent, "float32").text:
                return self.repeated(x, int(exponent))
        return self._power(x, y)

    def extremum(self, name: str, x: IrValue, y: IrValue) -> IrValue:
        """`max` or `min`; NaN propagates, and −0.0 is below +0.0."""
        b = self.builder
        dtype = "float32" if x.element == "float" else "float64"
        if name == "max":
            for operand, other in ((x, y), (y, x)):
                if operand.text == literal(0.0, dtype).text:
                    # One comparison does for NaN and for both zeros.
                    return b.select(b.compare("fcmp ugt", other, operand), other, operand)
        a, c = b.matched(x, y)
        if self.has_avx512 and a.element == "float" and a.lanes in RANGE_INTRINSICS:
            return self._range(name, a, c)
        return b.intrinsic("maximum" if name == "max" else "minimum", a, c)

    def _range(self, name: str, x: IrValue, y: IrValue) -> IrValue:
        """vrangeps orders signed zeros; where a NaN is involved, the sum is one.

        Three instructions, where LLVM's own lowering takes six.
        """
        b = self.builder
        bits, mask, more = RANGE_INTRINSICS[x.lanes]
        choice = integer(RANGE_MAX if name == "max" else RANGE_MIN, "i32")
        found = b.call(
            f"llvm.x86.avx512.mask.range.ps.{bits}", x.type, x, y, choice, x, mask, *more
        )
        larger = IrValue(found.text, x.element, x.lanes)
        unordered = b.compare("fcmp uno", x, y)
        return b.select(unordered, b.binary("fadd", x, y), larger)

    # ---- float32

    def _exp(self, x: IrValue) -> IrValue:
        """x = n·ln 2 + r; exp(r) by a polynomial, times 2ⁿ."""
        b = self.builder
        # Beyond these the result is infinite or zero; NaN passes both comparisons.
        high, low = self.constant(89.0, x), self.constant(-104.0, x)
        x = b.select(b.compare("fcmp ogt", x, high), high, x)
        x = b.select(b.compare("fcmp olt", x, low), low, x)
        n = b.intrinsic("roundeven", b.binary("fmul", x, self.constant(LOG2_E, x)))
        r = self.fma(n, self.constant(-LN2_HIGH, x), x)
        r = self.fma(n, self.constant(-LN2_LOW, x), r)
        p = self.polynomial(r, (1.0, 1.0, *EXP))
        return self._scaled(p, b.freeze(b.convert("fptosi", n, "i32")))

    def _scaled(self, x: IrValue, n: IrValue) -> IrValue:
        """x·2ⁿ for |n| <= 252, rounded once."""
        b = self.builder
        if self.has_avx512:
            name = "ldexp"
            suffix = "f32.i32" if x.lanes == 1 else f"v{x.lanes}f32.v{x.lanes}i32"
            value = b.call(f"llvm.{name}.{suffix}", x.type, x, n)
            return IrValue(value.text, x.element, x.lanes)
        half = b.binary("ashr", n, integer(1, "i32"))
        rest = b.binary("sub", n, half)
        return b.binary("fmul", b.binary("fmul", x, self._two_to(half)), self._two_to(rest))

    def _two_to(self, n: IrValue) -> IrValue:
        """2ⁿ as a float, for −127 < n < 128."""
        b = self.builder
        biased = b.binary("add", n, integer(BIAS, "i32"))
        return b.convert("bitcast", b.binary("shl", biased, integer(MANTISSA_BITS, "i32")), "float")

    def _sigmoid(self, x: IrValue) -> IrValue:
        """With e = exp(−|x|): 1 / (1 + e), or e / (1 + e) left of zero, which keeps denormals."""
        b = self.builder
        one = self.constant(1.0, x)
        size = self.negated(self.absolute(x))
        e = self.unary("exp", size)
        left = b.compare("fcmp olt", x, self.constant(0.0, x))
        return b.binary("fdiv", b.select(left, e, one), b.binary("fadd", e, one))

    def _tanh(self, x: IrValue) -> IrValue:
        """A polynomial near zero, beyond it 1 − 2 / (exp(2|x|) + 1) with the sign of x."""
        b = self.builder
        square = b.binary("fmul", x, x)
        cube = b.binary("fmul", square, x)
        small = self.fma(cube, self.polynomial(square, TANH), x)
        size = self.absolute(x)
        e = self._exp(b.binary("fadd", size, size))
        quotient = b.binary(
            "fdiv", self.constant(2.0, x), b.binary("fadd", e, self.constant(1.0, x))
        )
        large = self.copysign(b.binary("fsub", self.constant(1.0, x), quotient), x)
        near = b.compare("fcmp olt", size, self.constant(TANH_LIMIT, x))
        # x itself, not x + 0: −0.0 stays.
        small = b.select(b.compare("fcmp oeq", x, self.constant(0.0, x)), x, small)
        return b.select(near, small, large)

    def _erf(self, x: IrValue) -> IrValue:
        """A polynomial near zero, beyond it 1 − exp(polynomial) with the sign of x."""
        b = self.builder
        size = self.absolute(x)
        square = b.binary("fmul", x, x)
        small = self.fma(self.polynomial(square, ERF_SMALL), x, x)
        exponent = self.fma(self.polynomial(size, ERF_LARGE), size, ERF_LARGE_FIRST)
        exponent = self.fma(exponent, size, self.negated(size))
        large = b.binary("fsub", self.constant(1.0, x), self._exp(exponent))
        near = b.compare("fcmp ole", size, self.constant(ERF_LIMIT, x))
        return b.select(near, small, self.copysign(large, x))

    def _log(self, x: IrValue) -> IrValue:
        """x = 2ⁿ·(1 + m) with 1 + m around 1; log(1 + m) by a polynomial, plus n·ln 2."""
        b = self.builder
        tiny = b.compare("fcmp olt", x, self.constant(SMALLEST_NORMAL, x))
        normal = b.select(tiny, b.binary("fmul", x, self.constant(2.0**23, x)), x)
        bits = b.convert("bitcast", normal, "i32")
        above = b.binary("sub", bits, integer(SQRT_HALF_BITS, "i32"))
        n = b.binary("ashr", above, integer(MANTISSA_BITS, "i32"))
        shift = b.binary("shl", n, integer(MANTISSA_BITS, "i32"))
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
        negative = b.compare("icmp slt", b.convert("bitcast", x, "i32"), integer(0, "i32"))
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
        above = b.binary("sub", bits, integer(0x3FE6A09E667F3BCD))
        n = b.binary("ashr", above, integer(52))
        fraction = b.convert(
            "bitcast", b.binary("sub", bits, b.binary("shl", n, integer(52))), "double"
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
        biased = b.convert("sext", b.binary("add", whole, integer(1023, "i32")), "i64")
        scale = b.convert("bitcast", b.binary("shl", biased, integer(52)), "double")
        return b.binary("fmul", series, scale)
