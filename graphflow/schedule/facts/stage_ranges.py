"""The ranges of a stage's loops, where the form of the indices shows them.

In: the accesses of a stage, the reads of the buffer that it stores, and the loops in which it is to
run.  Out: for each loop of the stage the range in which it stores what an iteration of these reads.
For example, a stage is to run in a loop over o:

    for a in serial(0, 12):                       In an iteration, rows 3*o to 3*o + 2 and columns
        for b in serial(0, 6):                    0 to 5 of t are read.  Each index of the store is
            t[a, b] = …                           a loop of the stage, so the ranges are
    for o in serial(0, 4):                  →
        for i in serial(0, 3):                        a: from 3*o up to 3*o + 3
            for j in serial(0, 6):                    b: from 0 up to 6
                y[3*o + i, j] = t[3*o + i, j]

What always holds: the ranges are those that the exact sets of `bound_inference` have, which take a
hundred times as long.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from graphflow import arith, tir
from graphflow.schedule.facts.index_spans import span_of

Range = tuple[arith.IndexExpr, arith.IndexExpr]
"""The first value, and the first one behind it."""


class StageRanges(Struct, frozen=True):
    """The ranges of a stage's loops in which it stores what an iteration of loops around reads.

    `ranges` has all of its loops.  For those in `narrowed` conditions may exclude some values: with
    `if a >= 1` around its only store, a stage needs no iteration for a = 0.
    """

    place: arith.Domain
    writes: tuple[tir.Access, ...]
    ranges: Mapping[arith.Var, Range]
    narrowed: frozenset[arith.Var]

    def exact(self, var: arith.Var) -> Range | None:
        """The range of a loop, if it is not narrowed."""
        return None if var in self.narrowed else self.ranges.get(var)

    def linked(self, var: arith.Var) -> set[arith.Var]:
        """A loop and all those whose values may decide about its range.

        Sets without the others are found several times as fast.
        """
        around = {axis.var: (axis.start, axis.stop) for axis in self.place.axes}
        links = [
            {one, *arith.variables(start), *arith.variables(stop)}
            for one, (start, stop) in {**around, **self.ranges}.items()
        ]
        for write in self.writes:
            links += [{*arith.predicate_variables(p)} for p in arith.conjuncts(write.domain.where)]
        found = {var}
        while more := [link for link in links if link & found and not link <= found]:
            found = found.union(*more)
        return found


def stage_ranges_of(
    stage: Sequence[tir.Access], reads: Sequence[tir.Access], place: arith.Domain
) -> StageRanges | None:
    """The ranges of the loops of a stage in each iteration of those of `place`, in which `reads`
    are all that read its one buffer.

    None where the form does not show that they read a box, and that the stage stores exactly this
    box with its loops in some ranges.
    """
    box = _box(reads, place)
    writes = tuple(access for access in stage if access.writes)
    own = tuple(access for access in stage if access.buffer == reads[0].buffer)
    if box is None or own != writes:
        return None
    found: dict[arith.Var, Range] = {}
    for write in writes:
        ranges = _ranges_of_write(write, box, place)
        if ranges is None or any(found.setdefault(var, new) != new for var, new in ranges.items()):
            return None
    narrowed = frozenset(var for var in found if not _is_exact(var, writes, found, place))
    return StageRanges(place, writes, found, narrowed)


def _box(reads: Sequence[tir.Access], place: arith.Domain) -> list[Range] | None:
    """The elements that an iteration of `place` reads, a range for each axis of the buffer, if they
    are a box whose corner is linear in the loops of `place`.

    Reads of several boxes are one box if these differ along one axis and leave no gap there, as
    `t[o, i] + t[o + 1, i]`.  None for a loop around that runs once in a range that is not constant:
    sets name other variables in its stead.
    """
    outer = {axis.var for axis in place.axes}
    for axis in (axis for read in reads for axis in read.domain.axes):
        extent = arith.constant_value(axis.stop - axis.start) or 0
        if extent < 1 or (axis.var in outer and extent == 1 and arith.variables(axis.start)):
            return None
    parts = [_part(read, outer) for read in reads]
    known = dict.fromkeys(part for part in parts if part is not None)
    if None in parts or any(read.domain.where != arith.TRUE for read in reads):
        return None
    sides = [
        sorted(dict.fromkeys(spans), key=lambda span: span[1]) for spans in zip(*known, strict=True)
    ]
    if sum(len(side) > 1 for side in sides) > 1:
        return None
    found: list[Range] = []
    for side in sides:
        base, low, high = side[0]
        for other, start, end in side[1:]:
            if other is not base or start > high + 1:
                return None
            high = max(high, end)
        corner = arith.simplify_index(base, place.ranges())
        found.append((corner + low, corner + high + 1))
    return found


def _part(
    read: tir.Access, outer: Collection[arith.Var]
) -> tuple[tuple[arith.IndexExpr, int, int], ...] | None:
    """For each axis base, low and high of what one read reads, as in `IndexSpan`, if it is a whole
    box: no index has gaps, and no loop is in two of them, as in the diagonal `t[i, i]`."""
    spans = [span_of(index, read.domain, outer) for index in read.indices]
    known = [span for span in spans if span is not None and span.gapless]
    used = [var for span in known for var, _, _ in span.steps]
    linear = all(
        isinstance(atom, arith.Var) for s in known for atom, _ in arith.terms_of(s.base)[0]
    )
    if len(known) < len(spans) or len({*used}) < len(used) or not linear:
        return None
    return tuple((span.base, span.low, span.high) for span in known)


def _ranges_of_write(
    write: tir.Access, box: Sequence[Range], place: arith.Domain
) -> dict[arith.Var, Range] | None:
    """The range of each loop of the stage around a write, so that it stores the elements of the box
    and no others.

    An index that is a loop by itself gives it the range of the box along this axis, which must lie
    in the loop's own.  Any other index, such as 0 in `t[a, 0]`, must be in the box for all values
    of the loops.  Loops that are no index, such as that of a sum, keep their ranges, which must be
    constant and not empty.  None where one of these conditions is not proven.
    """
    outer = {axis.var for axis in place.axes}
    own = {axis.var: (axis.start, axis.stop) for axis in write.domain.axes if axis.var not in outer}
    found: dict[arith.Var, Range] = {}
    inside: list[arith.Predicate] = []
    for index, (start, stop) in zip(write.indices, box, strict=True):
        if isinstance(index, arith.Var) and index in own and index not in found:
            first, end = own[index]
            inside += (arith.at_most(first, start), arith.at_most(stop, end))
            found[index] = start, stop
        else:
            inside += (arith.at_most(start, index), arith.less_than(index, stop))
    kept = {var: ends for var, ends in own.items() if var not in found}
    fixed = (isinstance(end, arith.Const) for ends in kept.values() for end in ends)
    full = ((arith.constant_value(stop - start) or 0) > 0 for start, stop in kept.values())
    if not all(fixed) or not all(full):
        return None
    if not arith.prove(arith.conjunction(inside), place).proven:
        return None
    return found | kept


def _is_exact(
    var: arith.Var,
    writes: Sequence[tir.Access],
    ranges: Mapping[arith.Var, Range],
    place: arith.Domain,
) -> bool:
    """Whether conditions exclude no value from the range of a loop: some write inside has none, or
    no condition depends on the loop, and they hold somewhere.  An example is the loop over k in
    `for k: if a >= 1: t[a, b] += x[a, k]`.
    """
    inside = [w for w in writes if any(axis.var is var for axis in w.domain.axes)]
    if any(write.domain.where == arith.TRUE for write in inside):
        return True
    if any(var in arith.predicate_variables(write.domain.where) for write in inside):
        return False
    return any(_runs(write, ranges, place) for write in inside)


def _runs(write: tir.Access, ranges: Mapping[arith.Var, Range], place: arith.Domain) -> bool:
    """Whether the conditions of a write hold at some point of the ranges."""
    own = [axis.var for axis in write.domain.axes if axis.var in ranges]
    axes = (*place.axes, *(arith.Axis(var, *ranges[var]) for var in own))
    return arith.point_in(arith.Domain(axes, write.domain.where)) is not None
