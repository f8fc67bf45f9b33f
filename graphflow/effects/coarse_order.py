"""Whether memory is taken over by other elements too early, decided by the outer loops alone.

In: two kernels with the same accesses in the same order, which differ in where a buffer keeps its
elements.  Out: whether it is certain that each read still sees the same write.

The exact question compares the last writers of every instance, which costs too much where accesses
stand in eight loops.  Here the loops below the outermost ones are projected out: accesses are known
by the first entries of their time stamps, equal ones in an unknown order.  A read is safe if behind
each write of another element to its memory, unless that is certainly later than the read, there is
certainly a write of its own element that is certainly before the read.  The last write to
its memory is then one of its own element, as it was before.

What always holds: `keeps_sources` is true only if this is so; false says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from typing import Any

import islpy as isl

from graphflow.effects.relations import Relations
from graphflow.effects.statements import StatementAccess
from graphflow.tir import AccessKind, Buffer

_IN, _OUT = isl.dim_type.in_, isl.dim_type.out


def keeps_sources(
    before: Relations, after: Relations, context: Any, old: Buffer, new: Buffer
) -> bool:
    """Whether it is certain that each read of `old` in `before` sees the same write in `after`.

    There the same accesses are to `new`.  TooLarge, or isl.Error past the budget.
    """
    was, now = before.limited(old), after.limited(new)
    if not was:
        return True
    sizes = _Sizes(2 * _most_common_loops(was) + 1, len(was[0].element), len(now[0].element))
    touched = [
        (access, _touched(before, after, context, access, moved, sizes.stamp))
        for access, moved in zip(was, now, strict=True)
    ]
    reads = [points for access, points in touched if access.access.kind is not AccessKind.WRITE]
    writes = [(access.access.certain, points) for access, points in touched if access.access.writes]
    orders = _Orders(context, before.parameters, sizes)
    return all(_is_safe(read, writes, orders, sizes) for read in reads)


def _most_common_loops(accesses: Sequence[StatementAccess]) -> int:
    """The greatest number of loops that a read and a store of a buffer are both in."""
    shared = [
        sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        for one in _loops(accesses, reading=True)
        for other in _loops(accesses, reading=False)
    ]
    return max(shared, default=0)


def _loops(accesses: Sequence[StatementAccess], reading: bool) -> list[tuple[int, ...]]:
    return [a.statement.loops for a in accesses if (a.access.kind is AccessKind.READ) == reading]


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The lengths of the three parts of a point: of a time stamp the first entries, the element of
    the buffer before, and its place after."""

    stamp: int
    element: int
    place: int


def _touched(
    before: Relations,
    after: Relations,
    context: Any,
    access: StatementAccess,
    moved: StatementAccess,
    length: int,
) -> Any:
    """The points that one access touches."""
    stamps = before.times(context, access)
    stamps = stamps.project_out(_OUT, length, stamps.dim(_OUT) - length)
    elements = before.elements(context, access)
    place = after.elements(context, moved).set_tuple_id(_IN, elements.get_tuple_id(_IN))
    points = stamps.flat_range_product(elements).flat_range_product(place).range()
    return points.reset_tuple_id()


class _Orders:
    """Maps between points, and between beginnings of time stamps."""

    def __init__(self, context: Any, parameters: str, sizes: _Sizes) -> None:
        def names(letter: str, count: int) -> list[str]:
            return [f"{letter}{k}" for k in range(count)]

        time, other_time = names("t", sizes.stamp), names("u", sizes.stamp)
        element, other = names("e", sizes.element), names("g", sizes.element)
        place, other_place = names("f", sizes.place), names("h", sizes.place)
        points = ", ".join((*time, *element, *place))
        others = ", ".join((*other_time, *other, *other_place))
        earlier = _lexicographic(other_time, time)
        same_time, same_place = _equal(other_time, time), _equal(place, other_place)

        def read(source: str, target: str, where: str) -> Any:
            text = f"{parameters}{{ [{source}] -> [{target}] : {where} }}"
            return isl.Map.read_from_str(context, text)

        self.takes_over = read(
            points,
            others,
            f"({earlier} or {same_time}) and {same_place} and not ({_equal(element, other)})",
        )
        """From a point that is read to those that take over its place, not certainly later."""
        self.writes_before = read(points, others, f"({earlier}) and {_equal(element, other)}")
        """From a point that is read to those of the same element that are certainly earlier."""
        self.earlier = read(", ".join(time), ", ".join(other_time), earlier)


def _equal(names: Sequence[str], others: Sequence[str]) -> str:
    return " and ".join(f"{a} = {b}" for a, b in zip(names, others, strict=True)) or "true"


def _lexicographic(smaller: Sequence[str], greater: Sequence[str]) -> str:
    cases = [
        " and ".join((*(f"{a} = {b}" for a, b in pairs[:-1]), "{} < {}".format(*pairs[-1])))
        for count in range(1, len(smaller) + 1)
        if (pairs := [*zip(smaller, greater, strict=True)][:count])
    ]
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
