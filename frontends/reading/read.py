"""Reading ONNX models: a path, bytes or a proto becomes a proto with its weights.

In: a model as a user gives it.  Out: a `ModelProto` that passed `check_proto`, so that what comes
behind may trust its names, types and sizes; external data is read into it, or large weights lie
beside it (`open_model`).  A proto given is not edited.  What cannot be read raises `InvalidModel`,
an object of another type a TypeError.

A model may come from a stranger: only regular files are opened, and external data lies in the
model's own folder or is refused.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import onnx
from google.protobuf import json_format, text_format  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import parser, serialization

from graphflow.base.errors import InvalidModel
from graphflow.frontends.protos.payload import check_extents, tensor_bytes, text_of
from graphflow.frontends.reading.checked import check_proto, tensors_of
from graphflow.frontends.reading.weights import (
    LARGE_BYTES,
    Content,
    ReadModel,
    parsed_apart,
    view_of,
)
from graphflow.graph import Array

OnnxModel: TypeAlias = "str | Path | bytes | onnx.ModelProto"

MOST_BYTES = (1 << 31) - 1
"""Protobuf's limit for one message."""

SAVED_MAGIC = b"\x89GFX"
"""The first bytes of files that `Executable.save` writes."""

EXTERNAL = onnx.TensorProto.EXTERNAL

_PARSE_ERRORS = (
    DecodeError,
    ValueError,
    json_format.ParseError,
    text_format.ParseError,
    parser.ParseError,
)


def read_model(model: OnnxModel) -> onnx.ModelProto:
    """The checked proto of a model, with all data; the same object if a proto was given.

    Raises `InvalidModel` for a file that cannot be read or is not ONNX, for external data that is
    missing, too short or outside of the model's folder, and for everything that `check_proto`
    refuses.
    """
    return open_model(model).whole()


def open_model(model: OnnxModel | ReadModel) -> ReadModel:
    """The checked proto of a model, its large initializers beside it; errors are as `read_model`'s.

    A proto given keeps its data, and is checked each time: it may have been edited.
    """
    match model:
        case ReadModel() if model.is_own:
            return model
        case ReadModel():
            found = model
        case onnx.ModelProto():
            found = ReadModel(model, {}, is_own=False)
        case bytes() | bytearray() | memoryview():
            found = ReadModel(*_parsed(memoryview(bytes(model)), None, "the given bytes"))
        case str() | os.PathLike():
            found = _from_path(os.fspath(model))
        case _:
            raise TypeError(
                f"a model is a path, the bytes of an ONNX file or an onnx.ModelProto, not "
                f"{type(model).__name__}"
            )
    check_proto(found.proto, found.contents.keys())
    return found


def _from_path(path: str | bytes) -> ReadModel:
    name = os.fsdecode(path)
    suffix = os.path.splitext(name)[1]
    format = serialization.registry.get_format_from_file_extension(suffix)
    try:
        with _RegularFile(name) as file:
            content = _FileContent(file, name)
            if content[0 : len(SAVED_MAGIC)] == SAVED_MAGIC:
                raise InvalidModel(
                    f"{name} is a saved model, not an ONNX file; load it with graphflow.load"
                )
            proto, contents = _parsed(content, format, name)
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        raise InvalidModel(f"cannot read the model: {error}; check the path") from None
    except MemoryError:
        raise InvalidModel(f"cannot read the model {name}: it does not fit in memory") from None
    _read_external(proto, contents, name)
    return ReadModel(proto, contents)


def _parsed(
    content: Content, format: str | None, what: str
) -> tuple[onnx.ModelProto, dict[int, Array]]:
    """The proto, and by number the large initializers, of which it lacks the data."""
    try:
        found = parsed_apart(content) if format in (None, "protobuf") else None
        if found is None:
            whole = bytes(content[0 : len(content)])
            found = onnx.load_model_from_string(whole, format or "protobuf"), {}
    except _PARSE_ERRORS as error:
        raise InvalidModel(f"{what}: this is not an ONNX file: {error}") from None
    except MemoryError:
        raise InvalidModel(f"{what}: the model does not fit in memory") from None
    if not found[0].HasField("graph"):
        raise InvalidModel(
            f"{what}: this is not an ONNX file: it holds no graph ({len(content)} bytes); check "
            "that the download or the export was complete"
        )
    return found


# External data ----------------------------------------------------------------------------------


