"""Bound inference: what each stage must compute, and over which range each loop runs.

In: a kernel, and perhaps loops at which stages are to be computed.  Out: for each buffer the
elements that its readers need in one iteration of the loops around both, as an exact set, its
smallest box, or several boxes where they are smaller; for each loop its range.  One pass over the
buffers, from the outputs to what they are made of: outputs are needed whole, and of other buffers
what the needed instances of their readers read.  Nothing is changed.

A *path* is the loop variables that a requirement is stated for, from the outermost in: those
around the stage at its place.  The analysis is exact for index conditions; a statement under a
condition on data counts as one that happens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from msgspec import Struct

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule.places.places import find_buffer, find_loop

MOST_BOXES = 4
"""Boxes beyond which one box under a predicate is taken: each box is a nest of its own."""

GAIN = 0.75
"""The share of a single box that several may have at most, for the overhead of their nests."""


class IndexRange(Struct, frozen=True):
    """The values from `start` on, `extent` of them; printed `[start, extent]`."""

    start: arith.IndexExpr
    extent: arith.IndexExpr
    exact: bool
    """Whether both are the closest, for each value of the path."""

    @property
    def stop(self) -> arith.IndexExpr:
        """The first value behind the range."""
        return self.start + self.extent

    def __str__(self) -> str:
        return f"[{self.start}, {self.extent}]"


Box = tuple[IndexRange, ...]


class Requirement(Struct, frozen=True, eq=False):
    """The elements of a buffer that are needed in one iteration of the loops in `path`."""

    buffer: tir.Buffer
    path: tuple[arith.Var, ...]
    needed: arith.IntegerSet
    """The points `(*path, *element)`."""

    @property
    def element(self) -> tuple[arith.Var, ...]:
        """The coordinates that stand for the indices."""
        return self.needed.variables[len(self.path) :]

    @property
    def box(self) -> Box:
        """The smallest box that covers the needed elements."""
        return tuple(range_of(self.needed, var, self.path) for var in self.element)

    @property
    def is_box(self) -> bool:
        """Whether every element of the smallest box is needed."""
        return self.needed.hull(self.path).equals(self.needed)

    def shape(self) -> tuple[int, ...]:
        """The most elements of the smallest box along each axis."""
        return tuple(self.needed.extent(var, self.path) for var in self.element)

    def boxes(self) -> tuple[Requirement, ...]:
        """Disjoint parts of the requirement, whose smallest boxes together have at most `GAIN` of
        the elements of the whole's; the requirement itself where there are none."""
        if self.is_box:
            return (self,)
        apart = sorted(self.needed.parts(), key=lambda part: part.least())
        parts = [Requirement(self.buffer, self.path, part) for part in apart]
        hulls = [part.needed.hull(self.path) for part in parts]
        meet = any(not (a & b).is_empty for k, a in enumerate(hulls) for b in hulls[:k])
        fewer = sum(_volume(p.shape()) for p in parts) <= GAIN * _volume(self.shape())
        if not 1 < len(parts) <= MOST_BOXES or meet or not fewer:
            return (self,)
        return tuple(parts)

    def __str__(self) -> str:
        boxes = self.boxes()
        text = " and ".join(f"{self.buffer.name}({_box_text(one.box)})" for one in boxes)
        if len(boxes) == 1 and not self.is_box:
            text += f" where {self._predicate()}"
        place = f" at {', '.join(v.name for v in reversed(self.path))}" if self.path else ""
        return text + place

    def _predicate(self) -> str:
        try:
            condition = self.needed.predicate(self.needed.hull(self.path))
        except arith.Undecided as error:
            return str(error)
        return str(condition)


def _box_text(box: Box) -> str:
    return ", ".join(map(str, box))


def _volume(shape: Sequence[int]) -> int:
    return reduce(lambda a, b: a * b, shape, 1)


def range_of(points: arith.IntegerSet, var: arith.Var, given: Sequence[arith.Var]) -> IndexRange:
    """The closest range of a coordinate for each value of others; `[0, 0]` for the empty set."""
    if points.is_empty:
        return IndexRange(arith.const(0), arith.const(0), True)
    low, high = points.bounds(var, given)
    return IndexRange(low.expr, _length(low.expr, high.expr), low.exact and high.exact)


