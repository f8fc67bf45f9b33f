"""The recipe of kernels whose stages meet at shared loops: lanes, accumulators and threads.

In: a definition of several stages, and a layout and padding for each parameter.  Out: its schedule.
Threads share the loops that all stages have; inside them an intermediate is one element, a row or a
few rows, on the stack of the thread or in registers.

    for rows, by threads:           for rows, by threads:
        for columns, in lanes:          for blocks of columns, by threads:
            stage 1                         for what is left of stage 1: lanes along the columns
        for columns, in lanes:              for what is left of stage 2: lanes along the columns
            stage 2

Lanes run along the loops that the stages keep to themselves where those are contiguous in memory
(left: the last axis is reduced); then a reduction has several accumulators of a vector each.  Else
they run along the innermost shared loop (right: another axis is reduced).  ScheduleError where
neither is contiguous, or a step is refused.
"""

from __future__ import annotations

from math import prod

from graphflow import schedule
from graphflow.arith import variables
from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.kernels.recipes.analysis.contiguity import (
    as_one,
    is_contiguous,
    nests_in,
    perfect_nest,
    run_on,
)
from graphflow.kernels.recipes.analysis.shared_loops import (
    intermediates,
    joined_stages,
    own_nests,
    sunk,
)
from graphflow.kernels.recipes.analysis.variant import SharedLoops
from graphflow.kernels.recipes.schedules.excluded_keys import leave_out_keys
from graphflow.kernels.recipes.schedules.register_nests import by_threads
from graphflow.kernels.recipes.schedules.shared_loop_lanes import (
    lanes_along_shared_loop,
    stages_apart,
)
from graphflow.layout import Layout, row_major
from graphflow.schedule import Handle, PadValue, Schedule
from graphflow.tir import PrimFunc, Reduce, accesses


def met_at_shared_loops(
    definition: PrimFunc,
    placements: tuple[tuple[str, Layout, PadValue], ...],
    recipe: SharedLoops,
    target: Target,
) -> Schedule:
    """The schedule whose stages meet at shared loops, with the parameters in their layouts.

    `placements` are name, layout and padding.  ScheduleError where a step is refused, and where the
    intermediates do not fit the stack of a thread.
    """
    s, shared = joined_stages(definition, recipe.transposed)
    s = _placed(s, placements)
    lanes = _lanes_inside if recipe.lane_loop is None else lanes_along_shared_loop
    points = prod(s.loop(place).extent or 1 for place in shared)
    s, shared = lanes(s, shared, recipe)
    if recipe.leaves_out:
        s = _keys_left_out(s, shared, recipe, points)
    private = sum(b.bytes for b in intermediates(s.func) if b.scope != "global")
    if private > target.stack_bytes:
        raise ScheduleError(f"the intermediates of an iteration take {private} bytes of stack")
    return by_threads(s, shared)


def _placed(s: Schedule, placements: tuple[tuple[str, Layout, PadValue], ...]) -> Schedule:
    for name, layout, pad in placements:
        if layout != row_major(layout.logical_shape):
            s = s.apply(schedule.transform_layout, name, layout, pad)
    return s.apply(schedule.simplify)


def _keys_left_out(
    s: Schedule, shared: tuple[Handle, ...], recipe: SharedLoops, points: int
) -> Schedule:
    """The schedule in which bands of rows leave out keys that a mask excludes; the innermost of the
    `shared` loops is that over bands, and all had so many `points` before it was one."""
    *around, bands = shared
    rows = points // prod(s.loop(place).extent or 1 for place in around)
    width = recipe.lanes * recipe.vectors
    return s.attempt(leave_out_keys, s[bands], rows, width, recipe.lanes)


def _lanes_inside(
    s: Schedule, shared: tuple[Handle, ...], recipe: SharedLoops
) -> tuple[Schedule, tuple[Handle, ...]]:
    """Lanes along the loops that each stage keeps to itself, and the loops for threads.

    Of a block of several rows a stage handles all before the next stage begins: adding up the
    accumulators of a row takes longer than to begin with those of the next one.
    """
    if recipe.rows == 1:
        for buffer in intermediates(s.func) if shared else ():
            s = sunk(s, buffer, shared[-1])
        nests = own_nests(s, shared)
    else:
        names = (s.fresh("{}o", shared[-1]), s.fresh("{}i", shared[-1]))
        s = s.apply(schedule.divide_loop, s[shared[-1]], recipe.rows, names, "guard")
        blocks, row = s.made["parts"]
        shared = (*shared[:-1], blocks)
        for buffer in intermediates(s.func):
            s = sunk(s, buffer, blocks)
        s, pieces = stages_apart(s, row)
        nests = [stmt for piece in pieces for stmt in nests_in(s.loop(piece))]
    for nest in [s.handles(perfect_nest(stmt)) for stmt in nests]:
        contiguous = _contiguous_loops(s, nest, recipe.lanes)
        if contiguous:
            s, along = _contiguous(s, nest, contiguous[-1])
            s = _nest_in_lanes(s, along, recipe)
        elif not _goes_along(s, nest) and _points(s, nest) > recipe.lanes:
            raise ScheduleError(f"no loop of the nest {nest[0]} is contiguous in memory")
        # Else a tensor that lies in a larger one has gaps between its elements that the variant did
        # not know of, or the nest is shorter than a vector: it has no lanes.
    return s, shared


