"""Elementary functions of float32 by the scaling, the ranges and the tables of AVX-512.

In, out and the bounds of the errors are those of `math`.
"""

from __future__ import annotations

from functools import partial

from graphflow.codegen.avx512 import (
    RANGE_LARGER,
    RANGE_MAGNITUDE,
    RANGE_NEARER_ZERO,
    RANGE_SMALLER,
    TABLE_ENTRIES,
    looked_up,
    scaled,
    vrange,
)
from graphflow.codegen.erf_table import erf_by_table
from graphflow.codegen.float_arithmetic import ROUNDING
from graphflow.codegen.math import EXP, Math
from graphflow.llvm import IrValue

EXP_NEAR_ZERO = (1.0, 0.5000161528587341, 0.16666649281978607)
"""(exp(r) − 1) / r on |r| <= ln 2 / 32."""

POWERS = tuple(2.0 ** (k / TABLE_ENTRIES) for k in range(TABLE_ENTRIES))

_CHOICES = {"max": RANGE_LARGER, "min": RANGE_SMALLER}


class Avx512Math(Math):
    """Elementary functions where a processor has AVX-512."""

    def extremum_of(self, name: str, x: IrValue, y: IrValue) -> IrValue:
        """vrangeps orders signed zeros; where a NaN is involved, the sum is one.

        Three instructions, where LLVM's own lowering takes six.
        """
        if x.element != "float":
            return super().extremum_of(name, x, y)
        b = self.builder
        unordered = b.compare("fcmp uno", x, y)
        return b.select(unordered, b.binary("fadd", x, y), vrange(b, _CHOICES[name], x, y))

    def quiet_magnitude_within(self, x: IrValue, most: IrValue) -> IrValue:
        """One instruction (vrangeps), which passes over a quiet NaN alone."""
        return vrange(self.builder, RANGE_MAGNITUDE, x, most)

    def extreme_lane(self, name: str, vector: IrValue) -> IrValue:
        """By vrangeps, which passes over NaN: these are looked for once, beside the halving."""
        if vector.element != "float":
            return super().extreme_lane(name, vector)
        b = self.builder
        extreme = self.folded(vector, partial(vrange, b, _CHOICES[name]))
        unordered = b.compare("fcmp uno", vector, vector)
        some = b.call(f"llvm.vector.reduce.or.v{vector.lanes}i1", "i1", b.readable(unordered))
        return b.select(some, self.constant(float("nan"), extreme), extreme)

    def exp(self, x: IrValue) -> IrValue:
        """x = n·ln 2 + r for n in sixteenths; 2 to the fraction of n from a table, times exp(r).

        11 instructions, of which 9 are for the multiply-add units; by a polynomial it is 12 of 13.
        The largest error, of all arguments from −104 to 104, is 0.9989 units: the table's is 0.45
        and that of the last sum 0.5.
        """
        b = self.builder
        n, r, rounded = self.reduced(x, ROUNDING / TABLE_ENTRIES)
        r = self._limited(r)
        power = looked_up(b, POWERS, b.convert("bitcast", rounded, "i32"))
        above = b.binary("fmul", self.polynomial(r, EXP_NEAR_ZERO), r)
        return scaled(b, self.fma(power, above, power), n)

    def exp_by_polynomial(self, x: IrValue) -> IrValue:
        """As `Math` does it, but scaled by one instruction."""
        n, r, _ = self.reduced(x, ROUNDING)
        return scaled(self.builder, self.polynomial(self._limited(r), (1.0, 1.0, *EXP)), n)

    def _limited(self, r: IrValue) -> IrValue:
        """A remainder as it is, and a number within ±½ for anything else.

        Where x is so large that r is no remainder any more, but any number or NaN, exp(r) is so a
        positive number, and 2ⁿ makes it zero, infinite or NaN.
        """
        return vrange(self.builder, RANGE_NEARER_ZERO, r, self.constant(0.5, r))

    def erf_of_size(self, size: IrValue) -> IrValue:
        """By a table of polynomials."""
        return erf_by_table(self, size)
