"""Cycles of what kernels do besides register tiles.

In: counts of operations, elements and bytes, and the target.  Out: cycles of one core.
"""

from __future__ import annotations

from graphflow.base.target import Target

SCALAR_CYCLES = 4.0
"""Cycles of one operation outside lanes, loads and stores included."""

MOVE_CYCLES = 2.0
"""Cycles to load and store one element by itself."""

MASKED_REDUCTION = 1.05
"""How much longer a reduction takes that stops at the logical extent of a padded axis."""

GATHERED = 8.0
"""How much longer a step of a reduction takes whose lanes load elements apart."""

UNPACKED = 2.6
"""How much longer it takes if lanes run along image rows: no loaded vector serves more than one
multiply-add."""

FETCHING_SHARE = 0.1
"""The most of a group's time that may go into fetching its weights again."""


def operation_cycles(operations: float) -> float:
    """Of so many operations one by one, or of so many on whole vectors."""
    return operations * SCALAR_CYCLES


def move_cycles(elements: int, adjacent: bool, dtype: str, target: Target) -> float:
    """Of moving elements; where they are `adjacent` on both sides, in vectors."""
    one = MOVE_CYCLES / target.computed_lanes(dtype) if adjacent else MOVE_CYCLES
    return elements * one


def in_pieces(target: Target) -> bool:
    """Whether stores of one, two, four … lanes are cheaper than one under a mask known beforehand.

    A mask leaves as many pieces as the binary number of its lanes has ones, mostly one or two.
    """
    return target.cycles_per_masked_store > 1


def streaming_cycles(weight_bytes: float, near: bool, target: Target) -> float:
    """Of loading so many bytes of weights from the second-level cache if `near`, else the third."""
    return weight_bytes / (target.l2_bytes_per_cycle if near else target.l3_bytes_per_cycle)


def rows_worth_weights(weight_bytes: float, near: bool, row_cycles: float, target: Target) -> float:
    """How many rows of an image make up for fetching a group's weights for them.

    `weight_bytes` are those of one group, `near` where those of all are in the second-level cache.
    """
    return streaming_cycles(weight_bytes, near, target) / (FETCHING_SHARE * row_cycles)
