"""Tiles of rows that are computed in part.

In: statements that compute some rows in unrolled loops, `row = base + step · i` for i below a
constant.
Out: the base, and the same statements for fewer rows.  What always holds: the rows that are left
are computed as before, from the same elements of the buffers between.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.fields import replace
from graphflow.kernels.lowering.sized_rows import Written


class TileOfRows(Struct, frozen=True):
    """Statements that write every `step`-th row from `base` on, as many as each of the loops over
    `rows` has iterations."""

    part: tir.Body
    base: arith.IndexExpr
    extent: int
    rows: frozenset[arith.Var]
    step: int

    def first(self, count: int) -> tir.Body:
        """The statements for the first rows alone."""

        def cut(stmt: tir.Stmt) -> tir.Stmt:
            if isinstance(stmt, tir.For) and stmt.var in self.rows:
                return replace(stmt, stop=arith.const(count))
            return stmt

        return tir.map_as_written(self.part, cut)


def tile_of_rows(
    part: tir.Body,
    domain: arith.Domain,
    written: Sequence[Written],
    outputs: Collection[tir.Buffer],
) -> TileOfRows | None:
    """The tile of several rows that statements compute, which run at the points of a domain; None
    if they are no tile.

    `written` are the rows of all writes of outputs.  What the statements write besides is proven to
    be rows of buffers of their own, each of which depends on no other row; or it is the same for
    all rows.
    """
    loops = {
        stmt.var: stmt.extent
        for stmt in tir.statements_as_written(part)
        if isinstance(stmt, tir.For)
        and stmt.kind is tir.LoopKind.UNROLLED
        and arith.constant_value(stmt.start) == 0
    }
    outside = {axis.var for axis in domain.axes}
    bases: set[tuple[arith.IndexExpr, int]] = set()
    rows: set[arith.Var] = set()
    for _, row in written:
        own = arith.variables(row) - outside
        if len(own) != 1 or not own <= loops.keys():
            return None
        (var,) = own
        step = dict(arith.terms_of(row)[0]).get(var, 0)
        base = row - var * step
        if step < 1 or var in arith.variables(base):
            return None
        bases.add((base, step))
        rows.add(var)
    accesses = tir.accesses(part, domain)
    held = {stmt.buffer for stmt in tir.walk(part) if isinstance(stmt, tir.Allocate)}
    axes = _row_axes([access for access in accesses if access.buffer in held], rows, loops)
    extents = {loops[var] for var in rows}
    if axes is None or len(bases) != 1 or len(extents) != 1:
        return None
    for access in accesses:
        around = rows.intersection(axis.var for axis in access.domain.axes)
        if (axis := axes.get(access.buffer)) is not None:
            if around != {access.indices[axis]}:
                return None
        elif access.writes and len(around) != (access.buffer in outputs):
            return None
    extent = extents.pop()
    if extent is None or extent == 1:
        return None
    base, step = bases.pop()
    return TileOfRows(part, base, extent, frozenset(rows), step)


def _row_axes(
    accesses: Sequence[tir.Access], rows: set[arith.Var], loops: Collection[arith.Var]
) -> dict[tir.Buffer, int] | None:
    """The axis of each buffer along which its rows lie; the loops over these become `rows` too.

    None if the rows of some buffer are not what loops count along one axis.
    """
    axes: dict[tir.Buffer, int] = {}
    known = -1
    while known < len(rows) + len(axes):
        known = len(rows) + len(axes)
        for access in accesses:
            for axis, index in enumerate(access.indices):
                if index in rows and axes.setdefault(access.buffer, axis) != axis:
                    return None
        for access in accesses:
            if access.buffer in axes:
                index = access.indices[axes[access.buffer]]
                if not isinstance(index, arith.Var) or index not in loops:
                    return None
                rows.add(index)
    return axes
