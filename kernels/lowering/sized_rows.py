"""The rows that a kernel writes along axes of which a run gives a part.

In: a lowered kernel, and for axes of its outputs the value that holds how many elements a run gives
there.  Out: `SizedRows`, one for each such axis.  What always holds: an element whose row is at or
behind the size is one that the run does not give, or padding beside such ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from graphflow import arith, tir
from graphflow.layout import Layout


@dataclass(frozen=True, slots=True)
class SizedRows:
    """For each write of an output where it happens, which of `room` rows it writes; a run gives the
    first ones, as many as the value of `size`, which is at least 1."""

    size: str
    room: int
    written: tuple[tuple[arith.Domain, arith.IndexExpr], ...]

    def behind(self, size: arith.Var, condition: arith.Predicate) -> bool:
        """Whether, for each value of the variable `size`, all that is written where the condition
        holds is written to rows that the run does not give."""
        given = arith.Axis(size, arith.const(1), arith.const(self.room + 1))
        for domain, row in self.written:
            where = arith.conjunction((domain.where, condition))
            claim = arith.at_most(size, row)
            if not arith.prove(claim, arith.Domain((given, *domain.axes), where)).proven:
                return False
        return True


def sized_rows(
    func: tir.PrimFunc,
    count: int,
    layouts: Mapping[str, Layout],
    counted: Mapping[str, Mapping[int, str]],
) -> list[SizedRows]:
    """The rows along each axis that all outputs of a lowered kernel have in common.

    The first `count` parameters are those of the kernel's definition, and `counted` has the sizes
    of axes of its outputs.  Axes along which the memory is no plain sequence of the tensor's rows
    are left out, and all of them where writes happen through windows.
    """
    buffers = [p.buffer for p in func.params[:count] if p.role is tir.Role.OUTPUT]
    if any(window.buffer in buffers for window in tir.windows_in(func.body)):
        return []
    axes = [dict(_sized_axes(layouts[b.name], counted.get(b.name, {}))) for b in buffers]
    common = [key for key in axes[0] if all(key in of for of in axes)] if axes else []
    writes = list(_writes(func, buffers))
    found = []
    for key in common:
        physical = {b: of[key] for b, of in zip(buffers, axes, strict=True)}
        rooms = {layouts[b.name].physical_shape[axis] for b, axis in physical.items()}
        if len(rooms) == 1 and (room := rooms.pop()) > 1:
            written = tuple(
                (domain, _row(stmt, layouts[stmt.buffer.name], physical[stmt.buffer]))
                for domain, stmt in writes
            )
            found.append(SizedRows(key[0], room, written))
    return found


def _sized_axes(
    layout: Layout, counted: Mapping[int, str]
) -> Iterator[tuple[tuple[str, int], int]]:
    """The axes of a box along which one element of a tensor's axis follows another, without
    padding, by the size that counts these and its how manieth axis it is."""
    seen: dict[str, int] = {}
    for axis, size in sorted(counted.items()):
        number = seen[size] = seen.get(size, -1) + 1
        of_axis = layout.index_map.inputs[axis]
        for place, index in enumerate(layout.simplified):
            if index is of_axis and layout.physical_shape[place] == layout.logical_shape[axis]:
                yield (size, number), place


def _writes(
    func: tir.PrimFunc, buffers: list[tir.Buffer]
) -> Iterator[tuple[arith.Domain, tir.Store | tir.Reduce]]:
    """The statements that write one of the buffers, with the points at which they do."""
    for site in tir.sites(func.body):
        stmt = site.stmt
        if isinstance(stmt, tir.Store | tir.Reduce) and stmt.buffer in buffers:
            yield site.domain, stmt


def _row(stmt: tir.Store | tir.Reduce, layout: Layout, axis: int) -> arith.IndexExpr:
    """The place along an axis of the layout's box at which a statement writes."""
    shape = layout.physical_shape
    if stmt.buffer.shape == shape:
        return stmt.indices[axis]
    position = stmt.buffer.flat_index(stmt.indices)
    inner = prod(shape[axis + 1 :])
    return arith.floor_mod(arith.floor_div(position, inner), shape[axis])
