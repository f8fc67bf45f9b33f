"""Tests of responses of the protocol: both forms, and what JSON cannot express."""

import json
from typing import Any

import numpy as np
import pytest

from graphflow.serve.inference_requests import InferenceRequest, WantedOutput
from graphflow.serve.inference_responses import inference_response, wanted_outputs
from graphflow.serve.refused import RefusedRequest
from graphflow.serve.tensor_types import DTYPES

ABOUT = {"model_name": "m", "model_version": "1", "id": 'a"\n'}


def response(array: np.ndarray[Any, Any], is_binary: bool) -> tuple[dict[str, Any], bytes]:
    """The JSON of a response with one output, and what follows it."""
    found = inference_response(ABOUT, [WantedOutput("y", is_binary)], {"y": array})
    content = b"".join(found.pieces)
    assert len(content) == found.nbytes
    length = len(content) if found.json_length is None else found.json_length
    return json.loads(content[:length]), content[length:]


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_element_type_in_both_forms(datatype: str) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(DTYPES[datatype])[:, ::2]
    about = {"name": "y", "datatype": datatype, "shape": [2, 2]}
    found, rest = response(array, False)
    assert not rest and {key: found[key] for key in ABOUT} == ABOUT
    (output,) = found["outputs"]
    assert np.array_equal(np.array(output.pop("data")).astype(array.dtype), array.reshape(-1))
    assert output == about
    found, rest = response(array, True)
    assert found["outputs"] == [{**about, "parameters": {"binary_data_size": array.nbytes}}]
    assert rest == array.tobytes()


@pytest.mark.parametrize(
    "array", [np.float32(0.1), np.array([], np.float32), np.array([2**63 + 1])]
)
def test_numbers_are_read_back_as_they_were(array: Any) -> None:
    found = response(np.asarray(array), False)[0]["outputs"][0]
    again = np.array(found["data"], np.asarray(array).dtype).reshape(found["shape"])
    assert again.tobytes() == np.asarray(array).tobytes()
    assert response(np.asarray(array), True)[1] == np.asarray(array).tobytes()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("datatype", ["FP32", "FP64", "FP16", "BF16"])
def test_what_json_cannot_express(value: float, datatype: str) -> None:
    array = np.array([1.0, value]).astype(DTYPES[datatype])
    with pytest.raises(RefusedRequest, match="NaN or an infinity"):
        response(array, False)
    assert response(array, True)[1] == array.tobytes()


def test_outputs_that_are_wanted() -> None:
    def wanted(outputs: tuple[WantedOutput, ...] | None) -> tuple[WantedOutput, ...]:
        return wanted_outputs(InferenceRequest(None, {}, outputs, True, None), ("a", "b"))

    assert wanted(None) == (WantedOutput("a", True), WantedOutput("b", True))
    assert wanted((WantedOutput("b", False),)) == (WantedOutput("b", False),)
    with pytest.raises(RefusedRequest, match="no output 'c'; there are a, b"):
        wanted((WantedOutput("c", False),))
