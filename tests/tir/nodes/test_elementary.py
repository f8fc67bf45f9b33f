"""Tests that the rows of elementary functions state what is true of them."""

import ctypes
from math import inf

import numpy as np
import pytest

from graphflow.tir import ELEMENTARY, UNARY
from graphflow.tir.nodes.elementary import ElementaryFunction

LIBRARY = ctypes.CDLL(None)  # Python is linked with the C library
GRID = np.concatenate([np.linspace(-700, 700, 2001), np.linspace(-3, 3, 2001)])
GRID.sort()

each_row = pytest.mark.parametrize("name", ELEMENTARY)


def values(row: ElementaryFunction, points: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array([row.meaning(x) for x in points])


def test_each_row_is_of_an_operator() -> None:
    assert set(ELEMENTARY) < set(UNARY)


@each_row
def test_a_function_rises_where_the_row_says_and_is_nan_elsewhere(name: str) -> None:
    row = ELEMENTARY[name]
    if row.rises is None:
        return
    (low, high), points = row.rises, GRID
    inside = (points >= low) & (points <= high)
    found = values(row, points[inside])
    assert not np.isnan(found).any()
    assert (found[1:] >= found[:-1]).all()
    assert np.isnan(values(row, points[~inside])).all()


@each_row
def test_a_gentle_function_has_a_derivative_below_two(name: str) -> None:
    row = ELEMENTARY[name]
    found = values(row, GRID)
    with np.errstate(all="ignore"):
        steepest = np.nanmax(np.abs(np.diff(found) / np.diff(GRID)))
    assert steepest <= 2.0 if row.gentle else not steepest <= 1.0


@each_row
def test_a_function_that_does_not_overflow_stays_finite(name: str) -> None:
    row = ELEMENTARY[name]
    (found,) = values(row, np.array([1e30]))
    assert (found == inf) == row.overflows


@each_row
def test_the_meaning_is_defined_at_exact_points(name: str) -> None:
    row = ELEMENTARY[name]
    assert row.exact and not np.isnan(values(row, np.array(row.exact))).any()


@each_row
def test_the_library_has_the_functions_that_are_called(name: str) -> None:
    if ELEMENTARY[name].library:
        assert getattr(LIBRARY, name)
