"""Tiles of an output that are computed only where a count includes some of their rows.

In: a lowered kernel that writes a constant behind a count, `y[row, …] = select(row < count, value,
constant)`.  Out: the kernel with a condition on the count around tiles of rows:

    for t in serial(0, 9):            for t in serial(0, 9):
        (compute a tile)         →        if 14*t < count: (compute a tile)
        y[14*t + i] = select(…)           else: y[14*t + i] = constant

What always holds: each element of an output that the kernel wrote is written, with the same value.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from graphflow import arith, tir
from graphflow.kernels.lowering.size_conditions import (
    LEAST_TILE,
    alone_parts,
    first_row,
    statements_in,
)
from graphflow.schedule import declared_names, fresh_copy


def with_filled_tiles(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel with conditions around tiles that are constant behind a count."""
    outputs = {p.buffer for p in func.params if p.role is not tir.Role.INPUT}
    counts = {p.buffer for p in func.params if p.role is tir.Role.INPUT and p.buffer.shape == ()}
    masked = any(
        isinstance(write, tir.Store) and _mask(write, counts) is not None
        for write in tir.writes_in(func.body)
        if write.buffer in outputs
    )
    if not masked or any(load.buffer in outputs for load in tir.loads_in(func.body)):
        return func
    taken = {*declared_names(func.body), *(param.buffer.name for param in func.params)}
    body = _Tiles(outputs, counts, taken).body(func.body, arith.ANYWHERE)
    return func if body is func.body else replace(func, body=body)


@dataclass(frozen=True, slots=True)
class _RowMask:
    """A store writes something else than `fill` only where `row` is below a count."""

    count: tir.Buffer
    row: arith.IndexExpr
    fill: tir.Literal


def _mask(store: tir.Store, counts: Collection[tir.Buffer]) -> _RowMask | None:
    match store.value:
        case tir.Select(
            tir.Comparison("lt", tir.IndexValue(row), tir.Load(count, ())), _, tir.Literal() as fill
        ) if count in counts:
            return _RowMask(count, row, fill)
    return None


@dataclass(frozen=True, slots=True)
class _Tiles:
    """Puts conditions around the tiles of one kernel."""

    outputs: Collection[tir.Buffer]
    counts: Collection[tir.Buffer]
    taken: set[str]

    def body(self, body: tir.Body, domain: arith.Domain) -> tir.Body:
        """A body that runs at the points of a domain, with conditions."""
        made: list[tir.Stmt] = []
        for part, alone in alone_parts(body, self.outputs):
            found = self._condition(part, domain) if alone else None
            if found is None:
                made += [self._inside(stmt, domain) for stmt in part]
            else:
                fills, names = fresh_copy(self._fills(part), "_fill", self.taken)
                self.taken.update(names.values())
                made.append(tir.If(found, part, fills))
        same = len(made) == len(body) and all(a is b for a, b in zip(made, body, strict=True))
        return body if same else tuple(made)

    def _inside(self, stmt: tir.Stmt, domain: arith.Domain) -> tir.Stmt:
        match stmt:
            case tir.Block():
                inner = self.body(stmt.body, domain)
            case tir.For() if tir.matched_value(stmt) is None and stmt.kind in (
                tir.LoopKind.SERIAL,
                tir.LoopKind.PARALLEL,
            ):
                inner = self.body(stmt.body, domain.inside(stmt.var, stmt.start, stmt.stop))
            case _:
                return stmt
        return stmt if inner is stmt.body else stmt.around(inner)

    def _condition(self, part: tir.Body, domain: arith.Domain) -> tir.Comparison | None:
        """The condition without which a part writes constants alone, if it is a tile."""
        if statements_in(part) < LEAST_TILE:
            return None
        if any(loop.kind is tir.LoopKind.PARALLEL for loop in tir.loops_of(part)):
            return None
        rows: list[tuple[arith.Domain, arith.IndexExpr]] = []
        counts: set[tir.Buffer] = set()
        for site in tir.sites(part, domain):
            if isinstance(site.stmt, tir.Store | tir.Reduce) and site.stmt.buffer in self.outputs:
                mask = _mask(site.stmt, self.counts) if isinstance(site.stmt, tir.Store) else None
                if mask is None:
                    return None
                rows.append((site.domain, mask.row))
                counts.add(mask.count)
        first = first_row(rows, domain) if len(counts) == 1 else None
        if first is None or arith.constant_value(first) == 0 or self._has_tiles(part):
            return None
        return tir.Comparison("lt", tir.IndexValue(first), tir.Load(counts.pop(), ()))

    def _has_tiles(self, part: tir.Body) -> bool:
        """Whether there are loops inside over parts that may have conditions of their own."""
        return any(
            loop.kind is tir.LoopKind.SERIAL
            for loop in tir.loops_of(part)
            if any(write.buffer in self.outputs for write in tir.writes_in(loop.body))
        )

    def _fills(self, body: tir.Body) -> tir.Body:
        """The stores of outputs alone, of what stands behind the count."""
        made: list[tir.Stmt] = []
        for stmt in body:
            if isinstance(stmt, tir.Store) and stmt.buffer in self.outputs:
                mask = _mask(stmt, self.counts)
                assert mask is not None
                made.append(replace(stmt, value=mask.fill))
            elif isinstance(stmt, tir.For):
                inner = self._fills(stmt.body)
                made += [stmt.around(inner)] if inner else []
            elif isinstance(stmt, tir.Block):
                made += self._fills(stmt.body)
            elif isinstance(stmt, tir.If):
                then, orelse = self._fills(stmt.then), self._fills(stmt.orelse)
                made += [replace(stmt, then=then, orelse=orelse)] if then or orelse else []
        return tuple(made)
