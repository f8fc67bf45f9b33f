"""Which elements of a buffer a kernel touches, and under which condition.

In: a kernel and a buffer.  Out: for each access its indices, the points at which it is made with
the conditions on indices and on data, and the set of elements; for reads and for writes, the set of
all of them.  `str` of the result is for people.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import islpy as isl
from msgspec import Struct

from graphflow import arith, tir
from graphflow.effects.relations import TooLarge, relations_of
from graphflow.effects.statements import StatementAccess

_MOST_TEXT = 400
"""Characters of a set beyond which only its box is shown."""


class TouchedByAccess(Struct, frozen=True):
    """The elements that one access touches: `indices` at the points of `domain`."""

    kind: tir.AccessKind
    indices: tuple[arith.IndexExpr, ...]
    domain: arith.Domain
    """The loops around the access, and the condition on indices under which it is made."""
    guards: tuple[tir.Expr, ...]
    """The conditions on data under which it is made; without any, and if `certain`, it must be."""
    certain: bool
    stage: str
    """The innermost block around it, or the empty text."""

    def __str__(self) -> str:
        where = str(self.domain) or "once"
        guards = "".join(f", if {tir.expr_text(guard)}" for guard in self.guards)
        may = "" if self.certain or self.guards else ", where data decide"
        stage = f" in {self.stage}" if self.stage else ""
        return f"[{', '.join(map(str, self.indices))}]{stage} for {where}{guards}{may}"


class TouchedElements(Struct, frozen=True):
    """The elements that accesses touch together."""

    box: tuple[tuple[int, int], ...] | None
    """The smallest box around them, ends excluded; None where there are none, or if unknown."""
    count: int | None
    """How many they are; None if unknown."""
    text: str
    """The set of them by the indices `i0`, `i1`, …, in isl's terms."""

    def __str__(self) -> str:
        if self.count == 0 or self.box is None:
            return self.text
        box = ", ".join(f"{low}:{stop}" for low, stop in self.box)
        number = "" if self.count is None else f", {self.count} elements"
        return f"[{box}]{number}: {self.text}"


class DomainTouched(Struct, frozen=True):
    """What a kernel reads and writes of one buffer."""

    buffer: tir.Buffer
    accesses: tuple[TouchedByAccess, ...]
    read: TouchedElements
    """What loads may read; the target of a reduction is among `written`."""
    written: TouchedElements
    """What stores and reductions may write."""
    must_write: TouchedElements
    """What they write for all data."""

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.buffer.shape))
        lines = [f"{self.buffer.name} {self.buffer.dtype}[{shape}]"]
        for title, reads, elements in (
            ("read", True, self.read),
            ("written", False, self.written),
        ):
            lines.append(f"  {title}: {elements}")
            for access in self.accesses:
                if (access.kind is tir.AccessKind.READ) is reads:
                    lines.append(f"    {access}")
        if self.must_write != self.written:
            lines.append(f"  written for all data: {self.must_write}")
        return "\n".join(lines)


def domain_touched(func: tir.PrimFunc, buffer: tir.Buffer) -> DomainTouched:
    """What a kernel reads and writes of a buffer, with the conditions under which it does.

    Claims of assumptions are no accesses.  For a buffer that is allocated inside of loops, the
    elements are those of any copy.
    """
    found = [a for a in relations_of(func).model.of(buffer) if not a.is_claim]
    reads = [a for a in found if not a.access.writes]
    writes = [a for a in found if a.access.writes]
    return DomainTouched(
        buffer,
        tuple(_of(func, a) for a in found),
        _elements(func, buffer, reads),
        _elements(func, buffer, writes),
        _elements(func, buffer, [a for a in writes if a.access.certain]),
    )


def _of(func: tir.PrimFunc, access: StatementAccess) -> TouchedByAccess:
    around = relations_of(func).model.statements
    stages = [
        s.stmt.name for s in around if isinstance(s.stmt, tir.Block) and s.holds(access.statement)
    ]
    one = access.access
    return TouchedByAccess(
        one.kind,
        one.indices,
        one.domain,
        access.statement.guards,
        one.certain,
        stages[-1] if stages else "",
    )


def _elements(
    func: tir.PrimFunc, buffer: tir.Buffer, found: Sequence[StatementAccess]
) -> TouchedElements:
    if not found:
        return TouchedElements(None, 0, "nothing")
    relations = relations_of(func)
    try:
        relations.limited(buffer)
        with arith.IslBudget() as context:
            every: Any = None
            for access in found:
                elements = relations.elements(context, access).range()
                elements = elements.project_out(isl.dim_type.set, 0, len(access.copies))
                elements = elements.reset_tuple_id() if elements.has_tuple_id() else elements
                every = elements if every is None else every.union(elements)
            return _described(every.coalesce())
    except TooLarge as error:
        return TouchedElements(None, None, f"unknown: {error}")
    except isl.Error as error:
        if not arith.out_of_budget(error):
            raise
        return TouchedElements(None, None, "unknown: not decided within the operation limit")


def _described(elements: Any) -> TouchedElements:
    if elements.is_empty():
        return TouchedElements(None, 0, "nothing")
    rank = elements.dim(isl.dim_type.set)
    sides = tuple(
        (
            arith.integer_of(elements.dim_min_val(axis)),
            arith.integer_of(elements.dim_max_val(axis)) + 1,
        )
        for axis in range(rank)
    )
    for axis in range(rank):
        elements = elements.set_dim_name(isl.dim_type.set, axis, f"i{axis}")
    text = re.sub(r"\s+", " ", elements.to_str())
    if len(text) > _MOST_TEXT:
        text = "a set of many pieces"
    count = elements.count_val()
    return TouchedElements(sides, arith.integer_of(count) if count.is_int() else None, text)
