"""Steps of which a run executes a part: other iterations write only elements that it lacks.

In: a lowered kernel whose outputs have room for more elements than a run gives.  Out: the `Portion`
that a run executes.  What always holds: it is proven, for every size of a run at
once, that an iteration which is left out writes no element that the run gives.  Iterations of a
parallel loop are independent, so those that are left have what they read.  Where rows grow with all
loops inside, the proof is a comparison for each iteration; isl decides about others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise, product
from math import gcd, isqrt, prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow import arith, tir
from graphflow.kernels.lowering import LoweredKernel, SizedAxis, SizedRows, rows_of
from graphflow.program import BufferRef, Portion, PortionDigit

MOST_DIGITS = 4
"""The most digits that are tried for each axis of a size; each takes a proof for every write."""


class _Digit(Struct, frozen=True):
    """The digit iteration // unit % count of the numbers of iterations; what a run executes of it
    depends on the size that the rows have."""

    axis: SizedAxis
    count: int
    unit: int

    @property
    def share(self) -> float:
        """The mean share of iterations that runs of all sizes execute."""
        count, room = self.count, self.axis.room
        # The sum over n of ceil(count n / room), of which `whole` terms are whole before.
        whole = gcd(count, room)
        below = ((count - 1) * (room - 1) + whole - 1) // 2
        return (below + count + room - whole) / (count * room)


def portion_of(kernel: LoweredKernel, holders: Mapping[str, BufferRef]) -> Portion | None:
    """The part of a kernel that a run executes; None where it has to execute all of it.

    `holders` has the memory of each size of the kernel's task.
    """
    if kernel.extent == 1 or kernel.in_phases:
        return None
    digits = _proven_digits(kernel.func, kernel.task.sized, kernel.extent)
    return Portion(tuple(_portion_digits(digits, kernel.extent, holders))) if digits else None


@lru_cache(maxsize=256)
def _proven_digits(
    func: tir.PrimFunc, sized: tuple[SizedAxis, ...], extent: int
) -> tuple[_Digit, ...]:
    """The digits by which a run of a kernel leaves out the most, most significant one first; none
    where it has to execute all.  Steps of one kernel share them."""
    loop = _parallel_loop(func)
    if loop is None:
        return ()
    every = rows_of(func, sized)
    proven: dict[_Digit, bool] = {}
    for digits in _together([_options(rows, loop, extent) for rows in every]):
        for digit in digits:
            if digit not in proven:
                rows = next(rows for rows in every if rows.axis is digit.axis)
                proven[digit] = _writes_behind(digit, rows, loop)
        if all(proven[digit] for digit in digits):
            return digits
    return ()


def _options(rows: SizedRows, loop: tir.For, extent: int) -> list[_Digit]:
    """The digits of iterations by which the rows that they write seem to grow, best ones first.

    "Seem", as only the first row is looked at that each statement writes in each iteration.
    """
    least = _first_rows(rows, loop, extent)
    rows_of_iterations = least.tolist()
    found = []
    for count, unit in _factors(extent):
        # The first iteration with the last digit refutes most digits.
        last = count - 1
        if rows_of_iterations[last * unit] < last * rows.axis.room // count:
            continue
        of_digit = least.reshape(-1, count, unit).min(axis=(0, 2))
        # The iterations with digit d are left out by sizes up to d * room // count.
        if np.all(of_digit >= np.arange(count) * rows.axis.room // count):
            found.append(_Digit(rows.axis, count, unit))
    return sorted(found, key=lambda digit: (digit.share, digit.count, digit.unit))[:MOST_DIGITS]


def _first_rows(rows: SizedRows, loop: tir.For, extent: int) -> NDArray[np.int64]:
    """For each iteration the least of the rows that statements write first in it."""
    numbers = np.arange(extent, dtype=np.int64)
    least = np.full(extent, rows.axis.room, np.int64)
    for domain, row in rows.written:
        values: dict[arith.Var, NDArray[np.int64]] = {}
        for axis in domain.axes:
            start = _evaluated(axis.start, values, extent)
            values[axis.var] = start + numbers if axis.var is loop.var else start
        least = np.minimum(least, _evaluated(row, values, extent))
    return least


def _evaluated(
    expr: arith.IndexExpr, values: Mapping[arith.Var, NDArray[np.int64]], extent: int
) -> NDArray[np.int64]:
    """The values of an expression in all iterations."""
    match expr:
        case arith.Const():
            return np.full(extent, expr.value, np.int64)
        case arith.Var():
            return values[expr]
        case arith.Sum():
            parts = (k * _evaluated(atom, values, extent) for atom, k in expr.terms)
            return sum(parts, np.full(extent, expr.constant, np.int64))
        case arith.FloorDiv():
            return _evaluated(expr.numerator, values, extent) // expr.divisor
        case arith.FloorMod():
            return _evaluated(expr.numerator, values, extent) % expr.divisor
        case arith.Extremum():
            pick = np.minimum if expr.kind == "min" else np.maximum
            one, other = (_evaluated(operand, values, extent) for operand in expr.operands)
            both: NDArray[np.int64] = pick(one, other)
            return both
    raise TypeError(f"not an index expression: {expr!r}")


def _factors(extent: int) -> Iterator[tuple[int, int]]:
    """All counts above 1 and units of a digit of numbers below `extent`."""
    for unit in _divisors(extent):
        yield from ((count, unit) for count in _divisors(extent // unit) if count > 1)


def _divisors(number: int) -> list[int]:
    small = [k for k in range(1, isqrt(number) + 1) if number % k == 0]
    return sorted({*small, *(number // k for k in small)})


def _together(options: Sequence[Sequence[_Digit]]) -> list[tuple[_Digit, ...]]:
    """Choices of digits that one number can have together, best ones first.

    The most significant digit of a choice comes first; it has one of each list or none.
    """
    choices = []
    for chosen in product(*([*digits, None] for digits in options)):
        digits = sorted((d for d in chosen if d is not None), key=lambda d: -d.unit)
        nested = (outer.unit % (d.count * d.unit) == 0 for outer, d in pairwise(digits))
        if digits and all(nested):
            choices.append(tuple(digits))
    return sorted(choices, key=lambda ds: (prod(d.share for d in ds), len(ds)))


def _portion_digits(
    digits: Sequence[_Digit], extent: int, holders: Mapping[str, BufferRef]
) -> Iterator[PortionDigit]:
    """All digits of numbers below `extent`, with those between the chosen ones."""
    above = extent
    for digit in digits:
        if (between := above // (digit.count * digit.unit)) > 1:
            yield PortionDigit(between)
        yield PortionDigit.by(holders[digit.axis.size], digit.count, digit.axis.room)
        above = digit.unit
    if above > 1:
        yield PortionDigit(above)


def _writes_behind(digit: _Digit, rows: SizedRows, loop: tir.For) -> bool:
    """Whether iterations whose digit is that of a larger size write only rows behind the size, of a
    digit for which their first rows are."""
    size, room = _fresh("size", rows.func), digit.axis.room
    value = arith.floor_mod(arith.floor_div(loop.var - loop.start, digit.unit), digit.count)
    left_out = arith.at_least_zero(value * room - size * digit.count)
    given = arith.Axis(size, arith.const(1), arith.const(room + 1))
    for domain, row in rows.written:
        if _is_first_at_starts(row, domain, loop.var):  # so `_options` has compared all there are
            continue
        where = arith.conjunction((domain.where, left_out))
        claim = arith.at_most(size, row)
        if not arith.prove(claim, arith.Domain((given, *domain.axes), where)).proven:
            return False
    return True


def _is_first_at_starts(row: arith.IndexExpr, domain: arith.Domain, var: arith.Var) -> bool:
    """Whether a row is never before the one that `_first_rows` evaluates, with all loops of the
    domain but that over `var` at their starts: from the innermost loop on it grows with each."""
    for axis in reversed(domain.axes):
        if axis.var is not var:
            factor = dict(arith.terms_of(row)[0]).get(axis.var, 0)
            base = row - axis.var * factor
            if factor < 0 or axis.var in arith.variables(base):
                return False
            row = base + axis.start * factor
    return True


def _fresh(name: str, func: tir.PrimFunc) -> arith.Var:
    """A variable that no loop of a kernel has."""
    taken = {loop.var.name for loop in tir.loops_of(func.body)}
    while name in taken:
        name += "_"
    return arith.Var(name)


def _parallel_loop(func: tir.PrimFunc) -> tir.For | None:
    return next(
        (loop for loop in tir.loops_of(func.body) if loop.kind is tir.LoopKind.PARALLEL), None
    )
