"""Float arithmetic from which the elementary functions are built, for scalars and vectors.

In: a builder and float values.  Out: values of the same type.  Constants take the type of the value
that they are combined with.  What always holds: nothing is contracted or reassociated, since the
error bounds of the functions rest on the roundings that are written.
"""

from __future__ import annotations

from collections.abc import Sequence

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
