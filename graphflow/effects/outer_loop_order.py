"""Whether reads still see the same writes after elements moved, decided by the outer loops alone.

In: two kernels with the same accesses in the same order, in which a buffer keeps its elements in
different memory: each access has its *element*, the index in the buffer before, and its *cell*, the
index in the buffer after.  Out: whether it is certain that each read still sees the same write.

The exact question (`remapping`) compares the last writers of every instance, which costs too much
where accesses stand in eight loops.  Here the loops below the outermost ones are projected out.
What is left of an access are its *events*: points (stamp, element, cell), where the stamp is the
beginning of the time stamp; events of equal stamps are in an unknown order.  For a read event

- an *intruder* is a write of another element to its cell, or of its element to another cell, that
  is not certainly later than the read;
- a *refresh* is a write of its element to its cell that certainly happens, certainly before it.

The read is safe if each of its intruders is certainly earlier than some refresh of it: the last
write to the element before the move, and to the cell after it, is then the same.

For example, where t has one cell for every sixth element, cell = element mod 6:

    for b in serial(0, 4):
        for j in serial(0, 4): t[4*b + j + 2] = …      stamp (b, 0), elements 4b+2 … 4b+5
        for k in serial(0, 4): … = t[4*b + k]          stamp (b, 1), elements 4b … 4b+3

    the read  (stamp (1, 1), element 4, cell 4) has no intruder: the next element in cell 4 is 10,
              written at (2, 0), which is later
    mod 5     cell 4 gets element 9 at (1, 0), not later than the read: an intruder; the only
              refresh, element 4 at (0, 0), is before it, so that the read is not safe

What always holds: `keeps_sources` is true only if every read is safe; false says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import takewhile
from typing import Any

import islpy as isl
from msgspec import Struct

from graphflow import arith, tir
from graphflow.effects.relations import Relations, instance_tuple
from graphflow.effects.statements import StatementAccess

_IN, _OUT = isl.dim_type.in_, isl.dim_type.out


def keeps_sources(
    before: Relations, after: Relations, context: Any, old: tir.Buffer, new: tir.Buffer
) -> bool:
    """Whether it is certain that each read of `old` in `before` sees the same write in `after`.

    There the same accesses are to `new`.  TooLarge, or isl.Error past the budget.
    """
    was, now = before.limited(old), after.limited(new)
    if not was:
        return True
    shape = _EventShape(2 * _most_common_loops(was) + 1, len(was[0].element), len(now[0].element))
    events = [
        (access.access, _events(before, context, access, moved, shape.stamp))
        for access, moved in zip(was, now, strict=True)
        if not (_follows_own_store(access, was) and _follows_own_store(moved, now))
    ]
    reads = [points for access, points in events if access.kind is not tir.AccessKind.WRITE]
    writes = [(access.certain, points) for access, points in events if access.writes]
    one_cell = _has_one_cell([points for _, points in events], shape)
    orders = _EventOrders(context, before.parameters, shape, _unfixed_axes(was, now), one_cell)
    return all(_is_safe(read, writes, orders, shape) for read in reads)


def _follows_own_store(access: StatementAccess, accesses: Sequence[StatementAccess]) -> bool:
    """Whether the iteration of some loops that makes an access stored its element first, and writes
    no other element, all by the form of the accesses.

    So it is of a reduction behind its start value.  In whatever cell the element is, nothing else
    is written there between the store and the access, so that the access is safe if the store's
    place is: an intruder of the one is an intruder of the other.
    """
    return any(
        store.access.kind is tir.AccessKind.WRITE
        and store.access.certain
        and store.statement.number < access.statement.number
        and store.element == access.element
        and store.statement.loops == access.statement.loops[: len(store.statement.loops)]
        and set(arith.conjuncts(store.domain.where)) <= set(arith.conjuncts(access.domain.where))
        and all(
            other.element == store.element
            for other in accesses
            if other.access.writes and _is_inside(other, store.statement.loops)
        )
        for store in accesses
    )


def _has_one_cell(events: Sequence[Any], shape: _EventShape) -> bool:
    """Whether each element has one cell, in all of these events."""
    pairs = reduce(
        lambda a, b: a.union(b),
        (points.project_out(isl.dim_type.set, 0, shape.stamp) for points in events),
    )
    cells = isl.Map.from_range(pairs).move_dims(_IN, 0, _OUT, 0, shape.element)
    return bool(cells.is_single_valued())


def _unfixed_axes(was: Sequence[StatementAccess], now: Sequence[StatementAccess]) -> list[int]:
    """The axes of an element that its cell does not fix by their form: no axis of the cell has the
    same index as this one, in every access."""
    pairs = [(one.element, other.element) for one, other in zip(was, now, strict=True)]
    return [
        axis
        for axis in range(len(was[0].element))
        if not any(
            all(element[axis] is cell[at] for element, cell in pairs)
            for at in range(len(now[0].element))
        )
    ]


def _is_inside(access: StatementAccess, loops: tuple[int, ...]) -> bool:
    return access.statement.loops[: len(loops)] == loops


def _most_common_loops(accesses: Sequence[StatementAccess]) -> int:
    """The greatest number of loops that a read and a store of a buffer are both in."""
    shared = [
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        for one in _loops(accesses, reading=True)
        for other in _loops(accesses, reading=False)
    ]
    return max(shared, default=0)


def _loops(accesses: Sequence[StatementAccess], reading: bool) -> list[tuple[int, ...]]:
    return [
        a.statement.loops for a in accesses if (a.access.kind is tir.AccessKind.READ) == reading
    ]


class _EventShape(Struct, frozen=True):
    """The numbers of coordinates in the three parts of an event."""

    stamp: int
    element: int
    cell: int


def _events(
    before: Relations, context: Any, access: StatementAccess, moved: StatementAccess, length: int
) -> Any:
    """The events of one access, as a set; `length` is that of a stamp."""
    stamp = (*access.statement.time, *(arith.const(0) for _ in range(length)))[:length]
    parts = ", ".join(map(arith.isl_index, (*stamp, *access.element, *moved.element)))
    text = f"{instance_tuple(access)} -> [{parts}] : {arith.isl_constraints(access.domain)}"
    return isl.Map.read_from_str(context, f"{before.parameters}{{ {text} }}").range()


class _EventOrders:
    """Maps from a read event to events that matter for it, and between stamps."""

    def __init__(
        self,
        context: Any,
        parameters: str,
        shape: _EventShape,
        unfixed: Sequence[int],
        one_cell: bool,
    ) -> None:
        def names(letter: str, count: int) -> list[str]:
            return [f"{letter}{k}" for k in range(count)]

        def read(source: Sequence[str], target: Sequence[str], where: str) -> Any:
            text = f"[{', '.join(source)}] -> [{', '.join(target)}] : {where}"
            return isl.Map.read_from_str(context, f"{parameters}{{ {text} }}")

        stamp, other_stamp = names("t", shape.stamp), names("u", shape.stamp)
        element, cell = names("e", shape.element), names("f", shape.cell)
        event = (*stamp, *element, *cell)
        earlier, not_later = (_lexicographic(other_stamp, stamp, last) for last in ("<", "<="))
        # Elements in one cell differ only in the axes that the cell does not fix.
        other = [f"g{axis}" if axis in unfixed else name for axis, name in enumerate(element)]
        differ = f"{not_later} and not ({_equal(element, other)})"
        self.intruders = read(event, (*other_stamp, *other, *cell), differ)
        if not one_cell:
            other = names("h", shape.cell)
            differ = f"{not_later} and not ({_equal(cell, other)})"
            elsewhere = read(event, (*other_stamp, *element, *other), differ)
            self.intruders = self.intruders.union(elsewhere)
        self.refreshes = read(event, (*other_stamp, *element, *cell), earlier)
        self.earlier = isl.Map.lex_gt(isl.Space.set_alloc(context, 0, shape.stamp))
        """From a stamp to those that are certainly earlier."""


def _equal(names: Sequence[str], others: Sequence[str]) -> str:
    return " and ".join(f"{a} = {b}" for a, b in zip(names, others, strict=True)) or "true"


def _lexicographic(smaller: Sequence[str], greater: Sequence[str], last: str) -> str:
    """The condition that stamps are in order; `last` compares their last entries."""
    pairs = [*zip(smaller, greater, strict=True)]
    cases = []
    for count, (a, b) in enumerate(pairs, 1):
        equal = (f"{c} = {d}" for c, d in pairs[: count - 1])
        cases.append(" and ".join((*equal, f"{a} {'<' if count < len(pairs) else last} {b}")))
    return "(" + " or ".join(f"({case})" for case in cases) + ")"


def _is_safe(
    read: Any, writes: Sequence[tuple[bool, Any]], orders: _EventOrders, shape: _EventShape
) -> bool:
    """Whether each intruder of each of these read events is certainly earlier than a refresh of it.

    `writes` are the events of each write, and whether it certainly happens.
    """
    intruders = [_stamps(orders.intruders, read, points, shape) for _, points in writes]
    intruders = [stamps for stamps in intruders if not stamps.is_empty()]
    if not intruders:
        return True
    before_refresh = [
        _stamps(orders.refreshes, read, points, shape).apply_range(orders.earlier)
        for certain, points in writes
        if certain
    ]
    nothing = isl.Map.empty(intruders[0].get_space())
    harmless = reduce(lambda a, b: a.union(b), before_refresh, nothing)
    return all(stamps.is_subset(harmless) for stamps in intruders)


def _stamps(order: Any, read: Any, writes: Any, shape: _EventShape) -> Any:
    """From stamp and element of a read event to the stamps of the writes that `order` relates."""
    pairs = order.intersect_domain(read).intersect_range(writes)
    pairs = pairs.project_out(_OUT, shape.stamp, shape.element + shape.cell)
    return pairs.project_out(_IN, shape.stamp + shape.element, shape.cell)
