"""The nests of a register tile: those that fill its registers, update them and store them.

In: a schedule with the loops over the rows and columns of one tile next to each other, the columns
in vectors and lanes, and the reduction loops inside.  Out: the schedule in which the tile stays in
registers while the reduction loops run around its unrolled update.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from graphflow import schedule, tir
from graphflow.arith import Predicate, conjuncts, constant_value, predicate_variables, variables
from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.cost import register_groups
from graphflow.schedule import Handle, Schedule

Nest = tuple[Handle, ...]
"""The loops of a perfect nest, the outermost first."""

MOST_PLACES = 4
"""In a word: a byte holds four numbers of two bits."""

Pieces = tuple[tuple[Handle, int], ...]
"""Parts of a loop, each with the iterations of one of its tiles."""


class TileSteps(NamedTuple):
    """How the tiles of a kernel are made where that is not always the same."""

    write_padding: bool
    """Whether the last vector may write the padding of the output."""
    unrolled_taps: int
    """How many of the reduction loops, from the innermost out, are unrolled."""
    terms: int = 1
    """How many terms a lane sums in a step: with several, the innermost loop of each reduction runs
    inside the lanes."""
    matrix_rows: int = 0
    """The rows of a matrix register, where the sums are in those while their reduction runs and in
    the thread's memory before and behind it; 0 where they are in vector registers."""
    turns: int = 1
    """So many neighbouring rows store neighbouring elements by turns, each with its lanes."""


def in_vectors(s: Schedule, lane: Handle, lanes: int) -> tuple[Schedule, Nest]:
    """The loop over columns as one over vectors, and one over the lanes of each."""
    parts = (s.fresh("{}j", lane), s.fresh("{}v", lane))
    s = s.apply(schedule.divide_loop, s[lane], lanes, parts, "guard")
    return s, s.made["parts"]


def by_threads(s: Schedule, shared: Nest) -> Schedule:
    """The loops around the work of a thread as one loop that threads share; those that run once are
    gone."""
    s = s.apply(schedule.simplify)
    around = [*s.present(shared)]
    while len(around) > 1:
        inner, outer = around.pop(), around.pop()
        s = s.apply(schedule.mult_loops, s[outer], s[inner], s.fresh("{}_{}", outer, inner))
        around += s.made["loop"]
    s = s.apply(schedule.simplify)
    return s.apply(schedule.parallelize_loop, s[around[0]]) if around and s.present(around) else s


def start_of(loop: tir.For) -> int:
    """The constant that a loop starts at; ScheduleError where it is none."""
    start = constant_value(loop.start)
    if start is None:
        raise ScheduleError(f"the recipe needs a constant start of {loop.var}, not {loop.start}")
    return start


def whole_and_ragged(s: Schedule, loop: Handle, width: int) -> tuple[Schedule, Pieces]:
    """A loop cut where tiles of `width` iterations end, and how many each tile of a piece has: the
    last piece is one tile of what is left."""
    extent = schedule.constant_extent(s.loop(loop))
    rest = extent % width
    if not rest or extent <= width:
        return s, ((loop, min(width, extent)),)
    s = s.apply(schedule.cut_loop, s[loop], start_of(s.loop(loop)) + extent - rest, "_rest")
    whole, ragged = s.made["pieces"]
    return s, ((whole, width), (ragged, rest))


