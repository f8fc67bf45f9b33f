"""The plain recipe: each stage keeps its own nest; lanes and threads where they are proven.

In: a definition and placements.  Out: its schedule.  Serves kernels of several nests that depend on
each other, and kernels that only move elements.  What stands in the way of lanes is taken out of
the innermost loops first: conditions that hold for most iterations, and quotients and remainders.
Matched loops (`tir.matched`) stay as they are: divided, in lanes or shared by threads they would
run all their iterations instead of one.
"""

from __future__ import annotations

from collections.abc import Container

from graphflow.arith import (
    FloorDiv,
    FloorMod,
    Predicate,
    Var,
    constant_value,
    predicate_variables,
    terms_of,
    variables,
)
from graphflow.errors import ScheduleError
from graphflow.kernels.recipes.blocks import in_blocks
from graphflow.layout import Layout, row_major
from graphflow.schedule import (
    PadValue,
    Schedule,
    cut_loop,
    divide_loop,
    fuse,
    interior,
    mult_loops,
    parallelize_loop,
    reorder_loops,
    restrict_loop,
    simplify_kernel,
    transform_layout,
    vectorize_loop,
)
from graphflow.target import Target
from graphflow.tir import (
    Allocate,
    Block,
    For,
    If,
    LoopKind,
    PrimFunc,
    Stmt,
    Store,
    accesses,
    is_predicate,
    loops_of,
    matched_value,
    walk,
    writes_in,
)


def staged(
    definition: PrimFunc, placements: tuple[tuple[str, Layout, PadValue], ...], target: Target
) -> Schedule:
    """`definition` placed, its innermost loops in lanes, an outer loop shared by threads."""
    s = Schedule.of(definition)
    moved = [p for p in placements if p[1] != row_major(p[1].logical_shape)]
    for name, layout, pad in moved:
        s = s.apply(transform_layout, name, layout, pad)
    if moved:
        s = _nests_joined(_in_memory_order(s.apply(simplify_kernel)))
    return in_lanes_and_threads(s, target)


def crossing(definition: PrimFunc, target: Target) -> Schedule:
    """A copy in blocks where it crosses the order of its source, an outer loop shared by threads.

    `definition` says what is physical already.
    """
    s = _fills_apart(_conditions_apart(Schedule.of(definition)))
    s, blocks = in_blocks(s, _lanes(s, target))
    return _threaded(_innermost_in_lanes(s, target, blocks), target)


def in_lanes_and_threads(s: Schedule, target: Target) -> Schedule:
    """The kernel as it is, its innermost loops in lanes, an outer loop shared by threads."""
    return _threaded(_innermost_in_lanes(_conditions_apart(s), target), target)


def _conditions_apart(s: Schedule) -> Schedule:
    return _digits_apart(_guards_apart(s.apply(simplify_kernel)))


def _fills_apart(s: Schedule) -> Schedule:
    """Innermost loops cut where what they copy ends and what they write instead begins."""
    for stmt in [loop for loop in _divisible(s.func) if _is_innermost(loop)]:
        if any(_mention(p, stmt, False) for p in _conditions(stmt)):
            try:
                s = _cut_at(s, stmt, interior(s.func, stmt.var.name), ("_copied", "_filled"))
            except ScheduleError:
                continue
    return s.apply(simplify_kernel)


def _cut_at(s: Schedule, stmt: For, bounds: tuple[int, int], suffixes: tuple[str, str]) -> Schedule:
    """A loop in up to three pieces, the middle one within the bounds, unless they hold nothing.

    The middle piece has the first suffix, the last piece the second.
    """
    low, high = bounds
    start, name = constant_value(stmt.start), stmt.var.name
    if start is None or stmt.extent is None or low >= high:
        return s
    if high < start + stmt.extent:
        s = s.apply(cut_loop, name, high, suffixes[1])
    if low > start:
        s = s.apply(cut_loop, name, low, suffixes[0])
    return s


def _lanes(s: Schedule, target: Target) -> int:
    return min(target.lanes(p.buffer.dtype) for p in s.func.params)


def _innermost_in_lanes(
    s: Schedule, target: Target, done: Container[str] = frozenset()
) -> Schedule:
    """The innermost loops in lanes, except for those that are `done`."""
    lanes = _lanes(s, target)
    for loop in [stmt for stmt in _divisible(s.func) if _is_innermost(stmt)]:
        if loop.var.name not in done and any(writes_in(loop.body)):  # others only state something
            s = _in_lanes(s, loop, lanes)
    return s


