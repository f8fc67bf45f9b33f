"""Comparisons of two values in pairs of instances, as relations of integer sets.

In: two values (of an expression where a statement runs, or in an element where it is accessed) and
the pairs of instances in which to compare them.  Out: nothing where they are the same in every
pair, else `ValuesDiffer` with a verdict.  What always holds: a value is traced only through writes
that must have happened, and to the claims `x[…] == c` of assumptions until a write that may touch
the element ends them; what inputs hold before the kernel is arbitrary, and the same at every load.

Two values are the same if one instance of one statement left them, if one element of an input had
them before the kernel, or if expressions with the same operators compute them from operands that
are the same; constants are compared by bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, cast

import islpy as isl
from msgspec import Struct

from graphflow import arith, tir
from graphflow.effects.dataflow import reaching
from graphflow.effects.questions import point_of, point_text
from graphflow.effects.relations import Relations
from graphflow.effects.statements import Statement, StatementAccess

MOST_STEPS = 48
"""Comparisons of values for one question; beyond them it is UNKNOWN."""


class ComputedValue(Struct, frozen=True):
    """The value of an expression in an instance of a statement."""

    expr: tir.Expr
    statement: Statement
    loads: int = 0
    """How many loads of the statement come before those in the expression."""

    def __str__(self) -> str:
        return tir.expr_text(self.expr)

    def operands(self) -> tuple[ComputedValue, ...]:
        """The values of the expressions directly below, a condition on data included."""
        found: list[ComputedValue] = []
        loads = self.loads
        for expr in tir.children(self.expr):
            found.append(ComputedValue(expr, self.statement, loads))
            loads += sum(isinstance(node, tir.Load) for node in tir.walk_expr(expr))
        return tuple(found)


class HeldValue(Struct, frozen=True):
    """What an element holds when an instance of a statement reads or overwrites it."""

    access: StatementAccess

    @property
    def statement(self) -> Statement:
        return self.access.statement

    def __str__(self) -> str:
        return str(self.access)


class ReducedValue(Struct, frozen=True):
    """What an instance of a reduction leaves in its element."""

    access: StatementAccess

    @property
    def statement(self) -> Statement:
        return self.access.statement


class InitialValue(Struct, frozen=True):
    """What an element held before the kernel, where an instance of a statement reads it."""

    statement: Statement
    buffer: tir.Buffer
    elements: Any
    """An isl map from the instances to the elements."""


Value: TypeAlias = ComputedValue | HeldValue | ReducedValue | InitialValue


class ValuesDiffer(Exception):
    """Two values differ, or may differ, in some pair of instances."""

    def __init__(self, verdict: arith.Verdict, reason: str, witness: arith.Witness = ()) -> None:
        super().__init__(reason)
        self.verdict, self.reason, self.witness = verdict, reason, witness


def plain(pairs: Any) -> Any:
    """A map without the names of its tuples: all accesses of a statement have its instances."""
    for side in (isl.dim_type.in_, isl.dim_type.out):
        if pairs.has_tuple_id(side):
            pairs = pairs.reset_tuple_id(side)
    return pairs


class ValueComparison:
    """Comparisons of values in pairs of instances, a limited number of them."""

    def __init__(self, relations: Relations, context: Any) -> None:
        self.relations, self.context, self.left = relations, context, MOST_STEPS
        self.assumed = {a.access.buffer for a in relations.model.accesses if a.is_claim}
        """The buffers of which something is assumed; others may hold anything before the kernel."""

    def require_same(self, one: Value, other: Value, pairs: Any) -> None:
        """`ValuesDiffer` unless both values are the same for all pairs of their instances."""
        for first, here in self.resolved(one, pairs):
            for second, there in self.resolved(other, here.reverse()):
                self.left -= 1
                if self.left < 0:
                    self.unknown(f"not decided within {MOST_STEPS} comparisons", there)
                self.compare(first, second, there.reverse())

    def resolved(self, value: Value, pairs: Any) -> Iterator[tuple[Value, Any]]:
        """What a value is, by pieces of the pairs whose first instance has it."""
        match value:
            case ComputedValue(expr=tir.Load()):
                access = self.relations.model.made_by(value.statement)[value.loads]
                yield from self.contents(access, pairs)
            case ComputedValue(expr=tir.Select(condition=condition)) if tir.is_predicate(condition):
                yield from self.sides(value, cast(arith.Predicate, condition), pairs)
            case HeldValue():
                yield from self.contents(value.access, pairs)
            case _:
                yield value, pairs

    def sides(
        self, value: ComputedValue, condition: arith.Predicate, pairs: Any
    ) -> Iterator[tuple[Value, Any]]:
        """The sides of a select, each with the pairs in which it is taken."""
        names = ", ".join(arith.isl_name(axis.var) for axis in value.statement.domain.axes)
        for side, where in zip(
            value.operands(), (condition, arith.negation(condition)), strict=True
        ):
            taken = arith.isl_constraints(arith.Domain((), where))
            text = f"{self.relations.parameters}{{ [{names}] : {taken} }}"
            here = pairs.intersect_domain(isl.Set.read_from_str(self.context, text))
            if not here.is_empty():
                yield from self.resolved(side, here)

    def contents(self, access: StatementAccess, pairs: Any) -> Iterator[tuple[Value, Any]]:
        """The values that were written last where an access reads, or the initial contents."""
        buffer = access.access.buffer
        flow = reaching(self.relations, self.context, buffer, access, facts=True)
        missing = pairs
        for edge in flow.must:
            seen = plain(edge.pairs)
            missing = missing.subtract_domain(seen.range())
            here = seen.apply_range(pairs)
            if not here.is_empty():
                yield from self.resolved(_left_by(edge.source), here)
        if flow.must_initial is not None:
            elements = flow.must_initial.reset_tuple_id(isl.dim_type.in_)
            here = missing.intersect_domain(elements.domain())
            missing = missing.subtract(here)
            if not here.is_empty():
                yield InitialValue(access.statement, buffer, elements), here
        self.unknown(f"data decide what {access} holds", missing)

    def compare(self, one: Value, other: Value, pairs: Any) -> None:
        """`ValuesDiffer` unless two resolved values are the same for all pairs."""
        match one, other:
            case InitialValue(), InitialValue():
                if one.buffer == other.buffer:
                    pairs = pairs.subtract(one.elements.apply_range(other.elements.reverse()))
                if not {one.buffer, other.buffer} & self.assumed:
                    self.different(one, other, "two elements may differ", pairs)
                self.unknown(
                    f"nothing is known of {one.buffer.name} and {other.buffer.name}", pairs
                )
            case (InitialValue() as initial, ComputedValue(expr=tir.Literal())) | (
                ComputedValue(expr=tir.Literal()),
                InitialValue() as initial,
            ):
                if initial.buffer not in self.assumed:
                    self.different(one, other, f"{initial.buffer.name} may hold anything", pairs)
                self.unknown(f"nothing is known of {initial.buffer.name}", pairs)
            case ReducedValue(), ReducedValue() if one.access is other.access:
                self.unknown("two iterations reduced differently", _moved(pairs))
            case ComputedValue(), ComputedValue():
                self.computed(one, other, pairs)
            case _:
                self.unknown("they come from different places", pairs)

    def computed(self, one: ComputedValue, other: ComputedValue, pairs: Any) -> None:
        """The same, for expressions that are no loads."""
        if one.statement is other.statement and one.expr is other.expr:
            pairs = _moved(pairs)
            if pairs.is_empty():
                return
        match tir.constant_of(one.expr) or one.expr, tir.constant_of(other.expr) or other.expr:
            case (tir.Literal() as left, tir.Literal() as right):
                if left != right:
                    self.different(one, other, f"{left.value} is not {right.value}", pairs)
            case (tir.IndexValue() as value, tir.IndexValue() as again) if (
                value.dtype == again.dtype
            ):
                differ = pairs.subtract(self.equal_indices(one, value.index, other, again.index))
                reason = f"{value.index} and {again.index} differ"
                if value.dtype == "int64":  # others wrap around
                    self.different(one, other, reason, differ)
                self.unknown(reason, differ)
            case (
                (tir.Unary(op=left), tir.Unary(op=right))
                | (tir.Binary(op=left), tir.Binary(op=right))
                | (tir.Comparison(op=left), tir.Comparison(op=right))
                | (tir.Cast(dtype=left), tir.Cast(dtype=right))
            ) if left == right:
                self.operands(one, other, pairs)
            case tir.Select(), tir.Select():  # on data: others are resolved
                self.operands(one, other, pairs)
            case _:
                self.unknown("they are computed differently", pairs)

    def operands(self, one: ComputedValue, other: ComputedValue, pairs: Any) -> None:
        """`ValuesDiffer` unless all operands are the same; that they differ refutes nothing."""
        try:
            for left, right in zip(one.operands(), other.operands(), strict=True):
                self.require_same(left, right, pairs)
        except ValuesDiffer as found:
            raise ValuesDiffer(arith.Verdict.UNKNOWN, found.reason) from None

    def equal_indices(
        self,
        one: ComputedValue,
        left: arith.IndexExpr,
        other: ComputedValue,
        right: arith.IndexExpr,
    ) -> Any:
        """The pairs of instances in which two index expressions are equal."""
        copy, fresh = arith.Domain(other.statement.domain.axes).renamed("'")
        ins = ", ".join(arith.isl_name(axis.var) for axis in one.statement.domain.axes)
        outs = ", ".join(arith.isl_name(axis.var) for axis in copy.axes)
        where = arith.Domain((), arith.equal(left, arith.substitute(right, fresh)))
        text = (
            f"{self.relations.parameters}{{ [{ins}] -> [{outs}] : {arith.isl_constraints(where)} }}"
        )
        return isl.Map.read_from_str(self.context, text)

    def different(self, one: Value, other: Value, reason: str, pairs: Any) -> None:
        """Raises a difference that is certain in each of the pairs, if there are any."""
        if not pairs.is_empty():
            names = [axis.var.name for axis in one.statement.domain.axes]
            primed = [f"{axis.var.name}'" for axis in other.statement.domain.axes]
            witness = tuple(zip((*names, *primed), point_of(pairs), strict=True))
            text = f"{reason} at {point_text(witness)}"
            raise ValuesDiffer(arith.Verdict.REFUTED, text, witness)

    def unknown(self, reason: str, pairs: Any) -> None:
        """Raises a difference that may be, if there are any pairs."""
        if not pairs.is_empty():
            raise ValuesDiffer(arith.Verdict.UNKNOWN, reason)


def _left_by(source: StatementAccess) -> Value:
    """What a write leaves in its element, or an assumption says of it."""
    match source.statement.stmt:
        case tir.Store() as stmt:
            return ComputedValue(stmt.value, source.statement)
        case tir.Assume(claim=tir.Comparison(right=literal)):
            return ComputedValue(literal, source.statement)
        case _:
            return ReducedValue(source)


def _moved(pairs: Any) -> Any:
    """The pairs of different instances of one statement."""
    return pairs.subtract(isl.Map.identity(pairs.get_space()))
