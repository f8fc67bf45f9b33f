"""Rows that kernels write along axes of which a run gives a part.

In: for axes of a kernel's outputs the size that counts the elements which a run gives there.  Out:
`SizedAxis`, plain data, and for a lowered kernel which row each of its writes is in (`SizedRows`).
What always holds: an element whose row is at or behind the size is one that the run does not give,
or padding beside such elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import prod

from msgspec import Struct

from graphflow import arith, tir
from graphflow.layout import Layout


class BoxAxis(Struct, frozen=True):
    """An axis of the box of a kernel's parameter."""

    param: str
    box: tuple[int, ...]
    axis: int


class SizedAxis(Struct, frozen=True):
    """Of each output of a kernel an axis with `room` rows, of which a run gives the first ones.

    `size` names how many these are, at most `room`.
    """

    size: str
    room: int
    places: tuple[BoxAxis, ...]


def axes_with_sizes(
    layouts: Mapping[str, Layout], counted: Mapping[str, Mapping[int, str]]
) -> tuple[SizedAxis, ...]:
    """The axes of one size and one room that all outputs of a kernel have.

    `layouts` are those of the outputs, `counted` has the sizes of their axes.  Axes along which the
    memory is no plain sequence of the tensor's rows are left out.
    """
    found = [
        dict(plain_axes(name, of, counted.get(name, {}), in_longer=True))
        for name, of in layouts.items()
    ]
    common = [key for key in found[0] if all(key in axes for axes in found)] if found else []
    return tuple(
        SizedAxis(size, room, tuple(axes[size, room, number] for axes in found))
        for size, room, number in common
        if room > 1
    )


def plain_axes(
    name: str, layout: Layout, counted: Mapping[int, str], in_longer: bool = False
) -> Iterator[tuple[tuple[str, int, int], BoxAxis]]:
    """Axes of a box along which a tensor's rows follow one another, by size and room, and by
    how many axes of the tensor before have that size.  Only with `in_longer` the box may go on
    behind them, with rows of another part of it, or with padding."""
    seen: list[str] = []
    for axis, size in sorted(counted.items()):
        of_axis, room = layout.index_map.inputs[axis], layout.logical_shape[axis]
        for place, index in enumerate(layout.simplified):
            extent = layout.physical_shape[place]
            if index is of_axis and (extent == room or (in_longer and extent > room)):
                yield (size, room, seen.count(size)), BoxAxis(name, layout.physical_shape, place)
        seen.append(size)


Written = tuple[arith.Domain, arith.IndexExpr]
"""Where a write of an output happens, and the row that it is in."""


class SizedRows(Struct, frozen=True, dict=True):
    """The rows along a sized axis that a lowered kernel writes."""

    axis: SizedAxis
    func: tir.PrimFunc

    @property
    def size(self) -> str:
        """What counts the rows of a run."""
        return self.axis.size

    @property
    def room(self) -> int:
        """How many rows there may be."""
        return self.axis.room

    @property
    def are_rows_alone(self) -> bool:
        """Whether nothing is written behind the room for rows, where an output's box goes on."""
        if all(place.box[place.axis] == self.room for place in self.axis.places):
            return True
        return all(
            arith.prove(arith.less_than(row, self.room), domain).proven
            for domain, row in self.written
        )

    @cached_property
    def written(self) -> tuple[Written, ...]:
        """All writes of outputs."""
        return self.written_by(self.func.body)

    def written_by(
        self, body: tir.Body, domain: arith.Domain = arith.ANYWHERE
    ) -> tuple[Written, ...]:
        """The writes of outputs by statements that run at the points of a domain."""
        return tuple(
            (site.domain, self._row(site.stmt))
            for site in tir.sites(body, domain)
            if isinstance(site.stmt, tir.Store | tir.Reduce) and site.stmt.buffer in self._places
        )

    @cached_property
    def _places(self) -> dict[tir.Buffer, BoxAxis]:
        return {self.func.param(place.param): place for place in self.axis.places}

    def _row(self, stmt: tir.Store | tir.Reduce) -> arith.IndexExpr:
        return index_along(self._places[stmt.buffer], stmt.buffer, stmt.indices)


def index_along(
    place: BoxAxis, buffer: tir.Buffer, indices: Sequence[arith.IndexExpr]
) -> arith.IndexExpr:
    """The index along an axis of a box, of an element of a buffer that is this box in any shape."""
    if buffer.shape == place.box:
        return indices[place.axis]
    position = buffer.flat_index(indices)
    inner = prod(place.box[place.axis + 1 :])
    return arith.floor_mod(arith.floor_div(position, inner), place.box[place.axis])


def rows_of(func: tir.PrimFunc, sized: tuple[SizedAxis, ...]) -> list[SizedRows]:
    """The rows along each sized axis; none where some output is written through windows.

    Axes behind whose rows a kernel writes padding are left out: all runs need that.
    """
    outputs = {func.param(place.param) for axis in sized for place in axis.places}
    if any(window.buffer in outputs for window in tir.windows_in(func.body)):
        return []
    return [rows for axis in sized if (rows := SizedRows(axis, func)).are_rows_alone]


def at_starts(index: arith.IndexExpr, domain: arith.Domain, outer: int) -> arith.IndexExpr:
    """An index at the start of all loops inside of the first `outer` ones."""
    starts: dict[arith.Var, arith.IndexExpr] = {}
    for axis in domain.axes[outer:]:
        starts[axis.var] = arith.substitute(axis.start, starts)
    return arith.simplify_index(arith.substitute(index, starts), domain.ranges())
