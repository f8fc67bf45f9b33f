"""Facts (what a region of memory holds) and demands (what a reader requires of it).

In: facts and demands.  Out: whether a fact satisfies a demand, whether one fact implies another,
and the strongest fact that two facts both imply.  What always holds: constants are compared by bits
and dtype, so −0.0 is not 0.0; bounds of a range are ordered by IEEE's total order, in which −0.0 is
below +0.0; a range contains finite numbers only.  The order, from the strongest fact on:

    Constant ⊑ Range ⊑ Undefined ⊑ NoAccess        Constant(±inf), Constant(NaN) ⊑ Undefined
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import copysign, inf, isfinite, isnan
from typing import Any, TypeAlias

from graphflow.dtypes import FLOATING, integer_limits
from graphflow.tir import FLOATS, Literal, ReduceOp

Number: TypeAlias = float | int | bool


def order_key(value: Number) -> tuple[Number, float]:
    """Sorts numbers in total order: −0.0 before +0.0, which Python calls equal."""
    return (value, copysign(1.0, value))


def _same(a: Number, b: Number) -> bool:
    return order_key(a) == order_key(b)


@dataclass(frozen=True, slots=True)
class Constant:
    """Every element has exactly these bits."""

    literal: Literal

    def __str__(self) -> str:
        return f"{self.literal.value} {self.literal.dtype}"


@dataclass(frozen=True, slots=True, eq=False)
class Range:
    """Every element is a finite number with `lo <= x <= hi`; never NaN or infinite."""

    lo: Number
    hi: Number

    def __post_init__(self) -> None:
        if not (isfinite(self.lo) and isfinite(self.hi)):
            raise ValueError(f"a range holds finite numbers only, not [{self.lo}, {self.hi}]")
        if order_key(self.lo) > order_key(self.hi):
            raise ValueError(f"the range [{self.lo}, {self.hi}] is empty")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Range):
            return NotImplemented
        return _same(self.lo, other.lo) and _same(self.hi, other.hi)

    def __hash__(self) -> int:
        return hash((order_key(self.lo), order_key(self.hi)))

    def holds(self, value: Number) -> bool:
        """Whether `value` is a number of this range."""
        return isfinite(value) and (order_key(self.lo) <= order_key(value) <= order_key(self.hi))

    def __str__(self) -> str:
        return f"[{self.lo}, {self.hi}]"


@dataclass(frozen=True, slots=True)
class Undefined:
    """Readable; each element has some bits, the same until the next write."""

    def __str__(self) -> str:
        return "undef"


@dataclass(frozen=True, slots=True)
class NoAccess:
    """Must not be read."""

    def __str__(self) -> str:
        return "no access"


Fact: TypeAlias = Constant | Range | Undefined | NoAccess


def fact_of(value: Number, dtype: str) -> Constant:
    """The constant `value` of a dtype."""
    return Constant(Literal(value, dtype))


def at_least_as_strong(fact: Fact, other: Fact) -> bool:
    """`fact ⊑ other`: whatever the first allows, the second allows too."""
    if fact == other or isinstance(other, NoAccess):
        return True
    if isinstance(other, Undefined):
        return not isinstance(fact, NoAccess)
    if isinstance(other, Range):
        if isinstance(fact, Constant):
            return other.holds(fact.literal.value)
        return isinstance(fact, Range) and other.holds(fact.lo) and other.holds(fact.hi)
    return False


def join(a: Fact, b: Fact) -> Fact:
    """The strongest fact that both are at least as strong as."""
    if at_least_as_strong(a, b):
        return b
    if at_least_as_strong(b, a):
        return a
    first, second = _as_range(a), _as_range(b)
    if first is None or second is None:
        return Undefined()
    return Range(min(first.lo, second.lo, key=order_key), max(first.hi, second.hi, key=order_key))


def _as_range(fact: Fact) -> Range | None:
    if isinstance(fact, Range):
        return fact
    if isinstance(fact, Constant) and isfinite(fact.literal.value):
        return Range(fact.literal.value, fact.literal.value)
    return None


# Demands ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unused:
    """The region is never read."""

    def __str__(self) -> str:
        return "none"


@dataclass(frozen=True, slots=True)
class Readable:
    """The region is read, and its contents do not matter."""

    def __str__(self) -> str:
        return "readable"


@dataclass(frozen=True, slots=True)
class InRange:
    """Every element must be a number in `lo <= x <= hi`; the bounds may be infinite."""

    lo: Number
    hi: Number

    def holds(self, value: Number) -> bool:
        """Whether `value` serves; NaN never does."""
        if isnan(value):
            return False
        return order_key(self.lo) <= order_key(value) <= order_key(self.hi)

    def __str__(self) -> str:
        return f"in [{self.lo}, {self.hi}]"


@dataclass(frozen=True, slots=True)
class Equal:
    """Every element must have exactly these bits."""

    literal: Literal

    def __str__(self) -> str:
        return f"equal to {self.literal.value} {self.literal.dtype}"


Demand: TypeAlias = Unused | Readable | InRange | Equal


def _always(fact: Any, demand: Any) -> bool:
    return True


def _never(fact: Any, demand: Any) -> bool:
    return False


def _same_bits(fact: Constant, demand: Equal) -> bool:
    return fact.literal == demand.literal


def _constant_inside(fact: Constant, demand: InRange) -> bool:
    return demand.holds(fact.literal.value)


def _range_inside(fact: Range, demand: InRange) -> bool:
    return demand.holds(fact.lo) and demand.holds(fact.hi)


SERVES: dict[tuple[type[Fact], type[Demand]], Callable[[Any, Any], bool]] = {
    (Constant, Unused): _always,
    (Constant, Readable): _always,
    (Constant, InRange): _constant_inside,
    (Constant, Equal): _same_bits,
    (Range, Unused): _always,
    (Range, Readable): _always,
    (Range, InRange): _range_inside,
    (Range, Equal): _never,
    (Undefined, Unused): _always,
    (Undefined, Readable): _always,
    (Undefined, InRange): _never,
    (Undefined, Equal): _never,
    (NoAccess, Unused): _always,
    (NoAccess, Readable): _never,
    (NoAccess, InRange): _never,
    (NoAccess, Equal): _never,
}
"""The whole relation between facts and demands; nothing else decides it."""


def serves(fact: Fact, demand: Demand) -> bool:
    """Whether a reader with this demand may read a region with this fact."""
    return SERVES[type(fact), type(demand)](fact, demand)


def reduction_demand(op: ReduceOp, dtype: str, logical: Fact | None = None) -> tuple[Demand, ...]:
    """Demands on padded elements of a reduction, any one of which leaves its result unchanged.

    For `max` and `min`, what is known of the `logical` elements admits more paddings: those that
    no element exceeds.  These alone need at least one logical element in every reduction; a window
    wholly in the padding is the caller's to exclude.
    """
    extreme = dtype_limits(dtype)
    match op:
        case ReduceOp.ADD:
            zeros = (0.0, -0.0) if dtype in FLOATS else (0,)
            return tuple(Equal(Literal(zero, dtype)) for zero in zeros)
        case ReduceOp.MUL:
            return (Equal(Literal(1, dtype)),)
        case ReduceOp.MAX:
            neutral = Equal(Literal(extreme[0], dtype))
            known = None if logical is None else _as_range(logical)
            return (neutral,) if known is None else (neutral, InRange(extreme[0], known.lo))
        case ReduceOp.MIN:
            neutral = Equal(Literal(extreme[1], dtype))
            known = None if logical is None else _as_range(logical)
            return (neutral,) if known is None else (neutral, InRange(known.hi, extreme[1]))


def dtype_limits(dtype: str) -> tuple[Number, Number]:
    """The smallest and the largest value of a dtype, infinities included."""
    if dtype in FLOATING:
        return -inf, inf
    return (False, True) if dtype == "bool" else integer_limits(dtype)
