"""Stages that sum products, in a block of vectors along a shared loop: register tiles in lanes.

In: a schedule in which the stages stand one after the other in a loop over the rows of a band,
which become lanes; an intermediate has its rows innermost.  Out: the schedule in which a few
elements of what a stage sums, for all rows of the band, stay in registers while it is reduced.

    before:  for row: for j: {t[j, row] = 0; for k: t[j, row] += q[k, row] * x[j, k]}
    after:   for tile of j: {fill registers; for k: update them; store them}

A step loads the vectors of `q`, which all elements of the tile share, and broadcasts an element of
`x` for each; so `x` is read where it is, in any layout.  What elementwise stages make of a sum is
computed before it is stored.

What always holds: nothing here knows which operator a stage came from.
"""

from __future__ import annotations

from collections.abc import Collection

from graphflow import schedule, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.kernels.recipes.analysis.contiguity import inner_body, perfect_nest
from graphflow.kernels.recipes.analysis.roles import counted_factors
from graphflow.kernels.recipes.schedules.register_nests import (
    TileSteps,
    tile_in_registers,
    whole_and_ragged,
)
from graphflow.schedule import Handle, Schedule

STEPS = TileSteps(write_padding=False, unrolled_taps=0)


def products_in(body: tir.Body) -> list[tir.For]:
    """The loops that stand in a body whose iterations sum products into one element each."""
    return [stmt for stmt in inner_body(body) if isinstance(stmt, tir.For) and _is_product(stmt)]


def _is_product(loop: tir.For) -> bool:
    """Whether each iteration of the innermost loop around a reduction begins and sums products."""
    body = perfect_nest(loop)[-1].body
    sums = [stmt for stmt in body if isinstance(stmt, tir.For)]
    return len(sums) == 1 and any(counted_factors(stmt) for stmt in tir.walk(sums[0].body))


def loops_met(s: Schedule, row: Handle, apart: Collection[tir.Store]) -> Schedule:
    """Loops of neighbouring stages in the body of `row` as one, as far as their steps commute.

    `for j: S; t = 0; for j: T` → `t = 0; for j: {S; T}`, where T is a store or a reduction: what a
    stage makes of an element is computed, or taken into a maximum or a sum, before it is stored.
    The stores `apart`, which transpose, stay in loops of their own.
    """
    place = 0
    while place < len(stmts := inner_body(s.loop(row).body)):
        first = stmts[place]
        if not isinstance(first, tir.For) or first.body[0] in apart:
            place += 1
            continue
        s, joined = _with_next(s, row, place, apart)
        place += not joined
    return s


def _with_next(
    s: Schedule, row: Handle, place: int, apart: Collection[tir.Store]
) -> tuple[Schedule, bool]:
    """The loop at a place of the body of `row` joined with the next one, and whether it is.

    What begins a reduction between the two is moved in front of both.
    """
    stmts = inner_body(s.loop(row).body)
    first, following = stmts[place], stmts[place + 1 :]
    assert isinstance(first, tir.For)
    between = next((k for k, x in enumerate(following) if not isinstance(x, tir.Store)), None)
    second = None if between is None else following[between]
    if between is None or not isinstance(second, tir.For) or not _is_single(second, apart):
        return s, False
    if first.extent != second.extent or between > 1:
        return s, False
    loops = s.handles((first, second))
    joined = s
    if between:
        begins = following[0]
        assert isinstance(begins, tir.Store)
        head = s.find(f"{begins.buffer.name}[_] = _", row)
        joined = joined.attempt(schedule.reorder_stmts, s[loops[0]], s[head])
        if joined.func is s.func:
            return joined, False
    met = joined.attempt(schedule.fuse, joined[loops[0]], joined[loops[1]])
    if met.func is joined.func:
        return replace(s, refusals=met.refusals), False
    return met, True


def _is_single(loop: tir.For, apart: Collection[tir.Store]) -> bool:
    """Whether a loop's body is one store, not one of those `apart`, or one reduction."""
    only = loop.body[0] if len(loop.body) == 1 else None
    return isinstance(only, tir.Store | tir.Reduce) and only not in apart


def product_in_tiles(s: Schedule, row: Handle, lanes: int, width: int) -> Schedule:
    """The stage in the loop `row` in register tiles of `width` elements of what it sums.

    `lanes` are those of a vector, of which the loop `row` fills a few.
    """
    own = s.handles(perfect_nest(s.loop(row))[1:])
    if not own:
        raise ScheduleError(f"the stage in {s[row]} has no loop of its own over what it sums")
    s = s.apply(schedule.reorder_loops, s.names((*own, row)))
    s, pieces = whole_and_ragged(s, own[-1], width)
    for piece, count in pieces:
        parts = (s.fresh("{}o", piece), s.fresh("{}i", piece))
        s = s.apply(schedule.divide_loop, s[piece], count, parts, "perfect")
        around, inner = s.made["parts"]
        (here,) = s.inside(around, (row,))
        parts = (s.fresh("{}u", here), s.fresh("{}v", here))
        s = s.apply(schedule.divide_loop, s[here], lanes, parts, "perfect")
        vectors, lane = s.made["parts"]
        sums = s.handles(x for x in s.loop(lane).body if isinstance(x, tir.For))
        reduction = s.handles(tir.loops_of(tuple(map(s.loop, sums))))
        held = tuple(
            dict.fromkeys(
                x.buffer
                for place in sums
                for x in tir.walk((s.loop(place),))
                if isinstance(x, tir.Reduce)
            )
        )
        s = tile_in_registers(s, around, (inner, vectors), (lane,), reduction, STEPS, held=held)
    return s
