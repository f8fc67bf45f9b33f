"""Prices as integers: sums are exact in any order, and equally fast plans are ordered.

In: seconds.  Out: integers: seconds in a unit far below any difference that matters, shifted left,
plus a rank in the low bits.  The rank of a copy is 1, that of a candidate its position, so of
equally fast plans the one with fewer copies and earlier candidates is cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import ceil, log2
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.cost import Price
from graphflow.flow.candidates.copies import Copy

NEVER = 1 << 61
"""The price of what is impossible; two of them still add up within 64 bits."""

_CAP = np.array(NEVER)
"""`NEVER` as numpy takes it without a conversion."""

Table: TypeAlias = NDArray[np.int64]
"""Prices by the options of one or more variables, an axis for each."""


def plus(a: Table, b: Table) -> Table:
    """The sum of two tables of prices, capped at `NEVER`.

    It is capped in place: a second large table is memory that the system has to map and clear, and
    takes twelve times as long as the two operations.
    """
    total: Table = np.asarray(a + b)
    np.minimum(total, _CAP, out=total)
    return total


def added(total: Table, b: Table) -> None:
    """Add `b` to `total` in place, capped at `NEVER`; large tables need no second one for it."""
    np.add(total, b, out=total)
    np.minimum(total, _CAP, out=total)


def but_one(tables: Sequence[Table]) -> list[Table]:
    """For each table the sum of all others, which have as many axes."""
    zero = np.zeros((1,) * tables[0].ndim, np.int64)
    before = list(accumulate(tables[:-1], plus, initial=zero))
    behind = list(accumulate(tables[:0:-1], plus, initial=zero))[::-1]
    return [plus(a, b) for a, b in zip(before, behind, strict=True)]


class Prices(Struct, frozen=True):
    """The encoding of prices: `scale` units are a second, and ranks take the low `bits` bits."""

    scale: float
    bits: int

    @classmethod
    def upto(cls, seconds: float, rank: int) -> Prices:
        """The encoding with the finest unit that sums up to `seconds` and `rank` exactly, below
        `NEVER`.
        """
        bits = rank.bit_length()
        exponent = ceil(log2(seconds)) if seconds > 0 else 0
        return cls(2.0 ** (59 - bits - exponent), bits)

    def of(self, seconds: float, rank: int) -> int:
        """The price of this many seconds with this rank."""
        return (round(seconds * self.scale) << self.bits) + rank

    def options(self, seconds: Sequence[float]) -> Table:
        """The prices of the candidates of one node; earlier candidates have lower ranks."""
        return np.array([self.of(s, rank) for rank, s in enumerate(seconds)], np.int64)

    def copy(self, made: Copy | Price) -> int:
        """The price of a copy; its rank is 1."""
        return self.of(made.seconds, 1)

    def seconds(self, price: int) -> float:
        """The seconds of a price, without its rank."""
        return (price >> self.bits) / self.scale