def tile_in_registers(
    s: Schedule,
    around: Handle | None,
    rows: tuple[Handle, ...],
    lanes: tuple[Handle, ...],
    reduction: tuple[Handle, ...],
    steps: TileSteps,
    members: Handle | None = None,
    held: tuple[tir.Buffer, ...] | None = None,
) -> Schedule:
    """One tile in registers: the nests that fill, update and store it, unrolled and vectorized.

    `around` is the loop around the tile, if it has rows.  `members` is that loop of `rows` whose
    iterations have their lanes in one vector, which an instruction updates: there they are written
    out, inside the loop over lanes.  `held` are the buffers whose elements are in registers, by
    default those that a tile keeps to itself.
    """
    nest = (*rows, *lanes)
    scope = around or _loop_around(s, nest[0])
    nests = [nest]
    kept: tir.Scope = "scratch" if steps.matrix_rows else "register"
    private = _private(s.func, s.loop(scope)) if held is None else held
    reduced = {x.buffer for x in tir.walk(s.loop(scope).body) if isinstance(x, tir.Reduce)}
    by_row = [b for b in private if steps.matrix_rows and b not in reduced]
    for buffer in private:
        if buffer in by_row:
            continue
        name = s.fresh("{}_{}", s.handle(buffer.name), nest[-1])
        s = s.apply(schedule.stage_mem, s[scope], buffer.name, name, s.names(nest), kept)
        if s.made["store"]:
            nests.append(s.made["store"])
    present = s.present(reduction)
    updates: list[Nest] = []
    if present:
        s, nests, updates = _parted(s, nest, nests)
        for buffer in by_row:
            row, *lanes_of_row = nests[-1]
            name = s.fresh("{}_{}", s.handle(buffer.name), row)
            s = s.apply(schedule.stage_mem, s[row], buffer.name, name, s.names(lanes_of_row))
        for update in updates:
            s = _update_nest(s, update, s.inside(update[0], present), steps)
            if members is not None:
                s, nests[nests.index(update)] = _members_written_out(s, update, nest.index(members))
    for number, loops in enumerate(nests):
        if loops in updates and steps.matrix_rows:
            continue
        if steps.terms > 1 and loops in updates:
            s = _terms_in_lanes(s, loops)
            continue
        if steps.turns > 1 and number == len(nests) - 1:
            s, loops = _by_turns(s, loops, steps.turns)
        s = _vectorized(s, loops, masked=present != () and number == len(nests) - 1, steps=steps)
    return s


def steps_together(s: Schedule, target: Target) -> Schedule:
    """`for k in (0, n): S[k]` → `for ko in (0, n / 2): for ki in unrolled(0, 2): S[2 * ko + ki]`
    for each innermost loop over the steps of a register tile, where a target has
    `steps_per_iteration` 2.

    Loops whose extent that number does not divide stay as they are.
    """
    count = target.steps_per_iteration
    loops = [x for x in innermost(s.func.body) if _sums_in_registers(x)] if count > 1 else []
    for step in s.handles(loops):
        if (s.loop(step).extent or 0) % count == 0:
            s = s.attempt_all(_unrolled_in_part, step, count)
    return s


def _sums_in_registers(loop: tir.For) -> bool:
    """Whether a loop adds terms to what is in registers."""
    sums = (x.buffer for x in tir.walk(loop.body) if isinstance(x, tir.Reduce))
    return any(buffer.scope == "register" for buffer in sums)


def _unrolled_in_part(s: Schedule, step: Handle, count: int) -> Schedule:
    """A loop in blocks of `count` iterations, which are unrolled."""
    parts = (s.fresh("{}o", step), s.fresh("{}i", step))
    s = s.apply(schedule.divide_loop, s[step], count, parts, "perfect")
    _, inner = s.made["parts"]
    return s.apply(schedule.mark_unrolled, s[inner])


def innermost(body: tir.Body) -> Iterator[tir.For]:
    """The serial loops in `body` that have no serial loop inside."""
    for loop in tir.loops_of(body):
        serial = (inner.kind is tir.LoopKind.SERIAL for inner in tir.loops_of(loop.body))
        if loop.kind is tir.LoopKind.SERIAL and not any(serial):
            yield loop


def _loop_around(s: Schedule, place: Handle) -> Handle:
    var = s.loop(place).var
    for stmt in tir.loops_of(s.func.body):
        if any(isinstance(inner, tir.For) and inner.var is var for inner in stmt.body):
            return s.handle(stmt.var.name)
    raise ScheduleError(f"the recipe needs a loop around {var}")


def _private(func: tir.PrimFunc, scope: tir.For) -> list[tir.Buffer]:
    """Buffers that one tile keeps to itself: allocated ones, and outputs that are reduced into."""
    touched = dict.fromkeys(a.buffer for a in tir.accesses(scope.body))
    reduced = {s.buffer for s in tir.walk(scope.body) if isinstance(s, tir.Reduce)}
    allocated = {s.buffer for s in tir.walk(func.body) if isinstance(s, tir.Allocate)}
    return [b for b in touched if b.scope == "global" and (b in allocated or b in reduced)]


