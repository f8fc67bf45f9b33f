"""Statements of a kernel that run only for elements that a count includes.

In: a lowered kernel whose values behind a count, an integer that it is given, are neutral:
`select(index < count, value, neutral)`.  Out: the kernel with conditions on the count:

    for e in serial(0, 16):                     for e in serial(0, 16):
        for v in vectorized(0, 16):                 if 16*e < count:
            powers[16*e + v] = exp(…)       →           for v in vectorized(0, 16):
                                                            powers[16*e + v] = exp(…)

What always holds: a reduction that does not run would have reduced neutral elements; an element of
an intermediate that is not written is not read; outputs are written as before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.fields import replace
from graphflow.kernels.lowering.count_masks import CountMask, outermost_mask
from graphflow.kernels.lowering.sized_rows import at_starts
from graphflow.schedule import declared_names, fresh_copy


class _LaneGroup(Struct, frozen=True):
    """A store or a reduction with the vectorized loops around it, which run as a whole."""

    stmt: tir.Stmt
    leaf: tir.Store | tir.Reduce
    domain: arith.Domain
    """Where the leaf runs."""
    outer: int
    """How many axes of the domain are around the group."""
    body: tir.Body
    """The statements among which the group stands."""

    def first(self, index: arith.IndexExpr) -> arith.IndexExpr | None:
        """The least value of an index in the group, if that is proven to be its value at the start
        of all loops."""
        first = at_starts(index, self.domain, self.outer)
        return first if self.proves(arith.at_most(first, index)) else None

    def last(self, index: arith.IndexExpr) -> arith.IndexExpr | None:
        """The greatest value of an index in the group, if that is proven to be its value at the end
        of all loops."""
        ends: dict[arith.Var, arith.IndexExpr] = {}
        for axis in self.domain.axes[self.outer :]:
            ends[axis.var] = arith.substitute(axis.stop - 1, ends)
        last = arith.simplify_index(arith.substitute(index, ends), self.domain.ranges())
        return last if self.proves(arith.at_most(index, last)) else None

    def lanes_of(self, other: _LaneGroup) -> Mapping[arith.Var, arith.IndexExpr] | None:
        """The vectorized loops of another group by those of this one, which runs in all of its
        lanes; None where it does not."""
        ours, theirs = self.domain.axes[self.outer :], other.domain.axes[other.outer :]
        bounds = [[(axis.start, axis.stop) for axis in axes] for axes in (ours, theirs)]
        in_all = not any(isinstance(stmt, tir.If) for stmt in tir.walk((self.stmt,)))
        if not in_all or self.body is not other.body or bounds[0] != bounds[1]:
            return None
        return {a.var: b.var for a, b in zip(ours, theirs, strict=True)}

    def is_in_place(self, load: tir.Load) -> bool:
        """Whether the leaf stores an element in the place of one that it loads."""
        return (self.leaf.buffer, self.leaf.indices) == (load.buffer, load.indices)

    def proves(self, claim: arith.Predicate) -> bool:
        """Whether a claim holds wherever the leaf runs."""
        return arith.prove(claim, self.domain).proven


class _Condition(Struct, frozen=True):
    """A group runs where the index `first` is below the count."""

    count: tir.Buffer
    first: arith.IndexExpr

    def test(self) -> tir.Comparison:
        """The condition as a kernel has it."""
        return tir.below_count(self.first, self.count)


def with_count_conditions(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel with conditions on the counts that it is given."""
    counts = {
        param.buffer
        for param in func.params
        if param.role is tir.Role.INPUT and param.buffer.shape == ()
    }
    if any(isinstance(stmt, tir.Let | tir.NamedWindow) for stmt in tir.walk(func.body)):
        return func
    masked = (write for write in tir.writes_in(func.body) if outermost_mask(write.value, counts))
    if next(masked, None) is None:
        return func
    given, func = func, _with_single_groups(func)
    parts = [*_parts(func.body, arith.ANYWHERE)]
    groups = [part for part in parts if isinstance(part, _LaneGroup)]
    others = [part for part in parts if not isinstance(part, _LaneGroup)]
    found = _ConditionSearch(func, groups, others, counts).conditions()
    if not found:
        return given
    return replace(func, body=_Rebuilding(func, groups, found).body(func.body))


