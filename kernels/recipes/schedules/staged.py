"""The plain recipe: each stage keeps its loop nest, vectorized and parallel where that is proven.

In: a compute definition and a layout and padding for each parameter.  Out: its schedule.  This is
the recipe of kernels that the register tile does not apply to: kernels of several nests that
depend on each other, and kernels that only move elements.  Before the innermost loops become
lanes, what prevents that is taken out of them: conditions that hold for most iterations, and
quotients and remainders of their variables.

What always holds: where a step that would make the kernel faster is refused, the kernel stays as it
was, and the schedule keeps the reason.  Matched loops (`tir.matched`) are never divided, vectorized
or shared by threads: they run only the iteration that matches, and would run all of them then.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from graphflow import arith, schedule, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.kernels.recipes.analysis.byte_sums import sums_terms_in_lanes
from graphflow.kernels.recipes.analysis.parallel_loops import has_effect
from graphflow.kernels.recipes.analysis.positions import MOST_TURNS
from graphflow.kernels.recipes.schedules.register_blocks import copies_in_square_blocks
from graphflow.kernels.recipes.schedules.register_nests import restrictable
from graphflow.layout import Layout, row_major
from graphflow.schedule import Handle, PadValue, Schedule

MOST_SUMS = 4
"""The most vectors of sums along a loop that stay in registers during the loops around it."""


ENOUGH_TASKS = 64
"""Iterations of a parallel loop of which threads find enough to share."""


FEW_ITERATIONS = 16
"""Iterations of inner loops up to which an iteration around them is short."""


def staged(
    definition: tir.PrimFunc, placements: tuple[tuple[str, Layout, PadValue], ...], target: Target
) -> Schedule:
    """The schedule that puts the parameters into their layouts, vectorizes and parallelizes.

    `placements` are name, layout and padding.  ScheduleError where a layout cannot be applied.
    """
    return in_lanes_and_threads(in_layouts(definition, placements), target)


def block_transpose(
    definition: tir.PrimFunc, placements: tuple[tuple[str, Layout, PadValue], ...], target: Target
) -> Schedule:
    """The schedule of a copy that goes through square blocks in registers where it transposes.

    `placements` is empty for a `definition` that is over physical indices already.  No padding is
    read or written.  ScheduleError where a layout cannot be applied.
    """
    bare = tuple((name, layout, None) for name, layout, _ in placements)
    s = _fills_apart(_conditions_apart(in_layouts(definition, bare), in_blocks=True))
    lanes = min(target.computed_lanes(p.buffer.dtype) for p in s.func.params)
    s, blocks = copies_in_square_blocks(s, lanes)
    return _threaded(_innermost_in_lanes(s, target, blocks), target)


def in_layouts(
    definition: tir.PrimFunc, placements: tuple[tuple[str, Layout, PadValue], ...]
) -> Schedule:
    """The schedule that puts the parameters into their layouts, in loops that follow the output.

    `placements` are name, layout and padding.  ScheduleError where a layout cannot be applied.
    """
    s = Schedule.of(definition)
    moved = [p for p in placements if p[1] != row_major(p[1].logical_shape)]
    for name, layout, pad in moved:
        s = s.apply(schedule.transform_layout, name, layout, pad)
    return _nests_joined(_in_memory_order(s.apply(schedule.simplify))) if moved else s


def in_lanes_and_threads(s: Schedule, target: Target) -> Schedule:
    """The schedule with innermost loops vectorized and an outer loop parallel, where proven.

    Loops that sum neighbouring products of bytes in lanes stay as they are, for instructions.
    """
    s = _turns_apart(_conditions_apart(s))
    summed = [loop for loop in _divisible(s.func) if sums_terms_in_lanes(loop)]
    terms = s.handles(inner for loop in summed for inner in tir.loops_of(loop.body))
    return _threaded(_innermost_in_lanes(s, target, terms), target)


def _turns_apart(s: Schedule) -> Schedule:
    """`for p: for k in (0, 4): y[4·p + k] = x[k, p]` → `for p: y[4·p] = x[0, p]; …`.

    So lanes run along p, where each of the loads is contiguous, and not along few k.
    """
    loops = filter(_is_by_turns, _divisible(s.func))
    inside = (x for loop in loops for x in loop.body if isinstance(x, tir.For))
    for inner in s.handles(inside):
        s = s.attempt_all(_unrolled, inner)
    return s


def _unrolled(s: Schedule, place: Handle) -> Schedule:
    return s.apply(schedule.unroll_loop, s[place]).apply(schedule.simplify)


def _is_by_turns(loop: tir.For) -> bool:
    """Whether a loop has one inside, over few neighbours, whose stores fill what the outer one
    leaves out, and each of whose loads is contiguous along the outer one."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(inner, tir.For) or not 2 <= (inner.extent or 0) <= MOST_TURNS:
        return False
    if not _is_innermost(inner) or (loop.extent or 0) <= (inner.extent or 0):
        return False
    pair = (loop.var, inner.var)
    for access in tir.accesses(inner.body):
        terms = arith.terms_of(access.buffer.flat_index(access.indices))[0]
        if any(not arith.variables(x).isdisjoint(pair) for x, _ in terms if x not in pair):
            return False
        outer, own = (dict(terms).get(var, 0) for var in pair)
        if (outer, own) != (inner.extent, 1) if access.writes else outer != 1 or own in (0, 1):
            return False
    return any(access.writes for access in tir.accesses(inner.body))


