"""Where the operands of a tiled variant lie, once its output and its data are decided.

In: the roles of a kernel, the layouts of the output and of the data.  Out: a layout for every
operand but the weights, which are packed for the tile that is chosen afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from graphflow.arith import FloorDiv, IndexExpr, Var, floor_div, terms_of, variables
from graphflow.base.target import Target
from graphflow.kernels.recipes.operand_layouts import (
    OfferedLayout,
    SameAxisOrder,
    UserLayout,
    channel_order,
    lane_axis,
    operand_layout,
    second_lane,
)
from graphflow.kernels.recipes.roles import Roles
from graphflow.layout import Family, Layout, row_major
from graphflow.tir import Buffer


@dataclass(frozen=True, eq=False, slots=True)
class OutputDecisions:
    """What the layout of the output decides, wherever the data lies.

    There is one object for each kernel and layout (see `decisions_of`), by which findings are kept.
    """

    output: Layout
    lane: int
    """The axis along the lanes."""
    second_channel: int
    """The channel next to channel 0 in memory."""
    channels: IndexExpr | None
    """Where in the lanes a channel is, if they are not in their order."""
    group: int
    """How many of its elements read the same part of an operand; 0: all do."""
    packed: tuple[Buffer, ...]
    """Constants that are packed for the tile, which is chosen afterwards."""
    layouts: dict[str, Layout | None]
    """Where the output and all other operands lie if the data lies as the output does; None for an
    operand that cannot."""
    free: tuple[Buffer, ...]
    """Those that may lie as the data does, rather than as the output."""
    movable: frozenset[str]
    """Those that may lie apart from all others."""


@dataclass(frozen=True, slots=True)
class Operands:
    """Layouts of the output and of the operands, and those operands that lie as the data does."""

    decided: OutputDecisions
    layouts: dict[str, Layout]
    free: tuple[str, ...]


def place_operands(
    roles: Roles,
    constants: frozenset[str],
    out: Family | SameAxisOrder | UserLayout,
    data: Family | UserLayout | OfferedLayout,
    target: Target,
) -> Operands | None:
    """The operands' places, or None where there is no variant with the output and the data so."""
    decided = decisions_of(roles, constants, out, target)
    if decided is None:
        return None
    free = {buffer.name for buffer in decided.free}
    given: dict[str, Layout | None] = {}
    if not isinstance(data, OfferedLayout):
        if not free and data is not out:
            return None
        given = {buffer.name: operand_layout(data, buffer) for buffer in decided.free}
    elif data.name in decided.movable:
        free.add(data.name)
        given = {data.name: data.layout}
    elif decided.layouts.get(data.name) != data.layout:
        return None
    layouts: dict[str, Layout] = {}
    for name, layout in {**decided.layouts, **given}.items():
        if layout is None:
            return None
        layouts[name] = layout
    return Operands(decided, layouts, tuple(b.name for b in roles.inputs if b.name in free))


@lru_cache(maxsize=10_000)
def decisions_of(
    roles: Roles,
    constants: frozenset[str],
    out: Family | SameAxisOrder | UserLayout,
    target: Target,
) -> OutputDecisions | None:
    """What an output in `out` decides, or None where there is no variant that writes it."""
    output = out.instantiate(roles.output.shape)
    if output is None:
        return None
    lane = lane_axis(output)
    if output.is_padded and roles.output.shape[lane] == 1:
        return None  # one channel has no loop that could run on over the padding
    group = _group(roles, lane, target)
    if group and isinstance(out, SameAxisOrder):
        return None
    layouts: dict[str, Layout | None] = {roles.output.name: output}
    packed: list[Buffer] = []
    free: list[Buffer] = []
    for buffer in roles.inputs:
        constant = buffer.name in constants
        if constant and _is_weight(roles, buffer.name, lane):
            packed.append(buffer)
        elif constant and len(buffer.shape) != len(roles.output.shape):
            if isinstance(out, SameAxisOrder) and roles.depends_on(buffer.name, lane):
                return None  # its elements would be gathered
            layouts[buffer.name] = row_major(buffer.shape)
        else:
            # A constant is laid out as the variant likes best; only data comes in several layouts.
            if not constant and _follows_data(roles, buffer, lane, group):
                free.append(buffer)
            layouts[buffer.name] = operand_layout(out, buffer)
    movable = {b.name for b in (roles.inputs if group else free)} - constants
    return OutputDecisions(
        output,
        lane,
        second_lane(output, lane),
        channel_order(output),
        group,
        tuple(packed),
        layouts,
        tuple(free),
        frozenset(movable),
    )


def _follows_data(roles: Roles, buffer: Buffer, lane: int, group: int) -> bool:
    """Whether an operand lies as the data does, rather than as the output."""
    same_in_group = group > 0 and _is_same_in_group(roles, buffer.name, lane, group)
    return same_in_group or _is_free(roles, buffer, lane)


@lru_cache(maxsize=10_000)
def _group(roles: Roles, lane: int, target: Target) -> int:
    """Channels that read the same part of an operand, where a vector could straddle two parts.

    Groups far narrower than a vector are not worth a tile each; their lanes gather.
    """
    var = roles.axes[lane]
    for reads in roles.reads.values():
        for index in (e for access in reads for e in access.indices):
            for atom, _ in terms_of(index)[0]:
                if (
                    isinstance(atom, FloorDiv)
                    and atom.numerator is var
                    and 2 * atom.divisor >= target.computed_lanes(roles.output.dtype)
                ):
                    return atom.divisor
    return 0


@lru_cache(maxsize=10_000)
def _is_weight(roles: Roles, name: str, lane: int) -> bool:
    """Indexed by the lane variable and by reduction variables alone, each axis by one of them."""
    known: set[Var] = {roles.axes[lane], *(v for v, _ in roles.reduction)}
    reads = roles.reads[name]
    return bool(reads) and all(
        index in known and (index is roles.axes[lane] or len(access.indices) > 1)
        for access in reads
        for index in access.indices
    ) and any(roles.axes[lane] in variables(e) for e in reads[0].indices)  # fmt: skip


def _is_free(roles: Roles, buffer: Buffer, lane: int) -> bool:
    """Whether an operand may be laid out otherwise than the output.

    It does not run along the lanes, or it has other axes, or its channels are reduced away: then
    the lanes may run along an axis that lies inside in one layout and outside in another, and loads
    of it are gathered.
    """
    shape = roles.output.shape
    channels_reduced = roles.bare is not None and len(shape) > 2 and shape[1] == 1
    apart = loses_axes(roles, buffer) or not roles.depends_on(buffer.name, lane)
    return channels_reduced or apart


def loses_axes(roles: Roles, buffer: Buffer) -> bool:
    """Whether axes of an operand are reduced away that the output does not have at all."""
    reduced = {v for v, _ in roles.reduction}
    used = {v for a in roles.reads[buffer.name] for e in a.indices for v in variables(e)}
    return len(buffer.shape) > len(roles.output.shape) and not reduced.isdisjoint(used)


def _is_same_in_group(roles: Roles, name: str, lane: int, group: int) -> bool:
    """Whether all channels of one group read the same elements of an operand."""
    var = roles.axes[lane]
    groups = {atom for a in roles.reads[name] for e in a.indices for atom, _ in terms_of(e)[0]
              if var in variables(atom)}  # fmt: skip
    return groups == {floor_div(var, group)}
