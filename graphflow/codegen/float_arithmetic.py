"""Float arithmetic from which the elementary functions are built, for scalars and vectors.

In: a builder and float values.  Out: values of the same type.  Constants take the type of the value
that they are combined with.  What always holds: nothing is contracted or reassociated, since the
error bounds of the functions rest on the roundings that are written.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.codegen.emit_builder import Builder, Value, literal


class FloatArithmetic:
    """Shorthand over one builder."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def negated(self, x: Value) -> Value:
        """`−x`, of NaN and zero with the other sign."""
        return self.builder.emit(f"fneg {x.type} {x.text}", x.element, x.lanes)

    def absolute(self, x: Value) -> Value:
        """`|x|`."""
        return self.builder.intrinsic("fabs", x)

    def constant(self, value: float, like: Value) -> Value:
        """`value` in the type of `like`."""
        return literal(value, "float32" if like.element == "float" else "float64")

    def fma(self, x: Value, y: Value, z: Value | float) -> Value:
        """`x · y + z`, rounded once."""
        addend = self.constant(z, x) if isinstance(z, float) else z
        return self.builder.intrinsic("fma", x, y, addend)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's scheme; coefficients from the lowest degree up."""
        total = self.builder.splat(self.constant(coefficients[-1], x), x.lanes)
        for coefficient in reversed(coefficients[:-1]):
            total = self.fma(total, x, coefficient)
        return total

    def copysign(self, size: Value, sign: Value) -> Value:
        """|size| with the sign bit of `sign`."""
        return self.builder.intrinsic("copysign", size, sign)

    def each_lane(self, name: str, *arguments: Value) -> Value:
        """A function of C's library, of doubles, called for one lane after the other."""
        b = self.builder
        # Frozen, as LLVM may know of a function of the C library that poison must not go into it.
        matched = [b.freeze(a) for a in b.matched(*arguments)]
        lanes = matched[0].lanes
        items = [b.call(name, "double", *(b.extract(a, i) for a in matched)) for i in range(lanes)]
        return items[0] if lanes == 1 else b.gathered(items, lanes)

    def repeated(self, x: Value, times: int) -> Value:
        """`x` multiplied by itself, so many factors."""
        product = x
        for _ in range(times - 1):
            product = self.builder.binary("fmul", product, x)
        return product

    def by_library(self, name: str, *operands: Value) -> Value:
        """A function of C's library, lane by lane; of float32 in double, rounded once."""
        if operands[0].element == "double":
            return self.each_lane(name, *operands)
        wide = [self.builder.convert("fpext", x, "double") for x in operands]
        return self.builder.convert("fptrunc", self.each_lane(name, *wide), "float")
