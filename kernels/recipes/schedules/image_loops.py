"""The loops of a tile with channels or positions in its lanes, in the order of the output's memory.

In: a nest over the axes of the output.  Out: the nest with groups of channels apart and the
reduction loops in the order of the data; before its tiles, what they need prepared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphflow.base.fields import replace
from graphflow.kernels.recipes.analysis.contiguity import as_one
from graphflow.kernels.recipes.analysis.variant import Axes, TileKind
from graphflow.kernels.recipes.schedules.register_blocks import staged_transposed
from graphflow.kernels.recipes.schedules.register_nests import restrictable
from graphflow.kernels.recipes.schedules.tile_loops import (
    in_order,
    in_row_blocks,
    lane_blocks_joined,
    phases_apart,
    reduction_order,
    taps_met,
)
from graphflow.kernels.recipes.schedules.weights_ahead import fetched_ahead
from graphflow.layout import Layout
from graphflow.schedule import (
    Handle,
    Schedule,
    divide_loop,
    restrict_loop,
    simplify,
)


@dataclass(frozen=True)
class ImageLoops(TileKind):
    """A kind whose rows and lanes are the last two axes of the output.

    Where channels read only their own group of input channels, `group` is the number of output
    channels in one (else 0): no tile crosses a group, and a group computes `group_rows` rows of an
    image (all of them if that is 0) before the next group does.

    The inputs in `transposed` are contiguous along the reduced axis, not along the lanes: what the
    tiles of one plane read of them is transposed into a buffer of the thread first.

    Of the packed inputs in `fetched`, the tiles of a panel prefetch what the next panel reads.

    The rows of the tiles are cut into `blocks` of equal size, which threads share (one if that is
    0); the last one may lack rows.  With `near_blocks` they run outside of all panels, which read
    the rows of a block from the second-level cache.  The `joined` axes around that of the rows are
    one with it.
    """

    group: int = 0
    group_rows: int = 0
    transposed: tuple[str, ...] = ()
    fetched: tuple[str, ...] = ()
    blocks: int = 0
    joined: int = 0
    near_blocks: bool = False

    cuts_rows: ClassVar[bool] = True

    @property
    def blocks_outermost(self) -> bool:
        """Whether blocks of rows run outside of panels."""
        return self.near_blocks

    def loops(self, s: Schedule, axes: Axes, output: Layout) -> tuple[Schedule, Axes, Axes]:
        """The nest with the loop over groups, if any, outside of its tiles."""
        s, axes = lane_blocks_joined(s, output, axes)
        s, axes = _rows_joined(s, axes, self.joined)
        if self.group:
            s, axes = _grouped(s, axes, self.group, self.group_rows)
        s, axes = phases_apart(s, axes)
        s = taps_met(s, axes)
        s, reduction = reduction_order(s, axes, axes[-1])
        if self.blocks:
            s, axes = in_row_blocks(s, axes, self.blocks)
        return s, axes, reduction

    def operands_ready(self, s: Schedule, around: Handle, loops: Axes, lanes: int) -> Schedule:
        """The schedule with the inputs in `transposed` transposed inside `around`."""
        for name in self.transposed:
            s = staged_transposed(s, name, around, s.present(loops), lanes)
        return s

    def with_rows(self, blocks: int, joined: int, outermost: bool) -> ImageLoops:
        """The kind with its rows in so many blocks, and with so many axes joined."""
        return replace(self, blocks=blocks, joined=joined, near_blocks=outermost)

    def fetched_ahead(self, s: Schedule, panel: Handle, tiles: Axes) -> Schedule:
        """The schedule with prefetches of the inputs in `fetched`."""
        return fetched_ahead(s, self.fetched, panel, tiles) if self.fetched else s


def _rows_joined(s: Schedule, axes: Axes, count: int) -> tuple[Schedule, Axes]:
    """`for h: for w: for lane: S` → `for hw: for lane: S`, with so many axes around the rows."""
    for _ in range(count):
        *outer, around, row, lane = s.present(axes)
        s, joint = as_one(s, around, row, in_lanes=False)
        axes = (*outer, joint, lane)
    return s, axes


def _grouped(s: Schedule, axes: Axes, group: int, rows: int) -> tuple[Schedule, Axes]:
    """The lane axis divided into a loop over groups and one over the channels of a group.

    The loop over groups runs outside all others, or if `rows` is not 0, inside a loop over blocks
    of that many rows of an image.
    """
    *others, lane = s.present(axes)
    if restrictable(s.loop(lane)):
        s = s.apply(restrict_loop, s[lane])
    if group % (s.loop(lane).extent or group + 1) == 0:
        return s, axes  # the loop runs over a block of channels that lies within one group
    parts = (s.fresh("group"), s.fresh("within"))
    s = s.apply(divide_loop, s[lane], group, parts, "perfect")
    groups, within = s.made["parts"]
    s = s.apply(simplify)
    others = list(s.present(others))
    outside, inside = [], others
    if rows:
        *outside, row, position = others
        blocks = (s.fresh("{}b", row), s.fresh("{}r", row))
        s = s.apply(divide_loop, s[row], rows, blocks, "perfect")
        block, rest = s.made["parts"]
        s = s.apply(simplify)
        outside, inside = [*outside, block], [rest, position]
    order = (*outside, groups, *inside, within)
    return in_order(s, order), order