def _in_memory_order(s: Schedule) -> Schedule:
    """Perfect nests that store one element each, in the order in which these lie in memory."""
    for nest in _outermost(s.func):
        loops, body = [nest], nest.body
        while len(body) == 1 and isinstance(body[0], For):
            loops.append(body[0])
            body = body[0].body
        if len(body) != 1 or not isinstance(body[0], Store) or len(loops) == 1:
            continue
        flat = body[0].buffer.flat_index(body[0].indices)
        steps = {loop.var: 0 for loop in loops}
        steps.update({atom: abs(k) for atom, k in terms_of(flat)[0] if isinstance(atom, Var)})
        names = sorted((loop.var for loop in loops), key=lambda var: -steps[var])
        if names != [loop.var for loop in loops]:
            try:
                s = s.apply(reorder_loops, tuple(var.name for var in names))
            except ScheduleError:
                continue  # the iterations depend on each other, or bounds of one loop on another
    return s


def _nests_joined(s: Schedule) -> Schedule:
    """Neighbouring nests as one, as far in as their loops can be joined: threads share one nest."""
    blocks = [stmt for stmt in s.func.body if isinstance(stmt, Block)]
    if len(blocks) < 2 or len(blocks) != len(s.func.body):
        return s
    first = blocks[0].name
    try:
        for block in blocks[1:]:
            s = s.apply(fuse, first, block.name)
        stmt: Stmt = next(b for b in s.func.body if isinstance(b, Block) and b.name == first)
        while isinstance(stmt, Block | For) and all(isinstance(x, For) for x in stmt.body):
            names = [loop.var.name for loop in stmt.body if isinstance(loop, For)]
            for name in names[1:]:
                s = s.apply(fuse, names[0], name)
            stmt = next(loop for loop in loops_of(s.func.body) if loop.var.name == names[0])
    except ScheduleError:
        return s
    return s


def _guards_apart(s: Schedule) -> Schedule:
    """Loops cut where a condition on them and a loop inside holds for all of the latter.

    A loop that is cut is not left outermost, where one nest is to be shared by threads.
    """
    for stmt in _divisible(s.func):
        name = stmt.var.name
        if stmt.extent is None or not any(_mention(p, stmt, True) for p in _conditions(stmt)):
            continue
        inner = stmt.body[0] if len(stmt.body) == 1 else None
        try:
            low, high = interior(s.func, name)
            start = constant_value(stmt.start)
            if start is None or low >= high or (low, high) == (start, start + stmt.extent):
                continue
            if _is_outermost(s.func, stmt) and isinstance(inner, For) and not _is_innermost(inner):
                s = s.apply(reorder_loops, (inner.var.name, name))
            s = _cut_at(s, stmt, (low, high), ("_most", "_rest"))
        except ScheduleError:
            continue
    s = s.apply(simplify_kernel)
    for stmt in _divisible(s.func):
        if any(_mention(p, stmt, False) for p in _conditions(stmt)):
            try:
                s = s.apply(restrict_loop, stmt.var.name)
            except ScheduleError:
                continue
    return s.apply(simplify_kernel)


def _conditions(stmt: For) -> list[Predicate]:
    return [
        inner.condition  # type: ignore[misc]
        for inner in walk(stmt.body)
        if isinstance(inner, If) and is_predicate(inner.condition)
    ]


def _mention(predicate: Predicate, stmt: For, inside: bool) -> bool:
    """Whether a condition is about a loop, and as said about one `inside` it as well."""
    about = predicate_variables(predicate)
    inner = {loop.var for loop in loops_of(stmt.body)}
    return stmt.var in about and bool(about & inner) is inside


def _outermost(func: PrimFunc) -> list[For]:
    """The loops that stand in no other statement but a block."""
    inside = (s for stmt in func.body for s in (stmt.body if isinstance(stmt, Block) else (stmt,)))
    return [stmt for stmt in inside if isinstance(stmt, For)]


def _is_outermost(func: PrimFunc, stmt: For) -> bool:
    return stmt in _outermost(func)