def _conditions_apart(s: Schedule, in_blocks: bool = False) -> Schedule:
    """Conditions, quotients and remainders taken out of the innermost loops where possible."""
    return _digits_apart(_guards_apart(s.apply(schedule.simplify), in_blocks))


def _fills_apart(s: Schedule) -> Schedule:
    """Innermost loops cut at the bounds of what they copy; outside, they write the fill value."""
    for place, stmt in _followed(s, filter(_is_innermost, _divisible(s.func))):
        if any(_mention(p, stmt, False) for p in _conditions(stmt)):
            s = s.attempt_all(_fill_apart, place)
    return s.apply(schedule.simplify)


def _fill_apart(s: Schedule, place: Handle) -> Schedule:
    return _cut_at(s, place, schedule.interior(s.func, s[place]), ("_copied", "_filled"))


def _cut_at(
    s: Schedule, place: Handle, bounds: tuple[int, int], suffixes: tuple[str, str]
) -> Schedule:
    """A loop cut at `bounds`, the begin and end of a middle piece, into up to three pieces.

    As it is where the bounds are empty or the loop's own are not constant.  Names in the middle
    piece get the first suffix where there is a piece before it, those in the last the second.
    """
    low, high = bounds
    loop = s.loop(place)
    start = arith.constant_value(loop.start)
    if start is None or loop.extent is None or low >= high:
        return s
    if high < start + loop.extent:
        s = s.apply(schedule.cut_loop, s[place], high, suffixes[1])
        place, _ = s.made["pieces"]
    if low > start:
        s = s.apply(schedule.cut_loop, s[place], low, suffixes[0])
    return s


def _innermost_in_lanes(s: Schedule, target: Target, done: tuple[Handle, ...] = ()) -> Schedule:
    """The innermost loops vectorized, except for those that are `done`.

    A loop has the lanes of the widest elements that it accesses: an index that is read around it
    does not make its vectors shorter.
    """
    excluded = s.names(done)
    for place, loop in _followed(s, filter(_is_innermost, _divisible(s.func))):
        # A loop that writes nothing only holds assumptions.
        if loop.var.name not in excluded and any(tir.writes_in(loop.body)):
            lanes = min(target.lanes(access.buffer.dtype) for access in tir.accesses(loop.body))
            s = _in_lanes(s, place, loop, lanes)
    return s


def _followed(s: Schedule, loops: Iterable[tir.For]) -> list[tuple[Handle, tir.For]]:
    """Loops of the kernel, each with the handle that follows it through later steps."""
    listed = [*loops]
    return [*zip(s.handles(listed), listed, strict=True)]