def _read_external(proto: onnx.ModelProto, contents: dict[int, Array], path: str) -> None:
    """Read the external data of all tensors of a proto that was read from `path`.

    That of large initializers goes to `contents`, all other data into the proto.
    """
    folder = os.path.dirname(os.path.abspath(path))
    # A cache may keep links to a folder of its own, in which model and data lie side by side.
    homes = {os.path.realpath(folder), os.path.dirname(os.path.realpath(path))}
    with ExitStack() as stack:
        files: dict[str, _RegularFile] = {}
        for number, tensor in _external_tensors(proto, contents):
            place = _DataLocation(tensor)
            target = os.path.realpath(os.path.join(folder, place.location))
            if not any(os.path.commonpath([home, target]) == home for home in homes):
                raise InvalidModel(
                    f"{place.what} lies in {place.location!r}, which leads out of the model's "
                    f"folder {folder}; put the file beside the model"
                )
            try:
                if target not in files:
                    files[target] = stack.enter_context(_RegularFile(target))
                data = files[target].read(place.offset, place.size)
                array = view_of(tensor, data) if len(data) >= LARGE_BYTES else None
                if number is not None and array is not None:
                    contents[number] = array
                else:
                    tensor.raw_data = data
                    tensor.ClearField("data_location")
            except (OSError, ValueError) as error:
                raise InvalidModel(
                    f"cannot read {place.what} from {place.location!r}: {error}; the file belongs "
                    f"beside the model, in {folder}"
                ) from None
            except MemoryError:
                raise InvalidModel(
                    f"cannot read {place.what}: its {place.size} bytes do not fit in memory"
                ) from None
            del tensor.external_data[:]


def _external_tensors(
    proto: onnx.ModelProto, known: Container[int]
) -> Iterator[tuple[int | None, onnx.TensorProto]]:
    """Tensors with external data, those of the model's graph with their numbers.

    Initializers whose data is `known` are marked as external, and are not.
    """
    count = len(proto.graph.initializer)
    for place, tensor in enumerate(tensors_of(proto)):  # begins with those of the graph
        number = place if place < count else None
        if tensor.data_location == EXTERNAL and (number is None or number not in known):
            yield number, tensor


class _DataLocation:
    """The location of a tensor's external data: a relative path, a byte offset, a size."""

    def __init__(self, tensor: onnx.TensorProto) -> None:
        name = text_of(tensor.name, "the name of a tensor")
        self.what = f"the external data of tensor {name}"
        entries = {
            text_of(entry.key, self.what): text_of(entry.value, self.what)
            for entry in tensor.external_data
        }
        self.location = entries.get("location", "")
        parts = self.location.replace("\\", "/").split("/")
        if not self.location or "\0" in self.location or ".." in parts or not parts[0]:
            raise InvalidModel(
                f"{self.what} lies in {self.location!r}; only a path relative to the model's "
                "folder and inside of it is read"
            )
        self.size = tensor_bytes(tensor.data_type, check_extents(tensor, f"tensor {name}"))
        self.offset = self._number(entries.get("offset", "0"))
        length = entries.get("length")
        if length is not None and self._number(length) != self.size:
            raise InvalidModel(
                f"{self.what} has {length} bytes, its dims {list(tensor.dims)} need {self.size}"
            )

    def _number(self, text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text[:20]) >= 1 << 62:
            raise InvalidModel(f"{self.what}: {text[:40]!r} is no offset or length in bytes")
        return int(text)


class _RegularFile:
    """A regular file, open for reading.  Opening a pipe would block, so nothing else is opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        # Opening a device can have effects, so its kind is asked for before.
        self._require_regular(os.stat(path))
        self.number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self._require_regular(os.fstat(self.number))
        except BaseException:
            os.close(self.number)
            raise

    def _require_regular(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise ValueError(f"{self._path} is {kind}")

    def __enter__(self) -> _RegularFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.number)

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes; ValueError if the file ends before."""
        available = os.fstat(self.number).st_size
        if offset + size > available:
            raise ValueError(
                f"{size} bytes from byte {offset} on are needed, and {self._path} has {available}"
            )
        parts = []
        while size:
            part = os.pread(self.number, size, offset)
            if not part:
                raise ValueError(f"{self._path} ends at byte {offset}")
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class _FileContent:
    """The bytes of a file that is open; small parts that lie together are read at once.

    ValueError where it is too large for a message, or ends before its size of now.
    """

    def __init__(self, file: _RegularFile, path: str) -> None:
        self._file = file
        self._size = os.fstat(file.number).st_size
        self._start, self._window = 0, b""
        if self._size > MOST_BYTES:
            raise ValueError(
                f"{path} has {self._size} bytes, and an ONNX file at most {MOST_BYTES}; store the "
                "weights as external data"
            )

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> bytes:
        start, stop = part.start, min(part.stop, self._size)
        if stop - start >= LARGE_BYTES:
            return self._file.read(start, stop - start)
        if not self._start <= start <= stop <= self._start + len(self._window):
            size = min(LARGE_BYTES, self._size - start)
            self._start, self._window = start, self._file.read(start, size)
        return self._window[start - self._start : stop - self._start]
