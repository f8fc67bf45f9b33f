"""The ranges of a stage's loops, where the form of the indices shows them.

In: the accesses of a stage, the reads of the buffer that it stores, and the loops in which it is to
run.  Out: for loops of the stage the range in which they store what is read.  What always holds:
the ranges are those that the exact sets of `bound_inference` have, which take a hundred times as
long.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from graphflow import arith, tir
from graphflow.schedule.facts.index_spans import span_of

Range = tuple[arith.IndexExpr, arith.IndexExpr]
"""The first value, and the first one behind it."""


@dataclass(frozen=True, slots=True)
class StageRanges:
    """The ranges of a stage's loops in which it stores what an iteration of loops around reads.

    `ranges` has all of its loops; conditions may make those in `narrowed` smaller.
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
        taken = _taken(write, box, place)
        if taken is None or any(found.setdefault(var, new) != new for var, new in taken.items()):
            return None
    narrowed = frozenset(var for var in found if not _all_used(var, writes, found, place))
    return StageRanges(place, writes, found, narrowed)


def _box(reads: Sequence[tir.Access], place: arith.Domain) -> list[Range] | None:
    """The elements that an iteration reads, if they are a box whose corner is linear in its loops.

    None for a loop around that runs once in a range that is not constant: sets name other variables
    in its stead.
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
    """For each axis base, low and high of what one read reads, if it is a whole box."""
    spans = [span_of(index, read.domain, outer) for index in read.indices]
    known = [span for span in spans if span is not None and span.gapless]
    used = [var for span in known for var, _, _ in span.steps]
    linear = all(
        isinstance(atom, arith.Var) for s in known for atom, _ in arith.terms_of(s.base)[0]
    )
    if len(known) < len(spans) or len({*used}) < len(used) or not linear:
        return None
    return tuple((span.base, span.low, span.high) for span in known)


def _taken(
    write: tir.Access, box: Sequence[Range], place: arith.Domain
) -> dict[arith.Var, Range] | None:
    """The range of each loop of the stage around a write in which it stores elements of the box,
    and together all that it can; None where this is not each loop by itself."""
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
    rest = {var: ends for var, ends in own.items() if var not in found}
    fixed = (isinstance(end, arith.Const) for ends in rest.values() for end in ends)
    full = ((arith.constant_value(stop - start) or 0) > 0 for start, stop in rest.values())
    if not all(fixed) or not all(full):
        return None
    if not arith.prove(arith.conjunction(inside), place).proven:
        return None
    return found | rest


def _all_used(
    var: arith.Var,
    writes: Sequence[tir.Access],
    ranges: Mapping[arith.Var, Range],
    place: arith.Domain,
) -> bool:
    """Whether writes run for all values in the range of a loop, wherever one runs for some."""
    inside = [w for w in writes if any(axis.var is var for axis in w.domain.axes)]
    if any(write.domain.where == arith.TRUE for write in inside):
        return True
    if any(var in arith.predicate_variables(write.domain.where) for write in inside):
        return False
    return any(_runs(write, ranges, place) for write in inside)


def _runs(write: tir.Access, ranges: Mapping[arith.Var, Range], place: arith.Domain) -> bool:
    """Whether a write under conditions runs at some point."""
    own = [axis.var for axis in write.domain.axes if axis.var in ranges]
    axes = (*place.axes, *(arith.Axis(var, *ranges[var]) for var in own))
    return arith.point_in(arith.Domain(axes, write.domain.where)) is not None
