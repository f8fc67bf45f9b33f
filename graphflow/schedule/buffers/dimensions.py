"""Primitives that change the axes of a buffer that a kernel allocates.

In: a kernel, a buffer, and the axis.  Out: the kernel with the same accesses at the new indices.
What always holds: each element that is used has a place of its own as long as it is used, proven by
the form of the indices or by the effect analysis.  Parameters have layouts instead
(`transform_layout`), which their callers see.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow import arith, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.buffers import relocation
from graphflow.schedule.loops.pieces import MOST_STATEMENTS
from graphflow.schedule.places import obligations, place_names
from graphflow.schedule.places.step_arguments import IndexGiven, index_of
from graphflow.schedule.steps.frame import Rewrite


def resize_dim(
    func: tir.PrimFunc,
    buffer: str,
    dim: int,
    size: int,
    offset: IndexGiven = 0,
    fold: bool = False,
) -> Rewrite:
    """`a: T[n]; S[a[i]]` → `a: T[size]; S[a[i - offset]]`, or with `fold` `a[(i - offset) % size]`.

    Conditions: *size*: it is positive.  *scope*: `offset` uses only loops around the allocation.
    *range*, without `fold`: every access lies between `offset` and `offset + size` on the axis.
    *window*, with `fold`: each read still sees the same write, so no element is needed after one
    `size` further on has taken its place (a circular buffer).
    """
    old = relocation.flat_buffer(func, buffer)
    relocation.axis_of(old, dim)
    start = index_of(offset)
    if size <= 0:
        raise ScheduleError(f"size: an axis of {size} elements holds nothing")
    around = {axis.var for axis in relocation.allocation_of(func, old).domain.axes}
    stray = sorted(v.name for v in arith.variables(start) - around)
    if stray:
        raise ScheduleError(f"scope: {stray[0]} is no loop around the allocation of {buffer}")
    new = replace(old, shape=(*old.shape[:dim], size, *old.shape[dim + 1 :]))

    def place(indices: relocation.Indices) -> relocation.Indices:
        index = indices[dim] - start
        return (
            *indices[:dim],
            arith.floor_mod(index, size) if fold else index,
            *indices[dim + 1 :],
        )

    moved = relocation.moved_buffer(func, old, new, place)
    proofs: tuple[arith.Proof, ...]
    if fold:
        condition = f"window: {size} elements along axis {dim} of {buffer} are enough"
        proofs = relocation.require_same_sources(func, moved, (old,), (new,), condition)
    else:
        condition = f"range: accesses to axis {dim} of {buffer} lie in [{start}, {start + size})"
        proofs = tuple(
            relocation.require_within(access, access.access.indices[dim] - start, size, condition)
            for access in relocation.touching(func, old)
        )
    return Rewrite(moved, tuple(dict.fromkeys(proofs)))


def expand_dim(func: tir.PrimFunc, buffer: str, size: int, index: IndexGiven) -> Rewrite:
    """`a: T[…]; S[a[…]]` → `a: T[size, …]; S[a[index, …]]`.

    Conditions: *size*: it is positive.  *scope*: `index` uses only loops around every access, and
    around every named window of the buffer.
    *range*: it lies between 0 and `size` at every access.  *values*: where it uses a loop inside
    which the buffer is not allocated, each read still sees the same write.
    """
    old = relocation.flat_buffer(func, buffer)
    at = index_of(index)
    if size <= 0:
        raise ScheduleError(f"size: an axis of {size} elements holds nothing")
    used = arith.variables(at)
    proofs: list[arith.Proof] = []
    for access in relocation.touching(func, old):
        stray = sorted(v.name for v in used - {axis.var for axis in access.domain.axes})
        if stray:
            raise ScheduleError(f"scope: {stray[0]} is no loop around the access {access}")
        proofs.append(
            relocation.require_within(access, at, size, f"range: {at} lies in [0, {size})")
        )
    for stmt in tir.statements_as_written(func.body):
        if isinstance(stmt, tir.NamedWindow) and stmt.window.buffer == old:
            inside = sorted(x.var.name for x in tir.loops_of(stmt.body) if x.var in used)
            if inside:
                name = stmt.buffer.name
                raise ScheduleError(f"scope: {inside[0]} is no loop around the window {name}")
    new = replace(old, shape=(size, *old.shape))
    moved = relocation.moved_buffer(func, old, new, lambda indices: (at, *indices))
    if used <= {axis.var for axis in relocation.allocation_of(func, old).domain.axes}:
        proofs.append(
            obligations.structural(f"{at} is the same wherever one copy of {buffer} is accessed")
        )
    else:
        condition = f"values: equal elements of {buffer} are accessed at equal {at}"
        proofs += relocation.require_same_sources(func, moved, (old,), (new,), condition)
    return Rewrite(moved, tuple(dict.fromkeys(proofs)))


def rearrange_dim(func: tir.PrimFunc, buffer: str, order: Sequence[int]) -> Rewrite:
    """`a: T[n, m, k]; S[a[i, j, l]]` → `a: T[k, n, m]; S[a[l, i, j]]` for the order (2, 0, 1).

    Conditions: *order*: it has each axis once.  *calls*: a call that is given the buffer remains
    one of its definition; that is so where its window has one of the axes, or their order is kept.
    """
    old = relocation.flat_buffer(func, buffer)
    order = tuple(order)
    if sorted(order) != list(range(len(old.shape))):
        raise ScheduleError(f"order: {list(order)} is no order of the axes of {list(old.shape)}")
    new = replace(old, shape=tuple(old.shape[axis] for axis in order))
    moved = relocation.moved_buffer(
        func, old, new, lambda indices: tuple(indices[axis] for axis in order)
    )
    return Rewrite(
        moved, (obligations.structural(f"axes {list(order)} are each axis of {buffer} once"),)
    )


def divide_dim(func: tir.PrimFunc, buffer: str, dim: int, factor: int) -> Rewrite:
    """`a: T[12, …]; S[a[i, …]]` → `a: T[3, 4, …]; S[a[i // 4, i % 4, …]]` for the factor 4.

    Condition: *divisible*: the factor is positive and divides the extent of the axis.
    """
    old = relocation.flat_buffer(func, buffer)
    extent = old.shape[relocation.axis_of(old, dim)]
    if factor <= 0 or extent % factor:
        raise ScheduleError(
            f"divisible: {factor} does not divide axis {dim} of {buffer} with extent {extent}"
        )
    parts = (extent // factor, factor)
    new = replace(old, shape=(*old.shape[:dim], *parts, *old.shape[dim + 1 :]))

    def place(indices: relocation.Indices) -> relocation.Indices:
        index = indices[dim]
        parts = arith.floor_div(index, factor), arith.floor_mod(index, factor)
        return (*indices[:dim], *parts, *indices[dim + 1 :])

    moved = relocation.moved_buffer(func, old, new, place)
    claim = f"quotient and remainder by {factor} tell each index of {buffer}"
    return Rewrite(moved, (obligations.structural(claim),))


def mult_dim(func: tir.PrimFunc, buffer: str, dim: int, other: int) -> Rewrite:
    """`a: T[n, m, 4]; S[a[i, j, k]]` → `a: T[4*n, m]; S[a[4*i + k, j]]` for axes 0 and 2.

    Conditions: *axes*: `dim` and `other` are different axes.  *range*: every access stays in the
    extent of the axis `other`, or elements would meet.  *calls*: a call that is given the buffer
    remains one of its definition.
    """
    old = relocation.flat_buffer(func, buffer)
    extents = old.shape[relocation.axis_of(old, dim)], old.shape[relocation.axis_of(old, other)]
    if dim == other:
        raise ScheduleError(f"axes: {dim} is one axis of {buffer}, and two are multiplied")
    factor = extents[1]
    condition = f"range: accesses to axis {other} of {buffer} lie in [0, {factor})"
    proofs = tuple(
        relocation.require_within(access, access.access.indices[other], factor, condition)
        for access in relocation.touching(func, old)
    )
    shape = list(old.shape)
    shape[dim] = extents[0] * factor
    del shape[other]
    new = replace(old, shape=tuple(shape))

    def place(indices: relocation.Indices) -> relocation.Indices:
        found = list(indices)
        found[dim] = factor * indices[dim] + indices[other]
        del found[other]
        return tuple(found)

    return Rewrite(relocation.moved_buffer(func, old, new, place), tuple(dict.fromkeys(proofs)))


def unroll_buffer(func: tir.PrimFunc, buffer: str, dim: int) -> Rewrite:
    """`a: T[c, …]; S[a[0, …], a[1, …]]` → `a_0: T[…]; a_1: T[…]; …; S[a_0[…], a_1[…]]`.

    Conditions: *constant*: every access has a constant index along the axis (unroll the loops that
    it uses first).  *range*: that index is in the extent of the axis.  *size*: that extent is at
    most `pieces.MOST_STATEMENTS`, for each part becomes a statement.

    Makes the buffers in the role `buffers`, in the order of the axis.
    """
    old = relocation.flat_buffer(func, buffer)
    extent = old.shape[relocation.axis_of(old, dim)]
    if extent > MOST_STATEMENTS:
        raise ScheduleError(f"size: {extent:,} buffers, and {MOST_STATEMENTS:,} is most")
    for access in relocation.touching(func, old):
        value = arith.constant_value(access.access.indices[dim])
        if value is None:
            index = access.access.indices[dim]
            raise ScheduleError(f"constant: {access} uses axis {dim} of {buffer} at {index}")
        if not 0 <= value < extent:
            raise ScheduleError(f"range: {access} is outside the extent {extent} of axis {dim}")
    wanted = [f"{buffer}_{position}" for position in range(extent)]
    names = place_names.fresh_names(place_names.names_of_places(func), wanted)
    shape = (*old.shape[:dim], *old.shape[dim + 1 :])
    parts = tuple(replace(old, name=names[name], shape=shape) for name in wanted)
    new = replace(func, body=_unrolled(func.body, old, parts, dim))
    found = tuple(part.name for part in parts)
    claim = f"each access to {buffer} has a constant index along axis {dim}"
    return Rewrite(new, (obligations.structural(claim),), {buffer: found}, {"buffers": found})


def _unrolled(body: tir.Body, old: tir.Buffer, parts: tuple[tir.Buffer, ...], dim: int) -> tir.Body:
    def at(indices: relocation.Indices) -> tuple[tir.Buffer, relocation.Indices]:
        value = arith.constant_value(indices[dim])
        assert value is not None
        return parts[value], (*indices[:dim], *indices[dim + 1 :])

    def on_expr(expr: tir.Expr) -> tir.Expr:
        return (
            tir.Load(*at(expr.indices))
            if isinstance(expr, tir.Load) and expr.buffer == old
            else expr
        )

    def on_stmt(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
        match stmt:
            case tir.Allocate() if stmt.buffer == old:
                return tuple(tir.Allocate(part) for part in parts)
            case tir.Store() | tir.Reduce() if stmt.buffer == old:
                part, indices = at(stmt.indices)
                return replace(stmt, buffer=part, indices=indices)
            case _:
                return stmt

    return tir.map_body(tir.map_expressions(body, on_expr), on_stmt)
