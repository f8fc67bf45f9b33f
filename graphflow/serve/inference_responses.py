"""Responses of the Open Inference Protocol, version 2: the body of an answer and its headers.

In: the outputs of a run, each to be sent in binary form or as JSON.  Out: the pieces of the body,
of which those of binary tensors are views of their arrays, and how many bytes are JSON.  What
always holds: a number in JSON is read back as the same number; one that JSON does not have is a
refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import numpy as np
import orjson
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.serve.inference_requests import InferenceRequest, WantedOutput
from graphflow.serve.refused import RefusedRequest, malformed
from graphflow.serve.tensor_types import protocol_type

_PLAIN = orjson.OPT_SERIALIZE_NUMPY


class InferenceResponse(Struct, frozen=True):
    """The pieces of a body, and the length of the JSON in front if binary tensors follow it."""

    pieces: tuple[bytes | memoryview, ...]
    json_length: int | None

    @property
    def nbytes(self) -> int:
        """The bytes of the body."""
        return sum(len(piece) for piece in self.pieces)


def wanted_outputs(request: InferenceRequest, names: Sequence[str]) -> tuple[WantedOutput, ...]:
    """The outputs that a request wants, of those in `names`; RefusedRequest for others."""
    if request.outputs is None:
        return tuple(WantedOutput(name, request.all_binary) for name in names)
    for wanted in request.outputs:
        if wanted.name not in names:
            raise malformed(f"there is no output {wanted.name!r}; there are {', '.join(names)}")
    return request.outputs


def inference_response(
    about: Mapping[str, str],
    wanted: Sequence[WantedOutput],
    results: Mapping[str, NDArray[Any]],
) -> InferenceResponse:
    """The answer with the outputs that were wanted; `about` has the model's name and version, and
    the id of the request.

    Raises RefusedRequest for a NaN or an infinity that was not wanted in binary form.
    """
    entries: list[dict[str, Any]] = []
    binary: list[memoryview] = []
    for output in wanted:
        array = np.ascontiguousarray(results[output.name])
        entry: dict[str, Any] = {
            "name": output.name,
            "datatype": protocol_type(array.dtype.name),
            "shape": list(results[output.name].shape),
        }
        if output.is_binary:
            entry["parameters"] = {"binary_data_size": array.nbytes}
            binary.append(_bytes_of(array))
        else:
            entry["data"] = _numbers(output.name, array.reshape(-1))
        entries.append(entry)
    text = orjson.dumps({**about, "outputs": entries}, option=_PLAIN)
    return InferenceResponse((text, *binary), len(text) if binary else None)


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """The memory of an array; numpy exports no buffer for the element types of others."""
    return array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


def _numbers(name: str, flat: NDArray[Any]) -> NDArray[Any] | list[Any]:
    """Elements as JSON can have them."""
    if flat.dtype.kind not in "biu" and not np.isfinite(flat).all():
        raise RefusedRequest(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"output {name!r} has a NaN or an infinity, which JSON cannot express; ask for it with "
            'the parameter "binary_data": true',
            "not_finite",
        )
    if flat.dtype.kind in "biu" or flat.dtype.name in ("float32", "float64"):
        return flat
    return flat.astype(np.float32)  # exactly: these have fewer digits
