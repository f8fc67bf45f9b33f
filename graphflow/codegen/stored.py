"""Casts between storage-only types (float16, bfloat16, float8, 4-bit types, …) and their carriers.

A storage-only type has no arithmetic: its values are cast to a carrier type, computed in that, and
cast back.  In: a builder and values.  Out: values.  In LLVM IR a stored value is its bits, an
integer as wide as the type is in memory (`llvm.ELEMENTS`).  float16 is cast by the
processor's instructions; all other casts are integer arithmetic and exact float operations.

What always holds: results equal those of numpy and `ml_dtypes` bit by bit, except for the payload
and the sign of NaN.  A denormal result is rounded correctly even where the program flushes float32
denormals.
"""

from __future__ import annotations

from msgspec import Struct

from graphflow.base.dtypes import FLOATS
from graphflow.base.errors import CodegenError
from graphflow.llvm import IrBuilder, IrValue, int_constant, typed_constant

MANTISSA, BIAS = 23, 127
"""Of float32."""
SIZE_BITS, INFINITE = 0x7FFFFFFF, 0x7F800000


class Format(Struct, frozen=True):
    """A float of at most 8 bits: sign, exponent and mantissa, from the highest bit down.

    `top` is the code of the largest finite number.  Larger magnitudes are stored as the code
    `beyond`, NaN as the code `nan`; none of the three contains the sign bit.  With `only_nan`, the
    code that would be −0 is the only NaN, and there is no −0.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    top: int
    beyond: int
    nan: int | None
    only_nan: bool = False

    @property
    def sign(self) -> int:
        """The sign's bit."""
        return 1 << (self.exponent_bits + self.mantissa_bits)


FORMATS = {
    "float8_e4m3fn": Format(4, 3, 7, 0x7E, 0x7F, 0x7F),
    "float8_e4m3fnuz": Format(4, 3, 8, 0x7F, 0x80, 0x80, only_nan=True),
    "float8_e5m2": Format(5, 2, 15, 0x7B, 0x7C, 0x7E),
    "float8_e5m2fnuz": Format(5, 2, 16, 0x7F, 0x80, 0x80, only_nan=True),
    "float4_e2m1fn": Format(2, 1, 1, 0x7, 0x7, None),
}
INTEGER_BITS = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}


