"""Packed weights, fetched into a cache ahead of their use: of the next panel, and of later steps.

Of the next panel (`fetched_ahead`), into the second-level cache.  In: a schedule in which the tiles
of one panel are in registers, panels outermost.  Out: the schedule in which each step of a tile
prefetches a line of the weights of the next panel.  What always holds: all lines of the next panel
are fetched, or where borders leave out steps most of them; each by one tile, where borders leave
out steps by `ROUNDS` tiles.

The lines are spread over all tiles, for those that are awaited from memory occupy the buffers
through which the lines of the tile in work come from the second-level cache.  With tiles enough for
every line of a step n times, tile number t fetches line t of a step, counted modulo the lines, and
of all steps an n-th part: n successive steps fetch the same line.

    for t in (0, 8): for k in (0, 768): …; prefetch w[panel + 1, t // 2 * 192 + k // 4, line t % 2]

Where there are tiles for a single round only, each step fetches a line of the same step of the next
panel.  Tiles in the middle do that, as borders leave out the fewest steps there; the others fetch a
line of their own panel, which is there already and costs no more than the instruction.

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
    maximum,
    minimum,
    substitute,
    variables,
)
from graphflow.base.target import Target
from graphflow.cost import Tiling, near_steps
from graphflow.kernels.recipes.schedules.register_nests import conditions_in, innermost
from graphflow.schedule import Handle, Schedule, constant_extent, cut_loop, prefetch

LINE = tir.PREFETCH16.params[0].buffer.size
"""The elements of a line."""

ROUNDS = 2
"""How often each line is fetched where borders leave out steps.

A line that is fetched again comes from the second-level cache, which the tile in work reads as
well: if every tile fetched, 40 tiles of 3 rows and 312 steps would take 30 % longer with AVX2, and
30 tiles of 4 rows and 512 steps 10 %."""

FEW = 4
"""Steps fetch what later steps of the same loop read if that has at least so many times as many
steps as lie between: the last ones, as many as lie between, fetch nothing."""


def fetched_ahead(
    s: Schedule, weights: tuple[str, ...], panel: Handle, tiles: tuple[Handle, ...]
) -> Schedule:
    """The schedule whose tiles prefetch the `weights` of the next panel.

    `tiles` are the loops over the tiles of one panel, innermost last.  What is refused is left out:
    weights that are not packed in rows of whole lines are not fetched.
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
    at = {inner.var: inner.start for inner in tir.loops_of(loop.body)}
    rounds = ROUNDS if conditions_in(s.loop(tiles[-1])) else 1
    if count >= 2 * rounds * lines and loop.extent is not None:
        # A power of two, as each step divides by it.
        parts = 1 << ((count // (rounds * lines)).bit_length() - 1)
        first = floor_mod(floor_div(number, lines), parts) * -(-loop.extent // parts)
        within = first + floor_div(loop.var - loop.start, parts)
        at[loop.var] = loop.start + minimum(within, loop.extent - 1)
        ahead: IndexExpr = const(1)
    else:
        ahead = _in_the_middle(number, count, rounds * -(-lines // each))
    at[around.var] = minimum(around.var + ahead, around.stop - 1)
    places = tuple(substitute(index, at) for index in read.indices[:-1])
    for k in range(each):
        line = floor_mod(number * each + k, lines)
        start = minimum(line * LINE, const(width - LINE))
        s = s.attempt(prefetch, s[step], read.buffer.name, (*places, (start, LINE)))
    return s


def _in_the_middle(number: IndexExpr, count: int, wanted: int) -> IndexExpr:
    """1 where `number` is one of the `wanted` in the middle of `count`, else 0."""
    first = (count - wanted) // 2
    if first <= 0:
        return const(1)
    inside = minimum(number - (first - 1), first + wanted - number)
    return minimum(1, maximum(0, inside))


def _number(s: Schedule, tiles: Iterable[Handle]) -> IndexExpr:
    """The number of a tile among those of its panel."""
    number: IndexExpr = const(0)
    for tile in tiles:
        loop = s.loop(tile)
        number = number * constant_extent(loop) + (loop.var - loop.start)
    return number
