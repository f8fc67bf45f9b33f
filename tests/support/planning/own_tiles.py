"""Kinds of tiles from outside, for a target to name."""

from dataclasses import dataclass

from graphflow.cost import BroadcastRows
from graphflow.kernels.recipes import Axes, ImageLoops, ImageTile, PlacedTile
from graphflow.layout import Layout
from graphflow.schedule import Schedule


@dataclass(frozen=True)
class OwnTile(ImageLoops, ImageTile):
    """Tiles like those of the last kind, with the reduction loops in reverse."""

    @classmethod
    def claimed(cls, tile: PlacedTile, transposes: bool) -> BroadcastRows | None:
        """Applies where rows share vectors."""
        return BroadcastRows() if tile.rows_share_vectors and not transposes else None

    def loops(self, s: Schedule, axes: Axes, output: Layout) -> tuple[Schedule, Axes, Axes]:
        """The nest with the reduction loops from the innermost out."""
        s, axes, reduction = super().loops(s, axes, output)
        return s, axes, reduction[::-1]


@dataclass(frozen=True)
class NoTile(ImageLoops, ImageTile):
    """A kind that never applies."""

    @classmethod
    def claimed(cls, tile: PlacedTile, transposes: bool) -> None:
        """Applies nowhere."""
