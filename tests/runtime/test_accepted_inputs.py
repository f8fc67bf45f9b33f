"""Tests of inputs of runs: which a program takes, and what it says of others."""

from typing import Any

import numpy as np
import pytest

from graphflow.base.errors import InvalidModel
from graphflow.program import InputSize, ProgramSpec, TensorSpec
from graphflow.runtime.accepted_inputs import AcceptedInputs

N = InputSize("n", 1, 2, 8, ((0, 0),))
INPUTS = (TensorSpec("x", "float32", (8, 4)), TensorSpec("held", "int64", ()))
ACCEPTED = AcceptedInputs(ProgramSpec((), (), (), (), 0, 0, INPUTS, (), sizes=(N,)), {})


class Rows:
    """An object that numpy makes an array of, with some attribute `shape`."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.ones((3, 4), np.float32)


@pytest.mark.parametrize("shape", [None, [3, 4], lambda: (3, 4), (None, 4), ("n", 4)])
def test_a_shape_may_be_anything_where_an_object_becomes_an_array(shape: Any) -> None:
    assert not ACCEPTED.fits({"x": Rows(shape)})
    arrays, decided = ACCEPTED.accept({"x": Rows(shape)})
    assert arrays[0].shape == (3, 4) and decided.sizes == {1: 3}


def test_shapes_within_the_bounds_fit() -> None:
    assert ACCEPTED.fits({"x": np.zeros((2, 4))})
    assert not ACCEPTED.fits({"x": np.zeros((9, 4))})
    assert not ACCEPTED.fits({"x": [[1.0]]})


def test_messages_name_sizes_and_no_inputs_that_hold_them() -> None:
    for given in ({"x": np.zeros((2, 4))}, {"x": np.zeros((2, 3), np.float32)}, {}):
        with pytest.raises(InvalidModel, match=r"x: float32\[n, 4\]") as caught:
            ACCEPTED.accept(given)
        assert "held" not in str(caught.value)
