"""Tests of what `Roles` tell prices: terms that meet data, functions of each element."""

from itertools import product

import pytest

from graphflow.kernels.definitions.windows import pooling
from graphflow.kernels.definitions.windows.convolution import convolution
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.recipes.analysis.roles import Roles, roles_of
from graphflow.tir import parse


def inside(extent: int, taps: int, pad: int, stride: int) -> float:
    """The share of the taps along one axis of an image that meet it, counted one by one."""
    count = (extent + 2 * pad - taps) // stride + 1
    met = [0 <= o * stride + k - pad < extent for o, k in product(range(count), range(taps))]
    return sum(met) / len(met)


def convolved(extent: int, taps: int, pad: int, stride: int) -> Roles:
    roles = roles_of(
        convolution(
            (1, 4, extent, extent),
            (8, 4, taps, taps),
            Window.of((taps, taps), strides=(stride, stride), pads=(pad,) * 4),
        )
    )
    assert roles is not None
    return roles


@pytest.mark.parametrize("extent", (3, 7, 8))
@pytest.mark.parametrize(("taps", "pad"), ((1, 0), (3, 0), (3, 1), (5, 2), (7, 3)))
@pytest.mark.parametrize("stride", (1, 2))
def test_the_share_of_taps_that_meet_the_image(
    extent: int, taps: int, pad: int, stride: int
) -> None:
    if taps > extent + 2 * pad:
        return
    roles, along = convolved(extent, taps, pad, stride), inside(extent, taps, pad, stride)
    assert roles.share_inside(None) == pytest.approx(along**2)
    assert roles.share_inside(roles.axes[1]) == pytest.approx(along**2)
    assert roles.share_inside(roles.axes[3]) == pytest.approx(along)


def test_functions_and_divisions_of_each_element_are_listed_once() -> None:
    roles = roles_of(pooling.average_pool((1, 4, 8, 8), Window.of((2, 2), strides=(2, 2))))
    assert roles is not None and set(roles.functions) == {"div"}
    plain = convolved(8, 3, 1, 1)
    assert plain.functions == () and plain.epilogue == ()


ROUNDED = "cast(u8, select(data(round({0}) > f32(255.0)), f32(255.0), round({0})))"


def test_bytes_that_are_made_of_rounded_floats_are_counted() -> None:
    """Of each element, equal ones once; integers that are narrowed are not rounded."""

    def count(value: str) -> int:
        text = f"""
        @primfunc
        def k(x: f32[5, 7], n: i32[5, 7], y: out[u8[5, 7]]):
            with block("main"):
                for i in serial(0, 5):
                    for j in serial(0, 7):
                        y[i, j] = {value}
        """
        roles = roles_of(parse(text))
        assert roles is not None
        return roles.roundings

    once = ROUNDED.format("x[i, j]")
    twice = ROUNDED.format(f"f32(0.5) * cast(f32, {once})")
    assert count("cast(u8, n[i, j])") == 0
    assert count(once) == 1
    assert count(twice) == 2
    assert count(f"max({twice}, {twice})") == 2
