"""Layouts: an index map, the physical box that contains its image, and the map's construction.

In: an index map and a logical shape, or one of the named constructions.  Out: a frozen `Layout`.
What always holds: every logical index is mapped into the physical box, and no two to the same
place.  The box is the smallest one (by interval arithmetic) unless a larger one is given.  Two
layouts are equal if they place the same logical shape by the same map in the same box; maps are
compared after simplification for the logical shape, and separators, which only say how the buffer
is flattened, are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from graphflow import arith, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.layout.index_map import IndexMap, physical_vars, smallest_box
from graphflow.layout.naming import describe
from graphflow.layout.regions import membership, regions_of
from graphflow.layout.storage import Region, StorageWindow


@dataclass(frozen=True, slots=True)
class Layout(tir.Hashed):
    """A tensor of `logical_shape` placed in a row-major box of `physical_shape`, in elements."""

    index_map: IndexMap = field(compare=False)
    logical_shape: tuple[int, ...]
    physical_shape: tuple[int, ...]
    separators: tuple[int, ...] = field(default=(), compare=False)
    simplified: tuple[arith.IndexExpr, ...] = field(init=False, repr=False)
    """The map's outputs, simplified on the logical shape: what equality compares."""

    def __post_init__(self) -> None:
        ranks = (len(self.logical_shape), len(self.physical_shape))
        if ranks != (self.index_map.logical_rank, self.index_map.physical_rank):
            raise ScheduleError(
                f"layout {self.index_map}: it maps {self.index_map.logical_rank} logical to "
                f"{self.index_map.physical_rank} physical axes, not {ranks[0]} to {ranks[1]}"
            )
        smallest = smallest_box(self.index_map, self.logical_shape)
        short = [k for k in range(ranks[1]) if smallest[k] > self.physical_shape[k]]
        if short and 0 not in self.logical_shape:
            raise ScheduleError(
                f"layout {self.index_map}: the image of {list(self.logical_shape)} needs the box "
                f"{list(smallest)}, axes {short} of {list(self.physical_shape)} are too short"
            )
        outputs = self.index_map.outputs
        if 0 not in self.logical_shape:
            pairs = zip(self.index_map.inputs, self.logical_shape, strict=True)
            ranges = {v: (0, n - 1) for v, n in pairs}
            outputs = tuple(arith.simplify_index(e, ranges) for e in outputs)
        object.__setattr__(self, "simplified", outputs)

    __hash__ = tir.Hashed.__hash__

    def _compared(self) -> object:
        return self.logical_shape, self.physical_shape, self.simplified

    @staticmethod
    def of(
        index_map: IndexMap,
        logical_shape: Sequence[int],
        box: Sequence[int] | None = None,
        separators: tuple[int, ...] = (),
    ) -> Layout:
        """The layout in the smallest box, or in a stated larger one.

        ScheduleError where the map sends an index below zero, or the stated box is too small.
        """
        shape = tuple(logical_shape)
        physical = smallest_box(index_map, shape) if box is None else tuple(box)
        return Layout(index_map, shape, physical, separators)

    # Where things are ---------------------------------------------------------------------------

    def physical_index(self, logical: Sequence[arith.IndexLike]) -> tuple[arith.IndexExpr, ...]:
        """Where a logical index lives."""
        return self.index_map.apply(logical)

    def logical_index(self, physical: Sequence[arith.IndexLike]) -> tuple[arith.IndexExpr, ...]:
        """The logical index at a place of the box; outside `logical_shape` for padding."""
        return self.index_map.invert(physical)

    @property
    def physical_axes(self) -> tuple[arith.Var, ...]:
        """p0, p1 …: the variables of predicates and regions."""
        return physical_vars(len(self.physical_shape))

    def is_logical(self, physical: Sequence[arith.IndexLike] | None = None) -> arith.Predicate:
        """When a place of the box holds an element of the tensor, simplified on the box."""
        predicate = membership(self.index_map, self.logical_shape, self.physical_shape).logical
        if physical is None:
            return predicate
        names = zip(self.physical_axes, physical, strict=True)
        return arith.substitute_in(predicate, {v: arith.as_index(e) for v, e in names})

    def regions(self) -> tuple[Region, ...]:
        """The logical region, then one for each combination of padded logical axes that occurs.

        A point belongs to `pad(a,b)` when its logical index leaves the tensor along exactly the
        axes a and b; to `gap` when it is the image of no index.
        """
        return regions_of(self.index_map, self.logical_shape, self.physical_shape)

    def region(self, name: str) -> Region:
        """The region of that name; KeyError lists those there are."""
        for region in self.regions():
            if region.name == name:
                return region
        names = ", ".join(region.name for region in self.regions())
        raise KeyError(f"layout {self.describe()} has no region {name}; it has {names}")

    @property
    def padding_elements(self) -> int:
        """Places of the box that hold no element of the tensor."""
        return prod(self.physical_shape) - prod(self.logical_shape)

    @property
    def is_padded(self) -> bool:
        """Whether the box has a place without an element."""
        return self.padding_elements != 0

    def buffer(self, name: str, dtype: str, scope: tir.Scope = "global") -> tir.Buffer:
        """A buffer with this layout's box."""
        return tir.Buffer(name, self.physical_shape, dtype, scope, self.separators)

    def bytes(self, dtype: str) -> int:
        """Size of such a buffer in bytes."""
        return prod(self.physical_shape) * tir.DTYPES[dtype].itemsize

    # Other layouts made from this one -----------------------------------------------------------

    def windowed(self, offsets: Sequence[int], physical_shape: Sequence[int]) -> Layout:
        """This layout's box placed at `offsets` of a bigger storage, one a physical axis."""
        window = StorageWindow(tuple(offsets), self.physical_shape)
        if not window.fits(physical_shape):
            raise ScheduleError(
                f"a window of {list(self.physical_shape)} at {list(offsets)} does not fit into a "
                f"storage of {list(physical_shape)}"
            )
        return Layout(
            self.index_map.shifted(offsets),
            self.logical_shape,
            tuple(physical_shape),
            self.separators,
        )

    def halo(self, before: Sequence[int], after: Sequence[int]) -> Layout:
        """This layout with its physical box extended by these numbers of places on each axis."""
        sides = zip(before, self.physical_shape, after, strict=True)
        return self.windowed(before, [front + n + behind for front, n, behind in sides])

    def at_origin(self) -> tuple[Layout, tuple[int, ...]]:
        """This layout with its image at the origin, and the place at which the image began.

        Its rows are as far apart as they were: only the outermost axis of more than one place ends
        with the image.
        """
        ranges = {
            v: (0, n - 1) for v, n in zip(self.index_map.inputs, self.logical_shape, strict=True)
        }
        lows = [arith.bounds(e, ranges)[0] for e in self.simplified]
        begin = tuple(0 if low is None else low for low in lows)
        index_map = self.index_map.shifted([-low for low in begin])
        smallest, box = smallest_box(index_map, self.logical_shape), [*self.physical_shape]
        outermost = next((axis for axis, n in enumerate(box) if n > 1), None)
        if outermost is not None:
            box[outermost] = smallest[outermost]
        return Layout.of(index_map, self.logical_shape, box, self.separators), begin

    def boxed(self, physical_shape: Sequence[int]) -> Layout:
        """The same map in another box, which must hold the image."""
        return replace(self, physical_shape=tuple(physical_shape))

    def describe(self) -> str:
        """A short name such as `NHWC` or `NCHW16c`, else the map; see `naming`."""
        return describe(self.index_map, self.logical_shape, self.physical_shape)

    def __str__(self) -> str:
        return f"{list(self.logical_shape)} as {self.describe()}"


