"""Comparing what a kernel wrote with what its definition gives.

In: the memory of an output after two runs that began with different contents, and elements of the
definition's result.  Out: a `Comparison`, with the first difference in words.  The two runs differ
in three ways: what the output held, what undefined padding of the inputs held, and in which slices
the loop was run.  Nothing that counts may depend on any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphflow.tir import DTYPES, Reduce, ReduceOp, walk
from graphflow.validation.errors import MARGIN
from graphflow.validation.expected import Oracle
from graphflow.validation.inputs import Array
from graphflow.validation.placing import Placed


class Differs(Exception):
    """A kernel does something else than its definition says; says what, and where."""


@dataclass(frozen=True)
class Runs:
    """The memory of an output after both runs, and what it held before each."""

    first: Array
    second: Array
    before: tuple[Any, Any]

    def untouched(self) -> Array:
        """Where neither run wrote."""
        one, two = (DTYPES[self.first.dtype.name].type(value) for value in self.before)
        return np.asarray((self.first == one) & (self.second == two))


@dataclass(frozen=True)
class Compared:
    """How many elements were equal, within their error bounds, and not judged: where rounding
    decides between values, or bounds take too long to compute."""

    equal: int
    rounded: int
    unjudged: int


def check_places(placed: Placed, runs: Runs) -> None:
    """What is seen without the definition: places that must be written, and those that must not.

    Raises `Differs`.
    """
    untouched = runs.untouched()
    same = _same_bits(runs.first, runs.second)
    if placed.layout is None:
        _agree(placed, runs, np.flatnonzero(~same & ~untouched))
        return
    at = placed.positions
    missed = np.flatnonzero(untouched[at])
    if missed.size:
        element = int(missed[0])
        raise Differs(
            f"{placed.element_name(element)} (place {placed.place_name(int(at[element]))}) is "
            f"never written, as are {missed.size} of {at.size} elements"
        )
    _agree(placed, runs, at[np.flatnonzero(~same[at])])
    if placed.pad != "undef":
        _check_padding(placed, runs, untouched)


def _agree(placed: Placed, runs: Runs, places: Array) -> None:
    if places.size:
        place = int(places[0])
        raise Disagree(
            f"{_named(placed, place)} is {runs.first[place]} in one run and {runs.second[place]} "
            f"in the other, as are {places.size} places"
        )


class Disagree(Differs):
    """Two runs differ; the caller finds out which of the differences between them matters."""


def _check_padding(placed: Placed, runs: Runs, untouched: Array) -> None:
    padding = np.flatnonzero(placed.elements < 0)
    if placed.pad is None:
        wrong = padding[~untouched[padding]]
        if wrong.size:
            place = int(wrong[0])
            raise Differs(
                f"it writes {runs.first[place]} to {_named(placed, place)}, which is not its own, "
                f"and to {wrong.size - 1} more such places"
            )
        return
    wanted = np.full(1, placed.pad, runs.first.dtype)
    right = _same_bits(runs.first[padding], wanted) & _same_bits(runs.second[padding], wanted)
    wrong = padding[~right]
    if wrong.size:
        place = int(wrong[0])
        raise Differs(
            f"the padding of {placed.buffer.name} at {placed.place_name(place)} must hold "
            f"{wanted[0]} and holds {runs.first[place]}, as do {wrong.size} of {padding.size} "
            "places of padding"
        )


def check_values(
    placed: Placed,
    runs: Runs,
    expected: Mapping[int, Any],
    oracle: Oracle,
    arrays: Mapping[str, Array],
) -> Compared:
    """Compare elements with those of the definition.  Raises `Differs`."""
    positions = np.fromiter(expected, np.int64, len(expected))
    untouched = runs.untouched()[placed.positions[positions]]
    got = runs.first[placed.positions[positions]]
    written = np.array([value is not None for value in expected.values()], bool)
    blank = np.zeros((), got.dtype)[()]
    reference = np.array([blank if v is None else v for v in expected.values()], got.dtype)
    equal = np.where(written, _same_numbers(got, reference, oracle) & ~untouched, untouched)
    doubtful = np.flatnonzero(~equal)
    if not doubtful.size:
        return Compared(len(expected), 0, 0)
    buffer = placed.buffer
    bounds: Mapping[int, Any] = {}
    missed = 0
    if oracle.has_bounds(buffer) and np.all(written[doubtful] & ~untouched[doubtful]):
        # The largest differences first, as there may not be time for all.
        order = doubtful[np.argsort(-_relative(got[doubtful], reference[doubtful]), kind="stable")]
        wanted = [(buffer, int(positions[k])) for k in order]
        found, missed = oracle.bounds(arrays, wanted)
        bounds = found.get(buffer, {})
    wrong, open_ones = [], missed
    for k in doubtful:
        bound = bounds.get(int(positions[k]), 0.0)
        if missed and int(positions[k]) not in bounds:
            continue
        if np.isposinf(bound):
            open_ones += 1
        elif not _within(got[k], reference[k], bound):
            wrong.append(int(k))
    if wrong:
        first = min(wrong, key=lambda k: int(positions[k]))
        element = int(positions[first])
        bound = bounds.get(element, 0.0)
        allowed = f" give or take {MARGIN * float(bound):.2g}" if bound else ""
        is_written, is_touched = bool(written[first]), not untouched[first]
        raise Differs(
            f"{placed.element_name(element)} (place "
            f"{placed.place_name(int(placed.positions[element]))}) must be "
            f"{f'{reference[first]}{allowed}' if is_written else 'left alone'} and is "
            f"{got[first] if is_touched else 'not written'}; {len(wrong)} of the {len(expected)} "
            "compared elements differ"
        )
    rounded = int(doubtful.size) - open_ones
    return Compared(len(expected) - int(doubtful.size), rounded, open_ones)


def _named(placed: Placed, place: int) -> str:
    element = int(placed.elements[place])
    if element < 0:
        return f"place {placed.place_name(place)} of {placed.buffer.name}"
    return f"{placed.element_name(element)} (place {placed.place_name(place)})"


def _same_bits(left: Array, right: Array) -> Array:
    """Elementwise; all NaN are the same."""
    width = f"u{left.dtype.itemsize}"
    same = left.view(width) == right.view(width)
    if left.dtype.kind == "f":
        same = same | ((left != left) & (right != right))
    return np.asarray(same)


def _same_numbers(got: Array, reference: Array, oracle: Oracle) -> Array:
    """The same bits; where terms may be added in another order, zeros of either sign."""
    same = _same_bits(got, reference)
    sums = any(isinstance(s, Reduce) and s.op is ReduceOp.ADD for s in walk(oracle.func.body))
    return same | (got == reference) if sums else same


def _relative(got: Array, reference: Array) -> Array:
    """How far numbers are from the reference, in parts of it; infinite where one is not finite."""
    with np.errstate(all="ignore"):
        wide, right = got.astype(np.float64), reference.astype(np.float64)
        far = np.abs(wide - right) / np.maximum(np.abs(right), np.finfo(np.float64).tiny)
    return np.nan_to_num(far, nan=np.inf, posinf=np.inf)


def _within(got: Any, reference: Any, bound: Any) -> bool:
    """Whether a number is as near to the reference as its error bound permits.

    Without a bound it had to be the same; zeros of different signs are not.
    """
    if not bound or not (np.isfinite(got) and np.isfinite(reference)):
        return False
    return abs(float(got) - float(reference)) <= MARGIN * float(bound)