def _digits_apart(s: Schedule) -> Schedule:
    """Innermost loops of which an access sees quotient and remainder become a loop for each."""
    for stmt in [loop for loop in _divisible(s.func) if _is_innermost(loop)]:
        base, name = _digit_base(stmt), stmt.var.name
        if base is not None and stmt.extent is not None and base < stmt.extent:
            try:
                s = s.apply(divide_loop, name, base, (name + "q", name + "r"), "cut")
            except ScheduleError:
                continue  # another loop has one of these names
            s = s.apply(simplify_kernel)
    return s


def _digit_base(stmt: For) -> int | None:
    """By what an access splits a loop variable, where the loop begins at a multiple of it."""
    start = constant_value(stmt.start)
    for access in accesses(stmt.body):
        for atom, _ in terms_of(access.buffer.flat_index(access.indices))[0]:
            if not isinstance(atom, FloorMod | FloorDiv) or start is None:
                continue
            terms, offset = terms_of(atom.numerator)
            aligned = (start + offset) % atom.divisor == 0
            if aligned and [k for a, k in terms if a is stmt.var] == [1] and len(terms) == 1:
                return atom.divisor
    return None


def _divisible(func: PrimFunc) -> list[For]:
    """The loops but the matched ones."""
    return [loop for loop in loops_of(func.body) if matched_value(loop) is None]


def _is_innermost(stmt: For) -> bool:
    return not any(True for _ in loops_of(stmt.body))


def _in_lanes(s: Schedule, loop: For, lanes: int) -> Schedule:
    """The loop in vectors where its accesses run along them; scalar otherwise."""
    extent, name = loop.extent, loop.var.name
    if extent is None or extent < 2 or not _contiguous(loop):
        return s
    try:
        if extent <= lanes:
            return s.apply(vectorize_loop, name)
        divided = s.apply(divide_loop, name, lanes, (name + "o", name + "v"), "cut")
        divided = divided.apply(vectorize_loop, name + "v")
        if extent % lanes:
            divided = divided.apply(vectorize_loop, name + "v_tail")
    except ScheduleError:
        return s  # a carried value: it stays scalar
    return divided


def _is_row(loop: For) -> bool:
    """Whether each lane of a loop writes an element of its own, unlike those of a reduction."""
    return loop.kind is LoopKind.VECTORIZED and any(
        loop.var in variables(index)
        for access in accesses(loop.body)
        if access.kind != "read"
        for index in access.indices
    )


def _contiguous(loop: For) -> bool:
    """Whether every access moves by one element or none when the loop does."""
    for access in accesses(loop.body):
        for atom, k in terms_of(access.buffer.flat_index(access.indices))[0]:
            if atom is loop.var and abs(k) > 1 and access.kind != "read":
                return False
            if atom is not loop.var and loop.var in variables(atom):
                return False
    return True


def _threaded(s: Schedule, target: Target) -> Schedule:
    """Joins the outer loops of a kernel with a single nest, and gives them to the threads.

    What an iteration allocates for itself is on the stack of its thread.
    """
    work = [stmt for stmt in s.func.body if any(writes_in((stmt,)))]
    if len(work) != 1 or any(isinstance(stmt, Allocate) for stmt in s.func.body):
        return s
    private = (stmt.buffer.bytes for stmt in walk(s.func.body) if isinstance(stmt, Allocate))
    if sum(private) > target.stack_bytes:
        return s
    body = work[0].body if isinstance(work[0], Block) else (work[0],)
    if len(body) != 1 or not isinstance(body[0], For):
        return s
    outer = body[0]
    if matched_value(outer) is not None:
        return s
    try:
        while len(outer.body) == 1 and isinstance(outer.body[0], For):
            inner = outer.body[0]
            if inner.kind is not LoopKind.SERIAL or _is_innermost(inner):
                break
            if matched_value(inner) is not None:
                break
            if any(_is_row(stmt) for stmt in inner.body if isinstance(stmt, For)):
                break
            name = f"{outer.var.name}_{inner.var.name}"
            s = s.apply(mult_loops, outer.var.name, inner.var.name, name)
            outer = next(stmt for stmt in loops_of(s.func.body) if stmt.var.name == name)
        if outer.kind is LoopKind.SERIAL:
            s = s.apply(parallelize_loop, outer.var.name)
    except ScheduleError:
        return s
    return s
