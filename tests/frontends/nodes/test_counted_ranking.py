"""Tests of TopK and ArgMax along axes of which a run gives a part: what is behind is not taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphflow as gf
from support.models.sized_runs import OPTIONS, parsed_model

MOST = 6

TEXT = """g ({dtype}[n,2] x) => ({dtype}[k,2] y, int64[k,2] z)
{{ s=Shape<end=1>(x) y,z=TopK<axis=0,largest={largest}>(x,s) }}"""

SPECIAL = {
    "float": (np.float32, (-np.inf, np.inf, np.nan, 0.0, -0.0, 1.0)),
    "double": (np.float64, (-np.inf, np.inf, np.nan, 0.0, -0.0, 1.0)),
    "int64": (np.int64, (-(2**63), 2**63 - 1, 0, -1, 2**53 + 1, 2**53)),
    "uint8": (np.uint8, (0, 255, 1, 254, 0, 255)),
}


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", SPECIAL)
def test_elements_equal_to_what_stands_behind_come_first(dtype: str, largest: int) -> None:
    """Also all elements of an axis, of which some are infinite or the extreme of their type."""
    model = parsed_model(TEXT.format(dtype=dtype, largest=largest))
    exe = gf.compile(model, sizes={"n": (0, MOST)}, options=OPTIONS)
    kind, values = SPECIAL[dtype]
    rng = np.random.default_rng(0)
    for n in (MOST, 3, 1, 5, 0):
        x = np.array(values, kind)[rng.integers(0, len(values), (n, 2))]
        behind = np.full((MOST, 2), values[1 - largest], kind)
        exe.run({"x": behind})
        assert_equal(exe.run({"x": x}), gf.compile(model, options=OPTIONS).run({"x": x}))
    assert len(exe.specializations) == 1


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("dtype", SPECIAL)
def test_the_last_of_equal_elements_is_one_of_the_run(dtype: str, op: str) -> None:
    text = f"g ({dtype}[2,n] x) => (int64[2,1] y) {{ y={op}<axis=1,select_last_index=1>(x) }}"
    model = parsed_model(text)
    exe = gf.compile(model, sizes={"n": (1, MOST)}, options=OPTIONS)
    kind, values = SPECIAL[dtype]
    rng = np.random.default_rng(1)
    for n in (MOST, 3, 1, 5):
        for chosen in (
            rng.integers(0, len(values), (2, n)),
            np.full((2, n), 0),
            np.full((2, n), 1),
        ):
            x = np.array(values, kind)[chosen]
            assert_equal(exe.run({"x": x}), gf.compile(model, options=OPTIONS).run({"x": x}))


def assert_equal(found: Any, wanted: Any) -> None:
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
