"""Sums of sizes with integer factors, as shapes compute extents from extents.

In: the names of tensors that hold sizes.  Out: a normal form, so that equal sums are equal values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphflow.base.sizes import Size


@dataclass(frozen=True, slots=True)
class SizeSum:
    """`offset + Σ factor · size` over some sizes, by the names of their tensors."""

    factors: tuple[tuple[str, int], ...]
    offset: int

    def plus(self, other: SizeSum, factor: int = 1) -> SizeSum:
        """`self + factor · other`."""
        factors = dict(self.factors)
        for name, number in other.factors:
            factors[name] = factors.get(name, 0) + factor * number
        kept = sorted((name, number) for name, number in factors.items() if number)
        return SizeSum(tuple(kept), self.offset + factor * other.offset)

    def bounds(self, sizes: Mapping[str, Size]) -> tuple[int, int]:
        """The least and the greatest value, for sizes that do not depend on each other."""
        ends = [
            sorted((factor * sizes[name].lo, factor * sizes[name].hi))
            for name, factor in self.factors
        ]
        return self.offset + sum(lo for lo, _ in ends), self.offset + sum(hi for _, hi in ends)

    def text(self, sizes: Mapping[str, Size]) -> str:
        """The sum as users write it."""
        words = [
            sizes[name].name if factor == 1 else f"{factor}·{sizes[name].name}"
            for name, factor in self.factors
        ]
        if self.offset or not words:
            words.append(str(self.offset))
        return " + ".join(words).replace("+ -", "- ")


def product(left: SizeSum, right: SizeSum) -> SizeSum | None:
    """The product, where one of both is a number."""
    if left.factors and right.factors:
        return None
    many, number = (left, right.offset) if left.factors else (right, left.offset)
    return SizeSum((), 0).plus(many, number)