def _points(s: Schedule, nest: tuple[Handle, ...]) -> int:
    return prod(s.loop(place).extent or 1 for place in nest)


def _goes_along(s: Schedule, nest: tuple[Handle, ...]) -> bool:
    """Whether the last axis along which each access of a nest moves is one of the nest's own loops:
    behind it in memory are other parts of a larger tensor alone."""
    own = {s.loop(place).var for place in nest}
    for access in accesses(s.loop(nest[-1]).body):
        moving = [variables(index) for index in access.indices if variables(index)]
        if moving and moving[-1].isdisjoint(own):
            return False
    return True


def _contiguous_loops(s: Schedule, nest: tuple[Handle, ...], lanes: int) -> list[int]:
    """The places in a perfect nest of the loops along which its accesses are contiguous."""
    loops = [s.loop(place) for place in nest]
    return [k for k, loop in enumerate(loops) if is_contiguous(loop, accesses(loop.body), lanes)]


def _contiguous(
    s: Schedule, nest: tuple[Handle, ...], place: int
) -> tuple[Schedule, tuple[Handle, ...]]:
    """A perfect nest with its loop at `place` innermost, along which accesses are contiguous.

    Loops that run through memory together become one.
    """
    if place != len(nest) - 1:
        nest = (*nest[:place], *nest[place + 1 :], nest[place])
        s = s.apply(schedule.reorder_loops, s.names(nest))
    while len(nest) > 1 and run_on(s.loop(nest[-2]), s.loop(nest[-1])):
        s, joint = as_one(s, nest[-2], nest[-1])
        nest = (*nest[:-2], joint)
    return s, nest


def _nest_in_lanes(s: Schedule, nest: tuple[Handle, ...], recipe: SharedLoops) -> Schedule:
    """A perfect nest whose innermost loop is contiguous, in vectors along that loop."""
    lanes = recipe.lanes
    loop = s.loop(nest[-1])
    only = loop.body[0] if len(loop.body) == 1 else None
    if isinstance(only, Reduce) and loop.extent is not None and loop.extent > lanes:
        return _accumulated(s, nest, s.handle(only.buffer.name), lanes, recipe.accumulators)
    return _in_vectors(s, nest[-1], lanes)


def _in_vectors(s: Schedule, place: Handle, lanes: int) -> Schedule:
    """A loop in vectors of `lanes`; what is left over at the end in a shorter one."""
    extent = s.loop(place).extent
    if extent is None or extent <= lanes:
        return s.apply(schedule.vectorize_loop, s[place])
    parts = (s.fresh("{}o", place), s.fresh("{}v", place))
    s = s.apply(schedule.divide_loop, s[place], lanes, parts, "cut")
    (_, inner), behind = s.made["parts"], s.made["tail"]
    s = s.apply(schedule.simplify)
    for part in (inner, *behind):
        s = s.apply(schedule.vectorize_loop, s[part]) if s.present((part,)) else s
    return s


def _accumulated(
    s: Schedule, nest: tuple[Handle, ...], buffer: Handle, lanes: int, accumulators: int
) -> Schedule:
    """A reduction with several accumulators of a vector each, which are added up at the end."""
    extent = s.loop(nest[-1]).extent or 1
    count = lanes * min(accumulators, extent // lanes)
    several = s.fresh("{}_lanes", buffer)
    s = s.apply(schedule.rfactor, s[nest[0]], s[nest[-1]], s[buffer], count, several)
    (clear,), (combine,) = s.made["clear"], s.made["combine"]
    parts = (s.fresh("{}o", nest[-1]), s.fresh("{}i", nest[-1]))
    s = s.apply(schedule.divide_loop, s[nest[-1]], count, parts, "cut_and_guard")
    pieces = (s.made["parts"][1], *s.made["tail"])
    rows: list[tuple[Handle, Handle]] = []
    for place in (clear, *pieces, combine):
        names = (s.fresh("{}u", place), s.fresh("{}v", place))
        s = s.apply(schedule.divide_loop, s[place], lanes, names, "perfect")
        rows.append((s.made["parts"][0], s.made["parts"][1]))
    if count > lanes:
        vectors, lane = rows[-1]
        one = s.fresh("{}_vector", buffer)
        s = s.apply(schedule.rfactor, s[vectors], s[lane], s[buffer], lanes, one)
        rows += [(place, place) for role in ("clear", "combine") for place in s.made[role]]
    s = s.apply(schedule.simplify)
    for vectors, lane in rows:
        if vectors != lane and s.present((vectors,)):
            s = s.apply(schedule.mark_unrolled, s[vectors])
        s = s.apply(schedule.vectorize_loop, s[lane])
    return s
