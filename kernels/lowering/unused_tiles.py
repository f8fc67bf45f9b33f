"""Tiles of registers of which a run uses nothing, and conditions around what computes them.

In: a lowered kernel with conditions on counts around what is made of its register tiles.  Out: the
kernel in which a tile is not computed where none of these conditions holds:

    t = alloc(4, register)                       t = alloc(4, register)
    for k in serial(0, 64):                      if 4*j < count:
        for u in unrolled(0, 4): t[u] += …           for k in serial(0, 64):
    for u in unrolled(0, 4):               →             for u in unrolled(0, 4): t[u] += …
        if 4*j + u < count: y[4*j + u] = t[u]        for u in unrolled(0, 4):
                                                         if 4*j + u < count: y[4*j + u] = t[u]

What always holds: a statement that is left out writes nothing but registers that nothing reads.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from graphflow import arith, tir
from graphflow.kernels.lowering.sized_rows import at_starts
from graphflow.kernels.lowering.unread_rows import CountedStatement, counted_statements


def with_conditions_on_tiles(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel with conditions around tiles of which a run uses nothing."""
    counts = {p.buffer for p in func.params if p.role is tir.Role.INPUT and p.buffer.shape == ()}
    if not counts:
        return func
    if any(isinstance(stmt, tir.Let | tir.NamedWindow) for stmt in tir.walk(func.body)):
        return func
    return func.around(_TileConditions(counts).body(func.body, arith.ANYWHERE))


class _TileConditions(Struct, frozen=True):
    """Puts conditions on `counts` around tiles."""

    counts: Collection[tir.Buffer]

    def body(self, body: tir.Body, domain: arith.Domain) -> tir.Body:
        """A body that runs at the points of a domain, with conditions."""
        made: list[tir.Stmt] = []
        place = 0
        while place < len(body):
            stmt = body[place]
            behind = self._behind(body, place)
            span = body[place + 1 : behind]
            test = self._test(stmt, span, domain)
            if test is not None:
                made += [stmt, tir.If(test, span)]
                place = behind
                continue
            made.append(self._inside(stmt, domain))
            place += 1
        same = len(made) == len(body) and all(a is b for a, b in zip(made, body, strict=True))
        return body if same else tuple(made)

    def _inside(self, stmt: tir.Stmt, domain: arith.Domain) -> tir.Stmt:
        match stmt:
            case tir.For() if stmt.kind in (tir.LoopKind.SERIAL, tir.LoopKind.PARALLEL):
                domain = domain.inside(stmt.var, stmt.start, stmt.stop)
            case tir.Block():
                pass
            case _:
                return stmt
        return stmt.around(self.body(stmt.body, domain))

    def _behind(self, body: tir.Body, place: int) -> int:
        """Where the statements end that use the registers which are allocated at a place, and each
        of which does; the place behind the allocation where there are others between."""
        first = body[place]
        if not isinstance(first, tir.Allocate) or first.buffer.scope != "register":
            return place + 1
        end = place + 1
        while end < len(body) and _uses(body[end], first.buffer):
            end += 1
        used_later = any(_uses(stmt, first.buffer) for stmt in body[end:])
        return place + 1 if used_later else end

    def _test(
        self, allocation: tir.Stmt, span: tir.Body, domain: arith.Domain
    ) -> tir.Comparison | None:
        """The condition without which the statements of a tile write nothing but its registers."""
        own = {s.buffer for s in tir.walk((allocation, *span)) if isinstance(s, tir.Allocate)}
        writes = [
            counted
            for counted in counted_statements(span, domain, self.counts)
            if isinstance(counted.stmt, tir.Store | tir.Reduce) and counted.stmt.buffer not in own
        ]
        for count, rows in writes[0].below.items() if writes else ():
            for row in rows:
                first = at_starts(row, writes[0].domain, len(domain.axes))
                if all(_is_below(first, write, count) for write in writes):
                    return tir.below_count(first, count)
        return None


def _is_below(first: arith.IndexExpr, write: CountedStatement, count: tir.Buffer) -> bool:
    """Whether it is proven that the row `first` is below a count where a statement runs."""
    rows = write.below.get(count, ())
    return any(arith.prove(arith.at_most(first, row), write.domain).proven for row in rows)


def _uses(stmt: tir.Stmt, buffer: tir.Buffer) -> bool:
    if any(access.buffer == buffer for access in tir.accesses((stmt,))):
        return True
    return any(load.buffer == buffer for load in tir.loads_in((stmt,)))
