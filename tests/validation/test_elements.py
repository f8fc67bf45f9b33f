"""Single elements of definitions whose stages write several places in each iteration."""

import numpy as np
import pytest

from graphflow.kernels.definitions.windows.convolution import convolution
from graphflow.kernels.definitions.windows.filtered_convolution import (
    filtered_convolution,
    transformed_weights,
)
from graphflow.kernels.definitions.windows.plain_convolution import plain_convolution
from graphflow.kernels.definitions.windows.window import Window
from graphflow.tir import PrimFunc, interpret, parse
from graphflow.validation.elements import Elements, Evaluation, Unsolved

TWO_PLACES = """
@primfunc
def kernel(x: f32[4], y: out[f32[3, 4]]):
    for i in serial(0, 4):
        {first}
        {second}
"""

ROWS = """
@primfunc
def kernel(x: f32[4], y: out[f32[4, 4]]):
    for i in serial(0, 4):
        for k in serial(0, 4):
            y[i, 3 - k] = x[i]
        if i < 2:
            for j in serial(0, 4):
                {second}
"""


def check(func: PrimFunc, **special: float) -> None:
    """Every element alone is what running the whole definition gives it."""
    rng = np.random.default_rng(0)
    given = {b.name: rng.standard_normal(b.shape).astype(np.float32) for b in func.inputs}
    for name, value in special.items():
        given[name].flat[0] = value
    (output,) = func.outputs
    with np.errstate(all="ignore"):
        want = interpret(func, given)[output.name].reshape(-1)
    flat = {name: array.reshape(-1) for name, array in given.items()}
    evaluation = Evaluation(Elements.of(func), flat, 10**6)
    with np.errstate(all="ignore"):
        found = [evaluation.element(output, position) for position in range(output.size)]
    got = np.array([np.nan if one is None else one for one in found], np.float32)
    np.testing.assert_array_equal(got, want)


def test_places_that_constants_tell_apart() -> None:
    check(transformed_weights((3, 2, 3, 3), 4))
    check(parse(TWO_PLACES.format(first="y[0, i] = x[i]", second="y[2, 3 - i] = x[3 - i]")))
    check(parse(TWO_PLACES.format(first="y[2, i] = x[i]", second="y[0, i] = x[3 - i]")))


@pytest.mark.parametrize("first", [0.5, 3e38])
def test_places_of_the_same_iteration_that_are_written_one_after_the_other(first: float) -> None:
    """An element that is large has the plain sums of its tiles stored behind the others."""
    plain = convolution((1, 2, 5, 5), (3, 2, 3, 3), Window.of((3, 3), pads=(1, 1, 1, 1)))
    check(filtered_convolution(plain, plain_convolution(plain), 2, lanes=4).func, x=first)
    check(parse(ROWS.format(second="y[i, j] = x[j]")))


def test_they_are_left_where_another_iteration_may_write_the_same_element() -> None:
    with pytest.raises(Unsolved, match="writes 2 places"):
        Elements.of(parse(ROWS.format(second="y[3 - i, j] = x[j]")))
    with pytest.raises(Unsolved, match="y is read before it is complete"):
        Elements.of(parse(ROWS.format(second="y[i, j] = y[i, 3 - j]")))


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ("y[0, i] = x[i]", "y[2, i] = y[0, i]", "y is read before it is complete"),
        ("y[0, i] = x[i]", "y[2, i] = y[0, 3 - i]", "y is read before it is complete"),
        ("y[0, i] = y[2, i]", "y[2, i] = x[i]", "y is read before it is complete"),
        ("y[0, i] = x[i]", "y[i % 3, 3 - i] = x[0]", "writes 2 places"),
        ("y[0, i] = x[i]", "y[0, 3 - i] = x[0]", "writes 2 places"),
    ],
)
def test_places_that_may_meet_or_are_read_are_left(first: str, second: str, reason: str) -> None:
    with pytest.raises(Unsolved, match=reason):
        Elements.of(parse(TWO_PLACES.format(first=first, second=second)))