def _with_single_groups(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel with each statement of a vectorized loop in a loop of its own, where lanes do not
    exchange anything."""
    taken = {*declared_names(func.body), *(param.buffer.name for param in func.params)}

    def change(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
        if not isinstance(stmt, tir.For) or stmt.kind is not tir.LoopKind.VECTORIZED:
            return stmt
        if len(stmt.body) < 2 or not all(map(_is_leaf, stmt.body)) or not _are_apart(stmt):
            return stmt
        first, *others = (stmt.around((leaf,)) for leaf in stmt.body)
        made: list[tir.Stmt] = [first]
        for loop in others:
            copy, names = fresh_copy((loop,), "_s", taken)
            taken.update(names.values())
            made += copy
        return tuple(made)

    return replace(func, body=tir.map_body(func.body, change))


def _are_apart(loop: tir.For) -> bool:
    """Whether an iteration of a loop reads what another one writes nowhere: each of its statements
    accesses what an iteration writes at one place, which differs from lane to lane."""
    accesses = [*tir.accesses(loop.body)]
    for written in {access.buffer for access in accesses if access.writes}:
        places = {access.indices for access in accesses if access.buffer == written}
        if len(places) > 1 or not any(
            dict(arith.terms_of(index)[0]).get(loop.var) == 1 for index in places.pop()
        ):
            return False
    return True


def _parts(body: tir.Body, domain: arith.Domain) -> Iterator[_LaneGroup | tir.Stmt]:
    """The groups of a body, and what else accesses buffers, in program order."""
    for stmt in body:
        if _is_group(stmt):
            (site,) = (s for s in tir.sites((stmt,), domain) if _is_leaf(s.stmt))
            assert isinstance(site.stmt, tir.Store | tir.Reduce)
            yield _LaneGroup(stmt, site.stmt, site.domain, len(domain.axes), body)
        elif isinstance(stmt, tir.Block):
            yield from _parts(stmt.body, domain)
        elif isinstance(stmt, tir.For) and stmt.kind is not tir.LoopKind.VECTORIZED:
            yield from _parts(stmt.body, domain.inside(stmt.var, stmt.start, stmt.stop))
        elif isinstance(stmt, tir.If) and tir.is_predicate(stmt.condition):
            condition = cast(arith.Predicate, stmt.condition)
            yield from _parts(stmt.then, domain.given(condition))
            yield from _parts(stmt.orelse, domain.given(arith.negation(condition)))
        elif isinstance(stmt, tir.If):
            yield tir.If(stmt.condition, ())
            yield from _parts(stmt.then, domain)
            yield from _parts(stmt.orelse, domain)
        else:
            yield stmt


def _is_leaf(stmt: tir.Stmt) -> bool:
    return isinstance(stmt, tir.Store | tir.Reduce)


def _is_group(stmt: tir.Stmt) -> bool:
    if _is_leaf(stmt):
        return True
    if not isinstance(stmt, tir.For) or stmt.kind is not tir.LoopKind.VECTORIZED:
        return False
    inside = [s for s in tir.walk((stmt,)) if not isinstance(s, tir.For | tir.If)]
    return len(inside) == 1 and _is_leaf(inside[0])


@dataclass
class _ConditionSearch:
    """Finds conditions: readers first, then the writers of what only these read."""

    func: tir.PrimFunc
    groups: Sequence[_LaneGroup]
    others: Sequence[tir.Stmt]
    counts: Collection[tir.Buffer]
    found: dict[int, _Condition] = field(default_factory=dict)

    def conditions(self) -> Mapping[int, _Condition]:
        """The conditions of groups, by their numbers."""
        private = self._private()
        for number, group in enumerate(self.groups):
            mask = self._neutral(group, private) or self._masked_output(group, private)
            first = None if mask is None else group.first(mask.row)
            if mask is not None and first is not None:
                self.found[number] = _Condition(mask.count, first)
        waiting = set(private)
        while done := {buffer for buffer in waiting if self._stop_writes(buffer)}:
            waiting -= done
        return self.found

    def _private(self) -> list[tir.Buffer]:
        """The intermediates that only stores in groups write and only groups read."""
        others = {access.buffer for access in tir.accesses(tuple(self.others))}
        others |= {load.buffer for load in tir.loads_in(tuple(self.others))}
        others |= {g.leaf.buffer for g in self.groups if isinstance(g.leaf, tir.Reduce)}
        allocated = (s.buffer for s in tir.walk(self.func.body) if isinstance(s, tir.Allocate))
        return [b for b in allocated if b.scope == "scratch" and b.shape and b not in others]

    def _neutral(self, group: _LaneGroup, private: Collection[tir.Buffer]) -> CountMask | None:
        """The mask behind which a group reduces neutral elements."""
        leaf = group.leaf
        if not isinstance(leaf, tir.Reduce):
            return None
        mask = outermost_mask(leaf.value, self.counts)
        if mask is None and isinstance(leaf.value, tir.Load) and leaf.value.buffer in private:
            mask = self._filled(leaf.value) or self._just_filled(group, leaf.value)
        neutral = tir.neutral_literal(leaf.op, leaf.buffer.dtype)
        return mask if mask is not None and mask.fill.value == neutral else None

    def _filled(self, load: tir.Load) -> CountMask | None:
        """The mask of an element of an intermediate, if all of its stores have the same one."""
        masks = [
            (group.leaf.indices, outermost_mask(group.leaf.value, self.counts))
            for group in self.groups
            if group.leaf.buffer == load.buffer
        ]
        for axis, index in enumerate(load.indices):
            found = {
                (mask.count, mask.fill) if mask and mask.row is indices[axis] else None
                for indices, mask in masks
            }
            if len(found) == 1 and (same := found.pop()) is not None:
                return CountMask(same[0], index, same[1], load)
        return None

    def _just_filled(self, group: _LaneGroup, load: tir.Load) -> CountMask | None:
        """The mask of an element that the group in front of this one has stored in the same
        iteration."""
        number = self.groups.index(group)
        before = self.groups[number - 1] if number else group
        mask = outermost_mask(before.leaf.value, self.counts)
        lanes = before.lanes_of(group)
        if before.leaf.buffer != load.buffer or mask is None or lanes is None:
            return None
        stored = tuple(arith.substitute(index, lanes) for index in before.leaf.indices)
        row = arith.substitute(mask.row, lanes)
        return replace(mask, row=row) if stored == load.indices else None

    def _masked_output(
        self, group: _LaneGroup, private: Collection[tir.Buffer]
    ) -> CountMask | None:
        """The mask of a store of an output whose value is read from intermediates."""
        if not isinstance(group.leaf, tir.Store) or not any(
            group.leaf.buffer == param.buffer for param in self.func.params
        ):
            return None
        mask = outermost_mask(group.leaf.value, self.counts)
        read = (load.buffer for load in tir.loads_in((group.leaf,)))
        return mask if any(buffer in private for buffer in read) else None

    def _stop_writes(self, buffer: tir.Buffer) -> bool:
        """Give the stores of an intermediate conditions, if elements behind them are not read."""
        readers = [
            (number, load)
            for number, group in enumerate(self.groups)
            for load in tir.loads_in((group.leaf,))
            if load.buffer == buffer
        ]
        # What stores an element in the place of the one that it reads is executed for both or none.
        readers = [(n, load) for n, load in readers if not self.groups[n].is_in_place(load)]
        conditions = [self.found.get(number) for number, _ in readers]
        counts = {None if condition is None else condition.count for condition in conditions}
        if len(counts) != 1 or (count := counts.pop()) is None:
            return False
        writers = [k for k, group in enumerate(self.groups) if group.leaf.buffer == buffer]
        lanes = {1, *(_lanes(self.groups[number]) for number in writers)}
        for axis in range(len(buffer.shape)):
            for piece in sorted(lanes, reverse=True):
                if all(self._reads_before(n, load, axis, piece) for n, load in readers):
                    stops = {n: self._stop(n, axis, piece) for n in writers}
                    firsts = {n: first for n, first in stops.items() if first is not None}
                    if len(firsts) == len(writers):
                        self.found |= {n: _Condition(count, f) for n, f in firsts.items()}
                        return True
        return False

    def _reads_before(self, number: int, load: tir.Load, axis: int, piece: int) -> bool:
        """Whether a group reads only pieces of an axis that begin before the count."""
        begin = arith.floor_div(load.indices[axis], piece) * piece
        return self.groups[number].proves(arith.at_most(begin, self.found[number].first))

    def _stop(self, number: int, axis: int, piece: int) -> arith.IndexExpr | None:
        """The first index of a group, if the pieces that it writes begin there or behind."""
        group = self.groups[number]
        index = group.leaf.indices[axis]
        first = group.first(index)
        begin = arith.floor_div(index, piece) * piece
        if first is None or not group.proves(arith.at_most(first, begin)):
            return None
        return first


def _lanes(group: _LaneGroup) -> int:
    loop = group.stmt
    return (loop.extent or 1) if isinstance(loop, tir.For) else 1


@dataclass
class _Rebuilding:
    """Puts conditions around the groups of a kernel, which it meets in the order of `_parts`."""

    func: tir.PrimFunc
    groups: Sequence[_LaneGroup]
    found: Mapping[int, _Condition]
    met: int = 0
    implied: set[int] = field(default_factory=set)
    """The groups whose conditions a loop around them has."""
    taken: set[str] = field(default_factory=set)

    def body(self, body: tir.Body) -> tir.Body:
        """A body with conditions."""
        made = map(self._stmt, body)
        return tuple(s for x in made for s in (x if isinstance(x, tuple) else (x,)))

    def _stmt(self, stmt: tir.Stmt) -> tir.Stmt | tir.Body:
        if _is_group(stmt):
            number, self.met = self.met, self.met + 1
            group, condition = self.groups[number], self.found.get(number)
            assert group.stmt is stmt, "groups come in the order of the program"
            if condition is None:
                return stmt
            if number in self.implied:
                return self._before(group, condition)
            return tir.If(condition.test(), self._before(group, condition), self._behind(group))
        if isinstance(stmt, tir.Block):
            return stmt.around(self.body(stmt.body))
        if isinstance(stmt, tir.For) and stmt.kind is not tir.LoopKind.VECTORIZED:
            condition = self._of_all(stmt) if stmt.kind is tir.LoopKind.SERIAL else None
            body = self.body(stmt.body)
            if condition is not None:
                body = (tir.If(condition.test(), body),)
            return stmt.around(body)
        if isinstance(stmt, tir.If):
            return replace(stmt, then=self.body(stmt.then), orelse=self.body(stmt.orelse))
        return stmt

    def _of_all(self, loop: tir.For) -> _Condition | None:
        """The condition of the first group of a loop, where that of all others fails if it does;
        None where there is none.

        It is put around the body, and groups with the same condition need none of their own.
        """
        statements = [*_parts(loop.body, arith.ANYWHERE)]
        of_groups = sum(isinstance(part, _LaneGroup) for part in statements)
        numbers = range(self.met, self.met + of_groups)
        groups = [self.groups[number] for number in numbers]
        found = [self.found.get(number) for number in numbers]
        conditions = [condition for condition in found if condition is not None]
        if not groups or len(conditions) < len(groups) or len(statements) > len(groups):
            return None
        if len({condition.count for condition in conditions}) > 1:
            return None
        if any(self._writes_output(group.leaf) for group in groups):
            return None
        around = [axis.var for axis in groups[0].domain.axes]
        inside = {axis.var for g in groups for axis in g.domain.axes} - {
            *around[: around.index(loop.var) + 1]
        }
        starts = {
            axis.var: axis.start for g in groups for axis in g.domain.axes if axis.var in inside
        }
        condition = conditions[0]
        first = arith.substitute(condition.first, starts)
        pairs = zip(groups, conditions, strict=True)
        if arith.variables(first) & inside or not all(
            group.proves(arith.at_most(first, other.first)) for group, other in pairs
        ):
            return None
        self.implied |= {n for n in numbers if self.found[n].first == first}
        return _Condition(condition.count, first)

    def _writes_output(self, leaf: tir.Store | tir.Reduce) -> bool:
        params = (param.buffer for param in self.func.params)
        return isinstance(leaf, tir.Store) and leaf.buffer in params

    def _before(self, group: _LaneGroup, condition: _Condition) -> tir.Body:
        """What a group does before the count: without its mask, where all of it is there."""
        leaf = group.leaf
        match leaf.value:
            case tir.Select(
                tir.Comparison("lt", tir.IndexValue(index), tir.Load(count, ())), value, _
            ) if count == condition.count and (last := group.last(index)) is not None:
                plain = replace(leaf, value=value)
            case _:
                return (group.stmt,)
        whole = tir.map_as_written((group.stmt,), lambda s: plain if s is leaf else s)
        if last is condition.first:
            return whole
        test = _Condition(condition.count, last).test()
        return (tir.If(test, whole, self._renamed((group.stmt,), "_cut")),)

    def _behind(self, group: _LaneGroup) -> tir.Body:
        """What a group does behind the count: the store of an output writes what is there."""
        leaf = group.leaf
        if not self._writes_output(leaf):
            return ()
        assert isinstance(leaf.value, tir.Select)
        filled = replace(leaf, value=leaf.value.if_false)
        body = tir.map_as_written((group.stmt,), lambda s: filled if s is leaf else s)
        return self._renamed(body, "_behind")

    def _renamed(self, body: tir.Body, suffix: str) -> tir.Body:
        """Statements with names of their own."""
        if not self.taken:
            self.taken = {*declared_names(self.func.body)}
            self.taken.update(param.buffer.name for param in self.func.params)
        copy, names = fresh_copy(body, suffix, self.taken)
        self.taken.update(names.values())
        return copy
