"""Tests of requests of the protocol: what is read, and that nothing else is."""

import json
import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.serve.inference_requests import (
    WantedOutput,
    deadline_seconds,
    read_inference_request,
)
from graphflow.serve.refused import RefusedRequest
from graphflow.serve.tensor_types import DTYPES


def body(*inputs: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **fields}).encode()


def tensor(datatype: str, shape: list[Any], data: Any = None, **fields: Any) -> dict[str, Any]:
    given = {} if data is None else {"data": data}
    return {"name": "x", "datatype": datatype, "shape": shape, **given, **fields}


def array_of(datatype: str, shape: list[int], data: Any) -> np.ndarray[Any, Any]:
    return read_inference_request(body(tensor(datatype, shape, data))).inputs["x"]


def test_everything_that_a_request_may_say() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    text = body(
        tensor("FP32", [2, 3], parameters={"binary_data_size": 24}),
        {"name": "n", "datatype": "INT64", "shape": [2], "data": [1, -(2**63)]},
        id="one",
        outputs=[{"name": "a"}, {"name": "b", "parameters": {"binary_data": False}}],
        parameters={"binary_data_output": True, "timeout": 1500, "other": "ignored"},
    )
    found = read_inference_request(text + x.tobytes(), len(text))
    assert (found.id, found.seconds, found.all_binary) == ("one", 0.0015, True)
    assert found.outputs == (WantedOutput("a", True), WantedOutput("b", False))
    np.testing.assert_array_equal(found.inputs["x"], x)
    np.testing.assert_array_equal(found.inputs["n"], np.array([1, -(2**63)]))
    assert deadline_seconds(found, 60) == 0.0015
    plain = read_inference_request(body())
    assert (plain.id, plain.outputs, plain.seconds) == (None, None, None)
    assert deadline_seconds(plain, 60) == 60


@pytest.mark.parametrize("datatype", DTYPES)
def test_every_element_type_in_both_forms(datatype: str) -> None:
    dtype = DTYPES[datatype]
    wanted = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    data = wanted.astype(np.float32).tolist() if dtype.kind not in "biu" else wanted.tolist()
    for nested in (data, [*data[0], *data[1]]):
        found = array_of(datatype, [2, 3], nested)
        assert found.dtype == dtype and (found == wanted).all()
    size = {"binary_data_size": wanted.nbytes}
    text = body(tensor(datatype, [2, 3], parameters=size))
    found = read_inference_request(text + wanted.tobytes(), len(text)).inputs["x"]
    assert found.dtype == dtype and found.tobytes() == wanted.tobytes()


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20))
def test_float32_is_read_as_it_was_written(values: list[float]) -> None:
    found = array_of("FP32", [len(values)], values)
    assert found.tobytes() == np.array(values, np.float32).tobytes()


