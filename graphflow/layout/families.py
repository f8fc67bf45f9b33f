"""Families of layouts: constructions that give a layout for any shape of one rank.

A search can enumerate families before it knows a shape.  The channel axis is axis 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import assert_never

from graphflow.layout.layout import (
    Layout,
    blocked,
    channels_last,
    channels_last_padded,
    row_major,
)


class Construction(Enum):
    """How a family places axis 1."""

    ROW_MAJOR = "row_major"
    CHANNELS_LAST = "channels_last"
    CHANNELS_LAST_PADDED = "channels_last_padded"
    BLOCKED = "blocked"


CHANNEL_RANKS = (3, 4, 5)
"""Ranks whose axis 1 is a channel axis with spatial axes after it."""


@dataclass(frozen=True, slots=True)
class Family:
    """One construction for tensors of one rank; `lanes` is 1 where it does not matter."""

    construction: Construction
    rank: int
    lanes: int = 1

    @property
    def name(self) -> str:
        """A name unique among the families of a rank, such as `blocked(16)`."""
        suffix = f"({self.lanes})" if self.lanes > 1 else ""
        return f"{self.construction.value}{suffix}"

    def with_lanes(self, lanes: int) -> Family:
        """The same construction for vectors of so many lanes, where these matter to it."""
        return replace(self, lanes=lanes) if self.lanes > 1 else self

    def instantiate(self, shape: Sequence[int]) -> Layout | None:
        """The layout for this logical shape; None where its rank is not the family's."""
        return _instance(self, tuple(shape)) if len(shape) == self.rank else None


@lru_cache(maxsize=4096)
def _instance(family: Family, shape: tuple[int, ...]) -> Layout:
    # Kept, because networks have few shapes and every node asks for all families of its tensors.
    match family.construction:
        case Construction.ROW_MAJOR:
            return row_major(shape)
        case Construction.CHANNELS_LAST:
            return channels_last(shape)
        case Construction.CHANNELS_LAST_PADDED:
            return channels_last_padded(shape, family.lanes)
        case Construction.BLOCKED:
            return blocked(shape, 1, family.lanes)
    assert_never(family.construction)


@lru_cache(maxsize=256)
def families(rank: int, lanes: int) -> tuple[Family, ...]:
    """The families for a rank on a machine with so many vector lanes; row-major comes first."""
    plain = (Family(Construction.ROW_MAJOR, rank),)
    if rank not in CHANNEL_RANKS:
        return plain
    return (
        *plain,
        Family(Construction.CHANNELS_LAST, rank),
        Family(Construction.CHANNELS_LAST_PADDED, rank, lanes),
        Family(Construction.BLOCKED, rank, lanes),
    )
