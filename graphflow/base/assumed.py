"""Assumptions that a user states about the values of a model's inputs, and their check in a run.

In: plain values, as `compile(assume=…)` takes them.  Out: `Assumed`, which knows nothing of the
compiler, so that a saved model keeps and checks it too.  What always holds: bounds are finite
numbers of the tensor's dtype; an assumption of floats excludes NaN and the infinities.

    "finite"          neither NaN nor infinite
    "nonnegative"     finite, and at least zero (of either sign)
    (lo, hi)          finite, and lo <= x <= hi; an infinite bound is none
    3.0               exactly these bits, so 0.0 is not -0.0
"""

from __future__ import annotations

from collections.abc import Mapping
from math import copysign, inf, isfinite, isnan
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import asdict
from numpy.typing import ArrayLike, NDArray

from graphflow.base.assumed_elements import AssumedElements
from graphflow.base.dtypes import FLOATING, integer_limits, largest
from graphflow.base.errors import InvalidModel
from graphflow.base.offered_names import FINITE, NONNEGATIVE

Assumption: TypeAlias = "str | float | int | bool | tuple[float, float]"
"""One of the forms above."""

WORDS: Mapping[str, tuple[float, float]] = {FINITE: (-inf, inf), NONNEGATIVE: (0.0, inf)}


class Assumed(Struct, frozen=True):
    """Every element of an input lies in `lo <= x <= hi`, or has the bits of `lo` if it is `exact`.

    −0.0 counts as less than 0.0, and a bound of zero is the one that admits both.  `elements`
    restricts the assumption to these positions in row-major order.  With `reciprocal`, it is
    instead that 1/x > -inf: x is no NaN, not -0.0, and no negative number so small that its
    reciprocal overflows.
    """

    tensor: str
    dtype: str
    lo: float | int
    hi: float | int
    exact: bool = False
    elements: tuple[int, ...] | None = None
    reciprocal: bool = False

    def __str__(self) -> str:
        where = "" if self.elements is None else f" in {len(self.elements)} elements"
        if self.exact:
            return f"equal to {self.lo}{where}"
        if self.reciprocal:
            return f"of reciprocals above -inf, so not -0.0{where}"
        lowest, highest = _limits(np.dtype(self.dtype))
        if (self.lo, self.hi) == (lowest, highest):
            return f"finite{where}"
        return f"finite and in [{_end(self.lo, lowest)}, {_end(self.hi, highest)}]{where}"

    def first_outside(self, array: NDArray[Any]) -> tuple[int, ...] | None:
        """The first index, in row-major order, at which the assumption does not hold; None if it
        holds."""
        if self.exact:
            wanted = np.asarray(self.lo, array.dtype)
            right = array == wanted
            if _is_float(array.dtype):
                right &= np.signbit(array) == np.signbit(wanted)
        elif self.reciprocal:
            with np.errstate(all="ignore"):
                right = 1 / array > -inf  # false for NaN
        else:
            right = (array >= self.lo) & (array <= self.hi)  # false for NaN
        if self.elements is not None:
            others = np.ones(array.size, bool)
            others[list(self.elements)] = False
            right |= others.reshape(array.shape)
        if right.all():
            return None
        return tuple(int(i) for i in np.unravel_index(int(np.argmin(right)), array.shape))

    def plain(self) -> dict[str, Any]:
        """The assumption as plain values, which `from_plain` reads."""
        return asdict(self)

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Assumed:
        """The assumption that `plain` returned these values for, also after a round trip through
        JSON."""
        elements = plain["elements"]
        return Assumed(**{**plain, "elements": None if elements is None else tuple(elements)})


def parse_assumptions(
    said: Mapping[str, Assumption], dtypes: Mapping[str, str]
) -> dict[str, Assumed]:
    """The assumptions `said` about inputs of these dtypes, in the order of the inputs.

    Raises InvalidModel where a name is not an input, and where no value meets an assumption.
    """
    for name in said:
        if name not in dtypes:
            raise InvalidModel(
                f"cannot assume anything of {name}: it is no input of the model, and assumptions "
                f"can be made about inputs only; the inputs are {', '.join(dtypes) or 'none'}"
            )
    return {n: parse_assumption(n, dtype, said[n]) for n, dtype in dtypes.items() if n in said}


