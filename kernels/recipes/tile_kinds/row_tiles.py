"""Variants whose lanes run along a row of the data, while a tile holds several channels.

In: a variant whose innermost axis the weights do not depend on (positions in a row of a row-major
image), and the roles of its kernel.  Out: the same variant in which the rows of a tile are an axis
that the data does not depend on, mostly the channels, with the weights packed by that axis.

For example, a convolution to 6 channels of a row-major image, in lanes of 8 positions w:

    y[o, h, w] += x[c, h + r, w + s] * weight[o, c, r, s]

                w: 0 … 7     8 … 15        each step loads the two vectors of x that begin at w + s,
    channel 0   accumulator  accumulator   and broadcasts weight[o, c, r, s] for each of 6 channels
    …                                      o, the `held` axis: 12 multiply-adds of whole vectors
    channel 5   accumulator  accumulator

With channels in the lanes, two of every eight lanes would be idle.

Where the rows of an image end within a vector, and all operands go on from one row to the next
without a gap, the rows are one: a 1×1 convolution of 28 × 28 positions has lanes along 784.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from graphflow.arith import IndexExpr, Var, terms_of, variables
from graphflow.base.target import Target
from graphflow.cost import BORDER_GROUPS, AlongRow, TileProblem, missed_lines
from graphflow.kernels.recipes.analysis.contiguity import as_one, step_along
from graphflow.kernels.recipes.analysis.operand_layouts import lane_axis
from graphflow.kernels.recipes.analysis.positions import flat_offset
from graphflow.kernels.recipes.analysis.roles import Roles, overhang
from graphflow.kernels.recipes.analysis.variant import Axes, KernelVariant, Tiled, TileKind
from graphflow.kernels.recipes.schedules.tile_loops import (
    in_order,
    lane_blocks_joined,
    phases_apart,
    reduction_order,
    taps_met,
)
from graphflow.kernels.recipes.variants.packing import packed_layout
from graphflow.kernels.recipes.variants.tiling import choose_tiling, with_epilogue
from graphflow.layout import Layout
from graphflow.schedule import Schedule
from graphflow.tir import DTYPES, Access


@dataclass(frozen=True)
class RowTile(TileKind):
    """Positions of a row in the lanes, and the physical `axis` of the output in the rows.

    The lanes run along the innermost axis of the output and the `joined` ones around it.
    """

    axis: int
    joined: int = 0

    masks_panels: ClassVar[bool] = True

    def loops(self, s: Schedule, axes: Axes, output: Layout) -> tuple[Schedule, Axes, Axes]:
        """The nest with the axis of the rows next to the lanes."""
        s, axes = lane_blocks_joined(s, output, axes)
        held = axes[self.axis]
        for _ in range(self.joined):
            *others, outer, inner = axes
            s, joint = as_one(s, outer, inner)
            axes = (*others, joint)
        axes = (*(axis for axis in axes[:-1] if axis is not held), held, axes[-1])
        s, axes = phases_apart(in_order(s, axes), axes)
        s = taps_met(s, axes)
        s, reduction = reduction_order(s, axes, held)
        return s, axes, reduction


def along_rows(
    variant: KernelVariant,
    roles: Roles,
    constants: frozenset[str],
    target: Target,
    joins: bool = False,
) -> Iterator[KernelVariant]:
    """The variant with lanes along rows and an axis of the weights along the rows of its tile.

    Nothing where the data does not lie along the lanes without gaps, or is read in other terms than
    products with constant weights, where channels are in groups or the output is padded.  Nothing
    either for rows that end within a vector, and for rows so short that every panel meets a border:
    masks in every step cost most of what there is to gain.  With `joins`, rows that end within a
    vector are joined where together they fill vectors.
    """
    output = variant.layouts[roles.output.name]
    if not isinstance(variant.recipe, Tiled) or variant.recipe.kind.group or output.is_padded:
        return
    lane = lane_axis(output)
    lanes = target.computed_lanes(roles.output.dtype)
    joined = _joined(roles, variant.layouts, lane, lanes) if joins else ()
    extent = prod(roles.output.shape[axis] for axis in (lane, *joined))
    if extent % lanes:
        return
    terms = {n: reads for n, reads in roles.reads.items() if any(map(roles.nest_of, reads))}
    weights = [n for n in terms if n in constants and not roles.depends_on(n, lane)]
    data = [access for n, reads in terms.items() if n not in weights for access in reads]
    held = _held_axis(roles, weights, data, lane)
    if held is None or not all(_is_along(roles, a, variant.layouts, lane) for a in data):
        return
    borders = _meets_borders(roles, data, lane)
    if borders and extent <= BORDER_GROUPS * lanes:
        return
    misses = max(_misses(roles, access, variant.layouts, target) for access in data)
    problem = _problem(roles, weights, extent, lane, held, AlongRow(misses, borders))
    yield _with_rows_held(variant, roles, weights, held, problem, len(joined), target)


def _joined(roles: Roles, layouts: Mapping[str, Layout], lane: int, lanes: int) -> tuple[int, ...]:
    """The axes to join with that of the lanes, innermost first: the fewest with which they fill
    vectors; none where no number of them does.

    An axis is joined where each access goes on in memory at the end of the axes inside it, or
    stays where it is.  None where a window reaches beyond the data: what it meets there depends on
    the place in a row.
    """
    index_map = layouts[roles.output.name].index_map
    reads = [access for accesses in roles.reads.values() for access in accesses]
    flats = [flat_offset(layouts[access.buffer.name], access.indices) for access in reads]
    flats.append(flat_offset(layouts[roles.output.name], roles.axes))
    around = [index_map.inputs.index(e) for e in index_map.outputs[::-1] if isinstance(e, Var)]
    if around[:1] != [lane]:
        return ()
    extent, joined = roles.output.shape[lane], list[int]()
    for axis in around[1:]:
        if extent % lanes == 0:
            break
        if not all(_goes_on(flat, roles.axes[axis], roles.axes[lane], extent) for flat in flats):
            return ()
        joined.append(axis)
        extent *= roles.output.shape[axis]
    if extent % lanes or any(_meets_borders(roles, reads, axis) for axis in (lane, *joined)):
        return ()
    return tuple(joined)


def _goes_on(flat: IndexExpr, outer: Var, inner: Var, extent: int) -> bool:
    """Whether a step along `outer` goes as far as `extent` steps along `inner`."""
    steps = (step_along(flat, outer), step_along(flat, inner))
    return steps[1] is not None and steps[0] == steps[1] * extent


def _meets_borders(roles: Roles, data: list[Access], lane: int) -> bool:
    """Whether some lanes of a row read beyond its ends."""
    return any(
        reach != (0, 0)
        for access in data
        for index, reach in zip(access.indices, overhang(roles, access.buffer.name), strict=True)
        if roles.axes[lane] in variables(index)
    )


def _problem(
    roles: Roles, weights: list[str], columns: int, lane: int, held: int, loads: AlongRow
) -> TileProblem:
    """The problem of tiling: columns are the positions of a row, rows the axis `held`."""
    shape = roles.output.shape
    return TileProblem(
        columns=columns,
        rows=shape[held],
        planes=prod(shape) // (columns * shape[held]),
        steps=max(1, roles.steps),
        nests=max(1, len(roles.nests)),
        weight_bytes=sum(roles.reads[n][0].buffer.bytes for n in weights),
        loads=loads,
        dtype=roles.output.dtype,
        sum_dtype=roles.sum_dtype,
        inside=roles.share_inside(roles.axes[lane]),
    )


def _with_rows_held(
    variant: KernelVariant,
    roles: Roles,
    weights: list[str],
    held: int,
    problem: TileProblem,
    joined: int,
    target: Target,
) -> KernelVariant:
    """The variant in tiles with the axis `held` in their rows, its weights packed by that axis."""
    assert isinstance(variant.recipe, Tiled)
    tiling, cycles = choose_tiling(problem, target)
    others = {n: x for n, x in variant.layouts.items() if n not in weights}
    packed = {
        n: packed_layout(roles, roles.reads[n][0].buffer, held, tiling.panels[0].mr, others)
        for n in weights
    }
    index_map = variant.layouts[roles.output.name].index_map
    physical = index_map.outputs.index(index_map.inputs[held])
    more_read = sum(_bytes(roles, n, packed) - _bytes(roles, n, variant.layouts) for n in weights)
    return replace(
        variant,
        name=f"{variant.name} along rows",
        layouts={**variant.layouts, **packed},
        private=variant.private | frozenset(weights),
        recipe=replace(variant.recipe, kind=RowTile(physical, joined), tiling=tiling),
        work=replace(
            variant.work,
            cycles=with_epilogue(cycles, roles, target),
            rows=tiling.pieces(problem.planes),
            read=variant.work.read + more_read,
        ),
        vectorized=True,
    )


def _held_axis(roles: Roles, weights: list[str], data: list[Access], lane: int) -> int | None:
    """The output axis that weights depend on and no data does; None unless there is just one."""
    if not weights or not data or roles.phases[lane] != 1:
        return None
    output_axes = set(roles.axes)
    along_weights: set[Var] = set()
    for name in weights:
        reads = roles.reads[name]
        indices = {e for a in reads for e in a.indices}
        reduced = {v for a in reads for v, _ in roles.nest_of(a)}
        along_weights |= {e for e in indices if e in output_axes}
        if len({a.indices for a in reads}) > 1 or not indices <= reduced | output_axes:
            return None
    if len(along_weights) != 1:
        return None
    (var,) = along_weights
    held = roles.axes.index(var)
    broadcast = not any(var in variables(e) for a in data for e in a.indices)
    return held if broadcast and roles.output.shape[held] > 1 else None


def _is_along(roles: Roles, access: Access, layouts: Mapping[str, Layout], lane: int) -> bool:
    """Whether neighbouring lanes read neighbouring elements of an access."""
    terms, _ = terms_of(flat_offset(layouts[access.buffer.name], access.indices))
    var = roles.axes[lane]
    return [(a, k) for a, k in terms if var in variables(a)] == [(var, 1)]


def _misses(roles: Roles, access: Access, layouts: Mapping[str, Layout], target: Target) -> float:
    """Lines of data that a step takes from the second-level cache; see `missed_lines`."""
    size = DTYPES[access.buffer.dtype].itemsize
    terms, _ = terms_of(flat_offset(layouts[access.buffer.name], access.indices))
    strides = {atom: abs(k) * size for atom, k in terms}
    return missed_lines([(strides.get(v, 0), n) for v, n in roles.nest_of(access)], target)


def _bytes(roles: Roles, name: str, layouts: Mapping[str, Layout]) -> int:
    return layouts[name].bytes(roles.reads[name][0].buffer.dtype)
