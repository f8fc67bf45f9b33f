"""Convolutions in transformed tiles end to end: special values, padding, residuals, the option."""

from __future__ import annotations

import numpy as np
import pytest

import graphflow as gf
from graphflow.models import ModelBuilder

CHANNELS, SIZE = 64, (12, 11)
WHOLE = gf.Options(fallback=None, workers=0, threads=2)


def network(channels: int = CHANNELS, size: tuple[int, int] = SIZE) -> ModelBuilder:
    b = ModelBuilder()
    x = b.input("x", (1, channels, *size))
    y = b.conv(x, channels, 3, pads=[1, 1, 1, 1])
    b.output(b.relu(b.add(y, x)))
    return b


def taken(exe: gf.Executable) -> list[str]:
    return [
        choice.variant_name
        for choice in exe.compiled.plan.choices.values()
        if "in transformed tiles" in choice.variant_name
    ]


@pytest.fixture(scope="module")
def both() -> tuple[gf.Executable, gf.Executable]:
    """The network in transformed tiles, and as plain sums."""
    model = network().model()
    tiled = gf.compile(model, options=WHOLE)
    assert taken(tiled)
    plain = gf.compile(model, options=gf.Options(fallback=None, winograd=False, threads=2))
    assert not taken(plain)
    return tiled, plain


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e38, -3e38, 2.0**65, 3e19])
def test_special_values_come_out_where_plain_sums_have_them(
    both: tuple[gf.Executable, gf.Executable], value: float
) -> None:
    x = np.random.default_rng(0).standard_normal((1, CHANNELS, *SIZE), np.float32)
    for row, column in np.ndindex(SIZE):
        special = x.copy()
        special[0, (7 * row + column) % CHANNELS, row, column] = value
        tiled, plain = (next(iter(exe.run({"x": special}).values())) for exe in both)
        np.testing.assert_array_equal(np.isnan(tiled), np.isnan(plain))
        np.testing.assert_array_equal(np.isposinf(tiled), np.isposinf(plain))
        if not abs(value) < 2.0**65:  # else one large element is in the sums of a whole tile
            known = np.isfinite(plain)
            np.testing.assert_allclose(tiled[known], plain[known], rtol=1e-4, atol=1e-4)


def test_the_error_is_small(both: tuple[gf.Executable, gf.Executable]) -> None:
    x = np.random.default_rng(1).standard_normal((1, CHANNELS, *SIZE), np.float32)
    tiled, plain = (next(iter(exe.run({"x": x}).values())) for exe in both)
    error = np.linalg.norm(tiled.astype("float64") - plain) / np.linalg.norm(plain)
    assert error < 1e-5


def test_padding_plays_no_part() -> None:
    b = ModelBuilder()
    x = b.input("x", (1, 20, *SIZE))
    y = b.conv(b.relu(b.conv(x, CHANNELS, 1)), CHANNELS, 3, pads=[1, 1, 1, 1])
    b.output(b.conv(b.node("Exp", [y]), 20, 1, in_channels=CHANNELS))
    model = b.model()
    poisoned = gf.compile(model, options=gf.Options(poison=True, workers=0, threads=2))
    assert taken(poisoned)
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 20, *SIZE), np.float32) / 9}
    first, second = (
        next(iter(poisoned.run(inputs, poison=value).values())) for value in (np.nan, -42.0)
    )
    np.testing.assert_array_equal(first, second)


def test_the_plan_says_why_and_with_what_error(both: tuple[gf.Executable, gf.Executable]) -> None:
    (choice,) = both[0].compiled.plan.choices.values()
    assert "computed in transformed tiles" in choice.because
    assert "in norm" in choice.because