class StoredTypes:
    """Emits casts from and to storage-only types."""

    def __init__(self, builder: IrBuilder) -> None:
        self.builder = builder

    def load(self, x: IrValue, source: str, target: str) -> IrValue:
        """The value of the carrier type `target` that the stored bits represent; exact."""
        if source in INTEGER_BITS:
            return self._narrow_integer(x, source)
        if source == "float16":
            wide = self.builder.convert(
                "fpext", self.builder.convert("bitcast", x, "half"), "float"
            )
        elif source == "bfloat16":
            bits = self.builder.binary("shl", self._bits(x), int_constant(16, "i32"))
            wide = self.builder.convert("bitcast", bits, "float")
        else:
            wide = self._small_float(x, FORMATS[source])
        return wide if target == "float32" else self.builder.convert("fpext", wide, "double")

    def store(self, x: IrValue, source: str, target: str) -> IrValue:
        """The bits of the stored type `target` nearest to a value of its carrier."""
        if target in INTEGER_BITS:
            return self.builder.binary(
                "and", x, int_constant((1 << INTEGER_BITS[target]) - 1, "i8")
            )
        if source not in FLOATS:
            raise CodegenError(f"{source} cannot be cast to {target}; cast it to float32 first")
        if target == "float16":
            narrow = self._rounded_to_odd(x) if source == "float64" else x
            return self.builder.convert("bitcast", self.builder.half(narrow), "i16")
        if target == "bfloat16":
            return self._brain_float(x)
        return self._rounded_small_float(x, FORMATS[target])

    # ---- shorthand

    def _bits(self, x: IrValue) -> IrValue:
        return self.builder.convert("zext", x, "i32")

    def _and(self, x: IrValue, bits: int) -> IrValue:
        return self.builder.binary("and", x, int_constant(bits, x.element))

    def _or(self, x: IrValue, y: IrValue) -> IrValue:
        return self.builder.binary("or", x, y)

    def _shifted(self, operation: str, x: IrValue, by: int) -> IrValue:
        return self.builder.binary(operation, x, int_constant(by, x.element))

    def _is(self, comparison: str, x: IrValue, than: int) -> IrValue:
        return self.builder.compare(f"icmp {comparison}", x, int_constant(than, x.element))

    def _chosen(self, condition: IrValue, code: int, otherwise: IrValue) -> IrValue:
        return self.builder.select(condition, int_constant(code, otherwise.element), otherwise)

    # ---- integers

    def _narrow_integer(self, x: IrValue, source: str) -> IrValue:
        """The lowest bits; of a signed type the highest of them is the sign."""
        unused = 8 - INTEGER_BITS[source]
        back = "lshr" if source in ("uint4", "uint2") else "ashr"
        return self._shifted(back, self._shifted("shl", x, unused), unused)

    # ---- floats of 16 bits

    def _rounded_to_odd(self, x: IrValue) -> IrValue:
        """A double as a float that rounds to float16 as the double does.

        Where it is not exact, the float's last bit is set: then it is neither a float16 nor halfway
        between two, and lies on the same side of those as the double.
        """
        b = self.builder
        near = b.convert("fptrunc", x, "float")
        back = b.convert("fpext", near, "double")
        inexact = b.compare("fcmp one", back, x)
        above = b.compare("fcmp ogt", b.intrinsic("fabs", back), b.intrinsic("fabs", x))
        bits = b.convert("bitcast", near, "i32")
        towards_zero = b.select(above, b.binary("sub", bits, int_constant(1, "i32")), bits)
        odd = b.select(inexact, self._or(towards_zero, int_constant(1, "i32")), bits)
        return b.convert("bitcast", odd, "float")

    def _brain_float(self, x: IrValue) -> IrValue:
        """The upper half of the bits, rounded to even; a NaN stays one, and quiet.

        The bit to be even is put into the last bit as well, so that adding just less than half
        carries for what is above half, and for half if that bit is set.  This is one ternary
        operation; a result that is widened again is a mask of the same bits.  On a Zen 4 rounding
        16 lanes and widening them takes 0.68 ns with five operations, where separate ones on the
        halves take 0.95.
        """
        b = self.builder
        bits = b.convert("bitcast", x, "i32")
        sticky = self._or(bits, self._and(self._shifted("lshr", bits, 16), 1))
        rounded = b.binary("add", sticky, int_constant(0x7FFF, "i32"))
        kept = b.unless_nan(x, b.convert("bitcast", rounded, "float"))
        upper = self._shifted("lshr", b.convert("bitcast", kept, "i32"), 16)
        return b.convert("trunc", upper, "i16")

    # ---- floats of 8 bits and fewer

    def _small_float(self, x: IrValue, form: Format) -> IrValue:
        b = self.builder
        code = self._and(self._bits(x), 2 * form.sign - 1)
        size = self._and(code, form.sign - 1)
        normal = self._shifted("shl", size, MANTISSA - form.mantissa_bits)
        rebased = (BIAS - form.bias) << MANTISSA
        normal = b.binary("add", normal, int_constant(rebased, "i32"))
        step = typed_constant(2.0 ** (1 - form.bias - form.mantissa_bits), "float32")
        tiny = b.binary("fmul", b.convert("uitofp", size, "float"), step)
        is_tiny = self._is("ult", size, 1 << form.mantissa_bits)
        bits = b.select(is_tiny, b.convert("bitcast", tiny, "i32"), normal)
        if not form.only_nan:
            if form.beyond > form.top and form.beyond != form.nan:
                bits = self._chosen(self._is("eq", size, form.beyond), INFINITE, bits)
            if form.nan is not None:
                least = max(form.top, form.beyond if form.beyond != form.nan else 0) + 1
                bits = self._chosen(self._is("uge", size, least), INFINITE | 1 << 22, bits)
        shift = 31 - (form.exponent_bits + form.mantissa_bits)
        sign = self._shifted("shl", self._and(code, form.sign), shift)
        bits = self._or(bits, sign)
        if form.only_nan:
            bits = self._chosen(self._is("eq", code, form.sign), INFINITE | 1 << 22, bits)
        return b.convert("bitcast", bits, "float")

    def _rounded_small_float(self, x: IrValue, form: Format) -> IrValue:
        b = self.builder
        bits = b.convert("bitcast", x, "i32")
        size = self._and(bits, SIZE_BITS)
        dropped = MANTISSA - form.mantissa_bits
        even = self._and(self._shifted("lshr", size, dropped), 1)
        halfway = b.binary("add", even, int_constant((1 << (dropped - 1)) - 1, "i32"))
        normal = self._shifted("lshr", b.binary("add", size, halfway), dropped)
        rebased = (BIAS - form.bias) << form.mantissa_bits
        normal = b.binary("sub", normal, int_constant(rebased, "i32"))
        # Below the smallest normal number codes count multiples of the smallest one.
        magnitude = b.convert("bitcast", size, "float")
        steps = typed_constant(2.0 ** (form.bias - 1 + form.mantissa_bits), "float32")
        count = b.intrinsic("roundeven", b.binary("fmul", magnitude, steps))
        tiny = b.freeze(b.convert("fptosi", count, "i32"))
        is_tiny = self._is("ult", size, (BIAS + 1 - form.bias) << MANTISSA)
        code = b.select(is_tiny, tiny, normal)
        code = self._chosen(self._is("sgt", code, form.top), form.beyond, code)
        is_nan = self._is("ugt", size, INFINITE)
        if form.nan is not None:
            code = self._chosen(is_nan, form.nan, code)
        shift = 31 - (form.exponent_bits + form.mantissa_bits)
        sign = self._and(self._shifted("lshr", bits, shift), form.sign)
        if form.only_nan:
            # Zero and NaN have no sign.
            sign = self._chosen(self._is("eq", code, 0), 0, sign)
        code = self._or(code, sign)
        if form.nan is None:
            code = b.select(is_nan, b.binary("xor", sign, int_constant(form.sign, "i32")), code)
        return b.convert("trunc", code, "i8")
