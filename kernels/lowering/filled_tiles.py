"""Tiles of an output that are computed only where a count includes some of their rows.

In: a lowered kernel that writes a constant behind a count, `y[row, …] = select(row < count, value,
constant)`.  Out: the kernel with a condition on the count around tiles of rows:

    for t in serial(0, 9):            for t in serial(0, 9):
        (compute a tile)         →        if 14*t < count: (compute a tile)
        y[14*t + i] = select(…)           else: y[14*t + i] = constant

What always holds: each element of an output that the kernel wrote is written, with the same value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.fields import replace
from graphflow.kernels.lowering.count_masks import count_masks, outermost_mask
from graphflow.kernels.lowering.size_conditions import (
    LEAST_TILE,
    alone_parts,
    first_row,
    statements_in,
)
from graphflow.kernels.lowering.sized_rows import Written
from graphflow.schedule import fresh_copy, names_of_places


def with_filled_tiles(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel with conditions around tiles that are constant behind a count."""
    outputs = {p.buffer for p in func.params if p.role is not tir.Role.INPUT}
    counts = {p.buffer for p in func.params if p.role is tir.Role.INPUT and p.buffer.shape == ()}
    masked = any(
        isinstance(write, tir.Store) and outermost_mask(write.value, counts) is not None
        for write in tir.writes_in(func.body)
        if write.buffer in outputs
    )
    if not masked or any(load.buffer in outputs for load in tir.loads_in(func.body)):
        return func
    taken = {*names_of_places(func)}
    body = _with_masks_together(func.body, counts)
    return func.around(_Tiles(outputs, counts, taken).body(body, arith.ANYWHERE, frozenset()))


def _behind(value: tir.Expr, count: tir.Buffer) -> tir.Expr:
    """A value with masks where the row of that of `count` is at or behind the count."""
    mask = outermost_mask(value, (count,))
    if mask is not None:
        return mask.fill
    assert isinstance(value, tir.Select), "the count masks the value"
    return replace(value, if_true=_behind(value.if_true, count))


def _with_masks_together(body: tir.Body, counts: Collection[tir.Buffer]) -> tir.Body:
    """Statements in which a value with a mask is stored as it is where it would be loaded in the
    same body; the intermediates that nothing loads any more are gone."""
    made = _nested(body, counts)
    if made is body:
        return body
    kept = {load.buffer for load in tir.loads_in(made)}
    kept |= {window.buffer for window in tir.windows_in(made)}
    gone = {load.buffer for load in tir.loads_in(body)} - kept
    gone &= {stmt.buffer for stmt in tir.walk(body) if isinstance(stmt, tir.Allocate)}

    def without(stmt: tir.Stmt) -> tir.Body:
        is_gone = isinstance(stmt, tir.Allocate | tir.Store) and stmt.buffer in gone
        return () if is_gone else (stmt,)

    return tir.map_body(made, without)


def _nested(body: tir.Body, counts: Collection[tir.Buffer]) -> tir.Body:
    held: dict[tuple[tir.Buffer, tuple[arith.IndexExpr, ...]], tir.Expr] = {}
    made: list[tir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tir.Store):
            stmt = _with_held(stmt, held, counts)
        elif isinstance(stmt, tir.For | tir.Block):
            stmt = stmt.around(_nested(stmt.body, counts))
        elif isinstance(stmt, tir.If):
            then, orelse = _nested(stmt.then, counts), _nested(stmt.orelse, counts)
            if then is not stmt.then or orelse is not stmt.orelse:
                stmt = replace(stmt, then=then, orelse=orelse)
        written = {write.buffer for write in tir.writes_in((stmt,))}
        for (buffer, indices), value in list(held.items()):
            if buffer in written or any(e.buffer in written for e in _loads(value)):
                del held[buffer, indices]
        if isinstance(stmt, tir.Store) and outermost_mask(stmt.value, counts):
            held[stmt.buffer, stmt.indices] = stmt.value
        made.append(stmt)
    same = all(new is old for new, old in zip(made, body, strict=True))
    return body if same else tuple(made)


def _with_held(
    store: tir.Store,
    held: Mapping[tuple[tir.Buffer, tuple[arith.IndexExpr, ...]], tir.Expr],
    counts: Collection[tir.Buffer],
) -> tir.Store:
    """A store of a masked element with the value that it was given just before."""
    masks = [*count_masks(store.value, counts)]
    if not masks or not isinstance(load := masks[-1].value, tir.Load):
        return store
    value = held.get((load.buffer, load.indices))
    if value is None:
        return store
    for mask in reversed(masks):
        value = tir.kept_below_count(mask.row, mask.count, value, mask.fill)
    return replace(store, value=value)


