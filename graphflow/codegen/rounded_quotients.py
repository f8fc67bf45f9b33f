"""Quotients rounded to whole numbers in bounds: computed without a division for each vector.

In: a vector of floats, a scale that all its lanes share, and whole bounds of at most three digits.
Out: the nearest integers to `clip(x / scale, low, high)`.  What always holds: these are those of
the quotient as a float, rounded once, and then rounded to an integer, ties to even.

Dividing a vector takes a processor 7 to 24 cycles.  Let r be 1 / scale rounded, and r' what it
lacks, so that r + r' is 1 / scale but for 2⁻⁴⁶ of it:

    q = r x + (r' x)        less than a unit of the last place from x / scale
    e = x − q scale         exact, as q is so near and a multiply-add rounds once
    q + e r                 x / scale rounded to the nearest float (Markstein's theorem)

The quotient of two floats is not half-way between two floats, so there are no ties.  This holds
unless something underflows: with scales from 2⁻⁶⁰ to 2⁶⁰ nothing does for quotients above 2⁻³⁰, and
what is computed for smaller ones rounds to the integer 0, too.  x is bounded before, by the bounds
times the scale, so that nothing overflows: the quotients of these round to the bounds, and those of
x do not decrease with x.

Source: Markstein, Computation of elementary functions on the IBM RISC System/6000 processor, IBM
Journal of Research and Development 34 (1990).
"""

from __future__ import annotations

from graphflow.codegen.math import Math
from graphflow.llvm import IrBuilder, IrValue

LEAST_SCALE, MOST_SCALE = 2.0**-60, 2.0**60
"""Scales for which quotients are multiplied; others are rare, and numbers are divided by them."""


def bounded(b: IrBuilder, x: IrValue, low: IrValue, high: IrValue) -> IrValue:
    """`clip(x, low, high)`; NaN becomes `low`."""
    # In this order of operands each is one instruction of x86.
    raised = b.select(b.compare("fcmp ogt", x, low), x, low)
    return b.select(b.compare("fcmp olt", raised, high), raised, high)


def rounded_quotient(
    math: Math, x: IrValue, scale: IrValue, low: IrValue, high: IrValue
) -> IrValue:
    """The nearest i32 of `clip(x / scale, low, high)`, for a vector x and a scale of one lane."""
    b = math.builder

    def multiplied() -> IrValue:
        factor = b.binary("fdiv", math.constant(1.0, x), scale)
        negative = math.negated(scale)
        rest = b.binary("fmul", math.fma(negative, factor, 1.0), factor)
        near = bounded(b, x, b.binary("fmul", low, scale), b.binary("fmul", high, scale))
        quotient = math.fma(near, factor, b.binary("fmul", near, rest))
        error = math.fma(quotient, negative, near)
        return b.nearest(math.fma(error, factor, quotient))

    def divided() -> IrValue:
        return b.nearest(bounded(b, b.binary("fdiv", x, scale), low, high))

    usual = b.binary(
        "and",
        b.compare("fcmp oge", scale, math.constant(LEAST_SCALE, scale)),
        b.compare("fcmp ole", scale, math.constant(MOST_SCALE, scale)),
    )
    return b.choose(usual, multiplied, divided)
