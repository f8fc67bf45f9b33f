"""Prices as integers: sums are exact in any order, and plans that take equally long have an order.

A price is seconds, rounded to a unit far below any that matters, with a rank in its low bits: of
plans that take equally long, the one with the fewer copies and the earlier variants is the cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log2
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphflow.cost import Price
from graphflow.flow.copies import Copy

NEVER = 1 << 61
"""The price of what may not be."""

Table: TypeAlias = NDArray[np.int64]


def plus(a: Table, b: Table) -> Table:
    """Sums of prices, of at most `NEVER`."""
    return np.asarray(np.minimum(a + b, NEVER), np.int64)


@dataclass(frozen=True)
class Prices:
    """`scale` units make a second; ranks take `bits` bits below the units."""

    scale: float
    bits: int

    @classmethod
    def upto(cls, seconds: float, rank: int) -> Prices:
        """The finest prices whose sums, up to this many seconds and this rank, stay exact."""
        bits = rank.bit_length()
        exponent = ceil(log2(seconds)) if seconds > 0 else 0
        return cls(2.0 ** (59 - bits - exponent), bits)

    def of(self, seconds: float, rank: int) -> int:
        """The price of something."""
        return (round(seconds * self.scale) << self.bits) + rank

    def options(self, seconds: Sequence[float]) -> Table:
        """The prices of the candidates of one node; earlier ones have lower ranks."""
        return np.array([self.of(s, rank) for rank, s in enumerate(seconds)], np.int64)

    def copy(self, made: Copy | Price) -> int:
        """The price of a copy."""
        return self.of(made.seconds, 1)

    def seconds(self, price: int) -> float:
        """The seconds in a price."""
        return (price >> self.bits) / self.scale
