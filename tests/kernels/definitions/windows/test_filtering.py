"""Tests of the matrices of minimal filtering: exact for every image and every weight."""

from fractions import Fraction
from random import Random

import pytest

from graphflow.kernels.definitions.windows.filtering import POINTS, TAPS, Matrix, filtering


def times(a: Matrix, b: Matrix) -> Matrix:
    return tuple(
        tuple(
            sum((x * y for x, y in zip(row, column, strict=True)), Fraction(0))
            for column in zip(*b, strict=True)
        )
        for row in a
    )


def transposed(a: Matrix) -> Matrix:
    return tuple(zip(*a, strict=True))


def square(size: int, random: Random) -> Matrix:
    return tuple(tuple(Fraction(random.randint(-9, 9)) for _ in range(size)) for _ in range(size))


@pytest.mark.parametrize("tile", POINTS)
def test_a_tile_is_exactly_the_sums_of_products(tile: int) -> None:
    how, random = filtering(tile), Random(tile)
    d, g = square(how.window, random), square(TAPS, random)
    u = times(times(how.weights, g), transposed(how.weights))
    v = times(times(how.data, d), transposed(how.data))
    products = tuple(
        tuple(x * y for x, y in zip(a, b, strict=True)) for a, b in zip(u, v, strict=True)
    )
    found = times(times(how.outputs, products), transposed(how.outputs))
    for i in range(tile):
        for j in range(tile):
            taps = ((k, l) for k in range(TAPS) for l in range(TAPS))
            assert found[i][j] == sum(d[i + k][j + l] * g[k][l] for k, l in taps)


@pytest.mark.parametrize("tile", POINTS)
def test_magnitudes_grow_by_no_more_than_the_gains(tile: int) -> None:
    how = filtering(tile)
    for matrix, gain in (
        (how.data, how.data_gain),
        (how.weights, how.weight_gain),
        (how.outputs, how.output_gain),
    ):
        worst = max(matrix, key=lambda row: sum(map(abs, row)))
        signs = tuple(Fraction(-1 if x < 0 else 1) for x in worst)
        grown = [sum(a * b for a, b in zip(row, signs, strict=True)) for row in matrix]
        assert max(map(abs, grown)) == gain
        ones = tuple(tuple(a * b for b in signs) for a in signs)
        along_both = times(times(matrix, ones), transposed(matrix))
        assert max(abs(x) for row in along_both for x in row) == gain**2


def test_small_tiles_keep_integers_and_large_ones_do_not() -> None:
    small, large = filtering(2), filtering(4)
    assert small.keeps_integers
    assert small.scale == 2
    assert all(factor.denominator == 1 for row in small.scaled_weights for factor in row)
    assert not large.keeps_integers
