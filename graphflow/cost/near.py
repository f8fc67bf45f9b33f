"""Near-ties: what prices cannot tell apart is decided by a stated order.

In: prices in the order of preference.  Out: a choice.  Estimates are wrong by per cents, and sums
of floats by their rounding: which of two options is cheaper by less than `NEAR` says nothing about
them, so it decides nothing.

- Of variants of a kernel that are interchangeable (they read and leave the same), the first listed
  one is taken unless a later one is clearly cheaper.
- Layouts in blocks are taken where they are clearly cheaper, else plain ones (`plain_first`).
- A graph is changed, or a plan timed end to end preferred, where that is clearly cheaper.
- Tiles whose cycles are equal but for rounding: the widest.
- Sums of prices are compared exactly, as integers; of equal ones fewer copies and earlier variants
  win (`flow.prices`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Option = TypeVar("Option")

NEAR = 1e-3
"""The share by which prices may differ and still count as equal."""

ROUNDING = 1e-9
"""The share by which the same price may differ when it is summed up in another order."""


def clearly_less(price: float, other: float) -> bool:
    """Whether a price is below another one by more than equal prices may differ."""
    return price * (1 + NEAR) < other


def plain_first(cycles: float) -> float:
    """Cycles of a kernel that writes blocks, so that it is taken where that is clearly cheaper.

    It is a part of the price, not a comparison of two: so the cheapest plan stays the cheapest.
    """
    return cycles * (1 + NEAR)


def first_of_cheapest(priced: Iterable[tuple[float, Option]]) -> Option:
    """The first option, in the order given, of those whose price is the least but for rounding.

    ValueError where there are no options.
    """
    found = list(priced)
    least = min(price for price, _ in found)
    return next(option for price, option in found if price <= least * (1 + ROUNDING))