def parse_assumption(name: str, dtype: str, given: Assumption) -> Assumed:
    """The assumption `given` about the input `name`; InvalidModel if no value can satisfy it."""
    kind = np.dtype(dtype)
    match given:
        case str() if given in WORDS:
            lo, hi = WORDS[given]
        case (lo, hi) if _is_number(lo) and _is_number(hi):
            pass
        case _ if _is_number(given):
            return _exactly(name, kind, given)  # type: ignore[arg-type]
        case _:
            raise InvalidModel(
                f"cannot assume {given!r} of {name}; say one of {', '.join(map(repr, WORDS))}, "
                "bounds (lo, hi), or the number that every element is"
            )
    if isnan(lo) or isnan(hi):
        raise InvalidModel(f"cannot assume {given!r} of {name}: a bound is NaN")
    ends = _ends(lo, hi, kind)
    if ends is None:
        raise InvalidModel(f"cannot assume {given!r} of {name}: no {dtype} value satisfies it")
    return Assumed(name, dtype, *ends)


Stated: TypeAlias = "Assumed | AssumedElements"
"""What a kernel may state about the elements of an input."""


def require_assumed(assumed: Stated, value: ArrayLike) -> None:
    """InvalidModel, with the first wrong element, if an assumption does not hold for an array.

    An array of another dtype is not checked: the program refuses it anyway.
    """
    array = np.asarray(value)
    where = assumed.first_outside(array) if array.dtype.name == assumed.dtype else None
    if where is not None:
        raise InvalidModel(
            f"input {assumed.tensor} was assumed to be {assumed}, and "
            f"{assumed.tensor}[{', '.join(map(str, where))}] is {array[where]}; compile without "
            "this assumption, or give an input that satisfies it"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number | np.bool_)


def _limits(kind: np.dtype[Any]) -> tuple[float | int, float | int]:
    """The least and the greatest finite number of a dtype."""
    if _is_float(kind):
        return -largest(kind.name), largest(kind.name)
    return (0, 1) if kind.kind == "b" else integer_limits(kind.name)


def _is_float(kind: np.dtype[Any]) -> bool:
    return kind.name in FLOATING


def _ends(lo: float, hi: float, kind: np.dtype[Any]) -> tuple[float | int, float | int] | None:
    """The bounds in the dtype; None if no value lies between them."""
    lowest, highest = _limits(kind)
    if lo > highest or hi < lowest:
        return None
    low = lowest if lo <= lowest else _rounded(lo, kind)
    high = highest if hi >= highest else _rounded(hi, kind)
    if low > high:
        return None
    if not _is_float(kind):
        return low, high
    return -0.0 if low == 0 else low, 0.0 if high == 0 else high


def _rounded(bound: float, kind: np.dtype[Any]) -> float | int:
    """The bound in the dtype, rounded as an element written with the same digits is."""
    if _is_float(kind):
        return float(kind.type(bound))
    return int(bound) if isfinite(bound) and bound == int(bound) else _no_whole(bound)


def _no_whole(bound: float) -> int:
    raise InvalidModel(f"the bound {bound} is not an integer, but the input has integers")


def _exactly(name: str, kind: np.dtype[Any], given: float) -> Assumed:
    lowest, highest = _limits(kind)
    whole = _is_float(kind) or given == int(given)
    if not isfinite(given) or not whole or not lowest <= given <= highest:
        raise InvalidModel(f"cannot assume that {name} is {given!r}: {kind.name} cannot be that")
    value = float(kind.type(given)) if _is_float(kind) else int(given)
    return Assumed(name, kind.name, value, value, True)


def _end(bound: float | int, limit: float | int) -> str:
    if bound == limit:
        return "-∞" if limit < 0 else "∞"
    return str(copysign(bound, 1.0) if bound == 0 else bound)