def _parted(s: Schedule, nest: Nest, nests: list[Nest]) -> tuple[Schedule, list[Nest], list[Nest]]:
    """`for nest: {init; reductions; tail}` → a nest for each part.

    With all nests of the tile, and those of the reductions.
    """
    parts = s.loop(nest[-1]).body
    while len(parts) == 1 and isinstance(only := parts[0], tir.If):
        parts = only.then
    kinds = _are_updates(parts)
    first, last = kinds.index(True), len(kinds) - 1 - kinds[::-1].index(True)
    levels = len(nest)
    s = s.apply(schedule.fission, s[nest[-1]], first, "_u", levels)
    nest, update = s.made["first"], s.made["second"]
    updates, tail = [update], list[Nest]()
    if last + 1 < len(kinds):
        s = s.apply(schedule.fission, s[update[-1]], last + 1 - first, "_t", levels)
        updates, tail = [s.made["first"]], [s.made["second"]]
    lane = updates[0][-1]
    match s.loop(lane).body:
        case (tir.If(then=(_, _, *_)),):  # several reductions under one condition
            s = s.apply(schedule.split_condition, s[lane])
    for _ in s.loop(lane).body[1:]:
        s = s.apply(schedule.fission, s[updates[-1][-1]], 1, "_u", levels)
        updates[-1:] = [s.made["first"], s.made["second"]]
    return s, [nest, *updates, *tail, *nests[1:]], updates


def _are_updates(parts: tir.Body) -> list[bool]:
    """Whether each part of a tile's body is a reduction, in loops or with its loops gone.

    A part that reduces what the others have computed into another buffer is none.
    """
    looped = [any(isinstance(x, tir.For) for x in tir.walk((stmt,))) for stmt in parts]
    reduced = [{x.buffer for x in tir.walk((stmt,)) if isinstance(x, tir.Reduce)} for stmt in parts]
    sums = set[tir.Buffer]().union(*(b for b, loop in zip(reduced, looped, strict=True) if loop))
    return [
        loop or bool(buffers & sums if sums else buffers)
        for buffers, loop in zip(reduced, looped, strict=True)
    ]


def _update_nest(
    s: Schedule, nest: Nest, reduction: tuple[Handle, ...], steps: TileSteps
) -> Schedule:
    s = _over_halo(s, nest, reduction)
    s = _overcomputed(s, nest)
    summed = reduction[-1:] if steps.terms > 1 else ()
    reduction = reduction[: len(reduction) - len(summed)]
    if steps.matrix_rows:
        s, reduction, nest = _in_matrices(s, reduction, nest, steps.matrix_rows)
    s = s.apply(schedule.reorder_loops, s.names((*reduction, *nest, *summed)))
    if reduction and any(isinstance(stmt, tir.If) for stmt in tir.walk(s.loop(reduction[0]).body)):
        s = s.attempt(schedule.lift_conditions, s[reduction[0]])
    kept = len(reduction) - max(steps.unrolled_taps, _places_in_words(s, reduction))
    for taps in reduction[kept:]:
        s = s.apply(schedule.mark_unrolled, s[taps])
    for place in reduction[:kept]:
        if restrictable(s.loop(place)):
            # Padding that is assumed to hold a neutral element is taken in without a condition.
            s = s.attempt(schedule.remove_branching_through_overcompute, s[place], s[place])
        if restrictable(s.loop(place)):
            s = s.apply(schedule.restrict_loop, s[place])
    return s


def _in_matrices(
    s: Schedule, reduction: Nest, nest: Nest, rows: int
) -> tuple[Schedule, Nest, Nest]:
    """`for k: for row: for vector: for lane: S` → `for ko: for ro: for vector: P`, where P is
    `for ri: for lane: for ki: S`, a product of matrices.

    The loops over the matrices of a tile are unrolled.  With the loops around them, and the others.
    """
    (*outer, depth), (row, vector, lane) = reduction, nest
    groups = register_groups(schedule.constant_extent(s.loop(depth)))
    cuts: list[Nest] = []
    for place, count in ((depth, groups), (row, rows)):
        parts = (s.fresh("{}m", place), s.fresh("{}k", place))
        s = s.apply(schedule.divide_loop, s[place], count, parts, "perfect")
        cuts.append(s.made["parts"])
    (step, group), (matrix, within) = cuts
    loops = (matrix, vector, within, lane, group)
    for place in (matrix, vector):
        s = s.apply(schedule.mark_unrolled, s[place])
    return s, (*outer, step), loops