def _length(low: arith.IndexExpr, high: arith.IndexExpr) -> arith.IndexExpr:
    """`high - low + 1`, inside the minimum or maximum that one of them is."""
    for end, other in ((high, low), (low, high)):
        if isinstance(end, arith.Extremum) and not isinstance(other, arith.Extremum):
            a, b = end.operands
            if end is high:
                kind, parts = end.kind, (_length(low, a), _length(low, b))
            else:
                kind = "min" if end.kind == "max" else "max"
                parts = (_length(a, high), _length(b, high))
            return (arith.minimum if kind == "min" else arith.maximum)(*parts)
    return high - low + 1


class LoopRange(Struct, frozen=True):
    """The values of a loop's variable for which something inside is needed."""

    var: arith.Var
    path: tuple[arith.Var, ...]
    range: IndexRange

    def __str__(self) -> str:
        return f"{self.var} in {self.range}"


class Bounds(Struct, frozen=True):
    """The bounds of a kernel: requirements from the outputs on, and loops in program order."""

    requirements: tuple[Requirement, ...]
    loops: Mapping[tir.Buffer, tuple[LoopRange, ...]]
    """The loops around the writes of each buffer."""

    def of(self, buffer: str) -> Requirement:
        """The requirement of a buffer by name; ScheduleError where nothing writes it."""
        for one in self.requirements:
            if one.buffer.name == buffer:
                return one
        raise ScheduleError(f"nothing writes a buffer {buffer}")

    def range(self, loop: str) -> IndexRange:
        """The range of a loop by name; ScheduleError where no needed write is in it."""
        for ranges in self.loops.values():
            for one in ranges:
                if one.var.name == loop:
                    return one.range
        raise ScheduleError(f"no write is in a loop {loop}")

    def __str__(self) -> str:
        lines = []
        for one in self.requirements:
            lines.append(str(one))
            lines += [f"    {loop}" for loop in self.loops[one.buffer]]
        return "\n".join(lines)


@dataclass(slots=True)
class Demands:
    """What is needed of each buffer, and which instances of each write that takes."""

    needed: dict[tir.Buffer, arith.IntegerSet] = field(default_factory=dict)
    """Over the path of the buffer and its element."""
    instances: dict[int, arith.IntegerSet] = field(default_factory=dict)
    """By the number of the write, over the path of its buffer and its own loops."""
    own_reads: list[tuple[effects.StatementAccess, arith.IntegerSet]] = field(default_factory=list)
    """Elements that writes of a buffer need of the buffer itself, beyond what others need."""


def infer_bounds(func: tir.PrimFunc, attached: Mapping[str, str] | None = None) -> Bounds:
    """The bounds of a kernel, were each stage of `attached` computed at the loop given for it.

    `attached` has names of buffers and of loops around all their reads.  ScheduleError where a
    buffer is read outside its loop, or a set takes too long to find.
    """
    model = effects.statements_of(func)
    paths = {find_buffer(func, b): loop for b, loop in (attached or {}).items()}
    for loop in paths.values():
        find_loop(func, loop)
    written = {a.access.buffer for a in model.accesses if a.access.writes}
    order = [b for b in _consumers_first(model, model.accesses) if b in written]
    seeds = {b: all_elements(b, ()) for b in func.outputs}
    try:
        demanded = demands(model, model.accesses, seeds, paths)
        requirements = tuple(_shown(model, demanded, b, paths) for b in order)
        loops = {b: tuple(_loop_ranges(model, demanded, b)) for b in order}
    except arith.Undecided as error:
        raise ScheduleError(f"the bounds of {func.name} are not found: {error}") from error
    return Bounds(requirements, loops)


def element_variables(buffer: tir.Buffer) -> tuple[arith.Var, ...]:
    """The coordinates that stand for the indices of a buffer; no loop has such a name."""
    return tuple(arith.Var(f"{buffer.name}[{axis}]") for axis in range(len(buffer.shape)))


