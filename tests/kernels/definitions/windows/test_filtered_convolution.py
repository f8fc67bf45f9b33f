"""Tests of convolutions in transformed tiles: interpreted, against the plain definition."""

from collections.abc import Callable

import numpy as np
import pytest

from graphflow import tir
from graphflow.kernels.definitions.windows import convolution
from graphflow.kernels.definitions.windows.filtered_convolution import (
    LIMIT,
    filtered_convolution,
    tiles_of_a_row,
    transformed_weights,
)
from graphflow.kernels.definitions.windows.plain_convolution import NotFilterable, plain_convolution
from graphflow.kernels.definitions.windows.window import Window
from support.kernels.narrow_products import narrow

TILES = (2, 4)
WORDS = ("int16", "int16")
X, W = (1, 2, 5, 7), (3, 2, 3, 3)
SEQUENCE, TAPS = (2, 2, 23), (3, 2, 3)


def both_ways(
    func: tir.PrimFunc, tile: int, w: np.ndarray, lanes: int
) -> Callable[[dict[str, np.ndarray]], tuple[np.ndarray, np.ndarray]]:
    """A function of the operands: the results of the plain definition, and of that in transformed
    tiles, with these weights."""
    made = filtered_convolution(func, plain_convolution(func), tile, lanes)
    tir.verify(made.func, "definition")
    weights = transformed_weights(w.shape, tile, w.dtype.name, lanes)
    (u,) = tir.interpret(weights, {"w": w}).values()

    def run(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        (plain,) = tir.interpret(func, arrays).values()
        given = {**arrays, made.transformed: u}
        read = {buffer.name: given[buffer.name] for buffer in made.func.inputs}
        with np.errstate(all="ignore"):
            (tiled,) = tir.interpret(made.func, read).values()
        return plain, tiled

    return run


def results(
    func: tir.PrimFunc, tile: int, arrays: dict[str, np.ndarray], lanes: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Of the plain definition, and of that in transformed tiles."""
    return both_ways(func, tile, arrays["w"], lanes)(arrays)


def operands(
    x: tuple[int, ...] = X, w: tuple[int, ...] = W, seed: int = 0
) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    shapes = {"x": x, "w": w, "b": w[:1]}
    return {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 0, 0, 0), (1, 0, 2, 1)])
def test_it_computes_the_convolution(tile: int, pads: tuple[int, ...], lanes: int) -> None:
    func = convolution.convolution(X, W, Window.of(W[2:], pads=pads), bias=True)
    plain, tiled = results(func, tile, operands(), lanes)
    np.testing.assert_allclose(tiled, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("pads", [(1, 1), (0, 0), (2, 0)])
def test_it_computes_the_convolution_of_a_sequence(
    tile: int, pads: tuple[int, ...], lanes: int
) -> None:
    func = convolution.convolution(SEQUENCE, TAPS, Window.of(TAPS[2:], pads=pads), bias=True)
    plain, tiled = results(func, tile, operands(SEQUENCE, TAPS), lanes)
    np.testing.assert_allclose(tiled, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("count", [1, 2, 6, 13, 31, 200, 375, 1601, 6400])
def test_sequences_are_cut_to_rows_with_few_tiles_in_vain(count: int) -> None:
    wide = tiles_of_a_row(count)
    rows = -(-count // wide)
    assert (rows % 2 == 0) == (count > 1)
    assert rows * wide - count <= max(1, count // 16)
    assert wide >= 8 or count < 16


@pytest.mark.parametrize(
    ("x", "w", "pads"),
    [
        (X, W, (1, 1, 1, 1)),
        (X, W, (0, 0, 0, 0)),
        (X, W, (1, 0, 2, 1)),
        (SEQUENCE, TAPS, (1, 1)),
        (SEQUENCE, TAPS, (0, 2)),
    ],
)
@pytest.mark.parametrize("weights", [-128, 127, None])
@pytest.mark.parametrize("lanes", [1, 4])
def test_sums_of_integers_are_the_same_bit_for_bit(
    x: tuple[int, ...], w: tuple[int, ...], pads: tuple[int, ...], weights: int | None, lanes: int
) -> None:
    words = narrow(
        convolution.convolution(x, w, Window.of(w[2:], pads=pads), bias=True, dtype="int32"), WORDS
    )
    random = np.random.default_rng(0)
    of_bytes = random.integers(-255, 256, w) if weights is None else np.full(w, weights)
    arrays = {
        "x": random.choice([-255, 255, 0, 1, 127], x).astype(np.int16),
        "w": of_bytes.astype(np.int16),
        "b": np.array([2**31 - 1, -(2**31), 0], np.int32),  # sums wrap around in both
    }
    plain, tiled = results(words, 2, arrays, lanes)
    np.testing.assert_array_equal(tiled, plain)


def require_alike(plain: np.ndarray, tiled: np.ndarray) -> None:
    """NaN and infinities at the same places, and elsewhere about the same numbers."""
    np.testing.assert_array_equal(np.isnan(tiled), np.isnan(plain))
    np.testing.assert_array_equal(np.isinf(tiled), np.isinf(plain))
    known = np.isfinite(plain)
    np.testing.assert_allclose(tiled[known], plain[known], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, -1e38, LIMIT])
def test_special_elements_have_the_effect_that_they_have_in_plain_sums(
    tile: int, value: float, lanes: int
) -> None:
    func = convolution.convolution(X, W, Window.of(W[2:], pads=(1, 1, 1, 1)), bias=True)
    arrays = operands()
    arrays["w"][1, 1] = 0  # infinity times zero is NaN
    arrays["w"][2] *= 30  # 3e38 overflows
    run = both_ways(func, tile, arrays["w"], lanes)
    for row, column in np.ndindex(X[2:]):
        x = arrays["x"].copy()
        x[0, (row + column) % 2, row, column] = value
        with np.errstate(all="ignore"):
            require_alike(*run({**arrays, "x": x}))


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("value", [np.inf, np.nan, -1e38, LIMIT])
def test_special_elements_of_a_sequence_too(tile: int, value: float) -> None:
    func = convolution.convolution(SEQUENCE, TAPS, Window.of(TAPS[2:], pads=(1, 1)), bias=True)
    arrays = operands(SEQUENCE, TAPS)
    arrays["w"][1, 1] = 0
    arrays["w"][2] *= 30
    run = both_ways(func, tile, arrays["w"], 4)
    for at in range(SEQUENCE[2]):
        x = arrays["x"].copy()
        x[at % 2, at % 2, at] = value
        with np.errstate(all="ignore"):
            require_alike(*run({**arrays, "x": x}))


@pytest.mark.parametrize(
    ("func", "reason"),
    [
        (convolution.convolution(X, W, Window.of(W[2:], strides=(2, 2))), "strides"),
        (convolution.convolution(X, W, Window.of(W[2:], dilations=(2, 2))), "strides or dilations"),
        (convolution.convolution(X, (4, 1, 3, 3), groups=2), "no convolution of images"),
        (convolution.convolution(X, (3, 2, 1, 1)), "3 taps along each axis"),
        (convolution.convolution(X, W, dtype="float64"), "float32"),
        (
            narrow(convolution.convolution(X, W, dtype="int32"), ("uint8", "int8")),
            "16-bit integers",
        ),
        (convolution.convolution((1, 2, 8), (3, 2, 5)), "3 taps along each axis"),
        (
            convolution.convolution(SEQUENCE, TAPS, Window.of(TAPS[2:], dilations=(2,))),
            "strides or dilations",
        ),
        (convolution.convolution((1, 2, 3, 3, 3), (3, 2, 3, 3, 3)), "no convolution of images"),
    ],
)
def test_other_convolutions_are_refused(func: tir.PrimFunc, reason: str) -> None:
    with pytest.raises(NotFilterable, match=reason):
        plain_convolution(func)
