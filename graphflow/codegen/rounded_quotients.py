"""Quotients rounded to whole numbers in bounds: computed without a division for each vector.

In: a vector of floats, a scale that all its lanes share, and whole bounds of at most three digits.
Out: the nearest integers to `clip(x / scale, low, high)`.  What always holds: these are those of
the quotient as a float, rounded once, and then rounded to an integer, ties to even.

Dividing a vector takes a processor 7 to 24 cycles.  Let r be 1 / scale rounded, and u = 2⁻¹⁴, which
is a unit of the last place of floats from 512 to 1024.  Between them is, in steps of u,

    t = x r + (512 − low + ½ + u)        a multiply-add, which rounds once

for bounds of bytes, and t differs by less than 7/8 u from what it were with the quotient as a float
in place of x r: by half of u where it is rounded, a quarter as r is, and an eighth as the quotient
is.  So the whole part of t, which the bits of t have, is the integer, unless the rest of t is 0 or
u: then the quotient may be next to a tie, as one in 8192 is, and a branch finds it exactly.  Let r'
be what r lacks, so that r + r' is 1 / scale but for 2⁻⁴⁶ of it:

    q = r x + (r' x)        less than a unit of the last place from x / scale
    e = x − q scale         exact, as q is so near and a multiply-add rounds once
    q + e r                 x / scale rounded to the nearest float (Markstein's theorem)

The quotient of two floats is not half-way between two floats, so there are no ties.  This holds
unless something underflows: with scales from 2⁻⁶⁰ to 2⁶⁰ nothing does for quotients above 2⁻³⁰, and
what is computed for smaller ones rounds to the integer 0, too.  x is bounded before, by the bounds
times the scale, so that nothing overflows: the quotients of these round to the bounds, and those of
x do not decrease with x.
A magnitude is not below the lower bound, which is 0 or less, and so is bounded from above alone; in
four vectors of AVX-512 by the instruction that makes it one (vrangeps).

Source: Markstein, Computation of elementary functions on the IBM RISC System/6000 processor, IBM
Journal of Research and Development 34 (1990).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from math import nan

from graphflow.codegen.avx512 import ByteTaker
from graphflow.codegen.math import Math
from graphflow.llvm import IrBuilder, IrValue, int_constant

LEAST_SCALE, MOST_SCALE = 2.0**-60, 2.0**60
"""Scales for which quotients are multiplied; others are rare, and numbers are divided by them."""


FIRST, WIDEST = 512.0, 255.0
"""The begin of the floats whose bits have the integer, and the widest range of these integers."""

FRACTION = 14
"""The bits of these floats behind the whole part."""

NARROW = 8
"""The lanes of a vector of AVX2."""

WHOLE_BITS = (127 + 9 << 23) >> FRACTION
"""The bits of `FIRST` without those behind the whole part."""


BEGIN_BITS = WHOLE_BITS % (1 << 16)
"""The lowest 16 of these."""


def bounded(b: IrBuilder, x: IrValue, low: IrValue, high: IrValue) -> IrValue:
    """`clip(x, low, high)`; NaN becomes `low`."""
    # In this order of operands each is one instruction of x86.
    raised = b.select(b.compare("fcmp ogt", x, low), x, low)
    return b.select(b.compare("fcmp olt", raised, high), raised, high)


def bounds_before(
    b: IrBuilder, bounds: tuple[IrValue, IrValue], zero: IrValue | None
) -> tuple[IrValue, IrValue]:
    """The bounds of numbers to which a zero point is added, which is then in `bounds`."""
    if zero is None:
        return bounds
    low, high = (b.binary("fsub", bound, zero) for bound in bounds)
    return low, high


def moved_by(b: IrBuilder, whole: IrValue, zero: IrValue | None) -> IrValue:
    """An i32 and a zero point, if there is one, which is a whole float."""
    return whole if zero is None else b.binary("add", whole, b.convert("fptosi", zero, "i32"))


class RoundedQuotients:
    """The nearest integers of quotients by one `scale`, with a zero point, in bounds.

    All arguments have one lane.  With `magnitudes` the dividends are the absolute values of what is
    given: these are not below the lower bound where the scale is usual.
    """

    def __init__(
        self,
        math: Math,
        scale: IrValue,
        bounds: tuple[IrValue, IrValue],
        zero: IrValue | None,
        magnitudes: bool = False,
    ) -> None:
        self._math, self._scale, self._zero, self._magnitudes = math, scale, zero, magnitudes
        self._first = bounds[0]
        b = math.builder
        self._low, self._high = low, high = bounds_before(b, bounds, zero)
        self._usual = _is_usual(math, scale, low, high)
        # Of a scale that is no number nothing may reach the bits that `_moved` makes.
        by = b.select(self._usual, scale, math.constant(1.0, scale))
        self._least, self._most = (b.binary("fmul", bound, by) for bound in (low, high))
        self._factor = b.binary("fdiv", math.constant(1.0, by), by)

    def of(self, x: IrValue) -> IrValue:
        """Those of a vector, as i32, in the bounds whatever is divided: readers rely on that."""
        math, b = self._math, self._math.builder
        near = math.magnitude_within(x, self._most) if self._magnitudes else self._bounded(x)
        bits = self._moved(near)

        def whole() -> IrValue:
            shifted = b.binary("lshr", bits, int_constant(FRACTION, "i32"))
            # The bits count from the lower bound, which has the zero point already.
            first = b.convert("fptosi", self._first, "i32")
            least = b.binary("sub", first, int_constant(WHOLE_BITS, "i32"))
            return b.binary("add", shifted, least)

        close = self._any_close([bits])
        return b.choose(close, lambda: self._exact(x, near), whole, rarely=True)

    def bytes_of(self, vectors: Sequence[IrValue], take: ByteTaker) -> IrValue:
        """Those of four vectors, of 16 with AVX-512 and of 8 with AVX2, as bytes in order.

        The four share one test and one store, and `take` makes bytes of their bits in fewer
        instructions than `of`, which shifts, adds and narrows each vector apart.
        """
        b = self._math.builder
        # What is left of a signalling NaN is some byte.
        magnitude = self._math.quiet_magnitude_within
        near = [magnitude(x, self._most) if self._magnitudes else self._bounded(x) for x in vectors]
        bits = [self._moved(one) for one in near]

        def whole() -> IrValue:
            first = b.convert("trunc", b.convert("fptosi", self._first, "i32"), "i8")
            return b.binary("add", take(b, bits, FRACTION), first)

        def exact() -> IrValue:
            found = [self._exact(x, one) for x, one in zip(vectors, near, strict=True)]
            return b.joined([b.convert("trunc", one, "i8") for one in found])

        return b.choose(self._any_close(bits), exact, whole, rarely=True)

    def words_of(
        self, vectors: Sequence[IrValue], take: ByteTaker, less: IrValue | None, signed: bool
    ) -> IrValue:
        """Those of two vectors of 8 less a number, an i32 of one lane, as 16 integers of 16 bits;
        with bounds of bytes, `signed` or not, in which they are whatever is divided."""
        math, b = self._math, self._math.builder
        near = [
            math.magnitude_within(x, self._most) if self._magnitudes else self._bounded(x)
            for x in vectors
        ]
        bits = [self._moved(one) for one in near]
        given = [] if less is None else [b.convert("trunc", less, "i16")]

        def whole() -> IrValue:
            # The bits count from the lower bound, as those of `of` do.
            first = b.convert("trunc", b.convert("fptosi", self._first, "i32"), "i16")
            begin = b.binary("sub", int_constant(BEGIN_BITS, "i16"), first)
            return reduce(
                partial(b.binary, "sub"), given, b.binary("sub", take(b, bits, FRACTION), begin)
            )

        def exact() -> IrValue:
            found = [self._exact(x, one) for x, one in zip(vectors, near, strict=True)]
            octets = b.joined([b.convert("trunc", one, "i8") for one in found])
            words = b.convert("sext" if signed else "zext", octets, "i16")
            return reduce(partial(b.binary, "sub"), given, words)

        return b.choose(self._any_close(bits), exact, whole, rarely=True)

    def _bounded(self, x: IrValue) -> IrValue:
        """A vector of dividends in the bounds times the scale."""
        return bounded(self._math.builder, x, self._least, self._most)

    def _moved(self, near: IrValue) -> IrValue:
        """The bits of floats whose whole parts are integers, counted from the lower bound."""
        math, b, unit = self._math, self._math.builder, 2.0**-FRACTION
        begin = b.binary("fsub", math.constant(FIRST + 0.5 + unit, self._low), self._low)
        # What is not a number has the bits of a quotient next to a tie.
        begin = b.select(self._usual, begin, math.constant(nan, self._low))
        return b.convert("bitcast", math.fma(near, self._factor, begin), "i32")

    def _any_close(self, vectors: Sequence[IrValue]) -> IrValue:
        """Whether a quotient of these vectors may be next to a tie.

        Each vector is tested under the mask of the lanes that no vector before has found close: one
        instruction (vptestmd).  The mask that the first one begins with is all lanes, which LLVM
        must not know, as it would else turn the conditions around and merge them one by one (korw).
        """
        b, behind = self._math.builder, int_constant((1 << FRACTION) - 2, "i32")
        if len(vectors) > 1 and vectors[0].lanes == NARROW:
            # Without masks the least of these numbers is 0 where one of them is.
            rests = [b.binary("and", bits, behind) for bits in vectors]
            vectors = [reduce(partial(b.intrinsic, "umin"), rests)]
        far = (
            b.compare("icmp ne", b.binary("and", bits, behind), int_constant(0, "i32"))
            for bits in vectors
        )
        lanes = vectors[0].lanes
        every, word = b.chosen_lanes((1 << lanes) - 1, lanes), f"i{lanes}"
        all_far = reduce(lambda one, other: b.binary("and", one, other), far, every)
        found = b.emit(f"bitcast {all_far.type} {all_far.text} to {word}", word)
        return b.compare("icmp ne", found, int_constant(-1, word))

    def _exact(self, x: IrValue, near: IrValue) -> IrValue:
        """The integers of any quotients; `near` are the dividends in the bounds."""
        math, b, scale, factor = self._math, self._math.builder, self._scale, self._factor

        def multiplied() -> IrValue:
            negative = math.negated(scale)
            rest = b.binary("fmul", math.fma(negative, factor, 1.0), factor)
            quotient = math.fma(near, factor, b.binary("fmul", near, rest))
            error = math.fma(quotient, negative, near)
            return b.nearest(math.fma(error, factor, quotient))

        def divided() -> IrValue:
            whole = math.absolute(x) if self._magnitudes else x
            return b.nearest(bounded(b, b.binary("fdiv", whole, scale), self._low, self._high))

        return moved_by(b, b.choose(self._usual, multiplied, divided), self._zero)


def _is_usual(math: Math, scale: IrValue, low: IrValue, high: IrValue) -> IrValue:
    """Whether the bounds are those of bytes, and the scale is one for which nothing underflows."""
    b = math.builder
    tests = (
        ("fcmp oge", scale, LEAST_SCALE),
        ("fcmp ole", scale, MOST_SCALE),
        ("fcmp oge", low, -WIDEST),
        ("fcmp ole", low, 0.0),
        ("fcmp ole", b.binary("fsub", high, low), WIDEST),
    )
    found = [b.compare(test, value, math.constant(limit, value)) for test, value, limit in tests]
    return reduce(lambda one, other: b.binary("and", one, other), found)
