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

Of data with strides the lanes read rows in phases: every k-th element together, k the stride.

    y[o, q] += x[c, 5·q + t] * weight[o, c, t]         x[c, 5·q + t] lies at [c, t % 5, q + t // 5]

Where the positions of a row meet different taps, those with the same taps are one phase, and the
phases are rows of the tile.  A transposed convolution to one channel, of stride 2 and four taps:

    y[2·q + r] += x[c, q + (r - t) // 2] * weight[c, t]    for the t with (r - t) % 2 = 0

                q: 0 … 7     8 … 15        all taps are written out, and each of the two vectors of
    phase 0     accumulator  accumulator   x that begin at q and q - 1 serves both rows, which are
    phase 1     accumulator  accumulator   stored by turns: y[0], y[1], y[2] … in whole vectors

A row of 31 positions ends within a phase: row 1 has no position at q = 15.  Its sum is computed,
where that is harmless, and left out of the last store.

Where the rows of an image end within a vector, and all operands go on from one row to the next
without a gap, the rows are one: a 1×1 convolution of 28 × 28 positions has lanes along 784.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf, prod
from typing import ClassVar

from msgspec import Struct

from graphflow import schedule
from graphflow.arith import IndexExpr, Var, substitute, terms_of, variables
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.cost import (
    BORDER_GROUPS,
    FOLLOWED_ROWS,
    AlongRow,
    TileProblem,
    awaited_store_cycles,
    in_blocks,
    missed_lines,
    near_plane,
    turning_cycles,
    uneven_shares,
)
from graphflow.kernels.recipes.analysis.contiguity import as_one, goes_on, step_along
from graphflow.kernels.recipes.analysis.operand_layouts import lane_axis
from graphflow.kernels.recipes.analysis.positions import flat_offset
from graphflow.kernels.recipes.analysis.roles import Roles, meets_borders
from graphflow.kernels.recipes.analysis.variant import Axes, KernelVariant, Tiled, TileKind
from graphflow.kernels.recipes.schedules.tile_loops import (
    in_order,
    in_row_blocks,
    lane_blocks_joined,
    phases_apart,
    reduction_order,
    taps_met,
)
from graphflow.kernels.recipes.variants.packing import packed_layout
from graphflow.kernels.recipes.variants.tiling import choose_tiling, with_epilogue
from graphflow.layout import IndexMap, Layout, row_major
from graphflow.schedule import Schedule
from graphflow.tir import DTYPES, Access

LONG_ROWS = 8
"""Rows of more vectors may end within one: its idle lanes, and its masks, cost little of them."""


@dataclass(frozen=True)
class RowTile(TileKind):
    """Positions of a row in the lanes, and the physical `axis` of the output in the rows.

    The lanes run along the innermost axis of the output and the `joined` ones around it, or along
    every n-th position of it where it has n `phases`.  These are in the rows then, by themselves
    where there is no `axis`.
    """

    axis: int | None
    joined: int = 0
    phases: int = 1
    blocks: int = 0

    masks_panels: ClassVar[bool] = True

    @property
    def turns(self) -> int:
        """The phases lie side by side in memory."""
        return self.phases

    def loops(self, s: Schedule, axes: Axes, output: Layout) -> tuple[Schedule, Axes, Axes]:
        """The nest with the axis of the rows next to the lanes."""
        s, axes = lane_blocks_joined(s, output, axes)
        held: Axes = () if self.axis is None else (axes[self.axis],)
        for _ in range(self.joined):
            *others, outer, inner = axes
            s, joint = as_one(s, outer, inner)
            axes = (*others, joint)
        axes = (*(axis for axis in axes[:-1] if axis not in held), *held, axes[-1])
        if self.phases > 1:
            s, axes = self._phases_in_rows(s, axes)
            held = axes[-2:-1]
        else:
            s, axes = phases_apart(in_order(s, axes), axes)
        s = taps_met(s, axes)
        s, reduction = reduction_order(s, axes, *held)
        if self.blocks:
            s, axes = in_row_blocks(s, axes, self.blocks)
        return s, axes, reduction

    def _phases_in_rows(self, s: Schedule, axes: Axes) -> tuple[Schedule, Axes]:
        """`for o: for p: S` → `for row: for q: S[o → row // n, p → n·q + row % n]`, n the phases.

        The rows are those of one o where there is no axis in the rows.  Where n does not divide the
        positions, S is under the condition that there is such a p.
        """
        *outer, lane = axes
        parts = (s.fresh("{}q", lane), s.fresh("{}r", lane))
        s = s.apply(schedule.divide_loop, s[lane], self.phases, parts, "guard")
        lane, row = s.made["parts"]
        if self.axis is not None:
            held = outer.pop()
            s = in_order(s, (*outer, held, row, lane))
            s = s.apply(schedule.mult_loops, s[held], s[row], s.fresh("{}_{}", held, row))
            (row,) = s.made["loop"]
        axes = (*outer, row, lane)
        return in_order(s, axes).apply(schedule.simplify), axes


class _HeldRows(Struct, frozen=True):
    """A kernel in rows: `positions` along the output axis `lane` and the `joined` ones, every n-th
    of them together where there are n `phases`, and the axis `held` of the output.  The lanes load
    the `data`."""

    lane: int
    joined: int
    phases: int
    positions: int
    held: int | None
    weights: tuple[str, ...]
    data: tuple[str, ...]
    layouts: Mapping[str, Layout]


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
    either for short rows that end within a vector, and for rows so short that every panel meets a
    border: masks in every step cost most of what there is to gain, unless the positions of a row
    meet different taps: lanes along other axes read single elements then (16 to 1 channel of 32×32,
    16×16 taps of stride 8, took 15 ms for 0.05).  With `joins`, rows that end within a vector are
    joined where together they fill vectors.
    """
    output = variant.layouts[roles.output.name]
    if not isinstance(variant.recipe, Tiled) or variant.recipe.kind.group or output.is_padded:
        return
    lane = lane_axis(output)
    lanes = target.computed_lanes(roles.output.dtype)
    joined = _joined(roles, variant.layouts, lane, lanes) if joins else ()
    phases = roles.phases[lane]
    positions = prod(roles.output.shape[axis] for axis in (lane, *joined))
    columns = -(-positions // phases)  # the last ones may lack some of the phases
    is_ragged = columns % lanes > 0 or positions % phases > 0
    if phases == 1 and is_ragged and columns <= LONG_ROWS * lanes:
        return
    terms = {n: reads for n, reads in roles.reads.items() if any(map(roles.nest_of, reads))}
    weights = [n for n in terms if n in constants and not roles.depends_on(n, lane)]
    data = [access for n, reads in terms.items() if n not in weights for access in reads]
    held = _held_axis(roles, weights, data, lane)
    if not weights or not data or (held is None and phases == 1):
        return
    layouts = {**variant.layouts, **_phases_of_data(roles, data, variant.layouts, lane)}
    if not all(_is_along(roles, a, layouts, lane) for a in data):
        return
    borders = is_ragged or meets_borders(roles, data, lane)
    if borders and phases == 1 and columns <= BORDER_GROUPS * lanes:
        return
    misses = max(_misses(roles, access, layouts, target) for access in data)
    loaded = tuple(dict.fromkeys(access.buffer.name for access in data))
    rows = _HeldRows(lane, len(joined), phases, positions, held, (*weights,), loaded, layouts)
    problem = _problem(roles, rows, AlongRow(misses, borders, phases))
    if problem.loads.most_rows(problem.plane, 1, target) >= phases:
        yield _with_rows_held(variant, roles, rows, problem, target)


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
        if not all(goes_on(flat, roles.axes[axis], roles.axes[lane], extent) for flat in flats):
            return ()
        joined.append(axis)
        extent *= roles.output.shape[axis]
    if extent % lanes or any(meets_borders(roles, reads, axis) for axis in (lane, *joined)):
        return ()
    return tuple(joined)


def _problem(roles: Roles, rows: _HeldRows, loads: AlongRow) -> TileProblem:
    """The problem of tiling: columns are the positions of a row, rows its phases of each `held`."""
    shape = roles.output.shape
    channels = 1 if rows.held is None else shape[rows.held]
    return TileProblem(
        columns=-(-rows.positions // rows.phases),
        rows=rows.phases * channels,
        planes=prod(shape) // (rows.positions * channels),
        steps=max(1, roles.steps),
        nests=max(1, len(roles.nests)),
        weight_bytes=sum(roles.reads[n][0].buffer.bytes for n in rows.weights),
        loads=loads,
        dtype=roles.output.dtype,
        sum_dtype=roles.sum_dtype,
        inside=roles.share_inside(roles.axes[rows.lane]),
    )


def _with_rows_held(
    variant: KernelVariant, roles: Roles, rows: _HeldRows, problem: TileProblem, target: Target
) -> KernelVariant:
    """The variant in tiles with the axis `held` in their rows, its weights packed by that axis."""
    assert isinstance(variant.recipe, Tiled)
    read = sum(_bytes(roles, n, rows.layouts) for n in rows.data)
    blocks = _followed_blocks(problem, read, rows.phases, target)
    if blocks:
        problem = in_blocks(problem, blocks)
    tiling, cycles = choose_tiling(problem, target)
    others = {n: x for n, x in rows.layouts.items() if n not in rows.weights}
    buffers = [roles.reads[n][0].buffer for n in rows.weights]
    if rows.held is None:
        packed = {b.name: row_major(b.shape) for b in buffers}
    else:
        width = tiling.panels[0].mr // rows.phases
        packed = {b.name: packed_layout(roles, b, rows.held, width, others) for b in buffers}
    physical = None if rows.held is None else _physical_axis(variant, roles, rows.held)
    layouts = {**rows.layouts, **packed}
    changed = [n for n in roles.reads if layouts[n] != variant.layouts[n]]
    more_read = sum(_bytes(roles, n, layouts) - _bytes(roles, n, variant.layouts) for n in changed)
    if rows.phases > 1:
        output = roles.output
        cycles += turning_cycles(output.size, rows.phases, output.dtype, target)
    return replace(
        variant,
        name=f"{variant.name} along rows",
        layouts=layouts,
        private=variant.private | frozenset(rows.weights),
        recipe=replace(
            variant.recipe, kind=RowTile(physical, rows.joined, rows.phases, blocks), tiling=tiling
        ),
        work=replace(
            variant.work,
            cycles=with_epilogue(cycles, roles, target),
            rows=tiling.pieces(problem.planes),
            read=variant.work.read + more_read,
        ),
        vectorized=True,
    )


def _followed_blocks(problem: TileProblem, read: int, phases: int, target: Target) -> int:
    """The number of blocks of rows, each of whole `phases`, with which tiles and stores take the
    fewest cycles; 0 where the rows stay together, as where no stores wait for lines.

    Panels run inside of blocks, so the few rows of one are written from end to end.  Each block
    loads all data again, `read` bytes, which therefore has to be in the second-level cache.
    """
    tiling, cycles = choose_tiling(problem, target)
    awaited = awaited_store_cycles(problem, tiling, target)
    if not awaited or problem.planes > 1 or not near_plane(read, target):
        return 0
    fewest = -(-problem.rows // FOLLOWED_ROWS)
    numbers = range(max(2, fewest), problem.rows // phases + 1)
    compared = {0: cycles * uneven_shares(tiling.pieces(1)) + awaited}
    for blocks in numbers:
        if problem.rows % (blocks * phases) == 0:
            compared[blocks] = _cycles_in_blocks(problem, blocks, target)
    return min(compared, key=lambda blocks: compared[blocks])


def _cycles_in_blocks(problem: TileProblem, blocks: int, target: Target) -> float:
    """The cycles of tiles with so many blocks of rows; infinite where a block does not consist of
    whole tiles, by which weights are packed."""
    cut = in_blocks(problem, blocks)
    tiling, cycles = choose_tiling(cut, target)
    whole = cut.rows % tiling.panels[0].mr == 0
    return cycles * uneven_shares(tiling.pieces(blocks)) if whole else inf


def _physical_axis(variant: KernelVariant, roles: Roles, axis: int) -> int:
    """The physical axis of the output that is its logical one of this number."""
    index_map = variant.layouts[roles.output.name].index_map
    return index_map.outputs.index(index_map.inputs[axis])


def _held_axis(roles: Roles, weights: list[str], data: list[Access], lane: int) -> int | None:
    """The output axis that weights depend on and no data does; None unless there is just one."""
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


def _phases_of_data(
    roles: Roles, data: list[Access], layouts: Mapping[str, Layout], lane: int
) -> dict[str, Layout]:
    """Layouts in which every k-th element of a row lies together, for data that lanes read k apart.

    For example, of stride 5: `x[5·q + t]` is the element `q + t // 5` of the phase `t % 5`.
    """
    found: dict[str, Layout] = {}
    for access in data:
        layout, buffer = layouts[access.buffer.name], access.buffer
        steps = [step_along(e, roles.axes[lane]) for e in access.indices]
        moving = [axis for axis, step in enumerate(steps) if step != 0]
        if len(moving) == 1 and layout == row_major(buffer.shape):
            (axis,) = moving
            step = steps[axis]
            if axis == len(steps) - 1 and step is not None and step > 1:
                found[buffer.name] = _in_phases(buffer.shape, step)
    return found


def _in_phases(shape: tuple[int, ...], count: int) -> Layout:
    """The row-major layout with the innermost axis as `count` phases of it, one after another."""

    def outputs(*indices: IndexExpr) -> tuple[IndexExpr, ...]:
        *others, last = indices
        return (*others, last % count, last // count)

    box = (*shape[:-1], count, -(-shape[-1] // count))
    return Layout.of(IndexMap.from_function(len(shape), outputs, shape), shape, box)


def _is_along(roles: Roles, access: Access, layouts: Mapping[str, Layout], lane: int) -> bool:
    """Whether neighbouring lanes read neighbouring elements of an access, each of their phases."""
    var, phases = roles.axes[lane], roles.phases[lane]
    lanes = {var: var * phases} if phases > 1 else {}
    indices = tuple(substitute(e, lanes) for e in access.indices)
    terms, _ = terms_of(flat_offset(layouts[access.buffer.name], indices))
    return [(a, k) for a, k in terms if var in variables(a)] == [(var, 1)]


def _misses(roles: Roles, access: Access, layouts: Mapping[str, Layout], target: Target) -> float:
    """Lines of data that a step takes from the second-level cache; see `missed_lines`.

    Of the taps that share a line, each phase meets few."""
    size = DTYPES[access.buffer.dtype].itemsize
    terms, _ = terms_of(flat_offset(layouts[access.buffer.name], access.indices))
    strides = {atom: abs(k) * size for atom, k in terms}
    nest = [(strides.get(v, 0), n) for v, n in roles.nest_of(access)]
    return min(1.0, missed_lines(nest, target) * prod(roles.phases))


def _bytes(roles: Roles, name: str, layouts: Mapping[str, Layout]) -> int:
    return layouts[name].bytes(roles.reads[name][0].buffer.dtype)
