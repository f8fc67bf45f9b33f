"""Storages, windows (a value's part of a shared storage), and regions of a physical box.

In: a layout, and the offsets of its box in a larger storage.  Out: regions: named predicates over
the physical variables p0, p1 ….  What always holds: the regions of one box are disjoint and cover
it, and a value's kernel may write only its logical region and the padding that it owns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from graphflow.arith import Domain, Predicate, Var, box, holds
from graphflow.tir import DTYPES


class Owner(Enum):
    """Who may write a region: this value, another value (readable under its facts), or nobody."""

    OWN = "own"
    FOREIGN = "foreign"
    NONE = "none"


LOGICAL = "logical"
"""The name of the region that holds the tensor itself."""
GAP = "gap"
"""Points that are the image of no index at all, of a box wider than its map can reach."""
OUTSIDE = "outside"
"""Points of a shared storage outside the value's window."""


def pad_region_name(axes: Sequence[int]) -> str:
    """The region whose logical index leaves the tensor along exactly these logical axes."""
    return f"pad({','.join(map(str, axes))})"


@dataclass(frozen=True, slots=True)
class Region:
    """The points of a physical box at which `predicate` holds."""

    name: str
    predicate: Predicate
    axes: tuple[Var, ...]
    shape: tuple[int, ...]
    owner: Owner = Owner.OWN

    def domain(self) -> Domain:
        """The points of the region."""
        return box(self.axes, self.shape).given(self.predicate)

    def contains(self, point: Sequence[int]) -> bool:
        """Whether the region has this point of the box."""
        values: Mapping[Var, int] = dict(zip(self.axes, point, strict=True))
        return holds(self.predicate, values)


@dataclass(frozen=True, slots=True)
class Storage:
    """One allocation: a dense row-major box of `shape` elements."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        size = DTYPES[self.dtype].itemsize
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True, slots=True)
class Window:
    """A value's own part of a storage: `offsets` and extents, one a physical axis."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]

    def fits(self, storage_shape: Sequence[int]) -> bool:
        """Whether the window lies inside a storage of this shape."""
        return len(self.offsets) == len(self.shape) == len(storage_shape) and all(
            start >= 0 and start + extent <= whole
            for start, extent, whole in zip(self.offsets, self.shape, storage_shape, strict=True)
        )

    def overlaps(self, other: Window) -> bool:
        """Whether the two windows of one storage share an element."""
        return all(
            max(a, b) < min(a + m, b + n)
            for a, m, b, n in zip(self.offsets, self.shape, other.offsets, other.shape, strict=True)
        )