def all_elements(buffer: tir.Buffer, path: Sequence[arith.Var]) -> arith.IntegerSet:
    """All elements of a buffer, for every value of the path."""
    sides = zip(element_variables(buffer), buffer.shape, strict=True)
    box = arith.Domain(
        tuple(arith.Axis(var, arith.const(0), arith.const(extent)) for var, extent in sides)
    )
    return arith.IntegerSet.of(box).over((*path, *element_variables(buffer)))


def read_by(
    instances: arith.IntegerSet, read: effects.StatementAccess, path: Sequence[arith.Var]
) -> arith.IntegerSet:
    """The elements that a read reads in these instances, over the path and the element."""
    return _read_by(_instances_at(instances, read), read, path)


def _instances_at(instances: arith.IntegerSet, read: effects.StatementAccess) -> arith.IntegerSet:
    """Those of the instances in which the read is made, with its loops."""
    return instances & arith.IntegerSet.of(read.domain)


def _read_by(
    points: arith.IntegerSet, read: effects.StatementAccess, path: Sequence[arith.Var]
) -> arith.IntegerSet:
    """The elements that a read reads at points of its domain, over the path and the element."""
    element = element_variables(read.access.buffer)
    return points.image(element, read.access.indices, path)


def reads_for(
    model: effects.KernelStatements, write: effects.StatementAccess
) -> Iterator[effects.StatementAccess]:
    """The reads that a write depends on: of its value, and of the conditions on data around it."""
    for access in model.accesses:
        if access.access.kind is not tir.AccessKind.READ or access.is_claim:
            continue
        by = access.statement
        if by is write.statement or (isinstance(by.stmt, tir.If) and by.holds(write.statement)):
            yield access


def demands(
    model: effects.KernelStatements,
    among: Sequence[effects.StatementAccess],
    seeds: Mapping[tir.Buffer, arith.IntegerSet],
    attached: Mapping[tir.Buffer, str],
) -> Demands:
    """One pass from the buffers in `seeds` to what they are made of, over the accesses `among`.

    A seed is over the path of its buffer, which is so given, and its element.  A buffer that is
    made of itself through others is needed whole.  What is needed of buffers that no access among
    them writes is not found.
    """
    demanded = Demands(needed=dict(seeds))
    order = _consumers_first(model, among)
    written = {a.access.buffer for a in among if a.access.writes}
    done: set[tir.Buffer] = set()
    for buffer in order:
        writes = [a for a in among if a.access.writes and a.access.buffer == buffer]
        done.add(buffer)
        if not writes:
            continue
        needed = demanded.needed.get(buffer)
        if needed is None:
            needed = demanded.needed[buffer] = arith.IntegerSet.nothing(
                (*writes[0].copies, *element_variables(buffer))
            )
        for write in writes:
            here = instances_of(write, needed)
            demanded.instances[write.number] = here
            for read in reads_for(model, write):
                source = read.access.buffer
                path = _path(read, here.variables, attached.get(source))
                if source not in written:
                    continue
                at = here if read.domain == write.domain else _instances_at(here, read)
                if source == buffer:
                    own = tuple(
                        var for var in needed.variables if var not in element_variables(buffer)
                    )
                    demanded.own_reads.append((read, _read_by(at, read, own) - needed))
                    continue
                asked = _read_by(at, read, path)
                if source not in done:
                    before = demanded.needed.get(source)
                    demanded.needed[source] = asked if before is None else _united(before, asked)
                else:
                    raise ScheduleError(f"{source.name} and {buffer.name} are made of each other")
    return demanded


def _united(one: arith.IntegerSet, other: arith.IntegerSet) -> arith.IntegerSet:
    """The union over the coordinates that both have: the shorter path is the common one."""
    common = [var for var in one.variables if var in other.variables]
    return one.over(common) | other.over(common)


