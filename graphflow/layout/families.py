"""Families of layouts: constructions that give a layout for any shape of one rank.

A search can enumerate families before it knows a shape.  The channel axis is axis 1.  A new family
is a row of `CONSTRUCTIONS`, or of one target's `layout_families`; nothing else names one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec import Struct

from graphflow.base.errors import LayoutConflict
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.layout.layout import (
    Layout,
    blocked,
    channels_last,
    channels_last_padded,
    row_major,
)

CHANNEL_RANKS = (3, 4, 5)
"""Ranks whose axis 1 is a channel axis with spatial axes after it."""


class Construction(Struct, frozen=True):
    """How the families of one name place a tensor.

    `place` gives the layout of a logical shape, for vectors of so many lanes.  `ranks` are those of
    the tensors, None for all.  `by_lanes` says whether the number of lanes matters.
    """

    name: str
    place: Callable[[tuple[int, ...], int], Layout]
    ranks: tuple[int, ...] | None = None
    by_lanes: bool = False


def _in_logical_order(shape: tuple[int, ...], _: int) -> Layout:
    return row_major(shape)


def _with_channels_last(shape: tuple[int, ...], _: int) -> Layout:
    return channels_last(shape)


def _in_channel_blocks(shape: tuple[int, ...], lanes: int) -> Layout:
    return blocked(shape, 1, lanes)


CONSTRUCTIONS = (
    Construction("row_major", _in_logical_order),
    Construction("channels_last", _with_channels_last, CHANNEL_RANKS),
    Construction("channels_last_padded", channels_last_padded, CHANNEL_RANKS, by_lanes=True),
    Construction("blocked", _in_channel_blocks, CHANNEL_RANKS, by_lanes=True),
)
"""Those of every target, in the order in which ties between plans are decided."""


class Family(Struct, frozen=True):
    """One construction for tensors of one rank; `lanes` is 1 where it does not matter."""

    construction: Construction
    rank: int
    lanes: int = 1

    @property
    def name(self) -> str:
        """A name unique among the families of a rank, such as `blocked(16)`."""
        suffix = f"({self.lanes})" if self.lanes > 1 else ""
        return f"{self.construction.name}{suffix}"

    def with_lanes(self, lanes: int) -> Family:
        """The same construction for vectors of so many lanes, where these matter to it."""
        return replace(self, lanes=lanes) if self.lanes > 1 else self

    def placing(self, shape: Sequence[int]) -> Layout | None:
        """The layout of the same construction for a shape of any rank; None where it has none."""
        ranks, rank = self.construction.ranks, len(shape)
        fits = ranks is None or rank in ranks
        return replace(self, rank=rank).instantiate(shape) if fits else None

    def instantiate(self, shape: Sequence[int]) -> Layout | None:
        """The layout for this logical shape; None where its rank is not the family's."""
        return _instance(self, tuple(shape)) if len(shape) == self.rank else None


@lru_cache(maxsize=4096)
def _instance(family: Family, shape: tuple[int, ...]) -> Layout:
    # Kept, because networks have few shapes and every node asks for all families of its tensors.
    return family.construction.place(shape, family.lanes)


@lru_cache(maxsize=256)
def families(rank: int, lanes: int, target: Target | None = None) -> tuple[Family, ...]:
    """The families for a rank on a machine with so many vector lanes; row-major comes first.

    Those that a target adds come last.  LayoutConflict where one of `Target.layout_families` is no
    `Construction`, or has the name of another one.
    """
    own = () if target is None else target.layout_families
    rows = (*CONSTRUCTIONS, *map(_checked, own))
    if len({row.name for row in rows}) < len(rows):
        raise LayoutConflict(f"layout families share a name: {[row.name for row in rows]}")
    return tuple(
        Family(row, rank, lanes if row.by_lanes else 1)
        for row in rows
        if row.ranks is None or rank in row.ranks
    )


def _checked(row: object) -> Construction:
    if not isinstance(row, Construction):
        raise LayoutConflict(
            f"a target adds the layout family {row!r}; give a graphflow.layout.Construction"
        )
    return row
