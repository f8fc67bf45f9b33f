"""The layouts of all operands of a tiled variant, given those of its output and of its data.

In: the roles of a kernel, the layout of the output and that of the data.  Out: a layout for every
operand but the packed constants, whose panels are as wide as the tile that is chosen afterwards;
None where no such variant exists.

The layout of the output decides which axis runs along the lanes of vectors, and with that what each
operand is.  For example, a convolution with a bias and a residual:

    y[n, o, h, w] += x[n, c, h + r, w + s] * weight[o, c, r, s]
    z[n, o, h, w] = y[n, o, h, w] + bias[o] + residual[n, o, h, w]

    z         channels last: o runs along the lanes
    weight    `packed`, and so is bias: constants, of which each index is o or a reduction loop
    x         `like_data`: no index depends on the lanes, so it may have another layout than z
    residual  has the layout of the output, so that its elements are in the lanes too
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from graphflow.arith import FloorDiv, IndexExpr, Var, floor_div, terms_of, variables
from graphflow.base.target import Target
from graphflow.cost import near_plane
from graphflow.kernels.recipes.analysis.operand_layouts import (
    OfferedLayouts,
    SameAxisOrder,
    UserLayout,
    channel_order,
    lane_axis,
    operand_layout,
    second_lane,
)
from graphflow.kernels.recipes.analysis.positions import LEAST_SOURCE_RUN, flat_offset
from graphflow.kernels.recipes.analysis.roles import Roles
from graphflow.layout import Family, Layout, row_major
from graphflow.tir import DTYPES, Buffer


class OutputDecisions(Struct, frozen=True, eq=False):
    """What the layout of the output decides about a variant, whatever the layout of its data.

    There is one object for each kernel and layout (`decisions_of`), so caches compare them by
    identity.
    """

    output: Layout
    lane: int
    """The output's logical axis that runs along the lanes."""
    second_channel: int
    """The channel that follows channel 0 in memory."""
    channels: IndexExpr | None
    """The position of a channel in the lanes, where that is not their logical order."""
    group: int
    """How many neighbouring channels read the same part of an operand; 0 where all do."""
    packed: tuple[Buffer, ...]
    """The constants that are packed in panels as wide as the tile."""
    layouts: dict[str, Layout | None]
    """The layouts of the output and the other operands, with the data laid out like the output;
    None for an operand that has no such layout."""
    like_data: tuple[Buffer, ...]
    """The operands that take the layout of the data rather than that of the output."""
    offerable: frozenset[str]
    """The operands that may be in any layout in which they are offered, each by itself."""


class Operands(Struct, frozen=True):
    """The layouts of the output and the operands; `like_data` are those laid out as the data."""

    decided: OutputDecisions
    layouts: dict[str, Layout]
    like_data: tuple[str, ...]


def place_operands(
    roles: Roles,
    constants: frozenset[str],
    out: Family | SameAxisOrder | UserLayout,
    data: Family | UserLayout | OfferedLayouts,
    target: Target,
) -> Operands | None:
    """The layouts of a variant that writes `out` and reads `data`; None where there is none."""
    decided = decisions_of(roles, constants, out, target)
    if decided is None:
        return None
    like_data = {buffer.name for buffer in decided.like_data}
    given: dict[str, Layout | None] = {}
    if isinstance(data, OfferedLayouts):
        for name, offered in data.of:
            if name in decided.offerable or _is_gapless(roles, decided, name, offered, constants):
                like_data.add(name)
                given[name] = offered
            elif name not in constants and may_transpose_first(
                roles, decided, name, offered, target
            ):
                given[name] = offered
            elif decided.layouts.get(name) != offered:
                return None
    elif like_data or data is out:
        given = {buffer.name: operand_layout(data, buffer) for buffer in decided.like_data}
    else:
        return None  # it is the variant whose data has the family of the output, once more
    layouts: dict[str, Layout] = {}
    for name, layout in {**decided.layouts, **given}.items():
        if layout is None:
            return None
        layouts[name] = layout
    return Operands(decided, layouts, tuple(b.name for b in roles.inputs if b.name in like_data))


@lru_cache(maxsize=10_000)
def _is_gapless(
    roles: Roles, decided: OutputDecisions, name: str, layout: Layout, constants: frozenset[str]
) -> bool:
    """Whether neighbouring lanes read neighbouring elements of an operand, or all the same one.

    False for constants, which are prepared in one layout, and for padded outputs, whose last lanes
    would read beyond the operand.
    """
    if name in constants or decided.output.is_padded:
        return False
    lane = roles.axes[decided.lane]
    positions = {flat_offset(layout, access.indices) for access in roles.reads[name]}
    by_lane = [[(a, k) for a, k in terms_of(at)[0] if lane in variables(a)] for at in positions]
    return all(terms in ([], [(lane, 1)]) for terms in by_lane)


