"""Dependences between statements of a kernel, and those that a loop carries.

In: a kernel, and the paths of statements.  Out: a proof that there is no dependence; where it is
refuted, the witness has two instances that touch one element, the later one primed, and for a loop
the reason has the distance between them.

Instances depend on each other if they touch the same element and at least one writes it; reductions
with the same operator do not, for they commute by declaration.  Dependences are those of memory:
a write in between does not end them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import islpy as isl

from graphflow.arith import Proof, Verdict, Witness
from graphflow.effects.questions import METHOD, point_of, point_text
from graphflow.effects.relations import Relations, answered, relations_of
from graphflow.effects.statements import Path, Statement, StatementAccess
from graphflow.tir import AccessKind, For, PrimFunc

_IN, _OUT = isl.dim_type.in_, isl.dim_type.out


def no_dependence(func: PrimFunc, earlier: Path, later: Path) -> Proof:
    """Whether no instance of the second statement depends on an earlier one of the first.

    The statements count with all inside them; they may be the same, or one inside the other.
    """
    relations = relations_of(func)
    first, second = relations.model.at(earlier), relations.model.at(later)
    claim = f"{second.title} does not depend on {first.title}"
    return answered(claim, lambda context: _first_open(relations, context, first, second, claim))


def no_carried_dependence(func: PrimFunc, path: Path) -> Proof:
    """Whether no iteration of the loop at `path` depends on an earlier one.

    Then its iterations may run in any order.  ValueError if it is no loop.
    """
    relations = relations_of(func)
    loop = relations.model.at(path)
    if not isinstance(loop.stmt, For):
        raise ValueError(f"statement {loop.number} of {func.name} is no loop")
    claim = f"the loop {loop.stmt.var} carries no dependence"
    level = len(loop.loops)
    return answered(
        claim, lambda context: _first_open(relations, context, loop, loop, claim, level)
    )


def _first_open(
    relations: Relations,
    context: Any,
    first: Statement,
    second: Statement,
    claim: str,
    level: int | None = None,
) -> Proof:
    """The answer; with a `level`, about pairs that the loop at this depth carries."""
    reason = ""
    for a, b in _conflicts(relations, first, second):
        pairs = _touching(relations, context, a, b, level)
        if pairs.is_empty():
            continue
        witness = _witness(a, b, point_of(pairs))
        count = len(a.domain.axes)
        here, there = point_text(witness[:count]), point_text(witness[count:])
        text = f"{a} at {here} and {b} at {there} are one element"
        if level is not None:
            text += f" (distance {witness[count + level][1] - witness[level][1]})"
        if a.access.certain and b.access.certain:
            return Proof(Verdict.REFUTED, claim, METHOD, text, witness)
        reason = reason or f"where data decide, {text}"
    verdict = Verdict.UNKNOWN if reason else Verdict.PROVEN
    return Proof(verdict, claim, METHOD, reason)


def _conflicts(
    relations: Relations, first: Statement, second: Statement
) -> Iterator[tuple[StatementAccess, StatementAccess]]:
    """Pairs of accesses to one buffer, one in each statement, of which one writes."""
    ones = _inside(relations, first)
    others = _inside(relations, second)
    for a in ones:
        relations.limited(a.access.buffer)
        for b in others:
            if a.access.buffer != b.access.buffer or not (a.access.writes or b.access.writes):
                continue
            if a.access.kind is b.access.kind is AccessKind.REDUCE and a.access.op is b.access.op:
                continue
            yield a, b


def _inside(relations: Relations, statement: Statement) -> Sequence[StatementAccess]:
    return [a for a in relations.model.accesses if statement.holds(a.statement)]


def _touching(
    relations: Relations, context: Any, a: StatementAccess, b: StatementAccess, level: int | None
) -> Any:
    """The pairs of an instance of a and a later one of b that access the same element.

    With a `level`, the first of their time stamps that differs is that of the loop at this depth.
    """
    elements = relations.elements(context, a)
    pairs = elements.apply_range(relations.elements(context, b).reverse())
    if pairs.is_empty():
        return pairs
    if level is None:
        earlier = relations.times(context, a, reading=not a.access.writes)
        later = relations.times(context, b, reading=not b.access.writes)
        return pairs.intersect(earlier.lex_lt_map(later))
    for axis in range(level):
        pairs = pairs.equate(_IN, axis, _OUT, axis)
    return pairs.order_lt(_IN, level, _OUT, level)


def _witness(a: StatementAccess, b: StatementAccess, values: tuple[int, ...]) -> Witness:
    earlier = (axis.var.name for axis in a.domain.axes)
    later = (f"{axis.var.name}'" for axis in b.domain.axes)
    return tuple(zip((*earlier, *later), values, strict=True))
