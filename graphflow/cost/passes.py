"""Prices, in cycles of one core, of passes over rows of data that stay in a cache.

In: the scalar operations of a statement.  Out: cycles of it on one vector, or on single numbers
between the passes over a row.  The figures were fitted to softmax and norms of rows of 96 to 4096
floats, in vectors of 16: their prices are between 0.7 and 1.6 of the measured times.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from graphflow.base.target import Target
from graphflow.tir import ELEMENTARY

SIMPLE = 0.4
"""Cycles of an addition, a multiplication or a load of a vector."""

PER_VECTOR = MappingProxyType(
    {
        **{name: f.cycles for name, f in ELEMENTARY.items() if f.cycles is not None},
        "sqrt": 4.0,
        "div": 4.0,
        "max": 1.5,
        "min": 1.5,
        "pow": 30.0,
    }
)
"""Cycles of those operations on a vector that take longer, where the target has no others."""

LONG = frozenset({"sqrt", "div", "pow", *ELEMENTARY})
"""Operations that nothing hides, wherever they are computed."""

DIVIDING = frozenset({"sqrt", "div"})
"""Those of a unit that does nothing else: measured on average pools, whose division takes no time
beside the sums of nine elements."""

PER_ROW = 6.0
"""Cycles in which the accumulators of a reduction become one number, beside other rows."""

AT_ONCE = 0.5
"""Cycles of a simple operation on single numbers, which runs beside those of other rows."""


def vector_cycles(operations: Iterable[str], target: Target) -> float:
    """Cycles of a statement on one vector; loads and stores count as operations too."""
    known = PER_VECTOR | dict(target.slow_operations)
    return sum(known.get(name, SIMPLE) for name in operations)


def number_cycles(operations: Iterable[str]) -> float:
    """Cycles of a statement on single numbers, between passes over a row."""
    return sum(PER_VECTOR.get(name, AT_ONCE) for name in operations)
