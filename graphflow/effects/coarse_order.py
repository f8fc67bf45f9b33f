"""Whether memory is taken over by other elements too early, decided by the outer loops alone.

In: two kernels with the same accesses in the same order, which differ in where a buffer keeps its
elements.  Out: whether it is certain that each read still sees the same write.

The exact question compares the last writers of every instance, which costs too much where accesses
stand in eight loops.  Here the loops below the outermost ones are projected out: accesses are known
by the first entries of their time stamps, equal ones in an unknown order.  A read is safe if behind
each write of another element to its memory, and each write of its element to other memory, unless
that is certainly later than the read, there is certainly a write of its own element to its memory
that is certainly before the read.  The last write to either is then the same.

What always holds: `keeps_sources` is true only if this is so; false says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from typing import Any

import islpy as isl

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
    sizes = _Sizes(2 * _most_common_loops(was) + 1, len(was[0].element), len(now[0].element))
    pairs = [
        (access, moved)
        for access, moved in zip(was, now, strict=True)
        if not (_is_just_stored(access, was) and _is_just_stored(moved, now))
    ]
    touched = [
        (access.access, _touched(before, context, access, moved, sizes.stamp))
        for access, moved in pairs
    ]
    reads = [points for access, points in touched if access.kind is not tir.AccessKind.WRITE]
    writes = [(access.certain, points) for access, points in touched if access.writes]
    is_function = _is_function([points for _, points in touched], sizes)
    orders = _Orders(context, before.parameters, sizes, _moved_axes(was, now), is_function)
    return all(_is_safe(read, writes, orders, sizes) for read in reads)


def _is_just_stored(access: StatementAccess, accesses: Sequence[StatementAccess]) -> bool:
    """Whether an access is to an element that its iteration of some loops stores first and that is
    the only one that this iteration writes, all by their form.

    So it is of a reduction behind its start value.  Wherever the element is kept, nothing else is
    written there between the store and the access, which therefore is safe where the store is: what
    comes behind the one comes behind the other.
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


def _is_function(touched: Sequence[Any], sizes: _Sizes) -> bool:
    """Whether each element has one place, in all of these points."""
    kind = isl.dim_type.set
    places = reduce(
        lambda a, b: a.union(b), (points.project_out(kind, 0, sizes.stamp) for points in touched)
    )
    pairs = isl.Map.from_range(places).move_dims(_IN, 0, _OUT, 0, sizes.element)
    return bool(pairs.is_single_valued())


def _moved_axes(was: Sequence[StatementAccess], now: Sequence[StatementAccess]) -> list[int]:
    """The axes of an element that its place may leave open: no axis of all places is the same."""
    pairs = [(one.element, other.element) for one, other in zip(was, now, strict=True)]
    return [
        axis
        for axis in range(len(was[0].element))
        if not any(
            all(element[axis] is place[at] for element, place in pairs)
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


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The lengths of the three parts of a point: of a time stamp the first entries, the element of
    the buffer before, and its place after."""

    stamp: int
    element: int
    place: int


def _touched(
    before: Relations, context: Any, access: StatementAccess, moved: StatementAccess, length: int
) -> Any:
    """The points that one access touches."""
    stamp = (*access.statement.time, *(arith.const(0) for _ in range(length)))[:length]
    parts = ", ".join(map(arith.isl_index, (*stamp, *access.element, *moved.element)))
    text = f"{instance_tuple(access)} -> [{parts}] : {arith.isl_constraints(access.domain)}"
    return isl.Map.read_from_str(context, f"{before.parameters}{{ {text} }}").range()


class _Orders:
    """Maps between points, and between beginnings of time stamps."""

    def __init__(
        self,
        context: Any,
        parameters: str,
        sizes: _Sizes,
        moved: Sequence[int],
        is_function: bool,
    ) -> None:
        def names(letter: str, count: int) -> list[str]:
            return [f"{letter}{k}" for k in range(count)]

        def read(source: Sequence[str], target: Sequence[str], where: str) -> Any:
            text = f"[{', '.join(source)}] -> [{', '.join(target)}] : {where}"
            return isl.Map.read_from_str(context, f"{parameters}{{ {text} }}")

        time, other_time = names("t", sizes.stamp), names("u", sizes.stamp)
        element, place = names("e", sizes.element), names("f", sizes.place)
        point = (*time, *element, *place)
        earlier, not_later = (_lexicographic(other_time, time, last) for last in ("<", "<="))
        # In one place, the elements are different only in the axes that the place leaves open.
        other = [f"g{axis}" if axis in moved else name for axis, name in enumerate(element)]
        differ = f"{not_later} and not ({_equal(element, other)})"
        self.takes_over = read(point, (*other_time, *other, *place), differ)
        if not is_function:
            other = names("h", sizes.place)
            differ = f"{not_later} and not ({_equal(place, other)})"
            elsewhere = read(point, (*other_time, *element, *other), differ)
            self.takes_over = self.takes_over.union(elsewhere)
        """From a point that is read to those of another element in its place, or of its element in
        another place, that are not certainly later."""
        self.writes_before = read(point, (*other_time, *element, *place), earlier)
        """From a point that is read to those of the same element and place, certainly earlier."""
        self.earlier = isl.Map.lex_gt(isl.Space.set_alloc(context, 0, sizes.stamp))


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


def _is_safe(read: Any, writes: Sequence[tuple[bool, Any]], orders: _Orders, sizes: _Sizes) -> bool:
    """Whether behind each write of another element to a read's place its own is written again."""
    taken = [_stamps(orders.takes_over, read, points, sizes) for _, points in writes]
    taken = [pairs for pairs in taken if not pairs.is_empty()]
    if not taken:
        return True
    again = [
        _stamps(orders.writes_before, read, points, sizes).apply_range(orders.earlier)
        for certain, points in writes
        if certain
    ]
    covered = reduce(lambda a, b: a.union(b), again, isl.Map.empty(taken[0].get_space()))
    return all(pairs.is_subset(covered) for pairs in taken)


def _stamps(order: Any, read: Any, points: Any, sizes: _Sizes) -> Any:
    """From time and element of a read to the times of the points that an order gives for it."""
    pairs = order.intersect_domain(read).intersect_range(points)
    pairs = pairs.project_out(_OUT, sizes.stamp, sizes.element + sizes.place)
    return pairs.project_out(_IN, sizes.stamp + sizes.element, sizes.place)
