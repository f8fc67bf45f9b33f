"""Models without the data of their large initializers, which is read in place.

In: the bytes of an ONNX file, or a file.  Out: a proto that lacks this data, and where it lies.
Whoever asks for it gets arrays: views of the given bytes, or each read from its file into memory of
its own, where its elements are aligned.  What always holds: the initializers of the proto keep
names, extents and element types, and those without data are marked as external, so that nothing
takes them for empty ones.

Protobuf's own parser copies all data of a message, and each look at a field copies it once more; of
a model of 100 MB that takes longer than planning it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Protocol, TypeAlias

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from msgspec import Struct, field

from graphflow.graph import Array

LARGE_BYTES = 1 << 16
"""The least bytes of an initializer that are left out: more elements than those of initializers
that onnx's own code is shown (`graphflow.frontends.reading.load.LARGE`), whatever their type."""

_T = onnx.TensorProto

PLAIN: Mapping[int, np.dtype[np.generic]] = {
    _T.FLOAT: np.dtype("<f4"),
    _T.DOUBLE: np.dtype("<f8"),
    _T.FLOAT16: np.dtype("<f2"),
    _T.INT8: np.dtype("i1"),
    _T.UINT8: np.dtype("u1"),
    _T.INT16: np.dtype("<i2"),
    _T.UINT16: np.dtype("<u2"),
    _T.INT32: np.dtype("<i4"),
    _T.UINT32: np.dtype("<u4"),
    _T.INT64: np.dtype("<i8"),
    _T.UINT64: np.dtype("<u8"),
}
"""Element types whose raw data is an array of numpy's as it lies there."""

# Numbers of fields, and wire types, of protobuf's encoding of onnx.proto.
_GRAPH, _INITIALIZER = 7, 5
_DATA_TYPE, _RAW_DATA = 2, 9
_PLAIN_FIELDS = frozenset((1, _DATA_TYPE, 8, _RAW_DATA, 12))
"""Of a tensor: dims, data_type, name, raw_data, doc_string."""
_IS_EXTERNAL = b"\x70\x01"
"""The field `data_location` with the value EXTERNAL."""
_INITIALIZER_TAG = b"\x2a"
_GRAPH_TAG = b"\x3a"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Content(Protocol):
    """The bytes of a file, read when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes | memoryview:
        """Some of the bytes; the part has a start, and a stop that is at most the length."""


class StoredArray(Struct, frozen=True):
    """An array as it lies in the bytes of a file, from `begin` on."""

    content: Content
    begin: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return prod(self.shape) * self.dtype.itemsize

    def read(self) -> Array:
        """The array, read-only: a view of bytes that are in memory, which need not be aligned, or
        in memory of its own; the errors are those of the content."""
        data = self.content[self.begin : self.begin + self.nbytes]
        return np.frombuffer(data, self.dtype).reshape(self.shape)


class StoredWeights(Mapping[int, Array]):
    """Large initializers by number.  None is kept: each is read when it is looked up."""

    def __init__(self, arrays: Mapping[int, StoredArray]) -> None:
        self._arrays = dict(arrays)

    def __getitem__(self, number: int) -> Array:
        return self._arrays[number].read()

    def __contains__(self, number: object) -> bool:
        return number in self._arrays

    def __iter__(self) -> Iterator[int]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    @property
    def nbytes(self) -> int:
        """The bytes of all of them."""
        return sum(array.nbytes for array in self._arrays.values())


class ReadModel(Struct, frozen=True):
    """A checked proto, and by their numbers the initializers whose data it lacks.

    `is_own` says that nobody else has the proto, so that it is still as it was checked; `files` are
    those that have external data of it, by their locations relative to its folder.
    """

    proto: onnx.ModelProto
    contents: StoredWeights = field(default_factory=lambda: StoredWeights({}))
    is_own: bool = True
    files: tuple[str, ...] = ()

    def whole(self) -> onnx.ModelProto:
        """The proto with all data: a copy, where data is missing."""
        if not self.contents:
            return self.proto
        whole = onnx.ModelProto()
        whole.CopyFrom(self.proto)
        for number, array in self.contents.items():
            tensor = whole.graph.initializer[number]
            tensor.raw_data = array.tobytes()
            tensor.ClearField("data_location")
        return whole


def parsed_apart(content: Content) -> tuple[onnx.ModelProto, dict[int, StoredArray]] | None:
    """The model of an ONNX file without its large initializers, and these by number.

    None for what is not encoded as exporters do, or is damaged: the whole file has to be parsed,
    and errors are those of the parser.
    """
    try:
        rest, places = _split(content)
        proto = onnx.load_model_from_string(rest, "protobuf")
    except (_Unusual, DecodeError):
        return None
    arrays: dict[int, StoredArray] = {}
    for number, (begin, end) in places.items():
        array = stored_array(proto.graph.initializer[number], content, begin)
        if array is None or array.nbytes != end - begin:
            return None
        arrays[number] = array
    return proto, arrays


def stored_array(tensor: onnx.TensorProto, content: Content, begin: int) -> StoredArray | None:
    """The array that `tensor` describes, as raw data that begins at byte `begin` of a content.

    None where its bytes are not elements of numpy, or its extents are no shape.
    """
    dtype, shape = PLAIN.get(tensor.data_type), tuple(tensor.dims)
    if dtype is None or min(shape, default=0) < 0:
        return None
    return StoredArray(content, begin, dtype, shape)


class _Unusual(Exception):
    """The bytes are not what exporters write."""


_Field: TypeAlias = "tuple[int, int, int, int, int]"
"""Number, wire type, where its tag begins, where its payload begins and ends."""


def _split(content: Content) -> tuple[bytes, dict[int, tuple[int, int]]]:
    """A model's bytes without the data of large initializers, and by number where that lies."""
    graphs = [field for field in _fields(content, 0, len(content)) if field[0] == _GRAPH]
    if len(graphs) != 1 or graphs[0][1] != _BYTES:
        raise _Unusual  # parts of one message that are to be merged
    _, _, tag, begin, end = graphs[0]
    pieces: list[bytes | memoryview] = []
    places: dict[int, tuple[int, int]] = {}
    copied, number = begin, -1
    for of_graph, wire, start, inner, behind in _fields(content, begin, end):
        if of_graph != _INITIALIZER or wire != _BYTES:
            continue
        number += 1
        raw = _large_data(content, inner, behind) if behind - inner >= LARGE_BYTES else None
        if raw is None:
            continue
        _, _, cut, *place = raw
        places[number] = place[0], place[1]
        tensor = b"".join((content[inner:cut], content[place[1] : behind], _IS_EXTERNAL))
        pieces += (content[copied:start], _INITIALIZER_TAG, _encoded(len(tensor)), tensor)
        copied = behind
    graph = b"".join((*pieces, content[copied:end]))
    around = content[0:tag], content[end : len(content)]
    return b"".join((around[0], _GRAPH_TAG, _encoded(len(graph)), graph, around[1])), places


