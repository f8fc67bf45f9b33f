"""Masks of vectorized loops: which lanes of a vector are active.

In: conditions, each known at compile time, known per lane, or computed at run time.  Out: masks,
and the vectors of i1 that represent them.  What always holds: a lane beyond the loop's extent is
never active, whatever a condition computed at run time says.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from msgspec import Struct

from graphflow.codegen.emit_index import Decision
from graphflow.llvm import IrBuilder, IrValue, bool_constant, lanes_of


class Mask(Struct, frozen=True):
    """A set of lanes: those of `active`, known at compile time, for which `dynamic` is true.

    `dynamic` is frozen: in lanes that are not active it is some value, but not poison.
    """

    active: tuple[bool, ...]
    dynamic: IrValue | None = None

    @property
    def is_full(self) -> bool:
        """Whether every lane of the vector is active."""
        return self.dynamic is None and all(self.active)

    @property
    def is_prefix(self) -> bool:
        """Whether exactly the first `count` lanes are active."""
        return self.dynamic is None and all(self.active[: self.count])

    @property
    def count(self) -> int:
        """The number of lanes that may be active."""
        return sum(self.active)

    @property
    def width(self) -> int:
        return len(self.active)

    def lanes(self) -> Iterator[int]:
        """The lanes that may be active, in order."""
        return (i for i, active in enumerate(self.active) if active)

    def pieces(self) -> Iterator[tuple[int, int]]:
        """The lanes that may be active as runs (first lane, length), each length a power of two."""
        start = 0
        for active, run in groupby(self.active):
            left = sum(1 for _ in run)
            while left:
                lanes = 1 << (left.bit_length() - 1)
                if active:
                    yield start, lanes
                start, left = start + lanes, left - lanes


def mask_value(builder: IrBuilder, mask: Mask) -> IrValue:
    """A mask as a vector of i1."""
    fixed = lanes_of(mask.active, "i1")
    if mask.dynamic is None:
        return fixed
    if all(mask.active):
        return mask.dynamic
    # Sound as no lane of `dynamic` is poison: `and` would let it through.
    return builder.binary("and", mask.dynamic, fixed)


def lanes_where(
    builder: IrBuilder, mask: Mask, truth: Decision, holds: bool = True, by_index: bool = False
) -> Mask:
    """The lanes of `mask` for which `truth` holds too, or for which it does not.

    `by_index` says that loop variables alone decide: those of idle lanes are numbers, too.
    """
    if isinstance(truth, bool):
        return mask if truth is holds else Mask((False,) * mask.width)
    if isinstance(truth, IrValue):
        vector = builder.splat(truth, mask.width)
        if not by_index:
            # Frozen, because idle lanes may hold poison, and local memory that was never written
            # anything; and before it is negated, so that each lane runs for one of both sides.
            vector = builder.freeze(vector)
        if not holds:
            vector = builder.binary("xor", vector, bool_constant(True))
        if mask.dynamic is not None:
            vector = builder.binary("and", mask.dynamic, vector)
        return Mask(mask.active, vector)
    active = tuple(a and t is holds for a, t in zip(mask.active, truth, strict=True))
    return Mask(active, mask.dynamic)
