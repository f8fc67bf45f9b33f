"""Tail vectors: the last columns of several rows of a tile in one vector.

In: a schedule with the loops over the rows and the columns of one tile.  Out: the schedule with the
tile in registers.

20 columns fill one vector of 16 lanes and leave 4 of a second one.  A vector holds the tails of 4
rows, so that in each step 4 rows take 5 multiply-adds instead of 8:

    row 0   c0 … c15 | c16 … c19        vectors 0 to 3: columns 0 to 15 of one row each
    row 1   c0 … c15 | c16 … c19        vector 4, the tail vector: columns 16 to 19 of row 0,
    row 2   c0 … c15 | c16 … c19                  then those of rows 1, 2 and 3
    row 3   c0 … c15 | c16 … c19

The multiply-add of the tail vector takes the weights of columns 16 to 19, four times, and the
elements that were broadcast for each of the four rows, put together.
"""

from __future__ import annotations

from graphflow import schedule
from graphflow.cost import Panels
from graphflow.kernels.recipes.schedules.register_nests import (
    TileSteps,
    in_vectors,
    start_of,
    tile_in_registers,
)
from graphflow.schedule import Handle, Schedule
from graphflow.tir import Allocate, For


def tile_with_tail_vectors(
    s: Schedule,
    row: Handle,
    column: Handle,
    reduction: tuple[Handle, ...],
    panels: Panels,
    steps: TileSteps,
) -> tuple[Schedule, tuple[Handle, ...]]:
    """A tile in registers whose tail columns are in tail vectors, and its reduction loops.

        for row: for column: S  →  for group: for member: for vector: for lane: S
                                   for group: for member: for lane: S   the tails

    In the reduction the two are one nest, since they share what is broadcast for a row.
    """
    rows = schedule.constant_extent(s.loop(row))
    begin = start_of(s.loop(column)) + panels.width - panels.tail
    s = s.apply(schedule.cut_loop, s[column], begin, "_n")
    wide, tail = s.made["pieces"]
    s = s.apply(schedule.shift_loop, s[tail], 0)
    s = s.apply(schedule.fission, s[row], 1, "_n", 1)
    (first,), (second,) = s.made["first"], s.made["second"]
    s, wide_tile, (group, member) = _in_groups(s, first, rows, panels.tail_rows)
    s, vectors = in_vectors(s, wide, panels.lanes)
    wide_loops = s.inside(wide_tile, reduction)
    s = tile_in_registers(s, wide_tile, (group, member), vectors, wide_loops, steps)
    s, tail_tile, (group, member) = _in_groups(s, second, rows, panels.tail_rows)
    tail_loops = s.inside(tail_tile, reduction)
    s = tile_in_registers(s, tail_tile, (group, member), (tail,), tail_loops, steps, member)
    return _met(s, wide_tile, tail_tile, (*wide_loops, *tail_loops)), wide_loops


def _in_groups(
    s: Schedule, row: Handle, rows: int, together: int
) -> tuple[Schedule, Handle, tuple[Handle, Handle]]:
    """The rows of a tile in groups of `together`, whose tails one vector holds.

    With a loop around that runs once, which the recipe of a tile needs, and the loops over groups
    and over the members of one.
    """
    parts = (s.fresh("{}w", row), s.fresh("{}i", row))
    s = s.apply(schedule.divide_loop, s[row], rows, parts, "perfect")
    once, inner = s.made["parts"]
    parts = (s.fresh("{}g", inner), s.fresh("{}m", inner))
    s = s.apply(schedule.divide_loop, s[inner], together, parts, "perfect")
    group, member = s.made["parts"]
    return s, once, (group, member)


def _met(s: Schedule, first: Handle, second: Handle, reduction: tuple[Handle, ...]) -> Schedule:
    """`for once: {A1; A2; …}; for once: {B1; B2; …}` → `for once: {A1; B1; A2; B2; …}`, where A and
    B that are reductions become one loop."""
    one, other = (
        s.handles(x for x in s.loop(tile).body if isinstance(x, For)) for tile in (first, second)
    )
    s = _allocations_first(s.apply(schedule.fuse, s[first], s[second]), first)
    for position, part in enumerate(other):
        for before in reversed(one[position + 1 :]):
            s = s.apply(schedule.reorder_stmts, s[before], s[part])
    for pair in zip(one, other, strict=True):
        s = _fused_reductions(s, pair, reduction)
    return s


def _allocations_first(s: Schedule, loop: Handle) -> Schedule:
    """The allocations in a loop in front of its other statements."""
    body = s.loop(loop).body
    for position, stmt in enumerate(body):
        if isinstance(stmt, Allocate):
            first = sum(isinstance(x, Allocate) for x in body[:position])
            for before in range(position - 1, first - 1, -1):
                s = s.apply(
                    schedule.reorder_stmts,
                    *schedule.places_in(s.func, s[loop])[before : before + 2],
                )
    return s


def _fused_reductions(
    s: Schedule, pair: tuple[Handle, ...], reduction: tuple[Handle, ...]
) -> Schedule:
    """Two neighbouring nests with their reduction loops made one, and inside, their groups."""
    if not {*s.names(pair)} <= {*s.names(s.present(reduction))}:
        return s
    while len(pair) == 2:
        s = s.apply(schedule.fuse, s[pair[0]], s[pair[1]])
        if s[pair[0]] not in s.names(s.present(reduction)):
            return s
        pair = s.handles(x for x in s.loop(pair[0]).body if isinstance(x, For))
    return s