def row_major(shape: Sequence[int]) -> Layout:
    """The logical order: NCHW for an image batch."""
    return _row_major(tuple(shape))


@lru_cache(maxsize=4096)
def _row_major(shape: tuple[int, ...]) -> Layout:
    return Layout.of(IndexMap.identity(len(shape)), shape)


def channels_last(shape: Sequence[int]) -> Layout:
    """Axis 1 moved last: NHWC."""
    return Layout.of(_channels_last_map(len(shape)), shape)


def channels_last_padded(shape: Sequence[int], multiple: int) -> Layout:
    """Axis 1 moved last, and its extent in the box rounded up to a multiple."""
    plain = channels_last(shape)
    channels = -(-shape[1] // multiple) * multiple
    return plain.boxed((*plain.physical_shape[:-1], channels))


def blocked(shape: Sequence[int], axis: int, width: int) -> Layout:
    """One axis in blocks of `width`, the position in the block last: NCHW16c for axis 1."""
    split = IndexMap.split(len(shape), axis, width, inner_last=True)
    box = [*shape, width]
    box[axis] = -(-shape[axis] // width)
    return Layout.of(split, shape, box)


def _channels_last_map(rank: int) -> IndexMap:
    if rank < 2:
        raise ScheduleError(
            f"channels last needs a channel axis 1; a tensor of rank {rank} has none"
        )
    return IndexMap.permute((0, *range(2, rank), 1))