def _loads(value: tir.Expr) -> Iterator[tir.Load]:
    return (e for e in tir.walk_expr(value) if isinstance(e, tir.Load))


class _Tiles(Struct, frozen=True):
    """Puts conditions around the tiles of one kernel."""

    outputs: Collection[tir.Buffer]
    counts: Collection[tir.Buffer]
    taken: set[str]

    def body(self, body: tir.Body, domain: arith.Domain, known: frozenset[tir.Buffer]) -> tir.Body:
        """A body that runs at the points of a domain, with conditions; it is inside of conditions
        on the counts `known`."""
        made: list[tir.Stmt] = []
        for part, alone in alone_parts(body, self.outputs):
            found = self._condition(part, domain, known) if alone else None
            if found is None:
                made += [self._inside(stmt, domain, known) for stmt in part]
                continue
            count, condition = found
            fills, names = fresh_copy(self._fills(part, count), "_fill", self.taken)
            self.taken.update(names.values())
            made.append(tir.If(condition, self.body(part, domain, known | {count}), fills))
        same = len(made) == len(body) and all(a is b for a, b in zip(made, body, strict=True))
        return body if same else tuple(made)

    def _inside(
        self, stmt: tir.Stmt, domain: arith.Domain, known: frozenset[tir.Buffer]
    ) -> tir.Stmt:
        match stmt:
            case tir.Block():
                inner = self.body(stmt.body, domain, known)
            case tir.For() if tir.matched_value(stmt) is None and stmt.kind in (
                tir.LoopKind.SERIAL,
                tir.LoopKind.PARALLEL,
            ):
                within = domain.inside(stmt.var, stmt.start, stmt.stop)
                inner = self.body(stmt.body, within, known)
            case tir.If() if not stmt.orelse and not tir.is_predicate(stmt.condition):
                inner = self.body(stmt.then, domain, known)
                return stmt if inner is stmt.then else replace(stmt, then=inner)
            case _:
                return stmt
        return stmt.around(inner)

    def _condition(
        self, part: tir.Body, domain: arith.Domain, known: frozenset[tir.Buffer]
    ) -> tuple[tir.Buffer, tir.Comparison] | None:
        """A count, and the condition without which a part writes constants alone, if it is a tile
        of rows that the count is of."""
        if statements_in(part) < LEAST_TILE:
            return None
        if any(loop.kind is tir.LoopKind.PARALLEL for loop in tir.loops_of(part)):
            return None
        rows: dict[tir.Buffer, list[Written]] | None = None
        for site in tir.sites(part, domain):
            if isinstance(site.stmt, tir.Store | tir.Reduce) and site.stmt.buffer in self.outputs:
                masks = (
                    []
                    if isinstance(site.stmt, tir.Reduce)
                    else count_masks(site.stmt.value, self.counts)
                )
                own = {mask.count: (site.domain, mask.row) for mask in masks}
                if rows is None:
                    rows = {count: [] for count in own if count not in known}
                rows = {count: [*of, own[count]] for count, of in rows.items() if count in own}
        for count, written in (rows or {}).items():
            first = first_row(written, domain)
            if first is None or arith.constant_value(first) == 0:
                continue
            if not self._has_tiles(part, written):
                return count, tir.below_count(first, count)
        return None

    def _has_tiles(self, part: tir.Body, rows: Sequence[Written]) -> bool:
        """Whether there are loops inside over parts that may have conditions of their own, as their
        rows are others in each iteration."""
        counted = {var for _, row in rows for var in arith.variables(row)}
        return any(
            loop.kind is tir.LoopKind.SERIAL and loop.var in counted
            for loop in tir.loops_of(part)
            if any(write.buffer in self.outputs for write in tir.writes_in(loop.body))
        )

    def _fills(self, body: tir.Body, count: tir.Buffer) -> tir.Body:
        """The stores of outputs alone, of what stands behind the count."""
        made: list[tir.Stmt] = []
        for stmt in body:
            if isinstance(stmt, tir.Store) and stmt.buffer in self.outputs:
                made.append(replace(stmt, value=_behind(stmt.value, count)))
            elif isinstance(stmt, tir.For):
                inner = self._fills(stmt.body, count)
                made += [stmt.around(inner)] if inner else []
            elif isinstance(stmt, tir.Block):
                made += self._fills(stmt.body, count)
            elif isinstance(stmt, tir.If):
                then, orelse = (self._fills(side, count) for side in (stmt.then, stmt.orelse))
                made += [replace(stmt, then=then, orelse=orelse)] if then or orelse else []
        return tuple(made)
