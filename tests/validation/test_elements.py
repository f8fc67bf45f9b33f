"""Single elements of definitions whose stages write several places in each iteration."""

from __future__ import annotations

import numpy as np
import pytest

from graphflow.kernels.definitions.windows.filtered_convolution import transformed_weights
from graphflow.tir import PrimFunc, interpret, parse
from graphflow.validation.elements import Elements, Evaluation, Unsolved

TWO_PLACES = """
@primfunc
def kernel(x: f32[4], y: out[f32[3, 4]]):
    for i in serial(0, 4):
        {first}
        {second}
"""


def check(func: PrimFunc) -> None:
    """Every element alone is what running the whole definition gives it."""
    shape = func.inputs[0].shape
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (output,) = func.outputs
    want = interpret(func, {func.inputs[0].name: x})[output.name].reshape(-1)
    evaluation = Evaluation(Elements.of(func), {func.inputs[0].name: x.reshape(-1)}, 10**6)
    found = [evaluation.element(output, position) for position in range(output.size)]
    got = np.array([np.nan if one is None else one for one in found], np.float32)
    np.testing.assert_array_equal(got, want)


def test_places_that_constants_tell_apart() -> None:
    check(transformed_weights((3, 2, 3, 3), 4))
    check(parse(TWO_PLACES.format(first="y[0, i] = x[i]", second="y[2, 3 - i] = x[3 - i]")))
    check(parse(TWO_PLACES.format(first="y[2, i] = x[i]", second="y[0, i] = x[3 - i]")))


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