def _in_memory_order(s: Schedule) -> Schedule:
    """Perfect nests around one store, their loops by falling stride in the stored buffer."""
    for nest in _outermost(s.func):
        loops, body = tir.nest_of((nest,))
        if len(body) != 1 or not isinstance(body[0], tir.Store) or len(loops) == 1:
            continue
        flat = body[0].buffer.flat_index(body[0].indices)
        steps = {loop.var: 0 for loop in loops}
        steps.update(
            {atom: abs(k) for atom, k in arith.terms_of(flat)[0] if isinstance(atom, arith.Var)}
        )
        names = sorted((loop.var for loop in loops), key=lambda var: -steps[var])
        if names != [loop.var for loop in loops]:
            # Refused where iterations depend on each other, or bounds of one loop on another.
            s = s.attempt(schedule.reorder_loops, tuple(var.name for var in names))
    return s


def _nests_joined(s: Schedule) -> Schedule:
    """The nests fused into one, as far in as their loops allow, for threads share a single nest.

    A block that cannot be fused, as one that writes the padding, stays behind.
    """
    blocks = [stmt for stmt in s.func.body if isinstance(stmt, tir.Block)]
    if len(blocks) < 2 or len(blocks) != len(s.func.body):
        return s
    first, *others = s.handles(blocks)
    for block in others:
        s = s.attempt(schedule.fuse, s[first], s[block])
    stmt: tir.Stmt = next(b for b in s.func.body if isinstance(b, tir.Block) and b.name == s[first])
    while isinstance(stmt, tir.Block | tir.For) and isinstance(stmt.body[0], tir.For):
        loops = takewhile(lambda inner: isinstance(inner, tir.For), stmt.body)
        joined, *others = s.handles(loop for loop in loops if isinstance(loop, tir.For))
        for other in others:
            s = s.attempt(schedule.fuse, s[joined], s[other])
        stmt = s.loop(joined)
    return s


def _guards_apart(s: Schedule, in_blocks: bool) -> Schedule:
    """Loops cut so that in the larger piece a condition on them and a loop inside always holds.

    A loop that is cut is not left outermost, for threads share one nest: it changes places with the
    loop inside it before.  Not where that one is a line of what is to be copied `in_blocks`: with
    lines outermost there would be none, and elements copied one by one take longer than a thread
    takes for all blocks.
    """
    loops = _followed(s, _divisible(s.func))
    for place, stmt in loops:
        if stmt.extent is None or not any(_mention(p, stmt, True) for p in _conditions(stmt)):
            continue
        if stmt.kind is tir.LoopKind.PARALLEL:
            continue  # threads have the same share of each phase
        copied = [p for p, _ in loops if len(s.forward(p)) > 1]
        if place in copied or s.inside(place, copied):
            continue  # cutting the pieces again would multiply the size of the kernel for each loop
        inner = stmt.body[0] if len(stmt.body) == 1 else None
        try:
            low, high = schedule.interior(s.func, s[place])
            start = arith.constant_value(stmt.start)
            if start is None or low >= high or (low, high) == (start, start + stmt.extent):
                continue
            outermost = _is_outermost(s.func, s.loop(place))
            if outermost and isinstance(inner, tir.For) and _is_guarded(inner):
                continue  # the inner loop is cut, and this one keeps its place and its condition
            apart = isinstance(inner, tir.For) and in_blocks and _is_line(inner)
            if outermost and isinstance(inner, tir.For) and not (_is_innermost(inner) or apart):
                s = s.apply(schedule.reorder_loops, (inner.var.name, s[place]))
            s = _cut_at(s, place, (low, high), ("_most", "_rest"))
        except ScheduleError as error:
            s = s.refusing(error)
    s = s.apply(schedule.simplify)
    found = tir.matched_variables(s.func.body)
    for place, stmt in _followed(s, _divisible(s.func)):
        if restrictable(stmt) and not _is_masked(stmt, found):
            s = s.attempt(schedule.restrict_loop, s[place])
    return s.apply(schedule.simplify)


def _is_masked(loop: tir.For, found: frozenset[arith.Var]) -> bool:
    """Whether lanes run along an innermost loop whose condition mentions places that are `found`
    in data: the condition becomes their mask, as a loop that ends at such a place has no lanes."""
    about = set[arith.Var]().union(*map(arith.predicate_variables, _conditions(loop)))
    return _is_innermost(loop) and not found.isdisjoint(about) and _contiguous(loop)


