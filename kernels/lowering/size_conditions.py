"""Statements of a kernel that run only where they write rows that a run gives.

In: a lowered kernel, and the axes of its outputs of which a run gives a part.  Out: the kernel with
the sizes as parameters, and conditions on them:

    for t in serial(0, 9):              for t in serial(0, 9):
        y[13*t:13*t + 13] = …       →       if 13*t < size: y[13*t:13*t + 13] = …

What always holds: it is proven that the statements under a condition write no row of an output
before the one that the condition names; what else they write, nothing else reads.  So whatever the
size is, all rows before it are written as without conditions.

Iterations of the parallel loop are left out by the caller (`Portion`): where a condition would say
no more than that, there is none.  Tiles of rows that a run may end in are there for fewer rows too
(`tile_rows.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.fields import replace
from graphflow.kernels.lowering.sized_rows import SizedAxis, Written, rows_of
from graphflow.kernels.lowering.tile_rows import tile_of_rows
from graphflow.schedule import fresh_copy, fresh_name, names_of_places

LEAST_WORK = 4
"""Statements, with all lanes of vectorized loops as one, that a condition must be able to skip.
Those of the body of a serial loop over rows count as often as it runs: a condition around all of it
ends the loop (`codegen/statements/counted_loops.py`), and no iteration tests anything."""

LEAST_TILE = 256
"""As many statements must a tile have that is made for fewer rows too: a product, which computes;
what moves elements takes as long for a row as for several, and every tile takes time to compile."""


FUNCTION = 16
"""As many statements take as long as an elementary function of a vector."""

TRIGONOMETRIC_FUNCTION = 256
"""The same for sines and cosines: of large numbers, which may stand behind a size, they take
hundreds of cycles (16 rows of a rotary embedding 9.4 µs in place of 0.5)."""

FEW_TILES = 8
"""Of at most so many tiles, each is made for fewer rows: one in which a run ends is a good part."""


class SizeParam(Struct, frozen=True):
    """A parameter of a lowered kernel that holds a size, which is at most `most`."""

    buffer: tir.Buffer
    size: str
    most: int


def with_size_conditions(
    func: tir.PrimFunc, sized: tuple[SizedAxis, ...]
) -> tuple[tir.PrimFunc, tuple[SizeParam, ...]]:
    """The kernel with conditions on sizes, and the parameters that hold these, which come last."""
    rows = rows_of(func, sized)
    outputs = {func.param(place.param) for axis in sized for place in axis.places}
    if not rows or any(load.buffer in outputs for load in tir.loads_in(func.body)):
        return func, ()
    taken = {*names_of_places(func)}
    params: dict[str, SizeParam] = {}
    for axis in sized:
        if axis.size not in params:
            name = fresh_name("size", taken.__contains__)
            taken.add(name)
            params[axis.size] = SizeParam(tir.Buffer(name, (), "int64"), axis.size, axis.room)
    sizes = {size: param.buffer for size, param in params.items()}
    conditions = SizeConditions(rows, outputs, sizes, taken)
    body = conditions.body(func.body, arith.ANYWHERE, tuple(arith.const(0) for _ in rows))
    used = tuple(param for param in params.values() if param.size in conditions.used)
    held = tuple(tir.Param(param.buffer, tir.Role.INPUT) for param in used)
    return replace(func, params=(*func.params, *held), body=body), used


FirstRows: TypeAlias = "tuple[arith.IndexExpr, ...]"
"""For each sized axis a row before which the statements around write none; 0 says nothing."""


class CountedRows(Protocol):
    """The rows along an axis with `room` for more of them than a run gives; `size` counts these."""

    @property
    def size(self) -> str: ...

    @property
    def room(self) -> int: ...

    def written_by(self, body: tir.Body, domain: arith.Domain) -> tuple[Written, ...]:
        """The writes of statements that run at the points of a domain."""


class SizeConditions:
    """Puts conditions into the bodies of one kernel; `used` are the sizes of those."""

    def __init__(
        self,
        rows: Sequence[CountedRows],
        outputs: Collection[tir.Buffer],
        sizes: Mapping[str, tir.Buffer],
        taken: set[str],
    ) -> None:
        self.rows = rows
        self.outputs = outputs
        self.sizes = sizes
        self.taken = taken
        self.used: set[str] = set()

    def body(
        self,
        body: tir.Body,
        domain: arith.Domain,
        known: FirstRows,
        loop: tir.For | None = None,
    ) -> tir.Body:
        """A body that runs at the points of a domain, with conditions; that of a serial `loop`."""
        parts = [*alone_parts(body, self.outputs)]
        whole = loop if len(parts) == 1 else None
        return tuple(
            stmt for part, alone in parts for stmt in self._part(part, alone, domain, known, whole)
        )

    def _part(
        self,
        part: tir.Body,
        alone: bool,
        domain: arith.Domain,
        known: FirstRows,
        loop: tir.For | None,
    ) -> tir.Body:
        """Successive statements, under conditions where these may skip work; `alone` says that
        nothing else reads what they write besides outputs.  They may be all of a serial `loop`."""
        if not any(write.buffer in self.outputs for write in tir.writes_in(part)):
            return part
        if not alone or any(s.kind is tir.LoopKind.PARALLEL for s in tir.loops_of(part)):
            return tuple(self._inside(stmt, domain, known) for stmt in part)
        first = self._worth(part, self._first_rows(part, domain, known), known, loop)
        part = tuple(self._inside(stmt, domain, first) for stmt in part)
        part = self._in_smaller_tiles(part, domain)
        for rows, row, before in zip(self.rows, first, known, strict=True):
            if row is not before:
                part = (tir.If(self._given(row, rows), part),)
        return part

    def _worth(
        self, part: tir.Body, first: FirstRows, known: FirstRows, loop: tir.For | None
    ) -> FirstRows:
        """The rows of statements for which a condition is worth its time, and else those known.

        A few statements are worth one where it ends a loop over all rows.
        """
        work = statements_in(part)
        if work >= LEAST_WORK:
            return first
        if loop is None or (loop.extent or 1) * work < LEAST_WORK:
            return known
        return tuple(
            row if arith.constant_value(before) is not None and _grows(row, loop.var) else before
            for row, before in zip(first, known, strict=True)
        )

    def _given(self, row: arith.IndexExpr, rows: CountedRows) -> tir.Comparison:
        """The condition that a run gives a row."""
        size = rows.size
        self.used.add(size)
        return tir.below_count(row, self.sizes[size])

    def _in_smaller_tiles(self, part: tir.Body, domain: arith.Domain) -> tir.Body:
        """Statements that compute a tile of rows, for as many of `_fewer_rows` as the run gives.

        Only where the tile may be the first one, or there are few: of many rows, few are saved by a
        smaller last one.
        """
        if statements_in(part) < LEAST_TILE:
            return part
        for rows in self.rows:
            tile = tile_of_rows(part, domain, rows.written_by(part, domain), self.outputs)
            if tile is None:
                continue
            is_one_of_many = rows.room > FEW_TILES * tile.extent * tile.step
            if is_one_of_many and arith.bounds(tile.base, domain.ranges())[0] != 0:
                continue
            least, *fewer = _fewer_rows(tile.extent)
            made = self._copy(tile.first(least), f"_{least}")
            for count in fewer:
                more = self._given(tile.base + least * tile.step, rows)
                made = (tir.If(more, self._copy(tile.first(count), f"_{count}"), made),)
                least = count
            return (tir.If(self._given(tile.base + least * tile.step, rows), part, made),)
        return part

    def _copy(self, part: tir.Body, suffix: str) -> tir.Body:
        """Statements under names of their own."""
        copy, names = fresh_copy(part, suffix, self.taken)
        self.taken.update(names.values())
        return copy

    def _inside(self, stmt: tir.Stmt, domain: arith.Domain, known: FirstRows) -> tir.Stmt:
        """A statement with conditions in its body."""
        match stmt:
            case tir.Block():
                return stmt.around(self.body(stmt.body, domain, known))
            case tir.For() if tir.matched_value(stmt) is not None:
                inner = domain.inside(stmt.var, stmt.start, stmt.stop)
                (test,) = stmt.body
                assert isinstance(test, tir.If)
                return stmt.around((replace(test, then=self.body(test.then, inner, known)),))
            case tir.For():
                inner = domain.inside(stmt.var, stmt.start, stmt.stop)
                if stmt.kind is tir.LoopKind.PARALLEL:
                    known = self._first_rows(stmt.body, inner, known)
                elif stmt.kind is not tir.LoopKind.SERIAL:
                    return stmt
                loop = stmt if stmt.kind is tir.LoopKind.SERIAL else None
                return stmt.around(self.body(stmt.body, inner, known, loop))
            case tir.If() if not tir.is_predicate(stmt.condition):
                then = self.body(stmt.then, domain, known)
                return replace(stmt, then=then, orelse=self.body(stmt.orelse, domain, known))
            case _:
                return stmt

    def _first_rows(self, part: tir.Body, domain: arith.Domain, known: FirstRows) -> FirstRows:
        """For each sized axis the row before which statements write none, or what is known."""
        found = []
        for rows, before in zip(self.rows, known, strict=True):
            row = first_row(rows.written_by(part, domain), domain)
            found.append(before if row is None else row)
        return tuple(found)


def _fewer_rows(extent: int) -> list[int]:
    """Powers of two, and one and a half times these: a run that ends in a tile computes at most a
    third more rows than it gives, and no more of one to four, six and eight."""
    counts = {times << k for k in range(extent.bit_length()) for times in (1, 3)}
    return sorted(count for count in counts if count < extent)


def _grows(row: arith.IndexExpr, var: arith.Var) -> bool:
    """Whether a row grows with a variable, so that a loop over it ends at a size."""
    step = dict(arith.terms_of(row)[0]).get(var, 0)
    return step > 0 and var not in arith.variables(row - var * step)


def first_row(written: Sequence[Written], outside: arith.Domain) -> arith.IndexExpr | None:
    """A row in variables of the domain outside, before which no row is proven to be written: the
    first row of one of the writes.  None if there is no such proof."""
    if not written:
        return None
    ranges, lowest = outside.ranges(), {axis.var: arith.const(0) for axis in outside.axes}
    found: dict[arith.IndexExpr, None] = {}
    for domain, row in written:
        starts: dict[arith.Var, arith.IndexExpr] = {}
        for axis in domain.axes[len(outside.axes) :]:
            starts[axis.var] = arith.substitute(axis.start, starts)
        found[arith.simplify_index(arith.substitute(row, starts), ranges)] = None
    first = min(found, key=lambda row: arith.constant_value(arith.substitute(row, lowest)) or 0)
    for domain, row in written:
        if not arith.prove(arith.at_most(first, row), domain).proven:
            return None
    return first


def statements_in(body: tir.Body) -> int:
    """How often statements of a body store or reduce, functions counted as so many of them;
    vectorized loops count as one iteration."""
    total = 0
    for stmt in body:
        if isinstance(stmt, tir.Store | tir.Reduce):
            total += 1 + sum(map(_function_work, tir.walk_expr(stmt.value)))
        elif isinstance(stmt, tir.For) and stmt.kind is not tir.LoopKind.VECTORIZED:
            total += (1 if stmt.extent is None else stmt.extent) * statements_in(stmt.body)
        else:
            total += sum(map(statements_in, tir.sub_bodies(stmt)))
    return total


def _function_work(expr: tir.Expr) -> int:
    """How many statements take as long as the outermost function of an expression."""
    if not isinstance(expr, tir.Unary):
        return 0
    if expr.op in tir.TRIGONOMETRIC:
        return TRIGONOMETRIC_FUNCTION
    return FUNCTION if expr.op in tir.ELEMENTARY else 0


class _Effects(Struct, frozen=True):
    """What a statement accesses, what it allocates for those behind it, and what it writes besides
    outputs and buffers of its own."""

    accessed: frozenset[tir.Buffer]
    allocated: frozenset[tir.Buffer]
    left: frozenset[tir.Buffer]
    gives: bool
    """Whether it writes an output."""

    @staticmethod
    def of(stmt: tir.Stmt, outputs: Collection[tir.Buffer]) -> _Effects:
        """The effects of a statement."""
        allocated = {s.buffer for s in tir.walk((stmt,)) if isinstance(s, tir.Allocate)}
        written = {write.buffer for write in tir.writes_in((stmt,))}
        loaded = {load.buffer for load in tir.loads_in((stmt,))}
        here = {stmt.buffer} if isinstance(stmt, tir.Allocate) else set()
        left = written.difference(outputs, allocated)
        accessed = frozenset(written | loaded | allocated)
        return _Effects(accessed, frozenset(here), frozenset(left), not written.isdisjoint(outputs))


def alone_parts(body: tir.Body, outputs: Collection[tir.Buffer]) -> Iterator[tuple[tir.Body, bool]]:
    """A body in parts of successive statements, and whether a part writes only outputs and what no
    other part accesses.

    There are as many parts that write outputs as that allows, and each has the statements before it
    whose results only it reads.
    """
    effects = [_Effects.of(stmt, outputs) for stmt in body]
    parts: list[tuple[int, int]] = []
    for number, effect in enumerate(effects):
        if effect.gives and not (parts and number < parts[-1][1]):
            begin, end = _closed(effects, number, number + 1)
            while parts and begin < parts[-1][1]:
                begin, end = _closed(effects, min(begin, parts.pop()[0]), end)
            parts.append((begin, end))
    done = 0
    for begin, end in parts:
        begin = _with_sources(effects, done, begin, end)
        if done < begin:
            yield body[done:begin], False
        yield body[begin:end], _is_alone(effects[begin:end])
        done = end
    if done < len(body):
        yield body[done:], False


def _closed(effects: Sequence[_Effects], begin: int, end: int) -> tuple[int, int]:
    """The fewest successive statements around some that have all accesses to what they leave."""
    while True:
        left = frozenset[tir.Buffer]().union(*(e.left | e.allocated for e in effects[begin:end]))
        using = [k for k, effect in enumerate(effects) if not left.isdisjoint(effect.accessed)]
        wider = min((begin, *using)), max((end - 1, *using)) + 1
        if wider == (begin, end):
            return wider
        begin, end = wider


def _with_sources(effects: Sequence[_Effects], first: int, begin: int, end: int) -> int:
    """Where a part begins that has the statements before it, from number `first` on, which write
    only what is allocated beside them and not accessed behind the part."""
    own = frozenset[tir.Buffer]().union(*(effect.allocated for effect in effects))
    own -= frozenset[tir.Buffer]().union(*(effect.accessed for effect in effects[end:]))
    while begin > first and effects[begin - 1].left | effects[begin - 1].allocated <= own:
        begin -= 1
    return begin


def _is_alone(effects: Sequence[_Effects]) -> bool:
    """Whether statements leave nothing that those behind them could read, besides outputs."""
    allocated = frozenset[tir.Buffer]().union(*(effect.allocated for effect in effects))
    return all(effect.left <= allocated for effect in effects)