@lru_cache(maxsize=10_000)
def may_transpose_first(
    roles: Roles, decided: OutputDecisions, name: str, layout: Layout, target: Target
) -> bool:
    """Whether an operand may be transposed into a buffer of the thread before the tiles of a plane.

    That is a factor of a sum of products that is contiguous along the reduced axis, while
    neighbouring lanes lie apart, as the keys of an attention: `scores[q, k] += query[q, d] *
    keys[k, d]`, k in the lanes.  Every row of the tiles must read the same elements of it, and what
    a plane reads must fit half of the second-level cache.  False for elements of less than four
    bytes, of which no square block fits the registers, and for padded outputs, whose last lanes
    would read elements that are not there.
    """
    reads = roles.reads[name]
    if name not in roles.factors or len(reads) != 1 or decided.output.is_padded or decided.group:
        return False
    item_bytes = DTYPES[reads[0].buffer.dtype].itemsize
    lane, outside = roles.axes[decided.lane], axes_outside(decided)
    reduced = [(v, n) for v, n in roles.nest_of(reads[0]) if n > 1]
    if len(reduced) != 1 or not outside or roles.depends_on(name, outside[-1]):
        return False
    ((along, depth),) = reduced
    terms, _ = terms_of(flat_offset(layout, reads[0].indices))
    strides = {atom: stride for atom, stride in terms if {lane, along} & variables(atom)}
    lies_across = strides.keys() == {lane, along} and strides[along] == 1 and strides[lane] > 1
    size = depth * roles.output.shape[decided.lane] * item_bytes
    fits = near_plane(size, target) and size <= target.stack_bytes
    return lies_across and fits and depth >= LEAST_SOURCE_RUN and item_bytes >= 4


@lru_cache(maxsize=10_000)
def axes_outside(decided: OutputDecisions) -> tuple[int, ...]:
    """The logical axes of more than one element outside the lanes, that of the tile's rows last."""
    output = decided.output
    order = [
        next(k for k, v in enumerate(output.index_map.inputs) if v in variables(e))
        for e in output.index_map.outputs
        if variables(e)
    ]
    return tuple(k for k in order if k != decided.lane and output.logical_shape[k] > 1)


@lru_cache(maxsize=10_000)
def decisions_of(
    roles: Roles,
    constants: frozenset[str],
    out: Family | SameAxisOrder | UserLayout,
    target: Target,
) -> OutputDecisions | None:
    """What an output in the layout `out` decides; None where no variant writes that layout."""
    output = out.instantiate(roles.output.shape)
    if output is None:
        return None
    lane = lane_axis(output)
    if output.is_padded and roles.output.shape[lane] == 1:
        # A loop over one channel is simplified away, and could not run over the padding.
        return None
    group = _group(roles, lane, target)
    if group and isinstance(out, SameAxisOrder):
        return None
    layouts: dict[str, Layout | None] = {roles.output.name: output}
    packed: list[Buffer] = []
    like_data: list[Buffer] = []
    for buffer in roles.inputs:
        constant = buffer.name in constants
        if constant and _is_weight(roles, buffer.name, lane):
            packed.append(buffer)
        elif constant and len(buffer.shape) != len(roles.output.shape):
            if isinstance(out, SameAxisOrder) and roles.depends_on(buffer.name, lane):
                return None  # its elements would be gathered
            layouts[buffer.name] = row_major(buffer.shape)
        else:
            # A constant is prepared once, in one layout; only data comes in several.
            if not constant and _follows_data(roles, buffer, lane, group):
                like_data.append(buffer)
            layouts[buffer.name] = operand_layout(out, buffer)
    offerable = {b.name for b in (roles.inputs if group else like_data)} - constants
    return OutputDecisions(
        output,
        lane,
        second_lane(output, lane),
        channel_order(output),
        group,
        tuple(packed),
        layouts,
        tuple(like_data),
        frozenset(offerable),
    )


def _follows_data(roles: Roles, buffer: Buffer, lane: int, group: int) -> bool:
    """Whether an operand takes the layout of the data, rather than that of the output."""
    same_in_group = group > 0 and _is_same_in_group(roles, buffer.name, lane, group)
    return same_in_group or _may_differ_from_output(roles, buffer, lane)


@lru_cache(maxsize=10_000)
def _group(roles: Roles, lane: int, target: Target) -> int:
    """The number of neighbouring channels that read the same part of an operand; 0 where all do.

    It is the g of an index `… + o // g`, o the axis along the lanes, as a convolution in groups of
    g output channels has it.  0 also for groups narrower than half a vector: a tile for each would
    waste most lanes, so their lanes gather instead.
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
    """Whether each axis of an input is indexed by the lane variable or a reduction variable."""
    known: set[Var] = {roles.axes[lane], *(v for v, _ in roles.reduction)}
    reads = roles.reads[name]
    return bool(reads) and all(
        index in known and (index is roles.axes[lane] or len(access.indices) > 1)
        for access in reads
        for index in access.indices
    ) and any(roles.axes[lane] in variables(e) for e in reads[0].indices)  # fmt: skip


def _may_differ_from_output(roles: Roles, buffer: Buffer, lane: int) -> bool:
    """Whether an operand may be in another layout than the output.

    That is where its accesses do not depend on the lanes, where it has axes that the output has
    not, and where its channels are reduced away.  Loads of it may be gathered then.
    """
    shape = roles.output.shape
    channels_reduced = roles.reduces_elements_by is not None and len(shape) > 2 and shape[1] == 1
    apart = loses_axes(roles, buffer) or not roles.depends_on(buffer.name, lane)
    return channels_reduced or apart


def loses_axes(roles: Roles, buffer: Buffer) -> bool:
    """Whether an operand has more axes than the output, and some of them are reduced away."""
    reduced = {v for v, _ in roles.reduction}
    used = {v for a in roles.reads[buffer.name] for e in a.indices for v in variables(e)}
    return len(buffer.shape) > len(roles.output.shape) and not reduced.isdisjoint(used)


def _is_same_in_group(roles: Roles, name: str, lane: int, group: int) -> bool:
    """Whether all channels of one group read the same elements of an operand."""
    var = roles.axes[lane]
    groups = {atom for a in roles.reads[name] for e in a.indices for atom, _ in terms_of(e)[0]
              if var in variables(atom)}  # fmt: skip
    return groups == {floor_div(var, group)}
