"""Numbers of values: equal numbers stand for equal values, whatever the memory holds at first.

In: constants, elements as they were before the kernel, and operators on values.  Out: a number for
each value.  What always holds: values with one number are the same bits; values of an integer type
are kept as sums `c + Σ k·v` modulo the range of the type, so that `x + 1 + 2`, `3 + x` and
`4 + x - 1` have one number.  Operators on floats are compared as written, since their results
depend on the order.

This is value numbering with a normal form for each value (Cocke and Schwartz 1970).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from graphflow import tir
from graphflow.base.dtypes import SIGNED, UNSIGNED, integer_limits

INTEGERS = (*SIGNED, *UNSIGNED)
"""The types whose additions, subtractions and multiplications wrap around."""

COMMUTATIVE = ("add", "mul", "min", "max", "and", "or", "xor")


class InitialElement(Struct, frozen=True):
    """What an element held before the kernel."""

    buffer: tir.Buffer
    element: tuple[int, ...]


class AppliedOperator(Struct, frozen=True):
    """The result of an operator; the operands are numbers of values."""

    operator: object
    operands: tuple[int, ...]


class IntegerSum(Struct, frozen=True):
    """`constant + Σ factor·value` in an integer type; values are given by their numbers."""

    dtype: str
    constant: int
    parts: frozenset[tuple[int, int]]
    """Pairs of a value and its factor; no factor is zero."""


Term: TypeAlias = "tir.Literal | InitialElement | AppliedOperator | IntegerSum"


class ValueNumbers:
    """The numbers of all values that were asked for."""

    def __init__(self) -> None:
        self._numbers: dict[Term, int] = {}
        self._terms: list[Term] = []
        self._initial: list[frozenset[int]] = []
        """Of each value, the initial elements that it depends on."""

    def _number(self, term: Term, operands: Iterable[int] = ()) -> int:
        if term not in self._numbers:
            number = self._numbers[term] = len(self._terms)
            self._terms.append(term)
            own = {number} if isinstance(term, InitialElement) else ()
            self._initial.append(frozenset(own).union(*(self._initial[n] for n in operands)))
        return self._numbers[term]

    def literal(self, literal: tir.Literal) -> int:
        if literal.dtype in INTEGERS:
            return self.linear(literal.dtype, int(literal.value), {})
        return self._number(literal)

    def initial(self, buffer: tir.Buffer, element: tuple[int, ...]) -> int:
        return self._number(InitialElement(buffer, element))

    def applied(self, operator: object, dtype: str, operands: Sequence[int]) -> int:
        """The result of an operator, given by its name and what else distinguishes it."""
        if dtype in INTEGERS:
            found = self._in_integers(operator, dtype, operands)
            if found is not None:
                return found
            if operator in COMMUTATIVE:
                operands = sorted(operands)
        return self._number(AppliedOperator((operator, dtype), tuple(operands)), operands)

    def _in_integers(self, operator: object, dtype: str, operands: Sequence[int]) -> int | None:
        match operator:
            case "neg":
                return self.combined(dtype, ((operands[0], -1),))
            case "add":
                return self.combined(dtype, ((operands[0], 1), (operands[1], 1)))
            case "sub":
                return self.combined(dtype, ((operands[0], 1), (operands[1], -1)))
            case "mul":
                one, other = operands
                for value, factor in ((one, self.sum_of(other)), (other, self.sum_of(one))):
                    if factor is not None and not factor.parts:
                        return self.combined(dtype, ((value, factor.constant),))
        return None

    def sum_of(self, number: int) -> IntegerSum | None:
        """A value of an integer type that is a sum; None for a single value."""
        term = self._terms[number]
        return term if isinstance(term, IntegerSum) else None

    def combined(self, dtype: str, weighted: Iterable[tuple[int, int]]) -> int:
        """`Σ factor·value` for pairs of a value and a factor."""
        constant = 0
        parts: dict[int, int] = {}
        for number, factor in weighted:
            found = self.sum_of(number)
            constant += 0 if found is None else factor * found.constant
            for value, own in ((number, 1),) if found is None else found.parts:
                parts[value] = parts.get(value, 0) + factor * own
        return self.linear(dtype, constant, parts)

    def linear(self, dtype: str, constant: int, parts: Mapping[int, int]) -> int:
        """`constant + Σ factor·value` reduced to the range of the type."""
        low, high = integer_limits(dtype)
        count = high - low + 1
        reduced = {value: factor % count for value, factor in parts.items() if factor % count}
        if constant % count == 0 and len(reduced) == 1 and 1 in reduced.values():
            return next(iter(reduced))
        return self._number(
            IntegerSum(dtype, constant % count, frozenset(reduced.items())), reduced
        )

    def differ(self, dtype: str, one: int, other: int, free: bool) -> bool:
        """Whether two values of one type differ for some contents of the memory at first.

        Without `free` the initial elements may not hold just anything, and only constants are told
        apart.  False means that they are the same or that it is not known.
        """
        if one == other:
            return False
        if dtype in INTEGERS:
            difference = self.combined(dtype, ((one, 1), (other, -1)))
            parts = self._parts(difference)
            if not parts:
                return True
        else:
            terms = self._terms[one], self._terms[other]
            if all(isinstance(term, tir.Literal) for term in terms):
                return True
            parts = (one, other)
        return free and any(
            isinstance(self._terms[part], InitialElement)
            and not any(part in self._initial[n] for n in parts if n != part)
            for part in parts
        )

    def _parts(self, number: int) -> tuple[int, ...]:
        found = self.sum_of(number)
        return (number,) if found is None else tuple(value for value, _ in sorted(found.parts))
