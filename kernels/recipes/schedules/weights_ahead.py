"""Packed weights, fetched into a cache ahead of their use: of the next panel, and of later steps.

Of the next panel (`fetched_ahead`), into the second-level cache.  In: a schedule in which the tiles
of one panel are in registers, panels outermost.  Out: the schedule in which each step of a tile
prefetches a line of the weights of the next panel.  What always holds: all lines of the next panel
are fetched, each by one tile, or where borders leave out steps most of them.

The lines are spread evenly over the steps of all tiles, for those that are awaited from memory
occupy the buffers through which the lines of the tile in work come from the second-level cache; and
they follow each other in memory, so that the processor's own prefetcher, which has other buffers,
is ahead of them.  Where a panel has eight tiles, and each step reads two lines, a tile fetches an
eighth of the next panel's lines, one in four steps:

    for t in (0, 8): for k in (0, 768):
        …; prefetch w[panel + 1, (768 t + k) // 8, line (768 t + k) // 4 % 2]

Of later steps (`steps_ahead`), from the second-level cache into the first-level one, if that does
not hold all weights: each step of a tile prefetches what the same tile reads some steps later.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from graphflow import tir
from graphflow.arith import (
    IndexExpr,
    const,
    floor_div,
    floor_mod,
    minimum,
    substitute,
    variables,
)
from graphflow.base.target import Target
from graphflow.cost import Tiling, near_steps
from graphflow.kernels.recipes.schedules.register_nests import innermost
from graphflow.schedule import Handle, Schedule, constant_extent, cut_loop, prefetch

LINE = tir.PREFETCH16.params[0].buffer.size
"""The elements of a line."""

FEW = 4
"""Steps fetch what later steps of the same loop read if that has at least so many times as many
steps as lie between: the last ones, as many as lie between, fetch nothing."""


def fetched_ahead(
    s: Schedule, weights: tuple[str, ...], panel: Handle, tiles: tuple[Handle, ...]
) -> Schedule:
    """The schedule whose tiles prefetch the `weights` of the next panel.

    `tiles` are the loops over the tiles of one panel, innermost last.  What is refused is left out:
    weights that are not packed in rows of whole lines are not fetched, nor are those of a loop
    whose extent a run decides.
    """
    for step in s.handles(innermost(s.loop(tiles[-1]).body)):
        reads = tir.accesses(s.loop(step).body)
        for name in weights:
            read = next((a for a in reads if a.buffer.name == name), None)
            if read is not None:
                s = _fetching(s, step, read, panel, tiles)
    return s


def steps_ahead(s: Schedule, tiling: Tiling, target: Target) -> Schedule:
    """`for k in (0, n): S` → `for k in (0, n - d): {S; fetch w[k + d]}`, `for k in (n - d, n): S`,
    for each innermost loop over the steps of a tile that reads packed weights w, where d is
    `near_steps`.

    The loop is cut, for a minimum that keeps k + d inside would take the instructions that are
    gained.  Where it has fewer than `FEW` times d steps, the loop around it is cut if that contains
    nothing else; other loops stay as they are, and so do those whose lines cannot be fetched.
    """
    widths = {panels.width for panels in tiling.panels}
    for step in s.handles(innermost(s.func.body)):
        loop = s.loop(step)
        for read in tir.accesses(loop.body):
            packed = read.kind is tir.AccessKind.READ and {*read.buffer.shape[-1:]} <= widths
            moves = any(loop.var in variables(index) for index in read.indices[:-1])
            distance = near_steps(read.buffer.bytes, target) if packed and moves else 0
            if distance:
                s = s.attempt_all(_own_fetching, step, read, distance)
                break
    return s


def _own_fetching(s: Schedule, step: Handle, read: tir.Access, distance: int) -> Schedule:
    """The schedule in which all but the last steps of a loop, or of the one around it, fetch what
    `read` reads `distance` steps later; ScheduleError where a line cannot be fetched."""
    loop, width = s.loop(step), read.buffer.shape[-1]
    at = {inner.var: inner.start for inner in tir.loops_of(loop.body)}
    later, around = loop.var + distance, _around(s.func, loop)
    if loop.extent is None:
        return s
    if loop.extent >= FEW * distance:
        cut, end = step, loop.stop - distance
    elif around is not None and loop.start is const(0) and loop.extent >= distance:
        (cut,), end = tuple(s.handles([around])), around.stop - 1
        at[around.var] = around.var + floor_div(later, loop.extent)
        later = floor_mod(later, loop.extent)
    else:
        return s
    at[loop.var] = later
    places = tuple(substitute(index, at) for index in read.indices[:-1])
    s = s.apply(cut_loop, s[cut], end, "_last")
    first, _ = s.made["pieces"]
    (step,) = (first,) if cut is step else s.inside(first, (step,))
    for start in range(0, width, LINE):
        line = (const(min(start, width - LINE)), LINE)
        s = s.apply(prefetch, s[step], read.buffer.name, (*places, line), True)
    return s


def _around(func: tir.PrimFunc, inner: tir.For) -> tir.For | None:
    """The serial loop of several iterations that contains nothing but this one, or None."""
    for loop in tir.loops_of(func.body):
        if loop.kind is tir.LoopKind.SERIAL and loop.body == (inner,) and (loop.extent or 0) > 1:
            return loop
    return None


def _fetching(
    s: Schedule, step: Handle, read: tir.Access, panel: Handle, tiles: tuple[Handle, ...]
) -> Schedule:
    """The schedule with as many prefetches in each `step` as it takes for the tiles to fetch all
    lines of what `read` reads there."""
    width = read.buffer.shape[-1]
    lines = -(-width // LINE)
    count = prod(constant_extent(s.loop(tile)) for tile in tiles)
    each = -(-lines // count)
    number, around, loop = _number(s, tiles), s.loop(panel), s.loop(step)
    if loop.extent is None:
        return s
    at = {inner.var: inner.start for inner in tir.loops_of(loop.body)}
    at[around.var] = minimum(around.var + 1, around.stop - 1)
    passed = number * loop.extent + (loop.var - loop.start)
    for k in range(each):
        place = floor_div((passed * each + k) * lines, count * each)
        at[loop.var] = loop.start + floor_div(place, lines)
        places = tuple(substitute(index, at) for index in read.indices[:-1])
        start = minimum(floor_mod(place, lines) * LINE, const(width - LINE))
        s = s.attempt(prefetch, s[step], read.buffer.name, (*places, (start, LINE)))
    return s


def _number(s: Schedule, tiles: Iterable[Handle]) -> IndexExpr:
    """The number of a tile among those of its panel."""
    number: IndexExpr = const(0)
    for tile in tiles:
        loop = s.loop(tile)
        number = number * constant_extent(loop) + (loop.var - loop.start)
    return number
