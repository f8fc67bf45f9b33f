"""The recipe of kernels that multiply transformed tiles: their stages meet at bands of tiles.

In: a definition with such stages (`filtered_stages`), a layout for each parameter, and a
`FilteredTiles` recipe.  Out: its schedule.  An iteration of the loop that threads share computes
some output channels of a band, which is some rows of tiles; what is between its stages is in
memory of the thread, small enough for the second-level cache.

    for band, group of output channels, by threads:
        for slice of input channels:
            v = tiles of the band, transformed      36 planes of tiles × channels
            s += v · u at each of the 36 positions  in register tiles
        for tile, vector of channels:
            y = s transformed back, and what follows

What always holds: each step is a schedule primitive, so the kernel equals its definition wherever
no step is refused; a refusal is a ScheduleError.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import gcd
from typing import Literal, cast

from graphflow import schedule, tir
from graphflow.arith import Predicate, conjunction, const, substitute_in
from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes.analysis.filtered_stages import (
    FilteredStages,
    StageLoops,
    filtered_stages,
)
from graphflow.kernels.recipes.analysis.shared_loops import intermediates
from graphflow.kernels.recipes.analysis.variant import ACCUMULATORS, FilteredTiles
from graphflow.kernels.recipes.schedules.register_nests import by_threads, whole_and_ragged
from graphflow.kernels.recipes.schedules.weights_ahead import fetched_ahead
from graphflow.layout import Layout, row_major
from graphflow.schedule import Handle, PadValue, Schedule

Nest = tuple[Handle, ...]
"""Loops, the outermost first; those that run once may be gone."""

Placements = tuple[tuple[str, Layout, PadValue], ...]


def in_tile_bands(
    definition: tir.PrimFunc, placements: Placements, recipe: FilteredTiles
) -> Schedule:
    """The schedule of the kernel; ScheduleError where a step is refused."""
    s, steps, shared, ahead = _in_bands(definition, recipe)
    for name, layout, pad in placements:
        if layout != row_major(layout.logical_shape):
            s = s.apply(schedule.transform_layout, name, layout, pad)
    return by_threads(steps.weights_ahead(s, ahead), shared)


def remember_bands(definition: tir.PrimFunc, recipe: FilteredTiles) -> None:
    """Take the steps that no layout decides, for kernels that are made in this process later."""
    _in_bands(definition, recipe)


@lru_cache(maxsize=64)
def _in_bands(
    definition: tir.PrimFunc, recipe: FilteredTiles
) -> tuple[Schedule, _Bands, Nest, Nest]:
    """The steps that no layout decides, and what the steps behind them need; remembered, as they
    are nine tenths of the work: of the 42 kernels of densenet121, which store their outputs in
    parts of concatenations, only 3 differ in the definition or the recipe."""
    found = filtered_stages(definition)
    if found is None:
        raise ScheduleError(f"{definition.name} multiplies no transformed tiles")
    s = Schedule.of(definition)
    steps = _Bands(found, recipe, s)
    for tail in found.tails:
        s = s.apply(schedule.reverse_compute_at, tail.block, found.untiled.block)
    s, shared, ahead = steps.of(s)
    return s, steps, shared, ahead


class _Bands:
    """The steps for one kernel.

    `start` is the schedule without any: handles of its loops follow them through all steps.
    """

    def __init__(self, found: FilteredStages, recipe: FilteredTiles, start: Schedule) -> None:
        self._found, self._recipe, self._bands = found, recipe, recipe.bands
        self._handles = {
            stage.block: tuple(start.handle(var.name) for var in stage.loops)
            for stage in found.stages
        }

    def _loops(self, stage: StageLoops) -> tuple[Handle, ...]:
        """The loops of a stage as its definition has them, wherever it is computed."""
        return self._handles[stage.block]

    def of(self, s: Schedule) -> tuple[Schedule, Nest, Nest]:
        """The schedule of the kernel whose tails are joined, the loops that threads share, and the
        loop over positions of the tiles with those around a register tile in it."""
        f, r = self._found, self._bands
        n, ty, tx, i, j, o = self._loops(f.started)
        s, (band, ty) = _divided(s, ty, r.rows)
        s, (group, vector) = _divided(s, o, r.group)
        s, (vector, lane) = _divided(s, vector, r.lanes)
        nest = (n, group, band, ty, tx, vector, i, j, lane)
        s = _ordered(s, nest)
        s, tail = self._stored(s, nest)
        s = s.apply(schedule.simplify)
        around = s.present((n, group, band))
        s = self._outputs(s, vector)
        for stage in (f.products, *reversed(f.guards)):
            s = _computed_at(s, stage.block, around[-1])
        s, place, products = self._in_slices(s, around[-1])
        s = _computed_at(s, f.columns.block, place)
        s = self._data(s)
        s, ahead = self._products(s, products)
        if f.guards:
            s = self._zeros(s, f.guards[0])
        s = self._innermost(s, (nest[6:], tail), vector)
        if self._recipe.last_apart[1]:
            s = s.apply(schedule.partition_loop, s[vector], "_last")
        return self._planes_apart(s), around, ahead

    def _planes_apart(self, s: Schedule) -> Schedule:
        """The planes of tiles and of sums, one for each position of a tile, as far apart in memory
        as the recipe says."""
        stages = self._found.columns, self._found.products
        for stage, size in zip(stages, self._recipe.plane_elements, strict=True):
            name = stage.writes.name
            (held,) = (b for b in intermediates(s.func) if b.name == name)
            plane = self._found.axes  # behind the axes of positions
            for _ in held.shape[plane + 1 :]:
                s = s.apply(schedule.mult_dim, name, plane, plane + 1)
            s = s.apply(schedule.resize_dim, name, plane, size, 0)
        return s

    def _stored(self, s: Schedule, nest: Nest) -> tuple[Schedule, Nest]:
        """The outputs of a tile stored, inside the loops that made them, and the loops of these
        stores over a tile in lanes."""
        f, r = self._found, self._bands
        n, o, *h, w = self._loops(f.untiled)
        if h:
            s, (ty, i) = _divided(s, h[0], f.tile)
            inside: Nest = (i,)
        else:  # a row of tiles is a part of the sequence
            s, (ty, w) = _divided(s, w, f.tile * f.tiles[1])
            inside = ()
        s, (band, ty) = _divided(s, ty, r.rows)
        s, (tx, j) = _divided(s, w, f.tile)
        s, (group, vector) = _divided(s, o, r.group)
        s, (vector, lane) = _divided(s, vector, r.lanes)
        loops, tail = (n, group, band, ty, tx, vector), (*inside, j, lane)
        s = _ordered(s, (*loops, *tail))
        s = s.apply(schedule.fuse, f.started.block, f.untiled.block)
        for first, second in zip(s.present(nest[:6]), s.present(loops), strict=True):
            s = s.apply(schedule.fuse, s[first], s[second])
        return s, tail

    def _innermost(self, s: Schedule, nests: Iterable[Nest], vector: Handle) -> Schedule:
        """The tile written out in lanes, and its buffers private to each vector of channels."""
        for buffer in intermediates(s.func):
            if buffer.scope == "global":
                s = s.apply(schedule.sink_alloc, buffer.name, s[vector], "scratch")
        for *loops, lane in nests:
            for loop in s.present(loops):
                s = s.apply(schedule.mark_unrolled, s[loop])
            s = s.apply(schedule.vectorize_loop, s[lane])
        return s

    def _outputs(self, s: Schedule, vector: Handle) -> Schedule:
        """The sums of a tile transformed back, for a vector of its outputs."""
        f = self._found
        s = _computed_at(s, f.output_columns.block, vector)
        s = _computed_at(s, f.output_rows.block, vector)
        *_, b, o = self._loops(f.output_rows)
        s = s.apply(schedule.mark_unrolled, s[b]).apply(schedule.vectorize_loop, s[o])
        _, _, _, i, o, *again = self._loops(f.output_columns)
        for loop in s.present((i,)):
            s = s.apply(schedule.mark_unrolled, s[loop])
        s = s.apply(schedule.vectorize_loop, s[o])
        if not f.guards:
            return s
        _, _, lane, *taps = again
        s = s.apply(schedule.fission, s[lane], 1, "_sums", 1)
        (first,), (lane,) = s.made["first"], s.made["second"]
        s = _ordered(s, (*taps, lane))
        return s.apply(schedule.vectorize_loop, s[first]).apply(schedule.vectorize_loop, s[lane])

    def _in_slices(self, s: Schedule, band: Handle) -> tuple[Schedule, Handle, Nest]:
        """The sums over slices of the input channels, the loop that needs one slice, and the nest
        of its products."""
        f, r = self._found, self._bands
        *nest, c = self._loops(f.products)
        if r.slice == f.channels[0]:
            return s, band, (*nest, c)
        s, (slices, c) = _divided(s, c, r.slice)
        present = s.present(nest)
        s = s.apply(schedule.fission, s[nest[-1]], 1, "_sums", len(present))
        copies = dict(zip(present, s.made["second"], strict=True))
        nest = [copies.get(place, place) for place in nest]
        return _ordered(s, (slices, *nest)), slices, (*nest, c)

    def _data(self, s: Schedule) -> Schedule:
        """Each tile of the image transformed in registers, for a vector of channels."""
        f = self._found
        n, ty, tx, a, c = self._loops(f.columns)
        s, (vector, lane) = _divided(s, c, self._bands.data_lanes)
        s = _ordered(s, (n, ty, tx, vector, a, lane))
        s = _computed_at(s, f.rows.block, vector)
        *_, j, c = self._loops(f.rows)
        s = _computed_at(s, f.data.block, j)
        *_, i, _, element = self._loops(f.data)
        for loop in s.present((a, j, i)):
            s = s.apply(schedule.mark_unrolled, s[loop])
        for loop in (lane, c, element):
            s = s.apply(schedule.vectorize_loop, s[loop])
        return self._inner_apart(s, vector, element)

    def _inner_apart(self, s: Schedule, vector: Handle, element: Handle) -> Schedule:
        """Tiles that lie inside the image apart from those at a border, which have conditions; of
        these the last vector apart, where the channels do not fill it."""
        inside = tuple(
            stmt.condition
            for stmt in tir.walk(s.loop(vector).body)
            if isinstance(stmt, tir.If) and tir.is_predicate(stmt.condition)
        )
        size = self._found.u.shape[1] - 1
        varying = [loop.var for loop in tir.loops_of(s.loop(vector).body)]
        corners = [
            substitute_in(cast(Predicate, condition), {var: const(at) for var in varying})
            for condition in inside
            for at in (0, size)
        ]
        if not corners:
            return s
        s = s.apply(schedule.specialize, s[vector], (conjunction(corners),))
        (inner, border), (_, element) = s.forward(vector), s.forward(element)
        s = s.apply(schedule.eliminate_dead_code, inner.name)
        if not self._recipe.last_apart[0]:
            return s
        s = s.apply(schedule.shift_loop, s[element], 0)
        return s.apply(schedule.partition_loop, s[border], "_last")

    def _products(self, s: Schedule, nest: Nest) -> tuple[Schedule, Nest]:
        """The sums in register tiles: some tiles of a row, and some vectors of output channels; and
        the loops of `weights_ahead`."""
        f, r = self._found, self._bands
        _, a, b, ty, tx, o, c = nest
        terms: Nest = ()
        if r.terms > 1:
            s, (c, term) = _divided(s, c, r.terms)
            terms = (term,)
        s, (panel, column) = _divided(s, o, r.vectors * r.lanes)
        s, (vector, lane) = _divided(s, column, r.lanes)
        s = _ordered(s, (a, b, panel, ty, tx, vector, lane))
        s, pieces = whole_and_ragged(s, tx, r.tiles)
        first = r.slice == f.channels[0]
        around: Nest = (b, ty)
        for piece, size in pieces:
            s, (place, row) = _divided(s, piece, size)
            around = (b, ty, place) if len(pieces) == 1 else around
            rows = (row, *s.inside(row, (vector, lane)))
            summed, lanes = s.inside(row, (c,)), s.inside(row, terms)
            s = _in_registers(s, place, f.products.writes.name, rows, summed, first, lanes)
        return s, around

    def weights_ahead(self, s: Schedule, around: Nest) -> Schedule:
        """The weights of the next position of the tiles fetched while those of one are in work;
        `around` is the loop over positions, with those around a register tile in it."""
        s = s.apply(schedule.simplify)
        positions, *inner = around
        tiles = s.present(inner)
        return fetched_ahead(s, (self._found.u.name,), positions, tiles) if tiles else s

    def _zeros(self, s: Schedule, zeros: StageLoops) -> Schedule:
        """The zeros of a row of tiles, several vectors of channels side by side."""
        f, r = self._found, self._bands
        n, ty, c, i, w = self._loops(zeros)
        vectors = gcd(f.channels[0] // r.lanes, ACCUMULATORS)
        s, (block, vector) = _divided(s, c, vectors * r.lanes)
        s, (vector, lane) = _divided(s, vector, r.lanes)
        s = _ordered(s, (n, ty, block, vector, lane))
        return _in_registers(s, block, zeros.writes.name, (vector, lane), (i, w), True)


def _in_registers(
    s: Schedule,
    place: Handle,
    buffer: str,
    nest: tuple[Handle, ...],
    reduction: tuple[Handle, ...],
    clears: bool,
    terms: Nest = (),
) -> Schedule:
    """What an iteration of `place` adds up in registers; it `clears` them, or loads sums so far.

    The loop over `terms` that a lane sums in a step, if any, runs inside the lanes, which stay a
    serial loop until an instruction performs it (`target_instructions`).
    """
    s = s.apply(schedule.stage_mem, s[place], buffer, s.fresh("sums_{}", place), s.names(nest))
    nests = [s.made[role] for role in ("load", "store") if s.made.get(role)]
    if clears:
        s = s.apply(schedule.fission, s[nest[-1]], 1, "_u", len(nest))
        nests.append(s.made["first"])
        nest = s.made["second"]
    reduction, terms = s.inside(nest[0], reduction), s.inside(nest[0], terms)
    s = _ordered(s, (*reduction, *nest, *terms))
    if any(isinstance(stmt, tir.If) for stmt in tir.walk(s.loop(reduction[0]).body)):
        s = s.attempt(schedule.lift_conditions, s[reduction[0]])
    for loops in (*nests, nest):
        *outer, lane = loops
        for loop in outer:
            s = s.apply(schedule.mark_unrolled, s[loop])
        if loops is not nest or not terms:
            s = s.apply(schedule.vectorize_loop, s[lane])
    return s


def _computed_at(s: Schedule, block: str, place: Handle) -> Schedule:
    """The stage computed in a loop, without its loops that run once: each makes proofs longer."""
    return s.apply(schedule.compute_at, block, s[place]).apply(schedule.simplify)


def _divided(s: Schedule, place: Handle, size: int) -> tuple[Schedule, tuple[Handle, Handle]]:
    """The loop in pieces of `size` iterations; where the last is smaller, under a condition."""
    extent = s.loop(place).extent
    tail: Literal["guard", "perfect"] = "guard" if extent is None or extent % size else "perfect"
    parts = (s.fresh("{}o", place), s.fresh("{}i", place))
    s = s.apply(schedule.divide_loop, s[place], size, parts, tail)
    outer, inner = s.made["parts"]
    return s, (outer, inner)


def _ordered(s: Schedule, order: tuple[Handle, ...]) -> Schedule:
    return s.apply(schedule.reorder_loops, s.names(s.present(order)))