def _is_line(stmt: tir.For) -> bool:
    """Whether what is loaded is contiguous along a loop."""
    loads = (access for access in tir.accesses(stmt.body) if not access.writes)
    flats = (arith.terms_of(a.buffer.flat_index(a.indices))[0] for a in loads)
    return any(dict(terms).get(stmt.var) == 1 for terms in flats)


def _is_guarded(stmt: tir.For) -> bool:
    """Whether a condition mentions a loop that is not innermost."""
    conditions = _conditions(stmt)
    return not _is_innermost(stmt) and any(_mention(p, stmt, False) for p in conditions)


def _conditions(stmt: tir.For) -> list[arith.Predicate]:
    """The index conditions inside a loop."""
    return [
        inner.condition  # type: ignore[misc]
        for inner in tir.walk(stmt.body)
        if isinstance(inner, tir.If) and tir.is_predicate(inner.condition)
    ]


def _mention(predicate: arith.Predicate, stmt: tir.For, inside: bool) -> bool:
    """Whether a condition mentions a loop, and besides a loop in it (`inside`) or none (not)."""
    about = arith.predicate_variables(predicate)
    inner = {loop.var for loop in tir.loops_of(stmt.body)}
    return stmt.var in about and bool(about & inner) is inside


def _outermost(func: tir.PrimFunc) -> list[tir.For]:
    """The loops that are in no other statement but a block."""
    inside = (
        s for stmt in func.body for s in (stmt.body if isinstance(stmt, tir.Block) else (stmt,))
    )
    return [stmt for stmt in inside if isinstance(stmt, tir.For)]


def _is_outermost(func: tir.PrimFunc, stmt: tir.For) -> bool:
    return stmt in _outermost(func)


def _digits_apart(s: Schedule) -> Schedule:
    """`for i: … a[i // b, i % b]` → `for q: for r: … a[q, r]`, for the innermost loops."""
    for place, stmt in _followed(s, filter(_is_innermost, _divisible(s.func))):
        base = _aligned_divisor(stmt)
        if base is not None and stmt.extent is not None and base < stmt.extent:
            s = s.attempt_all(_divided, place, base)
    return s


def _divided(s: Schedule, place: Handle, base: int) -> Schedule:
    parts = (s.fresh("{}q", place), s.fresh("{}r", place))
    return s.apply(schedule.divide_loop, s[place], base, parts, "cut").apply(schedule.simplify)


def _aligned_divisor(stmt: tir.For) -> int | None:
    """The b of the `i // b` or `i % b` in an access, i the loop variable, if i starts at a multiple
    of b; else None."""
    start = arith.constant_value(stmt.start)
    for access in tir.accesses(stmt.body):
        for atom, _ in arith.terms_of(access.buffer.flat_index(access.indices))[0]:
            if not isinstance(atom, arith.FloorMod | arith.FloorDiv) or start is None:
                continue
            terms, offset = arith.terms_of(atom.numerator)
            aligned = (start + offset) % atom.divisor == 0
            if aligned and [k for a, k in terms if a is stmt.var] == [1] and len(terms) == 1:
                return atom.divisor
    return None


def _divisible(func: tir.PrimFunc) -> list[tir.For]:
    """All loops but the matched ones."""
    return [loop for loop in tir.loops_of(func.body) if tir.matched_value(loop) is None]


def _is_innermost(stmt: tir.For) -> bool:
    return not any(True for _ in tir.loops_of(stmt.body))


def _in_lanes(s: Schedule, place: Handle, loop: tir.For, lanes: int) -> Schedule:
    """The loop vectorized where its writes are contiguous along it; else as it is."""
    if loop.extent is None or loop.extent < 2 or not _contiguous(loop):
        return s
    return s.attempt_all(_in_vectors, place, loop.extent, lanes)  # refused if a value is carried


def _in_vectors(s: Schedule, place: Handle, extent: int, lanes: int) -> Schedule:
    if extent <= lanes:
        return s.apply(schedule.vectorize_loop, s[place])
    parts = (s.fresh("{}o", place), s.fresh("{}v", place))
    s = s.apply(schedule.divide_loop, s[place], lanes, parts, "cut")
    (outer, inner), tail = s.made["parts"], s.made["tail"]
    sums = any(isinstance(stmt, tir.Reduce) for stmt in s.loop(inner).body)
    if sums and extent <= MOST_SUMS * lanes:
        s = s.apply(schedule.mark_unrolled, s[outer])
    for part in (inner, *tail):
        s = s.apply(schedule.vectorize_loop, s[part])
    return s


