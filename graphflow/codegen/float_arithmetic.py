"""Float arithmetic from which the elementary functions are built, for scalars and vectors.

In: a builder and float values.  Out: values of the same type.  Constants take the type of the value
that they are combined with.  What always holds: nothing is contracted or reassociated, since the
error bounds of the functions rest on the roundings that are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphflow.llvm import IrBuilder, IrValue, typed_constant

MANTISSA_BITS = 23
ROUNDING = 1.5 * 2.0**MANTISSA_BITS
"""Floats around this one are whole numbers: adding it to x rounds x, ties to even, and leaves the
whole number in the low bits of the sum.  Two instructions that every processor executes beside
multiply-adds, where a change to an integer is slow."""


class FloatArithmetic:
    """Shorthand over one builder."""

    def __init__(self, builder: IrBuilder) -> None:
        self.builder = builder

    def negated(self, x: IrValue) -> IrValue:
        """`−x`: the sign bit is flipped, that of zeros and NaN too."""
        return self.builder.emit(f"fneg {x.type} {x.text}", x.element, x.lanes)

    def absolute(self, x: IrValue) -> IrValue:
        """`|x|`."""
        return self.builder.intrinsic("fabs", x)

    def constant(self, value: float, like: IrValue) -> IrValue:
        """`value` in the type of `like`."""
        return typed_constant(value, "float32" if like.element == "float" else "float64")

    def fma(self, x: IrValue, y: IrValue, z: IrValue | float) -> IrValue:
        """`x · y + z`, rounded once."""
        addend = self.constant(z, x) if isinstance(z, float) else z
        return self.builder.intrinsic("fma", x, y, addend)

    def polynomial(self, x: IrValue, coefficients: Sequence[float]) -> IrValue:
        """Horner's scheme; coefficients from the lowest degree up."""
        total = self.builder.splat(self.constant(coefficients[-1], x), x.lanes)
        for coefficient in reversed(coefficients[:-1]):
            total = self.fma(total, x, coefficient)
        return total

    def copysign(self, size: IrValue, sign: IrValue) -> IrValue:
        """|size| with the sign bit of `sign`."""
        return self.builder.intrinsic("copysign", size, sign)

    def each_lane(self, name: str, *arguments: IrValue) -> IrValue:
        """Call a function of the C library, on doubles, for each lane."""
        b = self.builder
        # Frozen, as LLVM may know of a function of the C library that poison must not go into it.
        matched = [b.freeze(a) for a in b.matched(*arguments)]
        lanes = matched[0].lanes
        items = [b.call(name, "double", *(b.extract(a, i) for a in matched)) for i in range(lanes)]
        return items[0] if lanes == 1 else b.gathered(items, lanes)

    def where_all(
        self, near: IrValue, fast: Callable[[], IrValue], slow: Callable[[], IrValue]
    ) -> IrValue:
        """`fast()` where the condition holds in all lanes, else `slow()`."""
        b = self.builder
        # A branch on poison would be undefined; lanes that do not run may hold it.
        near = b.freeze(near)
        if near.lanes > 1:
            reduce_and = f"llvm.vector.reduce.and.v{near.lanes}i1"
            near = b.call(reduce_and, "i1", b.readable(near))
        return b.choose(near, fast, slow)

    def remainder(self, x: IrValue, y: IrValue) -> IrValue:
        """What is left of `x` divided by `y`, the quotient truncated; exact, as C's fmod.

        In double precision a quotient of float32 below 2⁵³ is at most one too large, and what it
        leaves is a multiple of the unit of `y` that has few bits, so nothing is rounded.  Vectors
        with a larger quotient go to the C library.
        """
        if x.element == "double":
            return self.by_library("fmod", x, y)
        b, zero = self.builder, typed_constant(0.0, "float64")
        x, y = b.matched(x, y)
        size, divisor = (self.absolute(b.convert("fpext", v, "double")) for v in (x, y))
        quotient = b.intrinsic("trunc", b.binary("fdiv", size, divisor))

        def left() -> IrValue:
            rest = self.fma(self.negated(quotient), divisor, size)
            too_far = b.compare("fcmp olt", rest, zero)
            rest = b.select(too_far, b.binary("fadd", rest, divisor), rest)
            # Also for an infinite divisor, whose product with 0 would be NaN.
            rest = b.select(b.compare("fcmp oeq", quotient, zero), size, rest)
            return self.copysign(b.convert("fptrunc", rest, "float"), x)

        # NaN passes: it leaves NaN.
        near = b.compare("fcmp ult", quotient, typed_constant(2.0**53, "float64"))
        return self.where_all(near, left, lambda: self.by_library("fmod", x, y))

    def repeated(self, x: IrValue, times: int) -> IrValue:
        """`x` to the power of `times`, by `times - 1` multiplications."""
        product = x
        for _ in range(times - 1):
            product = self.builder.binary("fmul", product, x)
        return product

    def by_library(self, name: str, *operands: IrValue) -> IrValue:
        """A function of the C library, lane by lane; float32 in double precision, rounded once."""
        if operands[0].element == "double":
            return self.each_lane(name, *operands)
        wide = [self.builder.convert("fpext", x, "double") for x in operands]
        return self.builder.convert("fptrunc", self.each_lane(name, *wide), "float")
