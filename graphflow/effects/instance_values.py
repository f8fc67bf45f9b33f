"""What single instances of statements read, write and overwrite, as numbers of values.

In: a kernel, and an instance: the values of the loop variables around a statement.  Out: the number
of a value (`value_numbers`).  What always holds: a load is traced to the write that left its
element, the last one of all writes to it that come before; where data decide which one that is,
where an expression is undefined, and where there are more than `MOST_WRITES` of them, `Untraceable`
says so.

Only the elements in question are looked at, so that the costs do not depend on the extents of
loops, but on how many writes the values passed through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, assert_never, cast

import islpy as isl

from graphflow import arith, tir
from graphflow.effects.dataflow import states_constant
from graphflow.effects.questions import METHOD, point_text
from graphflow.effects.relations import Relations, latest
from graphflow.effects.statements import Statement, StatementAccess
from graphflow.effects.value_comparison import ComputedValue, HeldValue
from graphflow.effects.value_numbers import INTEGERS, ValueNumbers

MOST_WRITES = 256
"""Writes that the values of one question are traced through, at some 0.3 ms each."""

MOST_NESTED = 200
"""Expressions and writes within each other, of three stack frames each at most."""

MOST_INSTANCES = 64
"""Instances that one question looks at; where there are more, they can only refute."""

MOST_POINTS = 2048
"""Points of loops that are looked at to find the instances under a condition."""

MOST_OPEN = 4
"""Instances without an answer after which a question has none."""

Point: TypeAlias = "tuple[int, ...]"

Value: TypeAlias = ComputedValue | HeldValue


class Untraceable(Exception):
    """The value of an instance is not known."""


class InstanceValues:
    """The values in single instances of the statements of one kernel without scalars."""

    def __init__(self, relations: Relations, context: Any) -> None:
        self.relations, self.context, self.left = relations, context, MOST_WRITES
        self.numbers = ValueNumbers()
        self._depth = 0
        self._held: dict[tuple[StatementAccess, Point], int] = {}

    def of(self, value: Value, point: Point) -> int:
        """The number of a value in an instance."""
        if isinstance(value, HeldValue):
            return self.held(value.access, point)
        return self.computed(value.expr, value.statement, point)

    def held(self, access: StatementAccess, point: Point) -> int:
        """What an element holds where an instance reads it, or before the instance stores to it."""
        key = access, point
        if key not in self._held:
            with self._nested():
                self._held[key] = self._found(access, point)
        return self._held[key]

    @contextmanager
    def _nested(self) -> Iterator[None]:
        """Counts what is looked into; `Untraceable` where it is nested too deeply."""
        if self._depth == MOST_NESTED:
            raise Untraceable(f"its values are nested more than {MOST_NESTED} deep")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def _found(self, access: StatementAccess, point: Point) -> int:
        element = evaluated(access.element, _environment(access.statement, point))
        write = self.last_write(access, point, element)
        buffer = access.access.buffer
        if write is None:
            return self.numbers.initial(buffer, element)
        source, there = write
        statement = source.statement
        if not source.access.certain:
            raise Untraceable(f"data decide what {access} holds")
        match statement.stmt:
            case tir.Store() as stmt:
                return self.computed(stmt.value, statement, there)
            case tir.Assume(claim=tir.Comparison(right=tir.Literal() as literal)):
                return self.numbers.literal(literal)
            case tir.Reduce() as stmt:
                old = self.held(source, there)
                value = self.computed(stmt.value, statement, there)
                exact = buffer.dtype in INTEGERS
                name = stmt.op.value if exact else ("reduced", stmt.op, source.number, there)
                return self.numbers.applied(name, buffer.dtype, (old, value))
        raise AssertionError(statement.title)

    def computed(self, expr: tir.Expr, statement: Statement, point: Point, loads: int = 0) -> int:
        """The value of an expression of a statement, behind so many other loads of it."""
        values = _environment(statement, point)
        match expr:
            case tir.Literal():
                return self.numbers.literal(expr)
            case tir.IndexValue():
                index = arith.evaluate(expr.index, values)
                if expr.dtype in INTEGERS:
                    return self.numbers.linear(expr.dtype, index, {})
                return self.numbers.applied(("index", index), expr.dtype, ())
            case tir.Load():
                return self.held(self.relations.model.made_by(statement)[loads], point)
            case tir.Select(condition=condition) if tir.is_predicate(condition):
                if arith.holds(cast(arith.Predicate, condition), values):
                    return self.computed(expr.if_true, statement, point, loads)
                loads += sum(isinstance(node, tir.Load) for node in tir.walk_expr(expr.if_true))
                return self.computed(expr.if_false, statement, point, loads)
            case tir.Select():
                name: object = "select"
            case tir.Unary() | tir.Binary():
                name = expr.op
            case tir.Comparison():
                name = expr.op, expr.left.dtype
            case tir.Cast():
                name = "cast", expr.operand.dtype
            case tir.Undef():
                raise Untraceable("an undefined value is another one at each use")
            case _:
                assert_never(expr)
        operands: list[int] = []
        for operand in tir.children(expr):
            with self._nested():
                operands.append(self.computed(operand, statement, point, loads))
            loads += sum(isinstance(node, tir.Load) for node in tir.walk_expr(operand))
        return self.numbers.applied(name, expr.dtype, operands)

    def last_write(
        self, access: StatementAccess, point: Point, element: Point
    ) -> tuple[StatementAccess, Point] | None:
        """The last write to an element before an instance accesses it, certain or not.

        The write with the instance that makes it; None where there is none before.
        """
        self.left -= 1
        if self.left < 0:
            raise Untraceable(f"its values passed through more than {MOST_WRITES} writes")
        now = evaluated(access.statement.time, _environment(access.statement, point))
        before = self._before(now)
        there = ", ".join(map(str, element))
        target = isl.Set.read_from_str(self.context, f"{{ B[{there}] }}")
        last: tuple[Point, StatementAccess] | None = None
        for source in self.relations.limited(access.access.buffer):
            if not (source.access.writes or states_constant(source)):
                continue
            written = self.relations.elements(self.context, source).intersect_range(target)
            if written.is_empty():
                continue
            times = self.relations.times(self.context, source)
            stamps = written.domain().apply(times).intersect(before)
            if stamps.is_empty():
                continue
            stamp = coordinates(latest(stamps))
            if last is None or stamp > last[0]:
                last = stamp, source
        if last is None:
            return None
        stamp, source = last
        return source, stamp[1 : 2 * len(source.statement.loops) : 2]

    def _before(self, now: Point) -> Any:
        """The time stamps before the reads of the instance with the stamp `now`.

        Asked of isl as an order: it reads the union of one set for each digit of a stamp eight
        times more slowly.
        """
        filled = (*now, *(0 for _ in range(self.relations.depth - len(now))))
        stamp = isl.Set.read_from_str(self.context, f"{{ [{', '.join(map(str, filled))}] }}")
        return isl.Map.lex_lt(stamp.get_space()).intersect_range(stamp).domain()


def equal_in_instances(
    relations: Relations, context: Any, one: Value, other: ComputedValue, claim: str, certain: bool
) -> arith.Proof:
    """Whether two values are the same in each of the first instances of the statement of `other`.

    Both are values of one instance, that is, at equal iterations of the same loops.  REFUTED, if
    the statement is `certain` to run, by the first instance in which they differ for some contents
    of the memory; PROVEN where there are no other instances; UNKNOWN for kernels with scalars.
    """
    if relations.model.func.scalars:
        return arith.Proof(arith.Verdict.UNKNOWN, claim, METHOD, "the instances depend on scalars")
    values = InstanceValues(relations, context)
    free = certain and relations.model.assumes_nothing
    domain = other.statement.domain
    points, complete = first_instances(domain)
    open_reasons = [] if complete else ["there are more instances than are looked at"]
    for point in points:
        try:
            first, second = values.of(one, point), values.of(other, point)
        except Untraceable as error:
            open_reasons.append(str(error))
        else:
            if first == second:
                continue
            at = tuple(zip((axis.var.name for axis in domain.axes), point, strict=True))
            reason = f"{one} may be another value at {point_text(at)}"
            if certain and values.numbers.differ(other.expr.dtype, first, second, free):
                return arith.Proof(arith.Verdict.REFUTED, claim, METHOD, reason, at)
            open_reasons.append(reason)
        if len(open_reasons) == MOST_OPEN:
            break
    verdict = arith.Verdict.UNKNOWN if open_reasons else arith.Verdict.PROVEN
    return arith.Proof(verdict, claim, METHOD, "; ".join(open_reasons[:1]))


def first_instances(domain: arith.Domain) -> tuple[list[Point], bool]:
    """The first points of a domain without scalars, in their order, and whether they are all."""
    points: list[Point] = []
    for count, point in enumerate(_box(domain.axes, {})):
        if len(points) == MOST_INSTANCES or count == MOST_POINTS:
            return points, False
        if arith.holds(
            domain.where, dict(zip((axis.var for axis in domain.axes), point, strict=True))
        ):
            points.append(point)
    return points, True


def _box(axes: Sequence[arith.Axis], around: Mapping[arith.Var, int]) -> Iterator[Point]:
    """The points within the bounds of the axes."""
    if not axes:
        yield tuple(around.values())
        return
    axis, *inner = axes
    for value in range(arith.evaluate(axis.start, around), arith.evaluate(axis.stop, around)):
        yield from _box(inner, {**around, axis.var: value})


def _environment(statement: Statement, point: Point) -> Mapping[arith.Var, int]:
    return dict(zip((axis.var for axis in statement.domain.axes), point, strict=True))


def evaluated(indices: Sequence[arith.IndexExpr], values: Mapping[arith.Var, int]) -> Point:
    """The values of index expressions."""
    return tuple(arith.evaluate(index, values) for index in indices)


def coordinates(points: Any) -> Point:
    """The coordinates of one point of an isl set."""
    point = points.sample_point()
    kind = isl.dim_type.set
    return tuple(
        arith.integer_of(point.get_coordinate_val(kind, n)) for n in range(points.dim(kind))
    )
