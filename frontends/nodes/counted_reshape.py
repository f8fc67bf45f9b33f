"""Reshapes of tensors with axes of which a run gives fewer elements than there is room for.

In: a node, and the extents of its result, numbers or sizes.  Out: kernels that reshape the room,
and move elements where that would leave those of a run apart.  What always holds: each element of
the result that a run gives is the one that a program for exactly these extents has there.

Axes are split into groups of as many elements in front of the reshape and behind it.  Within a
group the order is row-major.  If only the first axis of a group has a size, both in front and
behind, a run's elements are the first ones of the room, so the room is reshaped as it is.
Otherwise they are gathered from places that a run computes from the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as pairs
from math import prod

from msgspec import Struct

from graphflow.base.errors import ExtentsLost
from graphflow.frontends.nodes.call import NodeCall
from graphflow.frontends.nodes.counted import count_by
from graphflow.frontends.tensors.derived_sizes import (
    Element,
    merged,
    product_of,
    ratio_of,
    require_equal,
    require_steps,
)
from graphflow.kernels.definitions.data_dependent import indexing
from graphflow.kernels.definitions.data_dependent.moved_rows import (
    CountedAxis,
    Rows,
    moved_rows,
    reshaped_places,
)
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.stages import Shape


class _Axes(Struct, frozen=True):
    """Consecutive axes: how many elements a run gives along each, and the room for them."""

    extents: tuple[Element, ...]
    rooms: tuple[int, ...]

    @property
    def is_prefix(self) -> bool:
        """Whether the elements of a run are the first ones of the room, in row-major order."""
        kept = [extent for extent in self.extents if extent != 1]
        return all(isinstance(extent, int) for extent in kept[1:])


class _Group(Struct, frozen=True):
    """Axes of as many elements in front of a reshape and behind it."""

    before: _Axes
    after: _Axes

    @property
    def is_plain(self) -> bool:
        """Whether the room may be reshaped as it is."""
        if self.before == self.after:
            return True
        same = prod(self.before.rooms) == prod(self.after.rooms)
        return same and self.before.is_prefix and self.after.is_prefix

    @property
    def middle(self) -> _Axes:
        """The axes once the room is reshaped: all in one where elements still have to move."""
        if self.is_plain:
            return self.after
        return _Axes((prod(self.before.rooms),), (prod(self.before.rooms),))


def extents_of(call: NodeCall) -> tuple[Element, ...]:
    """How many elements a run gives of input 0 along each axis."""
    counts = call.counts(0)
    return tuple(counts.get(axis, n) for axis, n in enumerate(call.shape(0)))


def is_of_sizes(call: NodeCall) -> bool:
    """Whether input 0 has axes of which sizes decide the extent, and no other open ones."""
    counts = call.counts(0).values()
    return bool(counts) and all(count in call.context.sizes for count in counts)


def missing_extent(call: NodeCall, stated: Sequence[Element]) -> Element:
    """The extent that a reshape does not state beside the others."""
    given = list(extents_of(call))
    others = []
    for extent in stated:
        if extent in given:
            given.remove(extent)
        else:
            others.append(extent)
    found = ratio_of(call.context, given, others)
    if found is None:
        _require_leading(call, given, others)
        raise _states_extents(call)
    return found


def emit_counted_reshape(call: NodeCall, wanted: Sequence[Element]) -> None:
    """Add kernels that reshape input 0 to the extents `wanted`."""
    context, dtype, source = call.context, call.stored_dtype(), call.inputs[0]
    rooms = tuple(n if isinstance(n, int) else context.sizes[n].hi for n in wanted)
    groups = _groups(call, wanted, rooms)
    moves = [group for group in groups if not group.is_plain]
    middles = [group.middle for group in groups]
    call.drops_counts = True
    shape = tuple(n for axes in middles for n in axes.rooms)
    target = call.part_name("room") if moves else call.outputs[0]
    func = movement.reshape(call.shape(0), shape, dtype, call.op.lower())
    call.add_kernel(func, (source,), (target,), "room" if moves else "", gives_all=True)
    for k, group in enumerate(groups):
        if group.is_plain:
            continue
        _count(call, target, middles)
        ahead, behind = (
            tuple(n for axes in part for n in axes.rooms)
            for part in (middles[:k], middles[k + 1 :])
        )
        source, middles[k] = target, group.after
        target = call.outputs[0] if group is moves[-1] else call.part_name(f"moved{k}")
        _emit_moved(call, group, (source, target), ahead, behind, k)
    count_by(call, {axis: n for axis, n in enumerate(wanted) if isinstance(n, str)})


def _count(call: NodeCall, name: str, axes: Sequence[_Axes]) -> None:
    """Record how many elements of a part a run gives."""
    extents = [extent for each in axes for extent in each.extents]
    counts = {axis: extent for axis, extent in enumerate(extents) if isinstance(extent, str)}
    if counts:
        call.context.counted[name] = counts


def _groups(call: NodeCall, wanted: Sequence[Element], rooms: Sequence[int]) -> list[_Group]:
    """The groups of a reshape, each as small as possible.

    Refuses the node where the extents of the result are no products of those of the input.
    """
    given, room, groups = extents_of(call), call.shape(0), []
    start, place = 0, 0
    while (start, place) != (len(given), len(wanted)):
        ends = pairs(range(start, len(given) + 1), range(place, len(wanted) + 1))
        for stop, behind in sorted(ends, key=lambda end: (sum(end), end)):
            one, other = given[start:stop], wanted[place:behind]
            if (one or other) and _are_equal(call, one, other):
                break
        else:
            _require_leading(call, given[start:], wanted[place:])
            raise _states_extents(call)
        before = _Axes(tuple(one), room[start:stop])
        groups.append(_Group(before, _Axes(tuple(other), tuple(rooms[place:behind]))))
        start, place = stop, behind
    return groups


def _require_leading(call: NodeCall, given: Sequence[Element], wanted: Sequence[Element]) -> None:
    """Raise SizesRelated if the first size in front of the reshape may be the first one behind it,
    as where a batch is that of another input; or if it is what the first axes behind make of it for
    multiples of a step, as where an image is divided into windows.  Each run is checked for that.
    """
    before, after = (next((n for n in axes if isinstance(n, str)), 1) for axes in (given, wanted))
    require_equal(call.context, before, after)
    for end in range(2, len(wanted) + 1):
        require_steps(call.context, before, merged(call.context, wanted[:end]))


def _are_equal(call: NodeCall, one: Sequence[Element], other: Sequence[Element]) -> bool:
    return product_of(call.context, one) == product_of(call.context, other)


def _emit_moved(
    call: NodeCall,
    group: _Group,
    names: tuple[str, str],
    ahead: Shape,
    behind: Shape,
    number: int,
) -> None:
    """Add kernels that move the elements of a group, from one tensor to another one; the axes ahead
    of the group and behind it are as they are.

    Without axes behind, rows of the group are copied; else the elements are found one by one, as
    each is a row of what is behind.
    """
    (source, target), part, dtype = names, f"moved{number}", call.stored_dtype()
    extents = (*group.before.extents, *group.after.extents)
    sizes = list(dict.fromkeys(extent for extent in extents if isinstance(extent, str)))
    before, after = (
        [CountedAxis(sizes.index(n) if isinstance(n, str) else None, room) for n, room in along]
        for along in (
            zip(axes.extents, axes.rooms, strict=True) for axes in (group.before, group.after)
        )
    )
    if behind:
        places = call.emit_part(reshaped_places(before, after), sizes, f"places{number}")
        _count(call, places, [group.after])
        shape = (*ahead, prod(group.before.rooms), *behind)
        func = indexing.gather_at(shape, group.after.rooms, len(ahead), dtype, "int64")
        call.add_kernel(func, (source, places), (target,), part, gives_all=True)
        return
    func = moved_rows(ahead, Rows.of(before), Rows.of(after), dtype)
    shape, wanted = func.outputs[0].shape, (*ahead, *group.after.rooms)
    rows = target if shape == wanted else call.part_name(f"rows{number}")
    call.add_kernel(func, (source, *sizes), (rows,), part, gives_all=True)
    if rows != target:
        joined = movement.reshape(shape, wanted, dtype)
        call.add_kernel(joined, (rows,), (target,), f"rows{number}", gives_all=True)


def _states_extents(call: NodeCall) -> ExtentsLost:
    return ExtentsLost(
        f"{call.title}: how many elements its input {call.inputs[0]} has is only known at run "
        "time, and the node states the extents of its output, which need not be products of those; "
        "cut the model before this node"
    )
