"""Tests of what `Roles` tell prices: terms that meet data, functions of each element."""

from itertools import product

import pytest

from graphflow.kernels.definitions.windows import pooling
from graphflow.kernels.definitions.windows.convolution import convolution
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.recipes.analysis.roles import Roles, roles_of


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
