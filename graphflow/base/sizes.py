"""Sizes: extents of inputs that are known only in a run, within bounds that are known before.

In: a name of a dimension and its bounds, as a user gives them.  Out: `Size`s, the relations
between them, and the formulas of those that are computed from others.  What always holds: a
program for sizes has room for the most of each, and a run has from the least to the most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from graphflow.base.errors import InvalidModel
from graphflow.base.fields import Signed

BOUNDLESS = 1 << 62
"""The most of a size without one, for which the compiler chooses ranges."""


class Size(Struct, frozen=True):
    """A symbolic dimension of a model: `lo <= extent <= hi` in every run of one program."""

    name: str
    lo: int
    hi: int

    @property
    def is_bounded(self) -> bool:
        """Whether it has a most."""
        return self.hi < BOUNDLESS

    def __str__(self) -> str:
        return f"{self.name} from {self.lo} {f'to {self.hi}' if self.is_bounded else 'on'}"


class SizeRelation(Struct, frozen=True):
    """What holds in every run: a size is `offset + Σ factor · size`, over the names of others; or
    at least that, unless `is_exact`."""

    size: str
    factors: tuple[tuple[str, Signed], ...]
    offset: Signed
    is_exact: bool = True

    def __str__(self) -> str:
        words = [name if factor == 1 else f"{factor}·{name}" for name, factor in self.factors]
        if self.offset or not words:
            words.append(str(self.offset))
        sign = "=" if self.is_exact else ">="
        return f"{self.size} {sign} {' + '.join(words)}".replace("+ -", "- ")

    def value(self, extents: Mapping[str, int]) -> int:
        """What the size is, or is at least, where the others are `extents`."""
        return self.offset + sum(factor * extents[name] for name, factor in self.factors)

    def most_given(self, bounds: Mapping[str, tuple[int, int]]) -> int | None:
        """The most that the others give the size within their bounds; None for an inequality."""
        if not self.is_exact:
            return None
        return self.value({name: bounds[name][factor > 0] for name, factor in self.factors})

    def wanted(self, extents: Mapping[str, int]) -> str:
        """What has to hold, for a run in which it does not."""
        return f"{self} has to hold, and that would be {self.value(extents)}"

    def may_hold(self, extents: Mapping[str, int]) -> bool:
        """Whether the relation holds, as far as `extents` are known."""
        try:
            size, value = extents[self.size], self.value(extents)
        except KeyError:
            return True
        return size == value if self.is_exact else size >= value


class SizeStep(Struct, frozen=True):
    """What holds in every run: a size is a multiple of `step`."""

    size: str
    step: int

    @property
    def factors(self) -> tuple[tuple[str, int], ...]:
        """The other sizes that it names: none."""
        return ()

    @property
    def is_exact(self) -> bool:
        """It fixes extents as an equation does."""
        return True

    def __str__(self) -> str:
        return f"{self.size} % {self.step} = 0"

    def most_given(self, bounds: Mapping[str, tuple[int, int]]) -> None:
        """None: no other size is part of it."""

    def wanted(self, extents: Mapping[str, int]) -> str:
        """What has to hold, for a run in which it does not."""
        above = -(-extents[self.size] // self.step) * self.step
        return f"{self.size} has to be a multiple of {self.step}, such as {above}"

    def may_hold(self, extents: Mapping[str, int]) -> bool:
        """Whether the relation holds, as far as `extents` are known."""
        return extents.get(self.size, 0) % self.step == 0


Relation: TypeAlias = SizeRelation | SizeStep
"""What a program relies on of the sizes of a run, and each run checks."""


FormulaKind: TypeAlias = Literal["quotient", "product", "lesser"]


class SizeFormula(Struct, frozen=True):
    """How a size is computed from sizes, its operands, and `numbers`.

    - quotient: of the sum of all operands times their factors and an offset, rounded down; the
      numbers are a factor for each operand, the offset, and the divisor, which is positive.
    - product: of the operands; there are no numbers.
    - lesser: the least of all operands and numbers.
    """

    kind: FormulaKind
    numbers: tuple[Signed, ...] = ()

    def takes(self, count: int) -> bool:
        """Whether it is a formula of `count` operands."""
        given = len(self.numbers)
        match self.kind:
            case "quotient":
                return count >= 1 and given == count + 2 and self.numbers[-1] >= 1
            case "product":
                return count >= 1 and given == 0
            case "lesser":
                return count >= 1

    def value(self, operands: Sequence[int]) -> int:
        """The size, where the operands have these values."""
        match self.kind:
            case "quotient":
                *factors, offset, divisor = self.numbers
                for factor, operand in zip(factors, operands, strict=True):
                    offset += factor * operand
                return offset // divisor
            case "product":
                return prod(operands)
            case "lesser":
                return min(*operands, *self.numbers)

    def bounds(self, operands: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """The least and the greatest value for operands between these bounds, which do not depend
        on each other."""
        if self.kind == "product":
            ends = [prod(chosen) for chosen in product(*operands)]
            return min(ends), max(ends)
        if self.kind == "quotient":
            factors = self.numbers[:-2]
            pairs = zip(factors, operands, strict=True)
            operands = [pair if factor >= 0 else pair[::-1] for factor, pair in pairs]
        least, most = zip(*operands, strict=True)
        return self.value(least), self.value(most)


def sizes_of(given: Mapping[str, Any]) -> tuple[Size, ...]:
    """The sizes that `{name: (lo, hi)}` states, in its order; one whose `hi` is None has no most.

    Raises TypeError unless it is a mapping of names to pairs of integers, and InvalidModel for
    bounds that no run could satisfy or that allow only empty tensors.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"sizes is {type(given).__name__}, must map names to pairs (lo, hi)")
    return tuple(_size(name, bounds) for name, bounds in given.items())


def _size(name: Any, bounds: Any) -> Size:
    if not isinstance(name, str):
        raise TypeError(f"sizes: {name!r} is no name of a dimension")
    pair = tuple(bounds) if isinstance(bounds, tuple | list) else ()
    if len(pair) == 2 and pair[1] is None:
        pair = (pair[0], BOUNDLESS)
    if len(pair) != 2 or not all(type(n) is int for n in pair):
        raise TypeError(
            f"sizes[{name!r}] is {bounds!r}, must be a pair of integers (lo, hi), or (lo, None)"
        )
    lo, hi = pair
    if not 0 <= lo <= hi or hi < 1:
        raise InvalidModel(
            f"sizes[{name!r}] is {pair}; the least extent must be 0 or more and at most the "
            "greatest, and that must be 1 or more"
        )
    return Size(name, lo, hi)
