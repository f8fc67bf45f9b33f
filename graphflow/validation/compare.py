"""Comparison of the memory that a kernel wrote with the elements that its definition gives.

In: the memory of an output after two runs, and elements of the definition's result.  Out:
`ComparisonCounts`, or `Differs` with the first difference in words.  The two runs differ in the
earlier contents of the output, in the contents of the inputs' undefined padding, and in the slices
of the parallel loop; no element of the result may depend on any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec import Struct

from graphflow.base.dtypes import FLOATING
from graphflow.tir import DTYPES, Reduce, ReduceOp, walk
from graphflow.validation.error_bounds import MARGIN
from graphflow.validation.expected import Oracle
from graphflow.validation.inputs import Array
from graphflow.validation.parameter_positions import PlacedParameter


class Differs(Exception):
    """A kernel differs from its definition; the message says how and where."""


class RunPair(Struct, frozen=True):
    """The memory of an output after both runs, and its contents before each."""

    first: Array
    second: Array
    before: tuple[Any, Any]

    def untouched(self) -> Array:
        """Which elements neither run wrote."""
        one, two = (DTYPES[self.first.dtype.name].type(value) for value in self.before)
        return np.asarray((self.first == one) & (self.second == two))


class ComparisonCounts(Struct, frozen=True):
    """The numbers of elements that were equal, within their error bounds, and not judged.

    An element is not judged if rounding decides between values, or if its bound takes too long.
    """

    equal: int
    rounded: int
    unjudged: int


def compare_places(placed: PlacedParameter, runs: RunPair) -> None:
    """Check that a kernel wrote every position that it must write, and no other.

    Needs no results of the definition.  Raises `Differs`.
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


def _agree(placed: PlacedParameter, runs: RunPair, places: Array) -> None:
    if places.size:
        place = int(places[0])
        raise Disagree(
            f"{_named(placed, place)} is {runs.first[place]} in one run and {runs.second[place]} "
            f"in the other, as are {places.size} places"
        )


class Disagree(Differs):
    """Two runs differ; the caller finds out which of their differences matters."""


def _check_padding(placed: PlacedParameter, runs: RunPair, untouched: Array) -> None:
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


def compare_values(
    placed: PlacedParameter,
    runs: RunPair,
    expected: Mapping[int, Any],
    oracle: Oracle,
    arrays: Mapping[str, Array],
) -> ComparisonCounts:
    """Compare elements with those of the definition; raises `Differs`."""
    found = _Values.of(placed, runs, expected)
    doubtful = found.other_numbers(oracle)
    if not doubtful.size:
        return ComparisonCounts(len(expected), 0, 0)
    bounds: Mapping[int, Any] = {}
    missed = 0
    if oracle.has_bounds(placed.buffer) and found.all_written(doubtful):
        # The largest differences first, as there may not be time for all.
        wanted = [(placed.buffer, int(found.elements[k])) for k in found.by_distance(doubtful)]
        computed, missed = oracle.bounds(arrays, wanted)
        bounds = computed.get(placed.buffer, {})
    wrong, unjudged = [], missed
    for k in doubtful:
        bound = bounds.get(int(found.elements[k]))
        if bound is None and missed:
            continue
        if bound is not None and _is_unknown(found.got[k], found.reference[k], bound):
            unjudged += 1
        elif not _within(found.got[k], found.reference[k], bound):
            wrong.append(int(k))
    if wrong:
        first = min(wrong, key=lambda k: int(found.elements[k]))
        what = found.describe(placed, first, bounds.get(int(found.elements[first])))
        raise Differs(f"{what}; {len(wrong)} of the {len(expected)} compared elements differ")
    rounded = int(doubtful.size) - unjudged
    return ComparisonCounts(len(expected) - int(doubtful.size), rounded, unjudged)


class _Values(Struct, frozen=True):
    """Elements by logical position: what a kernel wrote, and what it should have written.

    `touched` says where the kernel wrote, `written` where its definition does.
    """

    elements: Array
    got: Array
    touched: Array
    reference: Array
    written: Array

    @staticmethod
    def of(placed: PlacedParameter, runs: RunPair, expected: Mapping[int, Any]) -> _Values:
        elements = np.fromiter(expected, np.int64, len(expected))
        places = placed.positions[elements]
        got = runs.first[places]
        blank = np.zeros((), got.dtype)[()]
        values = [blank if value is None else value for value in expected.values()]
        written = np.array([value is not None for value in expected.values()], bool)
        touched = ~runs.untouched()[places]
        return _Values(elements, got, touched, np.array(values, got.dtype), written)

    def other_numbers(self, oracle: Oracle) -> Array:
        """The indices of elements that differ."""
        same = np.where(
            self.written, _same_numbers(self.got, self.reference, oracle) & self.touched,
            ~self.touched,
        )  # fmt: skip
        return np.flatnonzero(~same)

    def all_written(self, which: Array) -> bool:
        """Whether these elements are numbers that both sides wrote."""
        return bool(np.all(self.written[which] & self.touched[which]))

    def by_distance(self, which: Array) -> Array:
        """The same indices, ordered by decreasing relative distance to the reference."""
        with np.errstate(all="ignore"):
            wide, right = (a[which].astype(np.float64) for a in (self.got, self.reference))
            far = np.abs(wide - right) / np.maximum(np.abs(right), np.finfo(np.float64).tiny)
        far = np.nan_to_num(far, nan=np.inf, posinf=np.inf)
        return np.asarray(which[np.argsort(-far, kind="stable")])

    def describe(self, placed: PlacedParameter, k: int, bound: Any | None) -> str:
        """The expected and the actual value of one element, as text."""
        allowed = f" give or take {MARGIN * float(bound):.2g}" if bound else ""
        must = f"{self.reference[k]}{allowed}" if self.written[k] else "left alone"
        found = self.got[k] if self.touched[k] else "not written"
        place = int(placed.positions[int(self.elements[k])])
        return f"{_named(placed, place)} must be {must} and is {found}"


def _named(placed: PlacedParameter, place: int) -> str:
    element = int(placed.elements[place])
    if element < 0:
        return f"place {placed.place_name(place)} of {placed.buffer.name}"
    return f"{placed.element_name(element)} (place {placed.place_name(place)})"


def _same_bits(left: Array, right: Array) -> Array:
    """Elementwise equality of bits, except that all NaNs are equal."""
    width = f"u{left.dtype.itemsize}"
    same = left.view(width) == right.view(width)
    if left.dtype.name in FLOATING:
        same = same | ((left != left) & (right != right))
    return np.asarray(same)


def _same_numbers(got: Array, reference: Array, oracle: Oracle) -> Array:
    """Elementwise equality of bits; zeros of either sign are equal if terms may be reordered."""
    same = _same_bits(got, reference)
    sums = any(isinstance(s, Reduce) and s.op is ReduceOp.ADD for s in walk(oracle.func.body))
    return same | (got == reference) if sums else same


def _is_unknown(got: Any, reference: Any, bound: Any) -> bool:
    """Whether an error bound says nothing: it is infinite, or NaN for two finite numbers, as where
    it is the product of an infinite one and of zero."""
    both_finite = np.isfinite(got) and np.isfinite(reference)
    return bool(np.isposinf(bound) or (np.isnan(bound) and both_finite))


def _within(got: Any, reference: Any, bound: Any | None) -> bool:
    """Whether a number differs from the reference by at most its error bound.

    Without a bound it must be the same number, including the sign of a zero.
    """
    if not bound or not (np.isfinite(got) and np.isfinite(reference)):
        return False
    return abs(float(got) - float(reference)) <= MARGIN * float(bound)
