"""Inference requests of the Open Inference Protocol, version 2, read from the body of a request.

In: the bytes of a body, and how many of them are JSON; behind that lie the tensors that were sent
in binary form, one behind the other.  Out: an `InferenceRequest`, whose arrays lie in these bytes
where they can.  What always holds: nothing is allocated in proportion to what a request claims,
only to what it has; no number is changed to make it fit; a request that is not well formed is a
`RefusedRequest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from math import prod
from typing import Any

import numpy as np
import orjson
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.serve.refused import malformed
from graphflow.serve.tensor_types import DTYPES

MOST_TENSORS = 1024
"""The most inputs, and the most outputs, that a request may name."""

MOST_AXES = 32
MOST_EXTENT = 1 << 40
MOST_TEXT = 1024
"""The longest id, and the longest name of a tensor, in characters."""


_TYPES: Mapping[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}
"""What orjson makes of the elements of each kind of array."""


class WantedOutput(Struct, frozen=True):
    """An output that a request asks for, and whether in binary form."""

    name: str
    is_binary: bool


class InferenceRequest(Struct, frozen=True):
    """One request: its id, arrays by input name, and what it wants.

    `outputs` is None for all outputs, each in binary form if `all_binary`.  `seconds` is the time
    after which the client does not want the answer any more.
    """

    id: str | None
    inputs: Mapping[str, NDArray[Any]]
    outputs: tuple[WantedOutput, ...] | None
    all_binary: bool
    seconds: float | None


def read_inference_request(body: bytes, json_length: int | None = None) -> InferenceRequest:
    """The request of a body whose first `json_length` bytes are JSON; None for all of them.

    Raises RefusedRequest if it is not well formed.
    """
    length = len(body) if json_length is None else json_length
    if not 0 <= length <= len(body):
        raise malformed(
            f"Inference-Header-Content-Length is {length}, and the body has {len(body)} bytes"
        )
    whole = memoryview(body)
    fields = _object(_json(whole[:length]), "the request")
    parameters = _object(fields.get("parameters", {}), "parameters")
    all_binary = _flag(parameters, "binary_data_output", "parameters")
    return InferenceRequest(
        id=None if fields.get("id") in (None, "") else _text(fields["id"], "id"),
        inputs=_inputs(_listed(fields.get("inputs"), "inputs"), whole[length:]),
        outputs=_outputs(fields, all_binary),
        all_binary=all_binary,
        seconds=_seconds(parameters),
    )


def _json(text: memoryview) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:  # also NaN and infinities, which JSON does not have
        raise malformed(f"the JSON of the request cannot be read: {error}") from None


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise malformed(f"{what} has to be an object, and is {_shown(value)}")
    return value


def _listed(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise malformed(f"{what} has to be a list, and is {_shown(value)}")
    if len(value) > MOST_TENSORS:
        raise malformed(f"{what} has {len(value)} entries, more than {MOST_TENSORS}")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MOST_TEXT:
        raise malformed(
            f"{what} has to be a text of at most {MOST_TEXT} characters, and is {_shown(value)}"
        )
    return value


def _shown(value: Any) -> str:
    """A value that a client sent, cut to a length that fits into a message."""
    return "missing" if value is None else f"{value!r:.60}"


def _flag(parameters: Mapping[str, Any], name: str, where: str) -> bool:
    value = parameters.get(name, False)
    if not isinstance(value, bool):
        raise malformed(f"{where}.{name} has to be true or false, and is {_shown(value)}")
    return value


def _seconds(parameters: Mapping[str, Any]) -> float | None:
    """The parameter `timeout`, which is in microseconds."""
    value = parameters.get("timeout")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise malformed(
            f"parameters.timeout has to be a number of microseconds, and is {_shown(value)}"
        )
    return value / 1e6


def _outputs(fields: Mapping[str, Any], all_binary: bool) -> tuple[WantedOutput, ...] | None:
    if fields.get("outputs") is None:
        return None
    found: dict[str, WantedOutput] = {}
    for entry in _listed(fields["outputs"], "outputs"):
        wanted = _object(entry, "an entry of outputs")
        name = _text(wanted.get("name"), "the name of an output")
        parameters = _object(wanted.get("parameters", {}), f"the parameters of {name}")
        if parameters.get("classification"):
            raise malformed(f"output {name!r}: classification is not supported")
        if name in found:
            raise malformed(f"output {name!r} is wanted twice")
        has_own = "binary_data" in parameters
        is_binary = _flag(parameters, "binary_data", name) if has_own else all_binary
        found[name] = WantedOutput(name, is_binary)
    return tuple(found.values())


# Tensors ------------------------------------------------------------------------------------------


def _inputs(entries: list[Any], binary: memoryview) -> dict[str, NDArray[Any]]:
    """The arrays of all inputs; those in binary form lie in `binary`, in the order of the list."""
    found: dict[str, NDArray[Any]] = {}
    place = 0
    for entry in entries:
        fields = _object(entry, "an entry of inputs")
        name = _text(fields.get("name"), "the name of an input")
        if name in found:
            raise malformed(f"input {name!r} is given twice")
        dtype, shape = _dtype(name, fields.get("datatype")), _shape(name, fields.get("shape"))
        parameters = _object(fields.get("parameters", {}), f"the parameters of {name}")
        size = parameters.get("binary_data_size")
        if size is None:
            found[name] = _of_json(name, fields.get("data"), dtype, shape)
            continue
        if "data" in fields:
            raise malformed(f"input {name!r} has data and binary_data_size; give one of them")
        wanted = prod(shape) * dtype.itemsize
        if isinstance(size, bool) or size != wanted:
            raise malformed(
                f"input {name!r}: binary_data_size is {_shown(size)}, and its datatype and shape "
                f"have {wanted} bytes"
            )
        found[name] = _of_bytes(name, binary[place : place + wanted], dtype, shape)
        place += wanted
    if place != len(binary):
        raise malformed(f"{len(binary)} bytes follow the JSON, and the inputs name {place} of them")
    return found


def _dtype(name: str, datatype: Any) -> np.dtype[Any]:
    dtype = DTYPES.get(datatype) if isinstance(datatype, str) else None
    if dtype is None:
        known = ", ".join(DTYPES)
        raise malformed(f"input {name!r}: its datatype is {_shown(datatype)}, none of {known}")
    return dtype


def _shape(name: str, shape: Any) -> tuple[int, ...]:
    extents = _listed(shape, f"the shape of {name}")
    if len(extents) > MOST_AXES:
        raise malformed(f"input {name!r} has {len(extents)} axes, more than {MOST_AXES}")
    for extent in extents:
        known = isinstance(extent, int) and not isinstance(extent, bool)
        if not known or not 0 <= extent <= MOST_EXTENT:
            raise malformed(
                f"input {name!r}: an extent has to be an integer from 0 to {MOST_EXTENT}, and one "
                f"is {_shown(extent)}"
            )
    return tuple(extents)


def _of_bytes(
    name: str, content: memoryview, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> NDArray[Any]:
    """An array in the memory of the body."""
    count = prod(shape)
    if len(content) < count * dtype.itemsize:
        raise malformed(f"input {name!r}: the body ends within its binary data")
    if dtype.kind == "b" and count and np.frombuffer(content, np.uint8).max() > 1:
        raise malformed(f"input {name!r}: a BOOL is a byte that is 0 or 1")
    flat = np.frombuffer(content, dtype) if count else np.empty(0, dtype)
    return _shaped(name, flat, shape)


def _of_json(name: str, data: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """An array of numbers in JSON, in one list or in nested ones; no number is rounded to an
    integer, cut to a range, or changed to an infinity."""
    if not isinstance(data, list):
        raise malformed(f"input {name!r}: data has to be a list, and is {_shown(data)}")
    flat = _flat(name, data, shape)
    if len(flat) != prod(shape):
        raise malformed(
            f"input {name!r} has {len(flat)} elements, and its shape {list(shape)} has "
            f"{prod(shape)}"
        )
    if not flat:
        return _shaped(name, np.empty(0, dtype), shape)
    kind = dtype.kind if dtype.kind in "biu" else "f"
    # By the types of all elements: numpy would read texts and null as numbers.
    if not set(map(type, flat)) <= _TYPES[kind]:
        raise malformed(f"input {name!r}: its data has elements that are no {dtype.name}")
    if kind in "iu":
        limits, least, most = np.iinfo(dtype), min(flat), max(flat)
        if least < limits.min or most > limits.max:
            raise malformed(f"input {name!r}: its data has {least} to {most}, no {dtype.name}")
        return _shaped(name, np.array(flat, dtype), shape)
    with np.errstate(over="ignore"):
        found = np.array(flat, np.bool_ if kind == "b" else np.float64).astype(dtype)
    if kind == "f" and not np.isfinite(found).all():
        raise malformed(f"input {name!r}: its data has numbers beyond the range of {dtype.name}")
    return _shaped(name, found, shape)


def _flat(name: str, data: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """The elements of lists that are nested as the shape says, or that are not nested."""
    flat, axis = data, 0
    while flat and isinstance(flat[0], list):
        axis += 1
        lists = set(map(type, flat)) == {list}
        if not lists or axis >= len(shape) or {len(row) for row in flat} != {shape[axis]}:
            raise malformed(
                f"input {name!r}: the lists of its data are not nested as its shape {list(shape)}"
            )
        flat = list(chain.from_iterable(flat))
    return flat


def _shaped(name: str, flat: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    try:
        return flat.reshape(shape)
    except ValueError as error:  # no elements, and other extents beyond what numpy can count
        raise malformed(f"input {name!r}: its shape {list(shape)} is too large") from error


def deadline_seconds(request: InferenceRequest, most: float) -> float:
    """The seconds that a request may take: what it states, and at most `most`."""
    return most if request.seconds is None else min(request.seconds, most)