def _is_row(loop: tir.For) -> bool:
    """Whether the lanes of a loop write different elements, unlike those of a reduction."""
    return loop.kind is tir.LoopKind.VECTORIZED and any(
        loop.var in arith.variables(index)
        for access in tir.accesses(loop.body)
        if access.writes
        for index in access.indices
    )


def _contiguous(loop: tir.For) -> bool:
    """Whether writes move by at most one element a step, or by turns fill what they leave out, and
    no access splits the variable.
    """
    by_turns = _writes_by_turns(loop)
    for access in tir.accesses(loop.body):
        for atom, k in arith.terms_of(access.buffer.flat_index(access.indices))[0]:
            if atom is loop.var and abs(k) > 1 and access.writes and not by_turns:
                return False
            if atom is not loop.var and loop.var in arith.variables(atom):
                return False
    return True


def _writes_by_turns(loop: tir.For) -> bool:
    """Whether a loop consists of k stores one element apart, each to every k-th element."""
    stores = [stmt for stmt in loop.body if isinstance(stmt, tir.Store)]
    step = len(stores)
    if step != len(loop.body) or not 2 <= step <= MOST_TURNS:
        return False
    if len({store.buffer for store in stores}) > 1:
        return False
    places = [arith.terms_of(store.buffer.flat_index(store.indices)) for store in stores]
    (terms, first), *_ = sorted(places, key=lambda place: place[1])
    steps = [k for atom, k in terms if atom is loop.var]
    found = {(other, offset - first) for other, offset in places}
    return steps == [step] and found == {(terms, k) for k in range(step)}


def _is_short(loop: tir.For) -> bool:
    """Whether all loops in an iteration have few iterations together, matched ones not more than
    one, so that it takes about as long as the quotients and the remainders of joined loops."""
    return _iterations(loop.body) <= FEW_ITERATIONS


def _iterations(body: tir.Body) -> int:
    """How often statements of a body are executed, about; twice as many as are few, or more, where
    that depends."""
    inside = [stmt for stmt in body if isinstance(stmt, tir.For)]
    return sum(
        (1 if tir.matched_value(x) is not None else x.extent or 2 * FEW_ITERATIONS)
        * max(_iterations(x.body), 1)
        for x in inside
    )


def _threaded(s: Schedule, target: Target) -> Schedule:
    """The outer loops of a kernel of a single nest joined to one parallel loop.

    As it is for a kernel of several nests, and where the buffers that an iteration allocates exceed
    the stack of a thread, on which they are.
    """
    work = [stmt for stmt in s.func.body if has_effect(stmt)]
    if len(work) != 1:
        return s
    inside = tir.walk(tuple(work))
    private = (stmt.buffer.bytes for stmt in inside if isinstance(stmt, tir.Allocate))
    if sum(private) > target.stack_bytes:
        return s
    body = work[0].body if isinstance(work[0], tir.Block) else (work[0],)
    if len(body) != 1 or not isinstance(body[0], tir.For):
        return s
    outer = body[0]
    if tir.matched_value(outer) is not None:
        return s
    try:
        while len(outer.body) == 1 and isinstance(outer.body[0], tir.For):
            inner = outer.body[0]
            if inner.kind is not tir.LoopKind.SERIAL or _is_innermost(inner):
                break
            if tir.matched_value(inner) is not None:
                break
            if any(_is_row(stmt) for stmt in inner.body if isinstance(stmt, tir.For)):
                break
            if (outer.extent or 0) >= ENOUGH_TASKS and _is_short(inner):
                break
            pair = s.handles((outer, inner))
            s = s.apply(
                schedule.mult_loops, outer.var.name, inner.var.name, s.fresh("{}_{}", *pair)
            )
            outer = s.loop(*s.made["loop"])
        if outer.kind is tir.LoopKind.SERIAL:
            s = s.apply(schedule.parallelize_loop, outer.var.name)
    except ScheduleError as error:
        return s.refusing(error)
    return s
