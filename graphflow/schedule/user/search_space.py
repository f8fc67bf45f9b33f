"""The space of a sketch: named choices with finite domains, and constraints between them, as data.

In: domains by name, and constraints as texts such as `"tile * lanes <= 64"`.  Out: points of the
space, in an order that a seed decides.  What always holds: the same space, seed and count give the
same points in every process and under every version of Python, the default point comes first, and a
larger count only adds points behind those of a smaller one.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice, product
from math import prod
from typing import Any, TypeAlias

from graphflow.base.errors import ScheduleError
from graphflow.processes.digest import text_digest

ChoiceValue: TypeAlias = "int | str"

Point: TypeAlias = "tuple[tuple[str, ChoiceValue], ...]"
"""A value for each choice, with its name, in the order in which the space declares them."""

ENUMERATED = 1 << 14
"""The most points of a space that are enumerated and sorted; of larger spaces, points are drawn."""

DRAWS = 64
"""Points drawn for each one wanted before the constraints count as too tight."""


@dataclass(frozen=True)
class SearchSpace:
    """Choices with their domains, and constraints that each point of the space satisfies.

    The first value of each domain is its default.  A constraint is an expression over the names of
    choices, integers and texts, with `+ - * // %`, comparisons, `and`, `or` and `not`.
    Values are integers, and texts that are identifiers.  ScheduleError for other values, a domain
    that is empty or has a value twice, and for constraints of another form or that mention a name
    that is no choice.
    """

    domains: tuple[tuple[str, tuple[ChoiceValue, ...]], ...]
    constraints: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, values in self.domains:
            for value in values:
                if type(value) is not int and not (isinstance(value, str) and value.isidentifier()):
                    raise ScheduleError(
                        f"{name} may be {value!r}; choices are integers, and texts that are "
                        "identifiers"
                    )
            if not values or len(set(values)) < len(values):
                raise ScheduleError(f"the domain of {name} is {values}: give distinct values")
        for constraint in self.constraints:
            _require_names(constraint, dict(self.domains))

    @staticmethod
    def of(
        domains: Mapping[str, tuple[ChoiceValue, ...]], constraints: tuple[str, ...] = ()
    ) -> SearchSpace:
        """The space with these domains, by name, and constraints."""
        return SearchSpace(tuple((n, tuple(v)) for n, v in domains.items()), tuple(constraints))

    @property
    def size(self) -> int:
        """The number of points without the constraints."""
        return prod(len(values) for _, values in self.domains)

    def default(self) -> Point:
        """The first value of each domain, whether the constraints allow it or not."""
        return tuple((name, values[0]) for name, values in self.domains)

    def violated(self, point: Point) -> str | None:
        """The first constraint that a point does not satisfy; None where it satisfies all."""
        known = dict(point)
        return next((c for c in self.constraints if not _value(_parsed(c), known)), None)

    def sample(self, most: int, seed: int = 0) -> tuple[Point, ...]:
        """Up to `most` distinct points that satisfy the constraints, the default point first.

        Fewer where the space has no more; in a space of more than `ENUMERATED` points also where
        most of its points violate the constraints.
        """
        found: dict[Point, None] = {}
        for point in (self.default(), *islice(self._points(seed), DRAWS * most + ENUMERATED)):
            if len(found) == most:
                break
            if self.violated(point) is None:
                found.setdefault(point)
        return tuple(found)

    def _points(self, seed: int) -> Iterator[Point]:
        """Points in the order of digests of seed and point; large spaces have repetitions."""
        if self.size <= ENUMERATED:
            names = [name for name, _ in self.domains]
            points = [
                tuple(zip(names, values, strict=True))
                for values in product(*(values for _, values in self.domains))
            ]
            yield from sorted(points, key=lambda point: text_digest(f"{seed} {point}"))
            return
        for number in count():
            yield self._point(int(text_digest(f"{seed} {number}"), 16) % self.size)

    def _point(self, place: int) -> Point:
        """The point with this number, its digits in the mixed radix of the domains' sizes."""
        found: list[tuple[str, ChoiceValue]] = []
        for name, values in self.domains:
            place, digit = divmod(place, len(values))
            found.append((name, values[digit]))
        return tuple(found)


def choices_text(point: Point) -> str:
    """A point for people and keys: `tile=4, where=own`."""
    return ", ".join(f"{name}={value}" for name, value in point)


_OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@lru_cache(maxsize=1024)
def _parsed(constraint: str) -> ast.expr:
    """The expression of a constraint; ScheduleError where it has another form."""
    try:
        found = ast.parse(constraint, mode="eval").body
    except SyntaxError as error:
        raise ScheduleError(
            f"the constraint {constraint!r} is no expression: {error.msg}"
        ) from None
    for node in ast.walk(found):
        match node:
            case ast.BoolOp() | ast.And() | ast.Or() | ast.Not() | ast.Name() | ast.Load():
                pass
            case ast.BinOp(op=op) if type(op) in _OPERATORS:
                pass
            case ast.Compare(ops=ops) if all(type(op) in _OPERATORS for op in ops):
                pass
            case ast.UnaryOp(op=ast.Not() | ast.USub()) | ast.USub():
                pass
            case ast.Constant(value=value) if type(value) in (int, str):
                pass
            case _ if type(node) in _OPERATORS:
                pass
            case _:
                raise ScheduleError(
                    f"the constraint {constraint!r} has {ast.unparse(node)!r}; it may have names "
                    "of choices, integers, texts, + - * // %, comparisons, and, or, not"
                )
    return found


def _require_names(constraint: str, domains: Mapping[str, object]) -> None:
    """ScheduleError where a constraint mentions a name that is no choice."""
    for node in ast.walk(_parsed(constraint)):
        if isinstance(node, ast.Name) and node.id not in domains:
            raise ScheduleError(
                f"the constraint {constraint!r} mentions {node.id}, and the choices are "
                f"{', '.join(domains)}"
            )


def _value(node: ast.expr, known: Mapping[str, ChoiceValue]) -> Any:
    """The value of a parsed constraint at a point; ScheduleError where it has none (`x % 0`)."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return known[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _applied(node, ast.Sub(), 0, _value(operand, known))
        case ast.UnaryOp(operand=operand):
            return not _value(operand, known)
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(value, known) for value in values)
        case ast.BoolOp(values=values):
            return any(_value(value, known) for value in values)
        case ast.Compare(left=left, ops=ops, comparators=others):
            numbers = [_value(part, known) for part in (left, *others)]
            pairs = zip(ops, numbers, numbers[1:], strict=False)
            return all(_applied(node, op, a, b) for op, a, b in pairs)
        case ast.BinOp(left=left, op=op, right=right):
            return _applied(node, op, _value(left, known), _value(right, known))
    raise AssertionError(f"{ast.dump(node)} is no part of a parsed constraint")


def _applied(node: ast.expr, op: ast.AST, left: Any, right: Any) -> Any:
    try:
        return _OPERATORS[type(op)](left, right)
    except (TypeError, ZeroDivisionError) as error:
        raise ScheduleError(
            f"the constraint {ast.unparse(node)!r} has no value for {left!r} and {right!r}: {error}"
        ) from None
