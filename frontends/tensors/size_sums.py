"""Sums of sizes with integer factors and quotients of such sums, as shapes compute extents.

In: the names of tensors that hold sizes.  Out: a normal form, so that equal extents are equal
values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, gcd
from typing import TypeAlias

from graphflow.base.sizes import Size


@dataclass(frozen=True, slots=True)
class Quotient:
    """`dividend // divisor`, rounded down; `quotient` makes it."""

    dividend: SizeSum
    divisor: int


Term: TypeAlias = "str | Quotient"
"""The tensor that holds a size, or a quotient of sizes."""


@dataclass(frozen=True, slots=True)
class SizeSum:
    """`offset + Σ factor · term`, whose terms are sizes, by the names of their tensors, and
    quotients."""

    factors: tuple[tuple[Term, int], ...]
    offset: int

    def plus(self, other: SizeSum, factor: int = 1) -> SizeSum:
        """`self + factor · other`."""
        factors = dict(self.factors)
        for term, number in other.factors:
            factors[term] = factors.get(term, 0) + factor * number
        kept = sorted(((term, number) for term, number in factors.items() if number), key=repr)
        return SizeSum(tuple(kept), self.offset + factor * other.offset)

    def names(self) -> Iterator[str]:
        """The tensors that hold the sizes in it."""
        for term, _ in self.factors:
            yield from (term,) if isinstance(term, str) else term.dividend.names()

    def bounds(self, sizes: Mapping[str, Size]) -> tuple[int, int]:
        """Numbers between which the value is, for sizes that do not depend on each other.

        They are the least and the greatest value for sums without quotients.
        """
        lo = hi = self.offset
        for term, factor in self.factors:
            least, most = sorted(factor * end for end in _term_bounds(term, sizes))
            lo, hi = lo + least, hi + most
        # What n and n // 2 have in common is lost above, and the last unit of roundings here.
        factors, below, above = _unrounded(self)
        for name, share in factors.items():
            first, last = sorted((share * sizes[name].lo, share * sizes[name].hi))
            below, above = below + first, above + last
        return max(lo, ceil(below)), min(hi, floor(above))

    def text(self, sizes: Mapping[str, Size]) -> str:
        """The sum as users write it."""
        words = [_times(factor, _term_text(term, sizes)) for term, factor in self.factors]
        if self.offset or not words:
            words.append(str(self.offset))
        return " + ".join(words).replace("+ -", "- ")


def product(left: SizeSum, right: SizeSum) -> SizeSum | None:
    """The product, where one of both is a number."""
    if left.factors and right.factors:
        return None
    many, number = (left, right.offset) if left.factors else (right, left.offset)
    return SizeSum((), 0).plus(many, number)


def quotient(dividend: SizeSum, divisor: int, sizes: Mapping[str, Size]) -> SizeSum:
    """`dividend // divisor`, rounded down, for a positive divisor.

    Multiples of the divisor move out of it, common factors are cancelled, and the quotient of one
    quotient, perhaps with something added to it, is one of its dividend.
    """
    whole, rest = (
        SizeSum(tuple((term, n) for term, n in parts if n), offset)
        for parts, offset in (
            ([(term, n // divisor) for term, n in dividend.factors], dividend.offset // divisor),
            ([(term, n % divisor) for term, n in dividend.factors], dividend.offset % divisor),
        )
    )
    inner = [term for term, n in rest.factors if isinstance(term, Quotient) and n == 1]
    if len(inner) == 1:  # ⌊(⌊a / b⌋ + c) / d⌋ = ⌊(a + b·c) / (b·d)⌋
        beside = rest.plus(SizeSum(((inner[0], 1),), 0), -1)
        nested = inner[0].dividend.plus(beside, inner[0].divisor)
        return whole.plus(quotient(nested, divisor * inner[0].divisor, sizes))
    common = gcd(divisor, *(n for _, n in rest.factors))
    rest = SizeSum(tuple((term, n // common) for term, n in rest.factors), rest.offset // common)
    least, most = (bound // (divisor // common) for bound in rest.bounds(sizes))
    if least == most:
        return whole.plus(SizeSum((), least))
    return whole.plus(SizeSum(((Quotient(rest, divisor // common), 1),), 0))


def divided(left: SizeSum, right: SizeSum, sizes: Mapping[str, Size]) -> SizeSum | None:
    """`left / right` as ONNX divides integers, whose quotients are rounded to zero; None unless
    `right` is a positive number and `left` is never negative, where this is rounding down."""
    if right.factors or right.offset < 1 or left.bounds(sizes)[0] < 0:
        return None
    return quotient(left, right.offset, sizes)


def _term_bounds(term: Term, sizes: Mapping[str, Size]) -> tuple[int, int]:
    if isinstance(term, str):
        return sizes[term].lo, sizes[term].hi
    lo, hi = term.dividend.bounds(sizes)
    return lo // term.divisor, hi // term.divisor


def _unrounded(total: SizeSum) -> tuple[dict[str, Fraction], Fraction, Fraction]:
    """The factors of sizes in a sum of which no quotient is rounded, and the least and the most
    that the sum has beside these."""
    factors: dict[str, Fraction] = {}
    below = above = Fraction(total.offset)
    for term, factor in total.factors:
        if isinstance(term, str):
            factors[term] = factors.get(term, Fraction(0)) + factor
            continue
        inner, least, most = _unrounded(term.dividend)
        share = Fraction(factor, term.divisor)
        for name, number in inner.items():
            factors[name] = factors.get(name, Fraction(0)) + share * number
        ends = sorted((share * (least - term.divisor + 1), share * most))
        below, above = below + ends[0], above + ends[1]
    return factors, below, above


def _term_text(term: Term, sizes: Mapping[str, Size]) -> str:
    if isinstance(term, str):
        return sizes[term].name
    return f"{_grouped(term.dividend.text(sizes))} // {term.divisor}"


def _times(factor: int, text: str) -> str:
    if abs(factor) == 1:
        return text if factor == 1 else f"-{text}"
    return f"{factor}·{_grouped(text)}"


def _grouped(text: str) -> str:
    return f"({text})" if " " in text else text
