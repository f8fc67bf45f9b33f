"""Minimal filtering: the tiles of a convolution of 3 taps from products of transformed tiles.

In: the extent m of a tile of outputs.  Out: the matrices with which a tile of m outputs of a row
takes m + 2 multiplications for each pair of channels, and not 3 m (Winograd).  Along two axes of
3×3 weights that is (m + 2)² for m × m outputs, and not 9 m².

    y = Aᵀ ((G g) ⊙ (Bᵀ d))             g: 3 weights, d: m + 2 elements of a row
    y = Aᵀ ((G g Gᵀ) ⊙ (Bᵀ d B)) A      g: 3 × 3 weights, d: (m + 2) × (m + 2) elements of the image

What always holds: the matrices are exact, and the identity was proven with rational numbers for
each output, weight and element.  Source: Lavin and Gray, Fast Algorithms for Convolutional Neural
Networks (2015), section 4.1; for the points Barabasz et al., Error Analysis and Improving the
Accuracy of Winograd Convolution (2020).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cache, cached_property, reduce
from math import lcm
from operator import mul
from typing import TypeAlias

from msgspec import Struct

Row: TypeAlias = "tuple[Fraction, ...]"
Matrix: TypeAlias = "tuple[Row, ...]"

TAPS = 3
"""Weights along an axis."""

POINTS: Mapping[int, tuple[Fraction, ...]] = {
    2: tuple(map(Fraction, (0, 1, -1))),
    4: (*map(Fraction, (0, 1, -1, 2)), Fraction(-1, 2)),
}
"""By the extent of a tile the points at which polynomials are evaluated, besides infinity.  With
2 and −1/2 the error of 4 × 4 tiles is a third of that with the more usual 2 and −2."""


class Filtering(Struct, frozen=True, dict=True):
    """The matrices along an axis, for `tile` outputs: Bᵀ, G and Aᵀ in the module's docstring."""

    tile: int
    data: Matrix
    weights: Matrix
    outputs: Matrix

    @property
    def window(self) -> int:
        """The elements of the image along each axis of a tile: m + 2."""
        return len(self.data)

    @property
    def scale(self) -> int:
        """The least factor that makes the weights' matrix one of integers."""
        return lcm(*(factor.denominator for row in self.weights for factor in row))

    @property
    def scaled_weights(self) -> Matrix:
        """That matrix of integers: `G` times the `scale`."""
        return tuple(tuple(factor * self.scale for factor in row) for row in self.weights)

    @cached_property
    def keeps_integers(self) -> bool:
        """Whether images of integers and sums of integers stay integers when transformed."""
        factors = (factor for row in (*self.data, *self.outputs) for factor in row)
        return all(factor.denominator == 1 for factor in factors)

    @cached_property
    def data_gain(self) -> Fraction:
        """The most that the largest magnitude grows in `Bᵀ d`."""
        return _gain(self.data)

    @cached_property
    def weight_gain(self) -> Fraction:
        """The most that the largest magnitude grows in `G g`."""
        return _gain(self.weights)

    @cached_property
    def output_gain(self) -> Fraction:
        """The most that the largest magnitude grows in `Aᵀ m`."""
        return _gain(self.outputs)


_ONE: Matrix = ((Fraction(1),),)

UNFILTERED = Filtering(1, _ONE, _ONE, _ONE)
"""The matrices along an axis that weights do not have: elements and sums stay what they are."""


def filtering_of(axes: int, tile: int) -> tuple[Filtering, Filtering]:
    """The matrices along the rows and along the columns of tiles: along both for weights of two
    `axes`, along the columns alone for those of one."""
    along = filtering(tile)
    return (along if axes > 1 else UNFILTERED), along


@cache
def filtering(tile: int) -> Filtering:
    """The matrices along an axis, for `tile` outputs; KeyError for an extent without points."""
    points = POINTS[tile]
    others = [[q for q in points if q != p] for p in points]
    data = [(*_with_roots(roots), Fraction(0)) for roots in others]
    scales = [_product(p - q for q in roots) for p, roots in zip(points, others, strict=True)]
    at_infinity = (*(Fraction(0) for _ in points), Fraction(1))
    made = Filtering(
        tile,
        (*data, _with_roots(points)),
        (
            *(tuple(p**k / f for k in range(TAPS)) for p, f in zip(points, scales, strict=True)),
            at_infinity[-TAPS:],
        ),
        tuple((*(p**k for p in points), Fraction(int(k == tile - 1))) for k in range(tile)),
    )
    _require_identity(made)
    return made


def _require_identity(made: Filtering) -> None:
    """The proof along one axis, from which that along two follows: Σ Aᵀ[o, p] G[p, k] Bᵀ[p, i] is 1
    where i = o + k, else 0."""
    for o, k, i in (
        (o, k, i) for o in range(made.tile) for k in range(TAPS) for i in range(made.window)
    ):
        total = sum(
            made.outputs[o][p] * made.weights[p][k] * made.data[p][i] for p in range(made.window)
        )
        if total != int(i == o + k):
            raise AssertionError(f"weight {k} and element {i} of output {o} give {total}")


def _with_roots(roots: Sequence[Fraction]) -> Row:
    """The coefficients of the polynomial ∏ (x − root), the constant one first."""
    found: Row = (Fraction(1),)
    for root in roots:
        shifted, scaled = (Fraction(0), *found), (*(-root * c for c in found), Fraction(0))
        found = tuple(a + b for a, b in zip(shifted, scaled, strict=True))
    return found


def _product(factors: Iterable[Fraction]) -> Fraction:
    return reduce(mul, factors, Fraction(1))


def _gain(matrix: Matrix) -> Fraction:
    """The largest sum of magnitudes in a row."""
    return max(sum(map(abs, row), Fraction(0)) for row in matrix)