def _places_in_words(s: Schedule, reduction: tuple[Handle, ...]) -> int:
    """How many of the reduction loops, from the innermost out, are over few places in a word.

    Values depend on the number of such an iteration, as the bits of a byte that holds several
    weights do: where that is a constant, shifts are by constants.
    """
    for count, place in enumerate(reversed(reduction)):
        loop = s.loop(place)
        numbers = (
            node
            for stmt in tir.walk(loop.body)
            for expr in tir.expressions_of(stmt)
            for node in tir.walk_expr(expr)
            if isinstance(node, tir.IndexValue) and loop.var in variables(node.index)
        )
        if loop.extent is None or loop.extent > MOST_PLACES or not any(numbers):
            return count
    return len(reduction)


def _members_written_out(s: Schedule, update: Nest, position: int) -> tuple[Schedule, Nest]:
    """`for group: for member: for lane: S` → `for group: for lane: {S; S; …}`, one S a member.

    The loop over members is at a position of the nest.
    """
    member, rest = update[position], (*update[:position], *update[position + 1 :])
    s = s.apply(schedule.reorder_loops, s.names((*rest, member)))
    return s.apply(schedule.unroll_loop, s[member]), rest


def _by_turns(s: Schedule, nest: Nest, turns: int) -> tuple[Schedule, Nest]:
    """`for row: for lane: S` → `for group: for lane: {S; S; …}`, one S for each row of a group.

    The rows of a group write neighbouring elements: side by side their stores fill whole vectors.
    """
    row, *others = nest
    parts = (s.fresh("{}g", row), s.fresh("{}r", row))
    s = s.apply(schedule.divide_loop, s[row], turns, parts, "perfect")
    group, member = s.made["parts"]
    return _members_written_out(s, (group, member, *others), 1)


def _overcomputed(s: Schedule, nest: Nest) -> Schedule:
    """The nest without the conditions on its lanes, where running all lanes is proven harmless.

    What lanes would read outside of a buffer is zero for them.  Where running them is not proven
    harmless, the conditions stay, and the emitter makes masks of them.
    """
    if not _guards(s, nest[0], nest[-1]):
        return s
    place, lane = s[nest[0]], s[nest[-1]]
    return s.attempt(schedule.remove_branching_through_overcompute, place, lane, fill=True)


def _over_halo(s: Schedule, nest: Nest, reduction: tuple[Handle, ...]) -> Schedule:
    """The update without border conditions, where the halo is assumed to hold a neutral element."""
    assumed = any(
        isinstance(stmt, tir.Block)
        and stmt.note(tir.BlockNote.PADDING) == schedule.PaddingKind.VALUE
        for stmt in s.func.body
    )
    for place in reduction if assumed else ():
        if _guards(s, nest[0], place):
            s = s.attempt(schedule.remove_branching_through_overcompute, s[nest[0]], s[place])
    return s


def _guards(s: Schedule, place: Handle, about: Handle) -> bool:
    return is_tested(s.loop(about), s.loop(place))


def is_tested(about: tir.For, loop: tir.For) -> bool:
    """Whether a condition inside `loop` mentions the variable of the loop `about`."""
    return any(about.var in predicate_variables(p) for p in conditions_in(loop))


def conditions_in(loop: tir.For) -> list[Predicate]:
    """The conditions on indices inside a loop."""
    conditions: list[Predicate] = []
    for stmt in tir.walk((loop,)):
        if isinstance(stmt, tir.If) and tir.is_predicate(stmt.condition):
            conditions.append(stmt.condition)  # type: ignore[arg-type]
    return conditions


def restrictable(loop: tir.For) -> bool:
    """Whether the body of a loop is one condition, without else, that mentions its variable."""
    only = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(only, tir.If) or not tir.is_predicate(only.condition) or only.orelse:
        return False
    members = conjuncts(only.condition)  # type: ignore[arg-type]
    return any(loop.var in predicate_variables(m) for m in members)


def _vectorized(s: Schedule, nest: Nest, masked: bool, steps: TileSteps) -> Schedule:
    if not masked or steps.write_padding:
        s = _overcomputed(s, nest)
    # Many rows go through memory, where a loop over them is as good.
    for place in nest[bool(steps.matrix_rows) : -1]:
        s = s.apply(schedule.mark_unrolled, s[place])
    return s.apply(schedule.vectorize_loop, s[nest[-1]])


def _terms_in_lanes(s: Schedule, nest: Nest) -> Schedule:
    """The update nest whose lanes sum several terms each: the loop over lanes stays serial, for it
    has a loop inside, until an instruction performs it (`target_instructions`)."""
    for place in nest[:-1]:
        s = s.apply(schedule.mark_unrolled, s[place])
    return s