def _large_data(content: Content, begin: int, end: int) -> _Field | None:
    """The raw data of a tensor, if it is large and the tensor has nothing that is unusual."""
    found = list(_fields(content, begin, end))
    numbers = [field[0] for field in found]
    if not _PLAIN_FIELDS.issuperset(numbers):
        return None
    if numbers.count(_RAW_DATA) != 1 or numbers.count(_DATA_TYPE) != 1:
        return None
    raw, kind = found[numbers.index(_RAW_DATA)], found[numbers.index(_DATA_TYPE)]
    if (raw[1], kind[1]) != (_BYTES, _VARINT) or raw[4] - raw[3] < LARGE_BYTES:
        return None
    return raw if _varint(content, kind[3])[0] in PLAIN else None


def _fields(content: Content, begin: int, end: int) -> Iterator[_Field]:
    """The fields of a message; _Unusual where one does not end within it."""
    at = begin
    while at < end:
        tag, start = _varint(content, at)
        wire = tag & 7
        if wire == _VARINT:
            inner, behind = start, _varint(content, start)[1]
        elif wire == _BYTES:
            length, inner = _varint(content, start)
            behind = inner + length
        elif wire in (_FIXED64, _FIXED32):
            inner, behind = start, start + (8 if wire == _FIXED64 else 4)
        else:
            raise _Unusual  # a group, or nothing at all
        if behind > end:
            raise _Unusual
        yield tag >> 3, wire, at, inner, behind
        at = behind


def _varint(content: Content, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    value = 0
    for shift, byte in enumerate(content[at : min(at + 10, len(content))]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    raise _Unusual


def _encoded(value: int) -> bytes:
    """A number as `_varint` reads it."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))
