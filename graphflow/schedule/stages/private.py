"""Buffers of which each iteration of a loop has its own, as small as what it uses.

In: a kernel with an intermediate buffer between two stages, and a loop that both stages are in.
Out: the kernel with the buffer allocated in the loop, one box of what an iteration touches.  What
always holds: each iteration reads only elements that it stored itself, proven on integer sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.buffers import memory, relocation
from graphflow.schedule.facts import bound_inference, dependence, index_spans
from graphflow.schedule.places import obligations, places
from graphflow.schedule.steps.frame import Rewrite


def sink_alloc(func: tir.PrimFunc, buffer: str, loop: str, scope: tir.Scope = "scratch") -> Rewrite:
    """`a; for i: S[a[f(i) + e]]` → `for i: {a'; S[a'[e]]}`, a' the box of what an iteration uses.

    Conditions: *private*: the kernel allocates `buffer`, outside the loop, and nobody states its
    padding.  *inside*: all accesses to it are in `loop`.  *carried*: each iteration stores the
    elements that it reads before it reads them.  Of an index, what the loops
    outside add to all accesses alike is left out, and the axis shrinks to the range of the rest;
    an axis of one element goes.  Where accesses differ in that, or stand under conditions, the box
    is the smallest on integer sets (`bound_inference`).  The loop may be parallel, for each thread
    has its own buffer, but neither it nor one around it vectorized.
    """
    old = places.find_buffer(func, buffer)
    stmt, domain = places.find_loop(func, loop)
    outer = (*(axis.var for axis in domain.axes), stmt.var)
    lanes = places.first_in_lanes(func, loop, outer)
    if lanes is not None:
        raise ScheduleError(f"the iterations of {lanes} are lanes; nothing is allocated in them")
    if old in {param.buffer for param in func.params}:
        raise ScheduleError(f"private: {buffer} is a parameter, which others see")
    for inner_stmt in tir.walk(func.body):
        if (
            isinstance(inner_stmt, tir.Block)
            and inner_stmt.note(tir.BlockNote.PADDING_OF) == buffer
        ):
            raise ScheduleError(f"private: {buffer} has padding that {inner_stmt.name} states")
    if any(isinstance(s, tir.Allocate) and s.buffer == old for s in tir.walk(stmt.body)):
        raise ScheduleError(f"private: {buffer} is allocated inside {loop} already")
    inner = domain.inside(stmt.var, stmt.start, stmt.stop)
    touched = tuple(a for a in tir.accesses(stmt.body, inner) if a.buffer == old)
    everywhere = sum(
        a.buffer == old for a in (*tir.accesses(func.body), *effects.claimed_loads(func.body))
    )
    if not touched or len(touched) < everywhere:
        raise ScheduleError(f"inside: {buffer} is not touched in {loop} alone")
    shape, offsets = _box(touched, old, outer)
    new = tir.Buffer(buffer, tuple(n for n in shape if n != 1), old.dtype, scope)
    proofs: list[arith.Proof] = []
    for access in touched:
        moved = _moved(access.indices, offsets)
        sides = zip(moved, shape, strict=True)
        claim = arith.conjunction(arith.within(e, 0, n) for e, n in sides)
        proofs.append(
            obligations.require(
                arith.prove(claim, access.domain),
                f"what {loop} uses of {buffer} fits {list(shape)}",
            )
        )
    kept = tuple(axis for axis, extent in enumerate(shape) if extent != 1)
    body = (tir.Allocate(new), *_redirected(stmt.body, old, new, offsets, kept))
    # First the old allocation goes: the new buffer may be equal to the old one.
    rest = replace(func, body=memory.without_allocation(func.body, old))
    sunk = places.exchange_at(rest, loop, (replace(stmt, body=body),))
    proofs += _not_carried(func, sunk, old, new, loop)
    proofs += dependence.still_independent(sunk, loop)
    return Rewrite(sunk, tuple(dict.fromkeys(proofs)))


def _not_carried(
    func: tir.PrimFunc, sunk: tir.PrimFunc, old: tir.Buffer, new: tir.Buffer, loop: str
) -> Sequence[arith.Proof]:
    """Proofs that no iteration reads what another one stored.

    That each iteration reads what it stored decides most kernels; where some read sees no store,
    the dataflow of both kernels decides.
    """
    own = effects.written_before_read(sunk, new)
    if own.proven:
        return (own,)
    condition = (
        f"carried: each iteration of {loop} stores the elements of {old.name} before it reads them"
    )
    return relocation.require_same_sources(func, sunk, (old,), (new,), condition)


def _box(
    touched: Sequence[tir.Access], buffer: tir.Buffer, outer: tuple[arith.Var, ...]
) -> tuple[tuple[int, ...], tuple[arith.IndexExpr, ...]]:
    """The smallest box, and the offset of its first element on each axis of the buffer."""
    windows = [_by_form(touched, axis, frozenset(outer)) for axis in range(len(buffer.shape))]
    rest = [axis for axis, window in enumerate(windows) if window is None]
    if rest:
        try:
            found = _window(touched, buffer, outer, rest)
        except arith.Undecided:
            found = [(arith.const(0), buffer.shape[axis]) for axis in rest]
        for axis, window in zip(rest, found, strict=True):
            windows[axis] = window
    known = [window for window in windows if window]
    return tuple(n for _, n in known), tuple(offset for offset, _ in known)


def _by_form(
    touched: Sequence[tir.Access], axis: int, outer: frozenset[arith.Var]
) -> tuple[arith.IndexExpr, int] | None:
    """Offset and extent of one axis where the form of the indices shows that none is smaller.

    So it is where the loops outside add the same to all accesses.  An access under a condition on
    loops inside may take less than its span, which does not matter where others take all of it.
    """
    spans = [index_spans.span_of(access.indices[axis], access.domain, outer) for access in touched]
    known = [span for span in spans if span is not None]
    if len(known) < len(spans) or len({span.base for span in known}) > 1:
        return None
    taken = [
        span
        for span, access in zip(known, touched, strict=True)
        if arith.predicate_variables(access.domain.where) <= outer
    ]
    if not taken:
        return None
    low, high = min(span.low for span in taken), max(span.high for span in taken)
    if any(span.low < low or span.high > high for span in known):
        return None
    return known[0].base + low, high - low + 1


def _window(
    touched: Sequence[tir.Access],
    buffer: tir.Buffer,
    outer: tuple[arith.Var, ...],
    axes: Sequence[int],
) -> list[tuple[arith.IndexExpr, int]]:
    """Offset and extent of some axes of the smallest box, on integer sets."""
    every = bound_inference.element_variables(buffer)
    element = [every[axis] for axis in axes]
    places = dict.fromkeys((a.domain, tuple(a.indices[axis] for axis in axes)) for a in touched)
    sets = [arith.IntegerSet.of(domain).image(element, indices) for domain, indices in places]
    used = reduce(lambda a, b: a | b, (one.over((*outer, *element)) for one in sets))
    return [(offset, max(extent, 1)) for offset, extent in (used.offset(v, outer) for v in element)]


def _moved(
    indices: tuple[arith.IndexExpr, ...], offsets: tuple[arith.IndexExpr, ...]
) -> tuple[arith.IndexExpr, ...]:
    return tuple(index - offset for index, offset in zip(indices, offsets, strict=True))


def _redirected(
    body: tir.Body,
    old: tir.Buffer,
    new: tir.Buffer,
    offsets: tuple[arith.IndexExpr, ...],
    kept: tuple[int, ...],
) -> tir.Body:
    def place(indices: tuple[arith.IndexExpr, ...]) -> tuple[arith.IndexExpr, ...]:
        moved = _moved(indices, offsets)
        return tuple(moved[axis] for axis in kept)

    return tir.redirect_accesses(body, old, new, place)
