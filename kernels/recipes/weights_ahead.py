"""The packed weights of the next panel, fetched into a cache while the tiles of a panel run.

In: a schedule in which the tiles of one panel are in registers, panels outermost.  Out: the
schedule in which each step of a tile prefetches a line of the weights that the same step of the
next panel reads.  What always holds: tile number t of a panel fetches line t of each step, counted
modulo the lines.  So the first tiles fetch all lines, but those of steps that a border leaves out,
which later tiles fetch; a line that is there already costs no more than the instruction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from graphflow.arith import IndexExpr, const, floor_mod, minimum, substitute
from graphflow.schedule import Handle, Schedule, constant_extent, prefetch
from graphflow.tir import PREFETCH16, Access, Body, For, LoopKind, accesses, loops_of

LINE = PREFETCH16.params[0].buffer.size
"""The elements of a line."""


def fetched_ahead(
    s: Schedule, weights: tuple[str, ...], panel: Handle, tiles: tuple[Handle, ...]
) -> Schedule:
    """The schedule whose tiles prefetch the `weights` of the next panel.

    `tiles` are the loops over the tiles of one panel, innermost last.  What is refused is left out:
    weights that are not packed in rows of whole lines are not fetched.
    """
    for step in s.handles(_innermost(s.loop(tiles[-1]).body)):
        reads = accesses(s.loop(step).body)
        for name in weights:
            read = next((a for a in reads if a.buffer.name == name), None)
            if read is not None:
                s = _fetching(s, step, read, panel, tiles)
    return s


def _innermost(body: Body) -> Iterator[For]:
    """The serial loops in `body` that have no serial loop inside."""
    for loop in loops_of(body):
        serial = (inner.kind is LoopKind.SERIAL for inner in loops_of(loop.body))
        if loop.kind is LoopKind.SERIAL and not any(serial):
            yield loop


def _fetching(
    s: Schedule, step: Handle, read: Access, panel: Handle, tiles: tuple[Handle, ...]
) -> Schedule:
    """The schedule with as many prefetches in each `step` as it takes for the tiles to fetch all
    lines of what `read` reads there."""
    width = read.buffer.shape[-1]
    lines = -(-width // LINE)
    count = prod(constant_extent(s.loop(tile)) for tile in tiles)
    around = s.loop(panel)
    at = {loop.var: loop.start for loop in loops_of(s.loop(step).body)}
    at[around.var] = minimum(around.var + 1, around.stop - 1)
    places = tuple(substitute(index, at) for index in read.indices[:-1])
    each = -(-lines // count)
    for k in range(each):
        line = floor_mod(_number(s, tiles) * each + k, lines)
        start = minimum(line * LINE, const(width - LINE))
        s = s.attempt(prefetch, s[step], read.buffer.name, (*places, (start, LINE)))
    return s


def _number(s: Schedule, tiles: Iterable[Handle]) -> IndexExpr:
    """The number of a tile among those of its panel."""
    number: IndexExpr = const(0)
    for tile in tiles:
        loop = s.loop(tile)
        number = number * constant_extent(loop) + (loop.var - loop.start)
    return number
