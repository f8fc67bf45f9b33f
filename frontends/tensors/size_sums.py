"""Sums of products of sizes, and quotients of such sums, as shapes compute extents.

In: the names of tensors that hold sizes.  Out: a normal form, so that equal extents are equal
values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import reduce
from itertools import product as cartesian
from math import ceil, floor, gcd, lcm, prod
from typing import TypeAlias

from msgspec import Struct

from graphflow.base.sizes import Size


class Quotient(Struct, frozen=True):
    """`dividend // divisor`, rounded down; `quotient` makes it."""

    dividend: SizeSum
    divisor: int


class Product(Struct, frozen=True):
    """The product of two terms or more, in a fixed order."""

    factors: tuple[str | Quotient, ...]


Term: TypeAlias = "str | Quotient | Product"
"""The tensor that holds a size, or what is computed from several."""

_Monomial: TypeAlias = "tuple[tuple[str | Quotient, ...], int]"
"""The factors of a product of sizes, and the number that it is multiplied with."""


class SizeSum(Struct, frozen=True):
    """`offset + Σ factor · term`, whose terms are sizes, by the names of their tensors, quotients
    and products."""

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
        for factor in (factor for term, _ in self.factors for factor in _factors_of(term)):
            yield from (factor,) if isinstance(factor, str) else factor.dividend.names()

    @property
    def is_positive_number(self) -> bool:
        """Whether no size is in it, and it is above 0."""
        return not self.factors and self.offset >= 1

    def bounds(self, sizes: Mapping[str, Size]) -> tuple[int, int]:
        """Numbers between which the value is, for sizes that do not depend on each other.

        They are the least and the greatest value for sums of single sizes.
        """
        lo = hi = self.offset
        for term, factor in self.factors:
            least, most = sorted(factor * end for end in _term_bounds(term, sizes))
            lo, hi = lo + least, hi + most
        # What n and n // 2 have in common is lost above, and the last unit of roundings here.
        for height in range(1, 1 + max((_height(term) for term, _ in self.factors), default=0)):
            factors, below, above = _unrounded(self, height)
            for term, share in factors.items():
                first, last = sorted(share * end for end in _term_bounds(term, sizes))
                below, above = below + first, above + last
            lo, hi = max(lo, ceil(below)), min(hi, floor(above))
        # All values are as far from the offset as a multiple of what the factors have in common.
        step = gcd(*(factor for _, factor in self.factors)) or 1
        return lo + (self.offset - lo) % step, hi - (hi - self.offset) % step

    def value(self, values: Mapping[str, int]) -> int:
        """The value where sizes have these values."""
        terms = (
            factor * prod(_value(one, values) for one in _factors_of(term))
            for term, factor in self.factors
        )
        return sum(terms, self.offset)

    def text(self, sizes: Mapping[str, Size]) -> str:
        """The sum as users write it."""
        words = [_times(factor, _term_text(term, sizes)) for term, factor in self.factors]
        if self.offset or not words:
            words.append(str(self.offset))
        return " + ".join(words).replace("+ -", "- ")


def product(left: SizeSum, right: SizeSum) -> SizeSum:
    """The product, multiplied out."""
    result = SizeSum((), 0)
    for one, number in _monomials(left):
        for other, factor in _monomials(right):
            result = result.plus(_monomial((*one, *other)), number * factor)
    return result


def exact_ratio(dividend: SizeSum, divisor: SizeSum) -> SizeSum | None:
    """What gives `dividend` if it is multiplied with `divisor`; None where no sum of products does.

    Long division of polynomials: leading terms are divided until nothing is left.
    """
    order = _graded_order(dividend, divisor)
    if not _monomials(divisor):
        return None
    by, number = max(_monomials(divisor), key=order)
    result, left = SizeSum((), 0), dividend
    while left != SizeSum((), 0):
        terms, factor = max(_monomials(left), key=order)
        rest = Counter(terms)
        rest.subtract(by)
        if factor % number or min(rest.values(), default=0) < 0:
            return None
        part = SizeSum((), 0).plus(_monomial(tuple(rest.elements())), factor // number)
        result, left = result.plus(part), left.plus(product(part, divisor), -1)
    return result


def _graded_order(*totals: SizeSum) -> Callable[[_Monomial], tuple[int, list[int]]]:
    """An order of the terms of sums in which a product of two terms stands before another one if
    one of its factors does: by degree, then by the powers of each size."""
    factors = {factor for one in totals for terms, _ in _monomials(one) for factor in terms}
    names = sorted(factors, key=repr)

    def order(monomial: _Monomial) -> tuple[int, list[int]]:
        return len(monomial[0]), [monomial[0].count(name) for name in names]

    return order


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


def divisors_in(total: SizeSum) -> list[int]:
    """The numbers above 1 that divide the least common multiple of the divisors in a sum."""
    most = lcm(*_divisors(total))
    return [number for number in range(2, most + 1) if most % number == 0]


def _divisors(total: SizeSum) -> Iterator[int]:
    for factor in (factor for term, _ in total.factors for factor in _factors_of(term)):
        if isinstance(factor, Quotient):
            yield factor.divisor
            yield from _divisors(factor.dividend)


def multiples(total: SizeSum, name: str, step: int, sizes: Mapping[str, Size]) -> SizeSum:
    """A sum with `step` times a size in place of that size, of which there are as many."""
    result = SizeSum((), total.offset)
    for term, factor in total.factors:
        parts = (_multiples_of(one, name, step, sizes) for one in _factors_of(term))
        result = result.plus(reduce(product, parts), factor)
    return result


def _multiples_of(term: str | Quotient, name: str, step: int, sizes: Mapping[str, Size]) -> SizeSum:
    if isinstance(term, str):
        return SizeSum(((term, step if term == name else 1),), 0)
    return quotient(multiples(term.dividend, name, step, sizes), term.divisor, sizes)


def divided(left: SizeSum, right: SizeSum, sizes: Mapping[str, Size]) -> SizeSum | None:
    """`left / right` as ONNX divides integers, whose quotients are rounded to zero; None unless
    `right` is a positive number and `left` is never negative, where this is rounding down."""
    if not right.is_positive_number or left.bounds(sizes)[0] < 0:
        return None
    return quotient(left, right.offset, sizes)


def _value(term: str | Quotient, values: Mapping[str, int]) -> int:
    if isinstance(term, str):
        return values[term]
    return term.dividend.value(values) // term.divisor


def _factors_of(term: Term) -> tuple[str | Quotient, ...]:
    return term.factors if isinstance(term, Product) else (term,)


def _monomials(total: SizeSum) -> list[_Monomial]:
    """The terms of a sum as products, with their factors; the offset is an empty product."""
    found = [(_factors_of(term), factor) for term, factor in total.factors]
    return [*found, ((), total.offset)] if total.offset else found


def _monomial(factors: tuple[str | Quotient, ...]) -> SizeSum:
    if not factors:
        return SizeSum((), 1)
    term = factors[0] if len(factors) == 1 else Product(tuple(sorted(factors, key=repr)))
    return SizeSum(((term, 1),), 0)


def _term_bounds(term: Term, sizes: Mapping[str, Size]) -> tuple[int, int]:
    if isinstance(term, str):
        return sizes[term].lo, sizes[term].hi
    if isinstance(term, Product):
        ends = [prod(end) for end in cartesian(*(_term_bounds(one, sizes) for one in term.factors))]
        return min(ends), max(ends)
    lo, hi = term.dividend.bounds(sizes)
    return lo // term.divisor, hi // term.divisor


def _unrounded(total: SizeSum, height: int) -> tuple[dict[Term, Fraction], Fraction, Fraction]:
    """The factors of terms in a sum of which no quotient is rounded, and the least and the most
    that the sum has beside these; quotients below a height are terms as they are."""
    factors: dict[Term, Fraction] = {}
    below = above = Fraction(total.offset)
    for term, factor in total.factors:
        if not isinstance(term, Quotient) or _height(term) < height:
            factors[term] = factors.get(term, Fraction(0)) + factor
            continue
        inner, least, most = _unrounded(term.dividend, height)
        share = Fraction(factor, term.divisor)
        for one, number in inner.items():
            factors[one] = factors.get(one, Fraction(0)) + share * number
        ends = sorted((share * (least - term.divisor + 1), share * most))
        below, above = below + ends[0], above + ends[1]
    return factors, below, above


def _height(term: Term) -> int:
    """How many quotients of quotients a term is at most, which counts no factors of products."""
    if not isinstance(term, Quotient):
        return 0
    return 1 + max((_height(one) for one, _ in term.dividend.factors), default=0)


def _term_text(term: Term, sizes: Mapping[str, Size]) -> str:
    if isinstance(term, str):
        return sizes[term].name
    if isinstance(term, Product):
        return "·".join(_grouped(_term_text(factor, sizes)) for factor in term.factors)
    return f"{_grouped(term.dividend.text(sizes))} // {term.divisor}"


def _times(factor: int, text: str) -> str:
    if abs(factor) == 1:
        return text if factor == 1 else f"-{text}"
    return f"{factor}·{_grouped(text)}"


def _grouped(text: str) -> str:
    return f"({text})" if " " in text else text
