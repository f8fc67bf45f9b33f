"""Tests of indices along axes of which a run gives a part: they are those of the run."""

from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import RunError
from support.models.sized_runs import OPTIONS, parsed_model

MOST = 6

OPERATORS = {
    "Gather": "g (float[n,2] x, int64[k] i) => (float y) { y=Gather(x,i) }",
    "GatherElements": "g (float[n,2] x, int64[k] i) => (float y) "
    "{ a=Constant<value=int64[1] {1}>() s=Constant<value=int64[2] {1,2}>() u=Unsqueeze(i,a) "
    "j=Expand(u,s) y=GatherElements<axis=0>(x,j) }",
    "GatherND": "g (float[n,2] x, int64[k] i) => (float y) "
    "{ a=Constant<value=int64[1] {1}>() u=Unsqueeze(i,a) y=GatherND(x,u) }",
    "ScatterND": "g (float[n,2] x, int64[k] i) => (float y) "
    "{ a=Constant<value=int64[1] {1}>() u=Unsqueeze(i,a) g=GatherND(x,u) h=Neg(g) "
    "y=ScatterND(x,u,h) }",
}


def compiled(text: str) -> gf.Executable:
    model, sizes = parsed_model(text), {"n": (0, MOST), "k": (0, 4)}
    return gf.compile(model, sizes=sizes, options=OPTIONS)


def wanted(name: str, x: Any, indices: Any) -> Any:
    if name != "ScatterND":
        return x[indices]
    y = x.copy()
    y[indices] = -x[indices]
    return y


@pytest.mark.parametrize("name", OPERATORS)
def test_indices_count_from_both_ends_of_what_a_run_gives(name: str) -> None:
    exe = compiled(OPERATORS[name])
    rng = np.random.default_rng(0)
    exe.run({"x": np.full((MOST, 2), np.nan, np.float32), "i": np.full(4, MOST - 1)})
    for n, k in ((MOST, 4), (3, 2), (1, 4), (5, 0), (0, 0), (2, 1)):
        x = rng.standard_normal((n, 2)).astype(np.float32)
        indices = rng.integers(-n, n, k) if n else np.zeros(0, np.int64)
        found = exe.run({"x": x, "i": indices})["y"]
        np.testing.assert_array_equal(found, wanted(name, x, indices))
    assert len(exe.specializations) == 1


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("index", [3, MOST - 1, -4, -MOST])
def test_an_index_behind_what_a_run_gives_is_an_error(name: str, index: int) -> None:
    exe = compiled(OPERATORS[name])
    x = np.ones((3, 2), np.float32)
    with pytest.raises(RunError, match="index of tensor"):
        exe.run({"x": x, "i": np.array([0, index])})
    exe.run({"x": x, "i": np.array([0, -3])})


def test_a_known_index_that_some_runs_lack_is_an_error_in_these() -> None:
    text = "g (float[n,2] x) => (float y) <int64[1] i={3}> { y=Gather(x,i) }"
    exe = gf.compile(parsed_model(text), sizes={"n": (1, MOST)}, options=OPTIONS)
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    np.testing.assert_array_equal(exe.run({"x": x[:4]})["y"], x[3:4])
    with pytest.raises(RunError, match="largest index of tensor i, less the extent of its axis"):
        exe.run({"x": x[:3]})
