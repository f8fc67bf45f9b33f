"""Loops that run through memory: where vectors of iterations are contiguous, and loops made one.

In: loops of a kernel.  Out: whether lanes may run along them; the schedule with two loops that run
through memory together as one.  What always holds: memory is that of the buffers as they are now,
so layouts are applied before, or given as a function of the access.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from graphflow import arith, tir
from graphflow.layout import IndexMap, Layout
from graphflow.schedule import Handle, Schedule, mult_loops, simplify, transform_layout

Place: TypeAlias = Callable[[tir.Access], arith.IndexExpr]
"""The position in memory of an access, in elements of its buffer."""


def as_it_is(access: tir.Access) -> arith.IndexExpr:
    """The position in the buffer as the kernel has it."""
    return access.buffer.flat_index(access.indices)


def nests_in(loop: tir.For) -> Iterator[tir.For]:
    """The loops that stand in the body of a loop."""
    return (stmt for stmt in inner_body(loop.body) if isinstance(stmt, tir.For))


def perfect_nest(loop: tir.For) -> list[tir.For]:
    """The loop, and those in it as far as each is all of the body around it."""
    nest = [loop]
    while (below := _only(nest[-1])) is not None:
        nest.append(below)
    return nest


def _only(loop: tir.For) -> tir.For | None:
    """The loop that is all of the body, but for index conditions around it."""
    body = inner_body(loop.body)
    return body[0] if len(body) == 1 and isinstance(body[0], tir.For) else None


def inner_body(body: tir.Body) -> tir.Body:
    """What stands under the index conditions, without else, that are all of a body."""
    while len(body) == 1 and isinstance(only := body[0], tir.If):
        if not tir.is_predicate(only.condition) or only.orelse:
            return body
        body = only.then
    return body


def as_one(
    s: Schedule, outer: Handle, inner: Handle, in_lanes: bool = True
) -> tuple[Schedule, Handle]:
    """Two loops that run through memory together as one, and with them the axes of buffers.

    Else the quotients and remainders of the one loop would be indices, which are no lanes.  Where
    it is not `in_lanes`, the axes of a buffer in a box of another tensor stay apart.
    """
    for name, first, last in _axes_along(s.loop(outer), s.loop(inner)):
        (buffer,) = (b for b in tir.buffers_of(s.func) if b.name == name)
        step = s.apply if in_lanes else s.attempt
        s = step(transform_layout, name, _axes_joined(buffer.shape, first, last), None)
    s = s.apply(mult_loops, s[outer], s[inner], s.fresh("{}_{}", outer, inner))
    (joint,) = s.made["loop"]
    return s.apply(simplify), joint


def _axes_along(outer: tir.For, inner: tir.For) -> Iterator[tuple[str, int, int]]:
    """The buffers in a nest with the first and last axis that the two loops run along."""
    seen: set[str] = set()
    for access in tir.accesses(inner.body):
        about = [arith.variables(index) for index in access.indices]
        first = [axis for axis, found in enumerate(about) if outer.var in found]
        last = [axis for axis, found in enumerate(about) if inner.var in found]
        if first and last and first[0] < last[-1] and access.buffer.name not in seen:
            seen.add(access.buffer.name)
            yield access.buffer.name, first[0], last[-1]


def _axes_joined(shape: tuple[int, ...], first: int, last: int) -> Layout:
    """The layout that makes one axis of the axes `first` to `last`, which moves no element."""

    def outputs(*indices: arith.Var) -> tuple[arith.IndexExpr, ...]:
        joint: arith.IndexExpr = arith.const(0)
        for axis in range(first, last + 1):
            joint = joint * shape[axis] + indices[axis]
        return (*indices[:first], joint, *indices[last + 1 :])

    return Layout.of(IndexMap.from_function(len(shape), outputs, shape), shape)


def is_contiguous(
    loop: tir.For, touched: Sequence[tir.Access], lanes: int, place: Place = as_it_is
) -> bool:
    """Whether in `touched` vectors of `lanes` iterations are contiguous, or the same element.

    Stores must be contiguous.  An index may take quotients by multiples of `lanes`.
    """
    steps = [(a, lane_step(a, loop, lanes, place)) for a in touched]
    return all(step == 1 or (step == 0 and (not a.writes or a.op)) for a, step in steps)


def lane_step(access: tir.Access, loop: tir.For, lanes: int, place: Place) -> int | None:
    """How far apart two neighbouring lanes access memory; None if that is no constant."""
    lane, block = arith.Var(f"{loop.var}.lane"), arith.Var(f"{loop.var}.block")
    flat = place(access)
    moved = arith.substitute(flat, {loop.var: lanes * block + lane})
    last = max((loop.extent or 1) - 1, 0)
    own = {lane: (0, min(lanes - 1, last)), block: (0, last // lanes)}
    ranges = {**access.domain.ranges(), **own}
    return step_along(arith.simplify_index(moved, ranges), lane)


def step_along(flat: arith.IndexExpr, var: arith.Var) -> int | None:
    """The growth of a position with each step of a variable; None if that is no constant."""
    step = 0
    for atom, k in arith.terms_of(flat)[0]:
        if atom is var:
            step = k
        elif var in arith.variables(atom):
            return None
    return step


def goes_on(flat: arith.IndexExpr, outer: arith.Var, inner: arith.Var, extent: int) -> bool:
    """Whether a step along `outer` goes as far as `extent` steps along `inner`."""
    steps = (step_along(flat, outer), step_along(flat, inner))
    return steps[1] is not None and steps[0] == steps[1] * extent


def run_on(outer: tir.For, inner: tir.For) -> bool:
    """Whether each access goes on in memory where the inner loop ends."""
    for access in tir.accesses(inner.body):
        flat = access.buffer.flat_index(access.indices)
        if inner.extent is None or not goes_on(flat, outer.var, inner.var, inner.extent):
            return False
    return True
