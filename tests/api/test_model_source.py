"""Tests of where the model of a compilation is read, and of its digest."""

import pytest
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from graphflow.api.model_source import ModelSource


class Endless:
    """A proto that protobuf cannot encode, as one of more than 2 GiB."""

    def SerializeToString(self) -> bytes:
        raise EncodeError("Failed to serialize proto")


def test_a_proto_that_has_no_bytes_is_no_source() -> None:
    with pytest.raises(ValueError, match="Failed to serialize"):
        ModelSource(Endless())  # type: ignore[arg-type]


def test_bytes_are_the_same_in_each_object() -> None:
    data = b"some model"
    spread = bytearray(2 * len(data))
    spread[::2] = data
    given = (data, bytearray(data), memoryview(data), memoryview(spread)[::2])
    assert len({ModelSource(each).digest for each in given}) == 1  # type: ignore[arg-type]
