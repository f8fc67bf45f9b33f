"""Tests of neutral elements: combined with any value, they leave it as it is, its sign included."""

from __future__ import annotations

import numpy as np
import pytest

from graphflow.base.dtypes import DTYPES, FLOATING, integer_limits
from graphflow.tir import BINARY_FUNCTIONS, ReduceOp, neutral_literal


@pytest.mark.parametrize("op", ReduceOp)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int32", "uint8", "bool"])
def test_a_neutral_element_changes_no_value(op: ReduceOp, dtype: str) -> None:
    kind = DTYPES[dtype]
    neutral = np.asarray(neutral_literal(op, dtype), kind)[()]
    if dtype in FLOATING:
        values = [0.0, -0.0, 1.5, np.inf, -np.inf, np.nan]
    else:
        values = [False, True] if dtype == "bool" else [*integer_limits(dtype), 0, 1]
    for value in np.asarray(values, kind):
        for pair in ((neutral, value), (value, neutral)):
            got = np.asarray(BINARY_FUNCTIONS[op.value](*pair), kind)
            np.testing.assert_array_equal(got, value)
            assert dtype not in FLOATING or np.signbit(got) == np.signbit(value)
