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
from math import copysign, inf, isfinite
from typing import Any, TypeAlias

from msgspec import Struct

from graphflow import tir
from graphflow.base.dtypes import FLOATING, integer_limits

Number: TypeAlias = float | int | bool


def order_key(value: Number) -> tuple[Number, float]:
    """The sort key of IEEE's total order: −0.0 comes before +0.0, which Python considers equal."""
    return (value, copysign(1.0, value))


def _same(a: Number, b: Number) -> bool:
    return order_key(a) == order_key(b)


class Constant(Struct, frozen=True):
    """Every element has exactly these bits."""

    literal: tir.Literal

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


class Undefined(Struct, frozen=True):
    """Readable; each element has some bits, the same until the next write."""

    def __str__(self) -> str:
        return "undef"


class NoAccess(Struct, frozen=True):
    """Must not be read."""

    def __str__(self) -> str:
        return "no access"


Fact: TypeAlias = Constant | Range | Undefined | NoAccess


def fact_of(value: Number, dtype: str) -> Constant:
    """The constant `value` of a dtype."""
    return Constant(tir.Literal(value, dtype))


def at_least_as_strong(fact: Fact, other: Fact) -> bool:
    """`fact ⊑ other`: any contents that satisfy `fact` satisfy `other` too."""
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
    """The strongest fact that both facts imply."""
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


class Unused(Struct, frozen=True):
    """The region is never read."""

    def __str__(self) -> str:
        return "none"


class Readable(Struct, frozen=True):
    """The region is read, and its contents do not matter."""

    def __str__(self) -> str:
        return "readable"


class Equal(Struct, frozen=True):
    """Every element must have exactly these bits."""

    literal: tir.Literal

    def __str__(self) -> str:
        return f"equal to {self.literal.value} {self.literal.dtype}"


Demand: TypeAlias = Unused | Readable | Equal


def _always(fact: Any, demand: Any) -> bool:
    return True


def _never(fact: Any, demand: Any) -> bool:
    return False


def _same_bits(fact: Constant, demand: Equal) -> bool:
    return fact.literal == demand.literal


SERVES: dict[tuple[type[Fact], type[Demand]], Callable[[Any, Any], bool]] = {
    (Constant, Unused): _always,
    (Constant, Readable): _always,
    (Constant, Equal): _same_bits,
    (Range, Unused): _always,
    (Range, Readable): _always,
    (Range, Equal): _never,
    (Undefined, Unused): _always,
    (Undefined, Readable): _always,
    (Undefined, Equal): _never,
    (NoAccess, Unused): _always,
    (NoAccess, Readable): _never,
    (NoAccess, Equal): _never,
}
"""The whole relation between facts and demands; nothing else decides it."""


def serves(fact: Fact, demand: Demand) -> bool:
    """Whether a region with this fact satisfies a reader's demand."""
    return SERVES[type(fact), type(demand)](fact, demand)


def reduction_demand(op: tir.ReduceOp, dtype: str) -> tuple[Equal, ...]:
    """The constants, any one of which leaves the result of a reduction unchanged as padding."""
    smallest, largest = dtype_limits(dtype)
    match op:
        case tir.ReduceOp.ADD:
            # Both zeros: a sum that starts at -0.0 is the caller's to exclude.
            neutral: tuple[Number, ...] = (0.0, -0.0) if dtype in tir.FLOATS else (0,)
        case tir.ReduceOp.MUL:
            neutral = (1,)
        case tir.ReduceOp.MAX:
            neutral = (smallest,)
        case tir.ReduceOp.MIN:
            neutral = (largest,)
    return tuple(Equal(tir.Literal(value, dtype)) for value in neutral)


def dtype_limits(dtype: str) -> tuple[Number, Number]:
    """The smallest and the largest value of a dtype, infinities included."""
    if dtype in FLOATING:
        return -inf, inf
    return (False, True) if dtype == "bool" else integer_limits(dtype)
