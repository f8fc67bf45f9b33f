"""Tests of a model that is served: which inputs fit it, and runs that requests share."""

from typing import Any

import numpy as np
import pytest

from graphflow.base.errors import FileOverwritten, GraphflowError, InvalidModel, RunError
from graphflow.serve.refused import RefusedRequest
from graphflow.serve.served_model import refusal_of_a_run
from support.serving.served import BAD_ROW, WIDTH, ScaledRows, scaled


def rows(*values: float) -> dict[str, np.ndarray[Any, Any]]:
    return {"x": np.repeat(np.array(values, np.float32), WIDTH).reshape(-1, WIDTH)}


def test_requests_share_a_run_and_get_their_own_rows() -> None:
    program = ScaledRows()
    requests = [rows(1), rows(2, 3), rows(4)]
    found = scaled(program).run(requests)
    assert program.runs == [4]
    for one, given in zip(found, requests, strict=True):
        assert isinstance(one, dict)
        np.testing.assert_array_equal(one["y"], 2 * given["x"])


def test_a_request_that_fails_fails_alone() -> None:
    program = ScaledRows()
    good, bad, other = scaled(program).run([rows(1), rows(BAD_ROW), rows(2)])
    assert isinstance(good, dict) and isinstance(other, dict)
    assert isinstance(bad, RefusedRequest) and (bad.status, str(bad)) == (422, "the row is bad")
    assert program.runs == [3, 1, 1, 1]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RunError("index"), 422),
        (InvalidModel("shape"), 400),
        (FileOverwritten("file"), 503),
        (GraphflowError("memory"), 503),
    ],
)
def test_the_status_of_a_run_that_failed(error: GraphflowError, status: int) -> None:
    assert refusal_of_a_run(error).status == status


X = np.zeros((2, WIDTH), np.float32)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "input 'x' is missing; the inputs are x"),
        ({"x": X, "z": X}, "there is no input 'z'"),
        ({"x": X.astype(np.float64)}, r"is FP64\[2, 4\], and the model takes FP32\[1…4, 4\]"),
        ({"x": X[:, :3]}, r"is FP32\[2, 3\]"),
        ({"x": X[0]}, r"is FP32\[4\]"),
        ({"x": X[:0]}, r"is FP32\[0, 4\]"),
        ({"x": np.zeros((5, WIDTH), np.float32)}, r"is FP32\[5, 4\]"),
    ],
)
def test_inputs_that_do_not_fit(arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusedRequest, match=message):
        scaled(ScaledRows()).interface.require(arrays)


def test_inputs_that_fit() -> None:
    interface = scaled(ScaledRows()).interface
    interface.require({"x": X})
    assert interface.rows({"x": X}) == 2
    assert interface.key({"x": X}) == interface.key({"x": X[:1]})
    assert interface.inputs[0].metadata() == {"name": "x", "datatype": "FP32", "shape": [-1, WIDTH]}
    assert scaled(ScaledRows(), most_rows=1).interface.rows({"x": X}) == 1
