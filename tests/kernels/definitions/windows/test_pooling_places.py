"""Tests of the places of maxima in images of which a run gives a part."""

from math import prod

import numpy as np
import pytest

from graphflow import tir
from graphflow.kernels.definitions.windows.pooling_places import place_of_run


def numbered(shape: tuple[int, ...], column_major: bool) -> np.ndarray:
    """The place of each element of images, as MaxPool counts them."""
    sides = shape[2:]
    images = np.arange(prod(shape[:2])).reshape(*shape[:2], 1, 1) * prod(sides)
    return images + np.arange(prod(sides)).reshape(sides, order="F" if column_major else "C")


@pytest.mark.parametrize("column_major", [False, True])
def test_places_in_an_image_of_other_sides(column_major: bool) -> None:
    """Places behind that image are none in it."""
    room = (2, 3, 4, 5)
    wanted = np.full(room, -1)
    wanted[:, :, :3, :2] = numbered((2, 3, 3, 2), column_major)
    func = place_of_run(room, room, column_major)
    sides = {"side0": np.array(3), "side1": np.array(2)}
    found = tir.interpret(func, {"place": numbered(room, column_major), **sides})["y"]
    np.testing.assert_array_equal(found, wanted)
    found = tir.interpret(func, {"place": np.full(room, -1), **sides})["y"]
    assert (found == -1).all()
