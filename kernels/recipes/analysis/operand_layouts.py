"""The layouts in which a variant may have its operands: of a family, offered, or given by a user.

In: a family, or a single layout of no family.  Out: for the shape of an operand its layout, and
which axis of it runs along the lanes.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from graphflow.arith import IndexExpr, Var, constant_value, variables
from graphflow.layout import Family, IndexMap, Layout, row_major
from graphflow.tir import Buffer

Offers: TypeAlias = tuple[tuple[str, tuple[Layout, ...]], ...]
"""Inputs, each with the layouts of no family in which it is offered."""


class OfferedLayouts(Struct, frozen=True):
    """The layouts in which some operands are read, by name; others follow the output's family."""

    of: tuple[tuple[str, Layout], ...]


class SameAxisOrder(Struct, frozen=True):
    """All tensors laid out like `layout`, which has the channels innermost, in another order."""

    layout: Layout

    @property
    def rank(self) -> int:
        """The rank of its tensors."""
        return len(self.layout.logical_shape)

    def instantiate(self, shape: tuple[int, ...]) -> Layout | None:
        """The same order for another shape; None where its rank or its channels differ."""
        given, outputs = self.layout, self.layout.index_map.outputs
        if len(shape) != self.rank:
            return None
        channel = lane_axis(given)
        placed = {e for e in outputs[:-1] if isinstance(e, Var)}
        for axis, var in enumerate(given.index_map.inputs):
            kept = shape[axis] == given.logical_shape[axis]
            if not kept and (axis == channel or var not in placed):
                return None
        extents = dict(zip(given.index_map.inputs, shape, strict=True))
        box = [extents[e] for e in outputs[:-1] if isinstance(e, Var)]
        index_map = IndexMap.from_function(self.rank, lambda *_: outputs, shape)
        return Layout.of(index_map, shape, (*box, given.physical_shape[-1]))


class UserLayout(Struct, frozen=True):
    """A layout that a user gave for its shape; tensors of other shapes are row-major."""

    layout: Layout

    @property
    def rank(self) -> int:
        """The rank of its tensors."""
        return len(self.layout.logical_shape)

    def instantiate(self, shape: tuple[int, ...]) -> Layout | None:
        """The layout, or for another shape the row-major one."""
        return self.layout if shape == self.layout.logical_shape else row_major(shape)


def channel_order(layout: Layout) -> IndexExpr | None:
    """The position of a channel on the innermost axis, where that holds all channels permuted.

    An expression over the channel.  None where the channels are in their logical order, where the
    layout is padded, and where another physical axis is not a logical axis as it is.
    """
    if not layout.index_map.outputs:
        return None
    *others, last = layout.index_map.outputs
    shape = layout.logical_shape
    channel = variables(last)
    if len(channel) != 1 or isinstance(last, Var) or layout.is_padded:
        return None
    (var,) = channel
    whole = layout.physical_shape[-1] == shape[layout.index_map.inputs.index(var)]
    plain = all(isinstance(e, Var) and e is not var for e in others)
    return last if whole and plain else None


def lane_axis(layout: Layout) -> int:
    """The logical axis that runs along the innermost physical one of more than one element."""
    axes = list(zip(layout.index_map.outputs, layout.physical_shape, strict=True))
    last = next((e for e, n in reversed(axes) if n > 1 and variables(e)), axes[-1][0])
    used = variables(last)
    return next(k for k, v in enumerate(layout.index_map.inputs) if v in used)


def second_lane(output: Layout, lane: int) -> int:
    """The channel that follows channel 0 in memory; 1 where none does."""
    place = [0] * len(output.physical_shape)
    place[-1] = 1 if output.physical_shape[-1] > 1 else 0
    return constant_value(output.logical_index(place)[lane]) or 1


def operand_layout(family: Family | SameAxisOrder | UserLayout, buffer: Buffer) -> Layout | None:
    """The layout of an operand in a family; row-major where its rank is not the family's.

    None where the family has no layout for its shape.
    """
    if len(buffer.shape) != family.rank:
        return row_major(buffer.shape)
    return family.instantiate(buffer.shape)
