"""Copies that transpose, in square blocks that go through vector registers.

In: a schedule, some nests of which only copy.  Out: the schedule with those nests in blocks of at
most lanes × lanes elements.  A block is read in rows along the loop in which the source is
contiguous, and written in columns along the innermost loop, in which the target is, so that both
sides move whole vectors.

For example, `for i: for j: y[i, j] = x[j, i]` over 64 × 64 elements with vectors of 8 lanes:

    for jb in (0, 8): for ib in (0, 8):
        for k in unrolled (0, 8): rows[k, 0 … 7] = x[8*jb + k, 8*ib … 8*ib + 7]     loads of vectors
        for k in unrolled (0, 8): y[8*ib + k, 8*jb … 8*jb + 7] = rows[0 … 7, k]     stores of them

The emitter shuffles `rows`, which stays in registers.  Along i, the loop `along`, the source is
contiguous, and along j, the loop `inner`, the target is.

What always holds: a nest that is contiguous in its source along no loop but the innermost, or that
a step refuses, stays a plain copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

from msgspec import Struct

from graphflow import schedule, tir
from graphflow.arith import FloorMod, IndexExpr, Var, constant_value, terms_of, variables
from graphflow.base.errors import ScheduleError
from graphflow.schedule import Handle, Schedule


class _Copy(Struct, frozen=True):
    """A store of a load: `around` are all its loops, `loops` the innermost ones, a perfect nest."""

    around: tuple[tir.For, ...]
    loops: tuple[tir.For, ...]
    store: tir.Store
    load: tir.Load

    def source(self) -> dict[IndexExpr, int]:
        """The stride of each loop variable, or digit of one, in the source."""
        return dict(terms_of(self.load.buffer.flat_index(self.load.indices))[0])

    def target(self) -> dict[IndexExpr, int]:
        """The stride of each loop variable, or digit of one, in the target."""
        return dict(terms_of(self.store.buffer.flat_index(self.store.indices))[0])

    def source_line(self) -> tuple[tir.For, int] | None:
        """The loop along which the source is contiguous, and for how many elements (0: all).

        None where that is the innermost loop, or no loop.  Of `x[i // 4, j, i % 4]`, j innermost,
        it is i for 4 elements.
        """
        for atom, k in self.source().items():
            var = atom.numerator if isinstance(atom, FloorMod) else atom
            loop = next((loop for loop in self.around[:-1] if loop.var is var), None)
            if k == 1 and loop is not None:
                return loop, atom.divisor if isinstance(atom, FloorMod) else 0
        return None


def copies_in_square_blocks(s: Schedule, lanes: int) -> tuple[Schedule, tuple[Handle, ...]]:
    """The schedule with the nests that transpose in blocks of up to `lanes` × `lanes` elements.

    With handles of the loops that are vectorized by that.  Where a step of a nest is refused, the
    nest stays as it was before that step, and the schedule keeps the reason.
    """
    s = _each_copy(_each_copy(s, _nest_apart), _source_line_apart)
    s = _rests_inside(s)
    s = _each_copy(s, partial(_in_square_blocks, lanes=lanes)).apply(schedule.simplify)
    return s, s.handles(x for x in tir.loops_of(s.func.body) if x.kind is tir.LoopKind.VECTORIZED)


def _each_copy(s: Schedule, step: Callable[[Schedule, _Copy], Schedule]) -> Schedule:
    """The schedule after a step on each copy."""
    for inner in s.handles([copy.loops[-1] for copy in _copies(s.func.body)]):
        copy = _copy_in(s, inner)
        s = s if copy is None else s.attempt_all(step, copy)
    return s


def _rests_inside(s: Schedule) -> Schedule:
    """`for i in (a, b): S; for j: R` → `for i in (a, b): {S; if i == a: for j: R}`, where R is what
    an outermost loop over blocks leaves over: no more elements than an iteration of it copies.

    So a kernel stays a single nest, which threads share.
    """
    match s.func.body:
        case (tir.Block(body=(tir.For() as first, *rests)),):
            pass
        case _:
            return s
    most, start = _elements(first.body), constant_value(first.start)
    if first.extent is None or start != 0 or sum(map(_elements, ((x,) for x in rests))) > most:
        return s
    kept, *places = s.handles(x for x in (first, *rests) if isinstance(x, tir.For))
    for place in places if len(places) == len(rests) else ():
        s = s.attempt_all(_rest_inside, place, kept, first.extent)
    return s


def _rest_inside(s: Schedule, place: Handle, kept: Handle, extent: int) -> Schedule:
    name = s.fresh("{}_{}", kept, place)
    s = s.apply(schedule.add_loop, s[place], name, extent, guard=True)
    return s.apply(schedule.fuse, s[kept], s[s.made["loop"][0]])


def _elements(body: tir.Body) -> int:
    """How many elements a body of loops and stores writes, at most."""
    return sum(
        (stmt.extent or 0) * _elements(stmt.body) if isinstance(stmt, tir.For) else 1
        for stmt in body
    )


def staged_transposed(
    s: Schedule, buffer: str, place: Handle, loops: Sequence[Handle], lanes: int
) -> Schedule:
    """`for i: S[a[j, k]]` → `for i: {for k, j: t[k, j] = a[j, k]; S[t[k, j]]}`, in square blocks.

    What an iteration of `place` reads of `buffer`, in a scratch buffer whose axes are the `loops`,
    outermost first.  ScheduleError where it cannot be staged.
    """
    name = s.fresh("{}_across", s.handle(buffer))
    s = s.apply(schedule.stage_mem, s[place], buffer, name, s.names(loops), "scratch")
    return copy_in_square_blocks(s, s.made["load"][-1], lanes)


def copy_in_square_blocks(s: Schedule, inner: Handle, lanes: int) -> Schedule:
    """The copy in the innermost loop `inner` in blocks of up to `lanes` × `lanes` elements.

    As it is where there is none, or a step is refused; the schedule keeps the reason.
    """
    copy = _copy_in(s, inner)
    return s if copy is None else s.attempt_all(partial(_in_square_blocks, lanes=lanes), copy)


def _copy_in(s: Schedule, inner: Handle) -> _Copy | None:
    """The copy in the innermost loop `inner`, or in the first loop that steps made of it."""
    names = [place.name for place in s.forward(inner)[:1]]
    return next((c for c in _copies(s.func.body) if c.loops[-1].var.name in names), None)


def _copies(
    body: tir.Body, around: tuple[tir.For, ...] = (), loops: tuple[tir.For, ...] = ()
) -> Iterator[_Copy]:
    """The copies in a body, inside the loops `around` it, of which `loops` are a perfect nest."""
    for stmt in body:
        nest = loops if len(body) == 1 else ()
        match stmt:
            case tir.For():
                yield from _copies(stmt.body, (*around, stmt), (*nest, stmt))
            case tir.Block():
                yield from _copies(stmt.body, around, nest)
            case tir.If(orelse=()):
                yield from _copies(stmt.then, around)
            case tir.Store(value=tir.Load() as load) if nest:
                yield _Copy(around, nest, stmt, load)
            case _:
                pass


def _nest_apart(s: Schedule, copy: _Copy) -> Schedule:
    """`for i: {A; for j: y[i, j] = x[j, i]; B}` → three nests, where the source runs along i.

    Not where that is the outermost loop: it stays one nest, for threads share a single one.
    """
    line = copy.source_line()
    first = 0 if line is None else copy.around.index(line[0])
    if first == 0:
        return s
    for outer, child in reversed([*pairwise(copy.around[first:])]):
        (around,) = s.handles((outer,))
        body = s.loop(around).body
        place = next(k for k, x in enumerate(body) if isinstance(x, tir.For) and x.var is child.var)
        if place + 1 < len(body):
            s = s.apply(schedule.fission, s[around], place + 1, "_after")
            (around,) = s.made["first"]
        if place:
            s = s.apply(schedule.fission, s[around], place, "_then")
    return s


def _source_line_apart(s: Schedule, copy: _Copy) -> Schedule:
    """`for i: y[j, i] = x[i // b, j, i % b]` → `for q: for r: … x[q, j, r]`, r in (0, b)."""
    line = copy.source_line()
    if line is None or line[0] not in copy.loops:
        return s
    loop, count = line
    if not count or loop.extent is None or loop.extent <= count:
        return s
    (place,) = s.handles((loop,))
    parts = (s.fresh("{}q", place), s.fresh("{}r", place))
    return s.apply(schedule.divide_loop, s[place], count, parts, "cut").apply(schedule.simplify)


def _transposed_loops(copy: _Copy) -> tuple[Var, Var] | None:
    """The loops along which source and target are contiguous; None where a copy does not transpose,
    or blocks of these loops cannot be made."""
    source, target = copy.source(), copy.target()
    inner = copy.loops[-1].var
    along = next((x.var for x in copy.loops if source.get(x.var) == 1), inner)
    # A loop whose quotient or remainder is a term is no line of a block.
    split = {v for atom in (*source, *target) if not isinstance(atom, Var) for v in variables(atom)}
    if along is inner or target.get(inner) != 1 or split & {along, inner}:
        return None
    return (along, inner) if _span_a_box(copy.loops, along, inner) else None


def _in_square_blocks(s: Schedule, copy: _Copy, lanes: int) -> Schedule:
    """The nest in blocks; as it is where it does not transpose, or its bounds are not constant."""
    transposed = _transposed_loops(copy)
    if transposed is None:
        return s
    along, inner = transposed
    # The innermost loop over blocks runs along the cache lines of the side whose lines are further
    # apart, so that they are used up before others are begun.
    rows_first = copy.source().get(inner, 0) > copy.target().get(along, 0)
    loops = dict(zip((loop.var for loop in copy.loops), s.handles(copy.loops), strict=True))
    first, second = (loops[v] for v in ((inner, along) if rows_first else (along, inner)))
    order = (*(p for p in loops.values() if p is not first and p is not second), first, second)
    if (*loops.values(),) != order:
        s = s.apply(schedule.reorder_loops, s.names(order))
    s, pieces = _in_pieces(s, first, lanes, "_short")
    for _, outer in pieces:
        below = _below(s, outer)
        assert below is not None, "the second loop is inside the first"
        s = s.apply(schedule.reorder_loops, s.names((below, outer)))
        s, blocks = _in_pieces(s, below, lanes, "_last")
        for place, upper in blocks:
            lower = _below(s, upper)
            assert lower is not None, "the first loop was moved inside the second"
            row, column = (lower, upper) if rows_first else (upper, lower)
            s = _through_registers(s, copy.load.buffer.name, place, row, column)
    return s


def _span_a_box(loops: tuple[tir.For, ...], *moved: Var) -> bool:
    """Whether the loops over the `moved` variables can be cut and reordered in their nest.

    Their bounds must be constants, and no bounds of another loop of the nest may use them, as those
    of a restricted loop may (in a copy with an offset into a split axis, for one).
    """
    for loop in loops:
        bounds = variables(loop.start) | variables(loop.stop)
        if not bounds.isdisjoint(moved) or (loop.var in moved and bounds):
            return False
    return True


def _through_registers(
    s: Schedule, source: str, place: Handle, row: Handle, column: Handle
) -> Schedule:
    """The block that one iteration of `place` copies, read in rows and written in columns."""
    rows = s.fresh("rows_{}", place)
    s = s.apply(schedule.stage_mem, s[place], source, rows, s.names((row, column)))
    row_in, column_in = s.made["load"]
    s = s.apply(schedule.mark_unrolled, s[row_in]).apply(schedule.vectorize_loop, s[column_in])
    below = _below(s, row)
    if below is not None and s[below] == s[column]:
        s = s.apply(schedule.reorder_loops, s.names((column, row)))
    return s.apply(schedule.mark_unrolled, s[column]).apply(schedule.vectorize_loop, s[row])


def _in_pieces(
    s: Schedule, place: Handle, lanes: int, suffix: str
) -> tuple[Schedule, list[tuple[Handle, Handle]]]:
    """The loop cut into whole vectors and a rest, each divided into blocks and their elements.

    With the two loops of each piece.  ScheduleError where the bounds are not constant.
    """
    loop = s.loop(place)
    start, extent = constant_value(loop.start), loop.extent
    if start is None or extent is None:
        raise ScheduleError(
            f"the loop {loop.var} has no constant bounds, so it is not cut to blocks"
        )
    whole = extent // lanes * lanes
    pieces = [(place, min(extent, lanes))]
    if 0 < whole < extent:
        s = s.apply(schedule.cut_loop, s[place], start + whole, suffix)
        pieces = [*zip(s.made["pieces"], (lanes, extent - whole), strict=True)]
    blocks: list[tuple[Handle, Handle]] = []
    for piece, size in pieces:
        parts = (s.fresh("{}o", piece), s.fresh("{}i", piece))
        s = s.apply(schedule.divide_loop, s[piece], size, parts, "perfect")
        outer, inner = s.made["parts"]
        blocks.append((outer, inner))
    return s, blocks


def _below(s: Schedule, place: Handle) -> Handle | None:
    """The first loop inside another one; None where that is innermost."""
    return next(iter(s.handles(tir.loops_of(s.loop(place).body))), None)