def instances_of(write: effects.StatementAccess, needed: arith.IntegerSet) -> arith.IntegerSet:
    """The instances of a write that write what is needed, over the path and its own loops."""
    element = element_variables(write.access.buffer)
    points = arith.IntegerSet.of(write.domain).image(element, write.access.indices) & needed
    path = [var for var in needed.variables if var not in element]
    own = [axis.var for axis in write.domain.axes if axis.var not in path]
    return points.over((*path, *own))


def _path(
    read: effects.StatementAccess, around: tuple[arith.Var, ...], loop: str | None
) -> tuple[arith.Var, ...]:
    """The part of the loops around a read that the requirement of its buffer is stated for."""
    names = [var.name for var in around]
    if loop is not None:
        if loop not in names:
            raise ScheduleError(
                f"{read.access.buffer.name} is read outside {loop}, at [{_indices(read)}]"
            )
        return around[: names.index(loop) + 1]
    last = max((around.index(var) for var in read.copies), default=-1)
    return around[: last + 1]


def _indices(read: effects.StatementAccess) -> str:
    return ", ".join(map(str, read.access.indices))


def _consumers_first(
    model: effects.KernelStatements, among: Iterable[effects.StatementAccess]
) -> tuple[tir.Buffer, ...]:
    """The buffers such that each follows all that are made of it; later ones first in a tie."""
    accessed = list(among)
    buffers = list(dict.fromkeys(a.access.buffer for a in reversed(accessed)))
    readers: dict[tir.Buffer, set[tir.Buffer]] = {b: set() for b in buffers}
    for write in (a for a in accessed if a.access.writes):
        for read in reads_for(model, write):
            if read.access.buffer in readers and read.access.buffer != write.access.buffer:
                readers[read.access.buffer].add(write.access.buffer)
    order: list[tir.Buffer] = []
    while buffers:
        ready = next((b for b in buffers if readers[b] <= set(order)), buffers[0])
        buffers.remove(ready)
        order.append(ready)
    return tuple(order)


def _shown(
    model: effects.KernelStatements,
    demanded: Demands,
    buffer: tir.Buffer,
    attached: Mapping[tir.Buffer, str],
) -> Requirement:
    """The requirement of a buffer at its place: the loops around all that accesses it."""
    needed = demanded.needed[buffer]
    element = element_variables(buffer)
    path = tuple(var for var in needed.variables if var not in element)
    if buffer in attached or buffer in model.func.outputs:
        return Requirement(buffer, path, needed)
    shared = _shared([[axis.var for axis in a.domain.axes] for a in model.of(buffer)])
    reads: list[arith.IntegerSet] = []
    for write in (a for a in model.accesses if a.number in demanded.instances):
        here = demanded.instances[write.number]
        for read in reads_for(model, write):
            if read.access.buffer == buffer and set(shared) <= set(here.variables):
                place = here.variables[: len(shared)]
                if place != shared:
                    return Requirement(buffer, path, needed)
                reads.append(read_by(here, read, shared))
    if len(shared) <= len(path) or not reads:
        return Requirement(buffer, path, needed)
    return Requirement(buffer, shared, reduce(lambda a, b: a | b, reads))


def _shared(nests: Sequence[Sequence[arith.Var]]) -> tuple[arith.Var, ...]:
    """The variables that all nests begin with."""
    common: list[arith.Var] = []
    for level in zip(*nests, strict=False):
        if len(set(level)) > 1:
            break
        common.append(level[0])
    return tuple(common)


def _loop_ranges(
    model: effects.KernelStatements, demanded: Demands, buffer: tir.Buffer
) -> Iterator[LoopRange]:
    """The ranges of the loops around the writes of a buffer."""
    inside: dict[tuple[arith.Var, ...], arith.IntegerSet] = {}
    for write in model.of(buffer):
        if not write.access.writes:
            continue
        here = demanded.instances[write.number]
        own = {axis.var for axis in write.domain.axes}
        for place, var in enumerate(here.variables):
            if var in own:
                around = here.variables[: place + 1]
                part = here.over(around)
                inside[around] = inside[around] | part if around in inside else part
    for around, points in inside.items():
        yield LoopRange(around[-1], around[:-1], range_of(points, around[-1], around[:-1]))
