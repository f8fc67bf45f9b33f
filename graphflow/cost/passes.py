"""Prices, in cycles of one core, of passes over rows of data that stay in a cache.

In: the scalar operations of a statement, how many vectors it handles, and the rows.  Out: cycles.
The figures were measured beside each other on rows of 64 to 4096 floats in vectors of 16.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

SIMPLE = 0.7
"""Cycles of an addition, a multiplication or a load of a vector."""

PER_VECTOR = MappingProxyType(
    {
        "exp": 10.0,
        "log": 14.0,
        "tanh": 20.0,
        "erf": 20.0,
        "sigmoid": 14.0,
        "sqrt": 10.0,
        "div": 8.0,
        "max": 2.0,
        "min": 2.0,
        "sin": 30.0,
        "cos": 30.0,
        "pow": 60.0,
    }
)
"""Cycles of those operations on a vector that take longer."""

PER_ROW = 20.0
"""Cycles in which the accumulators of a reduction become one number."""

NOT_HIDDEN = 0.3
"""The share of the cycles between passes that remains where each row is a single pass: the passes
of the next rows run meanwhile."""

AT_ONCE = 4.0
"""Operations on single numbers that run beside those of other rows."""


def vector_cycles(operations: Iterable[str]) -> float:
    """Cycles of a statement on one vector; loads and stores count as operations too."""
    return sum(PER_VECTOR.get(name, SIMPLE) for name in operations)


def number_cycles(operations: Iterable[str]) -> float:
    """Cycles of a statement on single numbers, between passes over a row."""
    return sum(PER_VECTOR.get(name, AT_ONCE) for name in operations)
