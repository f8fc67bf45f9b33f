"""Near-ties: choices between prices that differ by less than their error.

In: prices in the order of preference.  Out: a choice.  What always holds: prices that differ by
less than `NEAR` decide nothing, and a stated order decides instead.  Estimates are wrong by per
cents, and sums of floats depend on their order.

- Of variants of a kernel that are interchangeable (they read and leave the same), the first listed
  one is taken unless a later one is clearly cheaper.
- Layouts in blocks are taken where they are clearly cheaper, else plain ones (`plain_first`).
- A rewrite of the graph, or a plan preferred by end-to-end time, must be clearly cheaper.
- Of tiles whose cycles differ by rounding alone, the widest is taken.
- Sums of prices are compared exactly, as integers; of equal ones, fewer copies and then earlier
  variants win (`flow.elimination.prices`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Option = TypeVar("Option")

NEAR = 1e-3
"""The relative difference below which two prices count as equal."""

ROUNDING = 1e-9
"""The relative difference that summing the same price in another order may make."""


def clearly_less(price: float, other: float) -> bool:
    """Whether `price` is below `other` by more than `NEAR` of it."""
    return price * (1 + NEAR) < other


def plain_first(cycles: float) -> float:
    """The cycles to charge for a kernel that writes blocks: `NEAR` more than it takes.

    So blocks are chosen only where they are clearly cheaper.  It is charged in the price, not in
    comparisons of two prices, so that the cheapest plan is well defined.
    """
    return cycles * (1 + NEAR)


def first_of_cheapest(priced: Iterable[tuple[float, Option]]) -> Option:
    """The first option, in the order given, whose price is the least up to `ROUNDING`.

    ValueError where there are no options.
    """
    found = list(priced)
    least = min(price for price, _ in found)
    return next(option for price, option in found if price <= least * (1 + ROUNDING))
