"""Tests of neutral elements, which leave any value as it is, its sign included, and of casts."""

import numpy as np
import pytest

from graphflow.base.dtypes import (
    CARRIERS,
    DTYPES,
    FLOATING,
    FLOATS,
    SIGNED,
    STORED_INTEGERS,
    UNSIGNED,
    integer_limits,
)
from graphflow.tir import BINARY_FUNCTIONS, ReduceOp, neutral_literal
from graphflow.tir.meaning.operators import cast_function


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


# Casts ------------------------------------------------------------------------------------------


def scalars_of(dtype: str) -> np.ndarray:
    """All values of a type of a byte, every seventh of 16 bits, random bits of others, and numbers
    that are rounded."""
    kind = DTYPES[dtype]
    if dtype == "bool":
        return np.array([False, True])
    if dtype in STORED_INTEGERS:
        low, high = integer_limits(dtype)
        return np.arange(low, high + 1).astype(kind)
    if dtype == "float4_e2m1fn":
        return np.arange(16, dtype=np.uint8).view(kind)
    if kind.itemsize <= 2:
        step = 7 if kind.itemsize == 2 else 1
        return np.arange(0, 1 << 8 * kind.itemsize, step, f"u{kind.itemsize}").view(kind)
    rng = np.random.default_rng(0)
    found = rng.integers(0, 256, 1000 * kind.itemsize, np.uint8).view(kind)
    if dtype not in FLOATING:
        return found
    # Numbers of all sizes that 16 and 8 bits hold, and halfway between two neighbours.
    ordinary = rng.standard_normal(1000) * 10.0 ** rng.integers(-12, 8, 1000)
    ties = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 65519.9, 65520, 464, 465, 2.5, 0.25, -0.0])
    return np.concatenate([found, ordinary.astype(kind), ties.astype(kind)])


COMPUTED = (*FLOATS, *SIGNED, *UNSIGNED, "bool")
PAIRS = [(a, b) for a in COMPUTED for b in COMPUTED]
PAIRS += [pair for a, found in CARRIERS.items() for b in found for pair in ((a, b), (b, a))]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_casts_are_numpys_conversions(source: str, target: str) -> None:
    """Bit for bit, where no NaN is: what a NaN holds besides its sign says nothing."""
    convert, kind, values = cast_function(source, target), DTYPES[target], scalars_of(source)
    with np.errstate(all="ignore"):
        wanted, found = ([f(x) for x in values] for f in (lambda x: x.astype(kind), convert))
    assert {type(x) for x in found} == {type(x) for x in wanted}
    numbers = np.array([x == x for x in wanted])
    assert [bool(x == x) for x in found] == numbers.tolist()
    first, second = np.array(wanted, kind)[numbers], np.array(found, kind)[numbers]
    assert first.tobytes() == second.tobytes()
