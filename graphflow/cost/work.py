"""What has to be done, as data: the side of a price that does not depend on the processor's speed.

Recipes say it of kernels, `flow` of copies; `CostModel` turns it into seconds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """What one run of a kernel does.

    `flops` is logical work in operations, a multiply-add counted as two; `cycles` the issue slots
    of one core for all of it, overcompute included, as the functions of this package give them;
    `rows` how many pieces threads can share; `read` and `written` bytes of memory, each touched
    once.
    """

    flops: float
    cycles: float
    rows: int
    read: int
    written: int


NO_WORK = Work(0.0, 0.0, 1, 0, 0)
"""What is not executed costs nothing."""


@dataclass(frozen=True, slots=True)
class ConversionWork:
    """What a conversion between two layouts does.

    `elements` of `dtype` are moved, in runs of `count` that lie next to each other in the target;
    `adjacent` if they do in the source too.  With `across`, blocks are transposed in registers, for
    so many elements next to each other in the source follow along another axis of the target.
    `moved_bytes` are read and written together.
    """

    elements: int
    dtype: str
    count: int
    adjacent: bool
    across: int
    moved_bytes: int
