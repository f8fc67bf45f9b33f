"""The regions of a physical box, and windows: boxes inside larger ones.

In: predicates over the physical variables p0, p1 ….  Out: named regions.  What always holds: the
regions of one box are disjoint and cover it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from graphflow import arith

LOGICAL = "logical"
"""The name of the region that holds the tensor itself."""
GAP = "gap"
"""Places of the box to which the map sends no index, neither of the tensor nor beyond it."""


def pad_region_name(axes: Sequence[int]) -> str:
    """The region whose logical index leaves the tensor along exactly these logical axes."""
    return f"pad({','.join(map(str, axes))})"


class Region(Struct, frozen=True):
    """The points of a physical box at which `predicate` holds."""

    name: str
    predicate: arith.Predicate
    axes: tuple[arith.Var, ...]
    shape: tuple[int, ...]

    def domain(self) -> arith.Domain:
        """The points of the region."""
        return arith.box(self.axes, self.shape).given(self.predicate)

    def contains(self, point: Sequence[int]) -> bool:
        """Whether the region has this point of the box."""
        values: Mapping[arith.Var, int] = dict(zip(self.axes, point, strict=True))
        return arith.holds(self.predicate, values)


class StorageWindow(Struct, frozen=True):
    """A value's own part of a storage: `offsets` and extents, one a physical axis."""

    offsets: tuple[int, ...]
    shape: tuple[int, ...]

    def fits(self, storage_shape: Sequence[int]) -> bool:
        """Whether the window lies inside a storage of this shape."""
        return len(self.offsets) == len(self.shape) == len(storage_shape) and all(
            start >= 0 and start + extent <= whole
            for start, extent, whole in zip(self.offsets, self.shape, storage_shape, strict=True)
        )
