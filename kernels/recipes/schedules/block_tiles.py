"""The recipe of sums of blocks: tiles whose integer sums and float sums are both in registers.

In: a definition with sums of blocks (`analysis/block_sums.py`), a layout and padding for each
parameter, and a `BlockTiles` recipe.  Out: its schedule, in panels of columns that threads share:

    for panel, by threads:
        for tile of rows:
            floats: rows × vectors of registers, filled with what the output begins with
            for q:
                integers: as many registers, filled with what the sums of block q begin with
                for g: for h:                      each vector of bytes is loaded once for all rows
                    integers += dot products of four terms in each lane
                floats += what is made of the integers
            store the floats

What always holds: each step is a schedule primitive, so the kernel equals its definition wherever
no step is refused; a refusal is a ScheduleError.
"""

from __future__ import annotations

from graphflow import schedule, tir
from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes.analysis.block_sums import BlockSums, block_sums
from graphflow.kernels.recipes.analysis.byte_sums import BYTE_TERMS
from graphflow.kernels.recipes.analysis.variant import BlockTiles
from graphflow.kernels.recipes.schedules.register_nests import (
    Nest,
    TileSteps,
    by_threads,
    in_vectors,
    tile_in_registers,
    whole_and_ragged,
)
from graphflow.layout import Layout, row_major
from graphflow.schedule import Handle, PadValue, Schedule

STEPS = TileSteps(write_padding=False, unrolled_taps=0, terms=BYTE_TERMS)


def in_block_tiles(
    definition: tir.PrimFunc,
    placements: tuple[tuple[str, Layout, PadValue], ...],
    recipe: BlockTiles,
) -> Schedule:
    """The schedule of the kernel; ScheduleError where a step is refused."""
    found = block_sums(definition)
    if found is None:
        raise ScheduleError(f"{definition.name} has no sums of blocks")
    s = found.schedule
    loops = [var for var, _ in (*found.rows, found.lane, found.blocks, *found.terms)]
    places = {var: s.handle(var.name) for var in loops}
    for name, layout, pad in placements:
        if layout != row_major(layout.logical_shape):
            s = s.apply(schedule.transform_layout, name, layout, pad)
    # Loops that run once are gone.
    ordered = sorted(found.rows, key=lambda loop: loop[1])  # the last one shares weights
    rows = s.present(tuple(places[var] for var, _ in ordered))
    lane, blocks = places[found.lane[0]], places[found.blocks[0]]
    reduction = (blocks, *s.present(tuple(places[var] for var, _ in found.terms)))
    parts = (s.fresh("panel"), s.fresh("column"))
    s = s.apply(schedule.divide_loop, s[lane], recipe.lanes * recipe.vectors, parts, "guard")
    panel, column = s.made["parts"]
    s = s.apply(schedule.reorder_loops, s.names((panel, *rows, column)))
    if not rows:
        s, lanes = in_vectors(s, column, recipe.lanes)
        return by_threads(_tile(s, panel, lanes, reduction, found), (panel,))
    s, pieces = whole_and_ragged(s, rows[-1], recipe.rows)
    for piece, count in pieces:
        parts = (s.fresh("{}o", piece), s.fresh("{}i", piece))
        s = s.apply(schedule.divide_loop, s[piece], count, parts, "perfect")
        around, inner = s.made["parts"]
        (here,) = s.inside(around, (column,))
        s, lanes = in_vectors(s, here, recipe.lanes)
        s = _tile(s, around, (inner, *lanes), s.inside(around, reduction), found)
    return by_threads(s, (panel, *rows[:-1]))


def _tile(s: Schedule, around: Handle, nest: Nest, reduction: Nest, found: BlockSums) -> Schedule:
    """The iterations of `around` as a tile in registers; its loops are the `nest`, in which the
    `reduction` runs over the blocks and their terms."""
    around_blocks, *terms = reduction
    elementwise: list[Nest] = []
    for buffer in found.held:
        name = s.fresh("{}_{}", s.handle(buffer.name), nest[-1])
        s = s.apply(schedule.stage_mem, s[around], buffer.name, name, s.names(nest), "register")
        elementwise += [s.made["store"]] if s.made["store"] else []
    s = s.apply(schedule.fission, s[nest[-1]], 1, "_u", len(nest))
    elementwise.append(s.made["first"])
    update = s.made["second"]
    if len(_inside(s.loop(update[-1]))) > 1:
        s = s.apply(schedule.fission, s[update[-1]], 1, "_t", len(nest))
        update, tail = s.made["first"], s.made["second"]
        elementwise.append(tail)
    s = s.attempt(
        schedule.remove_branching_through_overcompute, s[update[0]], s[update[-1]], fill=True
    )
    (blocks,), inside = s.inside(update[0], (around_blocks,)), s.inside(update[0], tuple(terms))
    s = s.apply(schedule.reorder_loops, s.names((blocks, *update)))
    held = (found.total,)
    s = tile_in_registers(s, blocks, update[:-1], update[-1:], inside, STEPS, held=held)
    for loops in elementwise:
        for place in loops[:-1]:
            s = s.apply(schedule.mark_unrolled, s[place])
        s = s.apply(schedule.vectorize_loop, s[loops[-1]])
    # Instructions have the place of a weight in its byte as a constant.
    places = [x for x in s.present(inside) if s.loop(x).kind is tir.LoopKind.UNROLLED]
    for place in places:
        s = s.apply(schedule.unroll_loop, s[place])
    return s


def _inside(loop: tir.For) -> tir.Body:
    """What an iteration does, under a condition that is all of its body."""
    only = loop.body[0] if len(loop.body) == 1 else None
    return only.then if isinstance(only, tir.If) else loop.body
