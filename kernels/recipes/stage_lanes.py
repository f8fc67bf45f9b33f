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

from collections.abc import Iterator, Sequence
from functools import lru_cache

from graphflow.arith import IndexExpr, Var, const, simplify, substitute, terms_of, variables
from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.kernels.recipes.shared_loops import joined
from graphflow.kernels.recipes.variant import SharedLoops
from graphflow.layout import Layout, row_major
from graphflow.schedule import (
    Handle,
    PadValue,
    Schedule,
    divide_loop,
    mult_loops,
    parallelize_loop,
    reorder_loops,
    rfactor,
    simplify_kernel,
    sink_alloc,
    transform_layout,
    unroll_loop,
    vectorize_loop,
)
from graphflow.tir import (
    Access,
    Allocate,
    Buffer,
    For,
    PrimFunc,
    Reduce,
    accesses,
    loops_of,
    walk,
)

ACCUMULATORS = 4
"""Vectors that a reduction adds up side by side: an addition takes four cycles."""


def met_at_shared_loops(
    definition: PrimFunc,
    placements: tuple[tuple[str, Layout, PadValue], ...],
    recipe: SharedLoops,
    target: Target,
) -> Schedule:
    """The schedule whose stages meet at shared loops, with the parameters in their layouts.

    `placements` are name, layout and padding.  ScheduleError where a step is refused.
    """
    s, shared = rows_of_stages(definition)
    for name, layout, pad in placements:
        if layout != row_major(layout.logical_shape):
            s = s.apply(transform_layout, name, layout, pad)
    s = s.apply(simplify_kernel)
    for nest in [s.handles(_perfect(stmt)) for stmt in nests_in(s.loop(shared[-1]))]:
        s, nest = _contiguous(s, nest, recipe.lanes)
        s = _nest_in_lanes(s, nest, recipe.lanes)
    return _by_threads(s, shared)


@lru_cache(maxsize=1024)
def rows_of_stages(definition: PrimFunc) -> tuple[Schedule, tuple[Handle, ...]]:
    """The stages in one nest over the shared loops, inside which each intermediate is allocated.

    With the shared loops, outermost first.  ScheduleError where a step is refused.
    """
    s, shared = joined(definition)
    for buffer in _intermediates(s.func):
        s = _sunk(s, buffer, shared[-1])
    return s, shared


def _intermediates(func: PrimFunc) -> list[Buffer]:
    return [s.buffer for s in walk(func.body) if isinstance(s, Allocate)]


def _sunk(s: Schedule, buffer: Buffer, place: Handle) -> Schedule:
    """The buffer private to each iteration of a loop: in a register if that is one element."""
    sunk = s.apply(sink_alloc, buffer.name, s[place], "scratch")
    (made,) = (b for b in _intermediates(sunk.func) if b.name == buffer.name)
    return sunk if made.shape else s.apply(sink_alloc, buffer.name, s[place], "register")


def nests_in(loop: For) -> Iterator[For]:
    """The loops that stand in the body of a loop."""
    return (stmt for stmt in loop.body if isinstance(stmt, For))


def _perfect(loop: For) -> list[For]:
    """The loop, and those in it as far as each is all of the body around it."""
    nest = [loop]
    while len(nest[-1].body) == 1 and isinstance(below := nest[-1].body[0], For):
        nest.append(below)
    return nest


def _contiguous(
    s: Schedule, nest: tuple[Handle, ...], lanes: int
) -> tuple[Schedule, tuple[Handle, ...]]:
    """A perfect nest with a loop innermost along which its accesses are contiguous in memory.

    Loops that run through memory together become one.  ScheduleError where there is no such loop.
    """
    loops = [s.loop(place) for place in nest]
    found = [k for k, loop in enumerate(loops) if is_contiguous(loop, lanes)]
    if not found:
        raise ScheduleError(f"no loop of the nest {loops[0].var} is contiguous in memory")
    place = found[-1]
    if place != len(nest) - 1:
        nest = (*nest[:place], *nest[place + 1 :], nest[place])
        s = s.apply(reorder_loops, s.names(nest))
    while len(nest) > 1 and _run_on(s.loop(nest[-2]), s.loop(nest[-1])):
        name = s.fresh("{}_{}", *nest[-2:])
        s = s.apply(mult_loops, *s.names(nest[-2:]), name)
        nest = (*nest[:-2], *s.made["loop"])
    return s, nest


def is_contiguous(loop: For, lanes: int) -> bool:
    """Whether vectors of `lanes` iterations are contiguous in memory, or the same element.

    Stores must be contiguous.  An index may take quotients by multiples of `lanes`.
    """
    steps = [(a, _lane_step(a, loop, lanes)) for a in accesses(loop.body)]
    return all(step == 1 or (step == 0 and (not a.writes or a.op)) for a, step in steps)