NUMBERS = {
    "a text": ("FP32", [1], ["1.5"]),
    "null": ("FP32", [1], [None]),
    "an object": ("FP32", [1], [{}]),
    "a bool among floats": ("FP32", [2], [1.0, True]),
    "a bool among integers": ("INT8", [2], [1, True]),
    "an integer among bools": ("BOOL", [2], [True, 1]),
    "a fraction": ("INT32", [1], [1.5]),
    "a large float": ("FP32", [1], [1e39]),
    "a large half": ("FP16", [1], [65520.0]),
    "a large integer": ("INT8", [2], [1, 128]),
    "a negative integer": ("UINT64", [1], [-1]),
    "beyond 64 bits": ("UINT64", [1], [2**64]),
    "too few": ("FP32", [2], [1.0]),
    "too many": ("FP32", [1, 1], [1.0, 2.0]),
    "unequal lists": ("FP32", [2, 2], [[1.0], [1.0, 2.0, 3.0]]),
    "lists beside numbers": ("FP32", [2], [[1.0], 2.0]),
    "other nesting": ("FP32", [4], [[1.0, 2.0], [3.0, 4.0]]),
    "deep nesting": ("FP32", [1], [[[[[1.0]]]]]),
    "no list": ("FP32", [], 1.0),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_that_are_refused(case: str) -> None:
    with pytest.raises(RefusedRequest, match="input 'x'"):
        array_of(*NUMBERS[case])


TEXTS = {
    "nothing": b"",
    "no JSON": b"{",
    "no object": b"[]",
    "a NaN": b'{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [NaN]}]}',
    "an infinity": b'{"inputs": [{"name":"x","shape":[1],"datatype":"FP32","data":[Infinity]}]}',
    "half a surrogate": b'{"id": "\\ud800", "inputs": []}',
    "no text": b'{"inputs": [], "id": "\xff"}',
    "deep JSON": b'{"inputs": ' + b"[" * 100_000,
    "no inputs": b"{}",
    "inputs that are no list": b'{"inputs": {}}',
    "an input that is no object": b'{"inputs": [1]}',
    "an id that is no text": b'{"inputs": [], "id": 3}',
    "an id that is too long": json.dumps({"inputs": [], "id": "x" * 2000}).encode(),
    "a timeout that is no number": b'{"inputs": [], "parameters": {"timeout": "1"}}',
    "a timeout that is over": b'{"inputs": [], "parameters": {"timeout": 0}}',
    "outputs that are no list": b'{"inputs": [], "outputs": "y"}',
    "an output without a name": b'{"inputs": [], "outputs": [{}]}',
    "an output twice": b'{"inputs": [], "outputs": [{"name": "y"}, {"name": "y"}]}',
    "classification": b'{"inputs": [], "outputs": [{"name": "y",'
    b' "parameters": {"classification": 3}}]}',
    "very many inputs": json.dumps({"inputs": [{}] * 2000}).encode(),
}


@pytest.mark.parametrize("case", TEXTS)
def test_texts_that_are_refused(case: str) -> None:
    with pytest.raises(RefusedRequest):
        read_inference_request(TEXTS[case])


SHAPES = {
    "negative": [-1],
    "a fraction": [1.5],
    "a bool": [True],
    "a text": ["2"],
    "no list": 2,
    "missing": None,
    "very large": [2**41],
    "a product beyond 64 bits": [2**32, 2**32, 2],
    "nothing of very much": [0, 2**40, 2**40],
    "many axes": [1] * 40,
}


@pytest.mark.parametrize("case", SHAPES)
def test_shapes_that_are_refused_before_anything_is_allocated(case: str) -> None:
    for entry in (
        tensor("FP32", SHAPES[case], []),
        tensor("FP32", SHAPES[case], parameters={"binary_data_size": 0}),
    ):
        tracemalloc.start()
        with pytest.raises(RefusedRequest, match=r"input 'x'|shape of x"):
            read_inference_request(body(entry))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.stop()


def test_one_long_text_does_not_make_many() -> None:
    """As numpy's array of texts would: each element as long as the longest."""
    tracemalloc.start()
    with pytest.raises(RefusedRequest, match="no float32"):
        array_of("FP32", [4001], ["x" * 100_000, *[""] * 4000])
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


BINARY = {
    "of another size": (tensor("FP32", [2], parameters={"binary_data_size": 4}), b"1234"),
    "of no size": (tensor("FP32", [2], parameters={"binary_data_size": "8"}), b"12345678"),
    "too short": (tensor("FP32", [2], parameters={"binary_data_size": 8}), b"1234"),
    "too long": (tensor("FP32", [1], parameters={"binary_data_size": 4}), b"12345678"),
    "beside data": (tensor("FP32", [1], [1.0], parameters={"binary_data_size": 4}), b"1234"),
    "no bool": (tensor("BOOL", [2], parameters={"binary_data_size": 2}), b"\1\2"),
    "texts": (tensor("BYTES", [1], parameters={"binary_data_size": 5}), b"\1\0\0\0a"),
    "an unknown type": (tensor("FP8", [1], parameters={"binary_data_size": 1}), b"1"),
}


@pytest.mark.parametrize("case", BINARY)
def test_binary_data_that_is_refused(case: str) -> None:
    entry, content = BINARY[case]
    text = body(entry)
    with pytest.raises(RefusedRequest):
        read_inference_request(text + content, len(text))


@pytest.mark.parametrize("length", [-1, 10**9])
def test_a_length_of_the_json_beyond_the_body(length: int) -> None:
    with pytest.raises(RefusedRequest, match="Inference-Header-Content-Length"):
        read_inference_request(body(), length)


def test_an_input_given_twice() -> None:
    with pytest.raises(RefusedRequest, match="given twice"):
        read_inference_request(body(tensor("FP32", [0], []), tensor("FP32", [0], [])))


@given(st.binary(max_size=200), st.none() | st.integers(-5, 300))
def test_any_bytes_are_read_or_refused(content: bytes, length: int | None) -> None:
    try:
        read_inference_request(content, length)
    except RefusedRequest as refused:
        assert len(str(refused)) < 1000


def test_bfloat16_has_no_numbers_of_its_own() -> None:
    assert DTYPES["BF16"] == np.dtype(ml_dtypes.bfloat16) and "BYTES" not in DTYPES
