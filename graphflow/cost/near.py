"""Near-ties: what a price cannot tell apart is decided by a stated order.

In: prices in the order of preference.  Out: a choice, or prices that tie exactly.  Estimates are
wrong by per cents, and sums of floats by their rounding: which of two options is cheaper by less
than `NEAR` says nothing about them, so it decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

Option = TypeVar("Option")

NEAR = 0.0
"""The share by which prices may differ and still count as equal."""


def first_of_cheapest(priced: Iterable[tuple[float, Option]]) -> Option:
    """The first option, in the order given, whose price is within `NEAR` of the least one.

    ValueError where there are no options.
    """
    found = list(priced)
    least = min(price for price, _ in found)
    return next(option for price, option in found if _near(least, price))


def levelled(prices: Sequence[float]) -> list[float]:
    """The prices, each replaced by the least one that it cannot be told from.

    From the cheapest on, whatever is within `NEAR` of it ties with it; the cheapest of what is left
    is the next to be tied with.  Equal prices stay equal, and no order is reversed.
    """
    level = list(prices)
    floor: float | None = None
    for place in sorted(range(len(level)), key=level.__getitem__):
        if floor is None or not _near(floor, level[place]):
            floor = level[place]
        level[place] = floor
    return level


def _near(least: float, price: float) -> bool:
    return price <= least * (1 + NEAR)