def _lane_step(access: Access, loop: For, lanes: int) -> int | None:
    """How far apart two neighbouring lanes access memory; None if that is no constant."""
    lane, block = Var(f"{loop.var}.lane"), Var(f"{loop.var}.block")
    flat = access.buffer.flat_index(access.indices)
    moved = substitute(flat, {loop.var: lanes * block + lane})
    last = max((loop.extent or 1) - 1, 0)
    ranges = access.domain.ranges() | {lane: (0, min(lanes - 1, last)), block: (0, last // lanes)}
    return _step(simplify(moved, ranges), lane)


def _step(flat: IndexExpr, var: Var) -> int | None:
    step = 0
    for atom, k in terms_of(flat)[0]:
        if atom is var:
            step = k
        elif var in variables(atom):
            return None
    return step


def _run_on(outer: For, inner: For) -> bool:
    """Whether each access goes on in memory where the inner loop ends."""
    for access in accesses(inner.body):
        flat = access.buffer.flat_index(access.indices)
        steps = (_step(flat, outer.var), _step(flat, inner.var))
        if None in steps or inner.extent is None or steps[0] != inner.extent * (steps[1] or 0):
            return False
    return True


def _nest_in_lanes(s: Schedule, nest: tuple[Handle, ...], lanes: int) -> Schedule:
    """A perfect nest whose innermost loop is contiguous, in vectors along that loop."""
    loop = s.loop(nest[-1])
    only = loop.body[0] if len(loop.body) == 1 else None
    if isinstance(only, Reduce) and loop.extent is not None and loop.extent > lanes:
        return _accumulated(s, nest, s.handle(only.buffer.name), lanes)
    return _in_vectors(s, nest[-1], lanes)


def _in_vectors(s: Schedule, place: Handle, lanes: int) -> Schedule:
    """A loop in vectors of `lanes`; what is left over at the end in a shorter one."""
    extent = s.loop(place).extent
    if extent is None or extent <= lanes:
        return s.apply(vectorize_loop, s[place])
    parts = (s.fresh("{}o", place), s.fresh("{}v", place))
    s = s.apply(divide_loop, s[place], lanes, parts, "cut")
    (_, inner), behind = s.made["parts"], s.made["tail"]
    s = s.apply(simplify_kernel)
    for part in (inner, *behind):
        s = s.apply(vectorize_loop, s[part]) if s.present((part,)) else s
    return s


def _accumulated(
    s: Schedule, nest: tuple[Handle, ...], buffer: Handle, lanes: int
) -> Schedule:
    """A reduction with several accumulators of a vector each, which are added up at the end."""
    extent = s.loop(nest[-1]).extent or 1
    count = lanes * min(ACCUMULATORS, extent // lanes)
    several = s.fresh("{}_lanes", buffer)
    s = s.apply(rfactor, s[nest[0]], s[nest[-1]], s[buffer], count, several)
    (clear,), (combine,) = s.made["clear"], s.made["combine"]
    parts = (s.fresh("{}o", nest[-1]), s.fresh("{}i", nest[-1]))
    tail = "cut_and_guard" if extent % count else "perfect"
    s = s.apply(divide_loop, s[nest[-1]], count, parts, tail)
    pieces = (s.made["parts"][1], *s.made["tail"])
    rows: list[tuple[Handle, Handle]] = []
    for place in (clear, *pieces, combine):
        names = (s.fresh("{}u", place), s.fresh("{}v", place))
        s = s.apply(divide_loop, s[place], lanes, names, "perfect")
        rows.append((s.made["parts"][0], s.made["parts"][1]))
    if count > lanes:
        vectors, lane = rows[-1]
        one = s.fresh("{}_vector", buffer)
        s = s.apply(rfactor, s[vectors], s[lane], s[buffer], lanes, one)
        rows += [(place, place) for role in ("clear", "combine") for place in s.made[role]]
    s = s.apply(simplify_kernel)
    for vectors, lane in rows:
        if vectors != lane and s.present((vectors,)):
            s = s.apply(unroll_loop, s[vectors])
        s = s.apply(vectorize_loop, s[lane])
    return s


def _by_threads(s: Schedule, shared: Sequence[Handle]) -> Schedule:
    """The shared loops as one loop that threads share."""
    s = s.apply(simplify_kernel)
    around = [*s.present(shared)]
    while len(around) > 1:
        inner, outer = around.pop(), around.pop()
        s = s.apply(mult_loops, s[outer], s[inner], s.fresh("{}_{}", outer, inner))
        around += s.made["loop"]
    s = s.apply(simplify_kernel)
    return s.apply(parallelize_loop, s[around[0]]) if s.present(around) else s
