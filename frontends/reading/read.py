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
from collections.abc import Container, Iterator
from pathlib import Path
from typing import TypeAlias

import onnx
from google.protobuf import json_format, text_format  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import parser, serialization

from graphflow.base.errors import InvalidModel
from graphflow.frontends.protos.payload import check_extents, tensor_bytes, text_of
from graphflow.frontends.reading.checked import check_proto, tensors_of
from graphflow.frontends.reading.weight_files import MOST_OPEN, MessageFile, RegularFile
from graphflow.frontends.reading.weights import (
    LARGE_BYTES,
    Content,
    ReadModel,
    StoredArray,
    StoredWeights,
    parsed_apart,
    stored_array,
)

OnnxModel: TypeAlias = "str | Path | bytes | onnx.ModelProto"

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
            if not model.HasField("graph"):
                raise InvalidModel("the given ModelProto holds no graph; give that of a model")
            found = ReadModel(model, is_own=False)
        case bytes() | bytearray() | memoryview():
            proto, arrays = _parsed(memoryview(bytes(model)), None, "the given bytes")
            found = ReadModel(proto, StoredWeights(arrays))
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
        content = MessageFile(RegularFile(name), name)
        if content[0 : len(SAVED_MAGIC)] == SAVED_MAGIC:
            raise InvalidModel(
                f"{name} is a saved model, not an ONNX file; load it with graphflow.load"
            )
        proto, arrays = _parsed(content, format, name)
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        raise InvalidModel(f"cannot read the model: {error}; check the path") from None
    except MemoryError:
        raise InvalidModel(f"cannot read the model {name}: it does not fit in memory") from None
    files = _find_external(proto, arrays, name)
    return ReadModel(proto, StoredWeights(arrays), files=files)


def _parsed(
    content: Content, format: str | None, what: str
) -> tuple[onnx.ModelProto, dict[int, StoredArray]]:
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


def _find_external(
    proto: onnx.ModelProto, arrays: dict[int, StoredArray], path: str
) -> tuple[str, ...]:
    """Find the external data of all tensors of a proto that was read from `path`: the locations of
    its files, relative to the model's folder.

    Where that of large initializers lies goes to `arrays`, all other data into the proto.
    """
    folder = os.path.dirname(os.path.abspath(path))
    # A cache may keep links to a folder of its own, in which model and data lie side by side.
    homes = {os.path.realpath(folder), os.path.dirname(os.path.realpath(path))}
    files: dict[str, RegularFile] = {}
    locations = dict[str, None]()
    for number, tensor in _external_tensors(proto, arrays):
        place = _DataLocation(tensor)
        target = os.path.realpath(os.path.join(folder, place.location))
        if not any(os.path.commonpath([home, target]) == home for home in homes):
            raise InvalidModel(
                f"{place.what} lies in {place.location!r}, which leads out of the model's "
                f"folder {folder}; put the file beside the model"
            )
        locations[place.location] = None
        try:
            content, begin = _data_in(target, place, files)
            large = number is not None and place.size >= LARGE_BYTES
            array = stored_array(tensor, content, begin) if large else None
            if number is not None and array is not None:
                arrays[number] = array
            else:
                tensor.raw_data = bytes(content[begin : begin + place.size])
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
    return tuple(locations)


def _data_in(path: str, place: _DataLocation, files: dict[str, RegularFile]) -> tuple[Content, int]:
    """Contents with the data of a tensor, and where it begins: a file, which is one of `files` from
    then on, or where there are enough of these, the data alone, and the file is closed."""
    file = files[path] if path in files else RegularFile(path)
    place.require_within(file, path)
    if len(files) < MOST_OPEN:
        files[path] = file
    return (file, place.offset) if path in files else (file.read_once(place.offset, place.size), 0)


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

    def require_within(self, file: RegularFile, path: str) -> None:
        """Raise ValueError if the file ends before the data does."""
        if self.offset + self.size > len(file):
            raise ValueError(
                f"{self.size} bytes from byte {self.offset} on are needed, and {path} has "
                f"{len(file)}"
            )

    def _number(self, text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text[:20]) >= 1 << 62:
            raise InvalidModel(f"{self.what}: {text[:40]!r} is no offset or length in bytes")
        return int(text)
