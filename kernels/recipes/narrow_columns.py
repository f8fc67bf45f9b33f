"""Tiles whose last columns are fewer than the lanes of a vector: several rows share a vector there.

In: a schedule with the loops over the rows and the columns of one tile.  Out: the schedule with the
tile in registers.  20 columns are one vector of 16 lanes for each row, and one for the other four
columns of four rows, so four rows take five multiply-adds in a step, where they took eight.  The
multiply-adds of such a vector take what was broadcast for each of its rows, put together.
"""

from __future__ import annotations

from graphflow.cost import Panels, Tiling
from graphflow.kernels.recipes.register_nests import (
    in_vectors,
    start_of,
    tile_in_registers,
)
from graphflow.schedule import (
    Handle,
    Schedule,
    constant_extent,
    cut_loop,
    divide_loop,
    fission,
    fuse,
    places_in,
    reorder_stmts,
    shift_loop,
)
from graphflow.tir import Allocate, For


def tile_sharing_vectors(
    s: Schedule,
    row: Handle,
    column: Handle,
    reduction: tuple[Handle, ...],
    panels: Panels,
    tiling: Tiling,
) -> tuple[Schedule, tuple[Handle, ...]]:
    """A tile whose last columns are so few that a vector holds those of several rows.

        for row: for column: S  →  for group: for member: for vector: for lane: S
                                   for group: for member: for lane: S   the narrow columns

    In the reduction the two are one nest, since they share what is broadcast for a row.  With the
    reduction loops of that.
    """
    rows = constant_extent(s.loop(row))
    begin = start_of(s.loop(column)) + panels.width - panels.narrow
    s = s.apply(cut_loop, s[column], begin, "_n")
    wide, narrow = s.made["pieces"]
    s = s.apply(shift_loop, s[narrow], 0)
    s = s.apply(fission, s[row], 1, "_n", 1)
    (first,), (second,) = s.made["first"], s.made["second"]
    s, wide_tile, (group, member) = _in_groups(s, first, rows, panels.sharing)
    s, vectors = in_vectors(s, wide, panels.lanes)
    wide_loops = s.inside(wide_tile, reduction)
    s = tile_in_registers(s, wide_tile, (group, member), vectors, wide_loops, tiling)
    s, narrow_tile, (group, member) = _in_groups(s, second, rows, panels.sharing)
    narrow_loops = s.inside(narrow_tile, reduction)
    s = tile_in_registers(s, narrow_tile, (group, member), (narrow,), narrow_loops, tiling, member)
    return _met(s, wide_tile, narrow_tile, (*wide_loops, *narrow_loops)), wide_loops


def _in_groups(
    s: Schedule, row: Handle, rows: int, sharing: int
) -> tuple[Schedule, Handle, tuple[Handle, Handle]]:
    """The rows of a tile as groups of those that share a vector, inside a loop that runs once.

    With that loop, which the recipe of a tile needs around it, and the loops over groups and over
    the members of one.
    """
    parts = (s.fresh("{}w", row), s.fresh("{}i", row))
    s = s.apply(divide_loop, s[row], rows, parts, "perfect")
    once, inner = s.made["parts"]
    parts = (s.fresh("{}g", inner), s.fresh("{}m", inner))
    s = s.apply(divide_loop, s[inner], sharing, parts, "perfect")
    group, member = s.made["parts"]
    return s, once, (group, member)


def _met(s: Schedule, first: Handle, second: Handle, reduction: tuple[Handle, ...]) -> Schedule:
    """`for once: {A1; A2; …}; for once: {B1; B2; …}` → `for once: {A1; B1; A2; B2; …}`, where A and
    B that are reductions become one loop."""
    one, other = (
        s.handles(x for x in s.loop(tile).body if isinstance(x, For)) for tile in (first, second)
    )
    s = _allocations_first(s.apply(fuse, s[first], s[second]), first)
    for position, part in enumerate(other):
        for before in reversed(one[position + 1 :]):
            s = s.apply(reorder_stmts, s[before], s[part])
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
                s = s.apply(reorder_stmts, *places_in(s.func, s[loop])[before : before + 2])
    return s


def _fused_reductions(
    s: Schedule, pair: tuple[Handle, ...], reduction: tuple[Handle, ...]
) -> Schedule:
    """Two neighbouring nests with their reduction loops made one, and inside, their groups."""
    if not {*s.names(pair)} <= {*s.names(s.present(reduction))}:
        return s
    while len(pair) == 2:
        s = s.apply(fuse, s[pair[0]], s[pair[1]])
        if s[pair[0]] not in s.names(s.present(reduction)):
            return s
        pair = s.handles(x for x in s.loop(pair[0]).body if isinstance(x, For))
    return s
