"""Lanes along a loop that all stages of a kernel share, across the rows of its tensors.

In: a schedule whose stages stand in one nest over shared loops, and the shared loop along which all
tensors are contiguous in memory.  Out: the schedule in which an iteration handles a block of a few
vectors along that loop, each stage one after the other, with the intermediates of the block in
registers or on the stack.

What always holds: lanes of a block beyond the end of the loop do nothing.  Where a loop is left
around the blocks for threads, the last block is cut off, so that only it has masks.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow import schedule
from graphflow.arith import IndexExpr, Var, const, less_than
from graphflow.kernels.recipes.analysis.contiguity import as_one, inner_body, perfect_nest, run_on
from graphflow.kernels.recipes.analysis.shared_loops import copies_of, intermediates
from graphflow.kernels.recipes.analysis.variant import SharedLoops
from graphflow.kernels.recipes.schedules.register_blocks import copy_in_square_blocks
from graphflow.kernels.recipes.schedules.row_bands import loops_met, product_in_tiles, products_in
from graphflow.layout import IndexMap, Layout
from graphflow.schedule import Handle, Schedule
from graphflow.tir import Buffer, accesses, walk, writes_in


def lanes_along_shared_loop(
    s: Schedule, shared: tuple[Handle, ...], recipe: SharedLoops
) -> tuple[Schedule, tuple[Handle, ...]]:
    """The schedule in vectors along one of the `shared` loops, and the loops for threads.

    ScheduleError where a step is refused.  Loops that run once are left where keys are left out.
    """
    assert recipe.lane_loop is not None
    others = tuple(place for k, place in enumerate(shared) if k != recipe.lane_loop)
    order = (*others, shared[recipe.lane_loop])
    if order != shared:
        s = s.apply(schedule.reorder_loops, s.names(order))
    *around, row = order
    s = _rows_innermost(s, order)
    while around and run_on(s.loop(around[-1]), s.loop(row)):
        s, row = as_one(s, around.pop(), row)
    width = recipe.lanes * recipe.vectors
    extent = s.loop(row).extent or 1
    names = (s.fresh("{}o", row), s.fresh("{}i", row))
    s = s.apply(schedule.divide_loop, s[row], width, names, "guard")
    blocks, lane = s.made["parts"]
    for buffer in intermediates(s.func):
        s = _in_block(s, buffer.name, blocks)
    if recipe.tile:
        s = loops_met(s, lane, copies_of(s.func, recipe.transposed))
    s, pieces = stages_apart(s, lane)
    if recipe.tile and extent % width:
        s, pieces = _whole_bands(s, blocks, pieces, recipe, extent // width)
    if recipe.tile:
        s = _reused(s)
    copies = copies_of(s.func, recipe.transposed)
    for place in pieces:
        if recipe.tile and products_in((s.loop(place),)):
            s = product_in_tiles(s, place, recipe.lanes, recipe.tile)
            continue
        is_copy = any(stmt in copies for stmt in walk((s.loop(place),)))
        s = _lines_in_blocks(s, place, recipe) if is_copy else _stage_in_lanes(s, place, recipe)
    if around and extent % width and extent > width and not recipe.tile:
        s = s.apply(schedule.cut_loop, s[blocks], extent // width, "_rest")
        return s.apply(schedule.simplify), tuple(around)
    return s if recipe.leaves_out else s.apply(schedule.simplify), (*around, blocks)


def _whole_bands(
    s: Schedule, blocks: Handle, pieces: Sequence[Handle], recipe: SharedLoops, whole: int
) -> tuple[Schedule, list[Handle]]:
    """The stages for all lanes of a block, also those beyond the end of the loop, with their loops.

    What these lanes read of a parameter outside of it is zero, and nothing of what they compute is
    stored to one: the first `whole` blocks have no such lanes, and copies of their own.
    """
    done: list[Handle] = []
    for number, place in enumerate(pieces):
        copies = copies_of(s.func, recipe.transposed)
        rest = place
        if any(stmt in copies for stmt in walk((s.loop(place),))):
            is_whole = less_than(s.loop(blocks).var, const(whole))
            s = s.apply(schedule.specialize, s[place], (is_whole,))
            full, rest = s.forward(place)
            s = s.apply(schedule.eliminate_dead_code, s[full])
            done.append(full)
        if number + 1 < len(pieces):
            free = schedule.remove_branching_through_overcompute
            s = s.apply(free, s[rest], s[rest], False, True)
        done.append(rest)
    return s, done


def _reused(s: Schedule) -> Schedule:
    """Intermediates of a block in one memory where no two of them are needed at once."""
    large = [b for b in intermediates(s.func) if b.scope == "scratch"]
    names = {b.name: s.handle(b.name) for b in large}
    kept: list[Buffer] = []
    for buffer in large:
        for other in kept:
            if (other.shape, other.dtype) != (buffer.shape, buffer.dtype):
                continue
            now = s.attempt(schedule.reuse_buffer, s[names[other.name]], s[names[buffer.name]])
            if now.func is not s.func:
                s = now
                break
        else:
            kept.append(buffer)
    return s


def _in_block(s: Schedule, name: str, blocks: Handle) -> Schedule:
    """An intermediate private to a block: in registers if it is one row of vectors."""
    inner = s.apply(schedule.sink_alloc, name, s[blocks], "scratch")
    (made,) = (b for b in intermediates(inner.func) if b.name == name)
    return (
        inner if len(made.shape) > 1 else s.apply(schedule.sink_alloc, name, s[blocks], "register")
    )


def stages_apart(s: Schedule, lane: Handle) -> tuple[Schedule, list[Handle]]:
    """`for v: {S1; S2; …}` → a loop over v for each statement, in this order."""
    done: list[Handle] = []
    while len(inner_body(s.loop(lane).body)) > 1:
        s = s.apply(schedule.fission, s[lane], 1, "_s")
        (first,), (lane,) = s.made["first"], s.made["second"]
        done.append(first)
    return s, [*done, lane]


def _rows_innermost(s: Schedule, order: tuple[Handle, ...]) -> Schedule:
    """The intermediates with their axes over the shared loops `order` innermost.

    As they are where that of the last loop, along which lanes run, is innermost already.
    """
    shared = [s.loop(place).var for place in order]
    places = {access.buffer: access.indices for access in accesses(s.func.body)}
    for buffer in intermediates(s.func):
        at = places[buffer]
        if shared[-1] not in at or at[-1] is shared[-1]:
            continue
        axes = sorted(range(len(at)), key=lambda k: _position(at[k], shared))
        s = s.apply(schedule.transform_layout, buffer.name, _with_axes(buffer.shape, axes), None)
    return s


def _position(index: IndexExpr, loops: Sequence[Var]) -> int:
    """The position among the loops of the one that an index is; -1 where it is none."""
    return next((number for number, var in enumerate(loops) if index is var), -1)


def _with_axes(shape: tuple[int, ...], axes: Sequence[int]) -> Layout:
    """The layout with the logical `axes` in this order in memory."""
    index_map = IndexMap.from_function(len(shape), lambda *i: [i[k] for k in axes], shape)
    return Layout.of(index_map, shape, [shape[k] for k in axes])


def _lines_in_blocks(s: Schedule, lane: Handle, recipe: SharedLoops) -> Schedule:
    """A copy between lines of memory and lanes across them, in square blocks.

    What is written is contiguous along the innermost loop: that over lanes for an input, that over
    a line for an output.
    """
    nest = s.handles(perfect_nest(s.loop(lane)))
    writes_lines = any(stmt.buffer.name in recipe.transposed for stmt in writes_in((s.loop(lane),)))
    order = (lane, *nest[1:]) if writes_lines else (*nest[1:], lane)
    if order != nest:
        s = s.apply(schedule.reorder_loops, s.names(order))
    return copy_in_square_blocks(s, order[-1], recipe.lanes)


def _stage_in_lanes(s: Schedule, lane: Handle, recipe: SharedLoops) -> Schedule:
    """What is left of a stage: its own loops, and vectors of the block inside them."""
    own = s.handles(perfect_nest(s.loop(lane))[1:])
    if own:
        s = s.apply(schedule.reorder_loops, s.names((*own, lane)))
    if recipe.vectors > 1:
        names = (s.fresh("{}u", lane), s.fresh("{}v", lane))
        s = s.apply(schedule.divide_loop, s[lane], recipe.lanes, names, "perfect")
        vectors, lane = s.made["parts"]
        s = s.apply(schedule.mark_unrolled, s[vectors])
    return s.apply(schedule.vectorize_loop, s[lane])
