"""The model of a compilation, by its contents, and where it can be read again.

In: a model as a user gives it.  Out: a digest of its bytes; later the same model again.  What
always holds: no other model is given in its place.  Neither onnx nor the compiler is imported.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from graphflow.base.errors import FileOverwritten, InvalidModel

if TYPE_CHECKING:
    from graphflow.frontends import OnnxModel

TICK = 10_000_000
"""More nanoseconds than the times that Linux writes to files lag behind the clock."""

State: TypeAlias = "tuple[int, ...]"
"""Device, inode, size and time of the last write of a file."""


class ModelSource:
    """A model whose bytes were read once for their digest.

    OSError or ValueError for a path that is no regular file that can be read, TypeError for what is
    no model.
    """

    def __init__(self, model: OnnxModel) -> None:
        self._begun = time.time_ns()
        self._model: Any = model
        self._place = ""
        self._file: int | None = None
        self._state: State = ()
        self._paths: tuple[str, ...] = ()
        if isinstance(model, str | os.PathLike):
            # Further programs need it after the working directory was changed.
            self._place = os.path.abspath(os.fsdecode(model))
            self._file = os.open(model, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            weakref.finalize(self, os.close, self._file)
            status = os.fstat(self._file)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError(f"{model} is no regular file")
            self._state = _state(status)
        self.digest = self._digest()
        self.of_files = b""

    @property
    def path(self) -> str | None:
        """The path, if the model is a file."""
        return None if self._file is None else os.fsdecode(self._model)

    def include(self, locations: Sequence[str]) -> None:
        """Take files that have external data of the model into account; `of_files` is their digest.

        Their locations are relative to the model's folder.  OSError if one cannot be read.
        """
        paths = self._beside(locations)
        if paths != self._paths:
            self.of_files, self._paths = files_digest(paths), paths

    def is_unchanged(self) -> bool:
        """Whether the path still names the file that was read, or the object given has the contents
        that it had, and nobody wrote to it since."""
        if self._file is not None:
            if self._state != _state_at(self._place):
                return False
            if self._state[-1] < self._begun - TICK:
                return True  # else somebody may have written to it at the same time by the clock
        try:
            return isinstance(self._model, bytes) or self._digest() == self.digest
        except (OSError, ValueError):
            return False

    def is_older(self, locations: Sequence[str]) -> bool:
        """Whether these files were as they are now before the model was read: written, renamed or
        linked by then.  OSError if one is not there."""
        return all(
            look(path).st_ctime_ns < self._begun - TICK
            for path in self._beside(locations)
            for look in (os.stat, os.lstat)
        )

    def again(self) -> OnnxModel:
        """The same model; its bytes, where its file was replaced or deleted meanwhile.

        FileOverwritten if it was written to in place, InvalidModel if a given object has other
        contents now, or a file with external data.
        """
        self._require_same_files()
        if self._file is None:
            if not self.is_unchanged():
                raise InvalidModel(
                    "the given model has other contents than when it was given to "
                    "graphflow.compile, and a further program needs them; compile the changed "
                    "model by itself, or give graphflow.compile a copy"
                )
            found: OnnxModel = self._model
            return found
        if self.is_unchanged():
            return self._place
        content = _content(self._file)
        if hashlib.sha256(content).digest() != self.digest:
            raise FileOverwritten(
                f"{self.path} was written to in place since it was given to graphflow.compile, and "
                "a further program needs what it had; compile it again, and replace such files "
                "instead of writing into them"
            )
        return content

    def _beside(self, locations: Sequence[str]) -> tuple[str, ...]:
        """The paths of files in the model's folder."""
        folder = os.path.dirname(self._place)
        return tuple(os.path.join(folder, location) for location in locations)

    def _require_same_files(self) -> None:
        try:
            same = not self._paths or files_digest(self._paths) == self.of_files
        except OSError:
            same = False
        if not same:
            raise InvalidModel(
                f"a file with external data of {self.path} has other contents than when the model "
                "was given to graphflow.compile, and a further program needs them; compile it again"
            )

    def _digest(self) -> bytes:
        if self._file is not None:
            return _digest_of(self._file)
        if isinstance(self._model, bytes | bytearray | memoryview):
            return hashlib.sha256(bytes(self._model)).digest()
        if not hasattr(self._model, "SerializeToString"):
            raise TypeError(f"a {type(self._model).__name__} is no model")
        try:
            content = self._model.SerializeToString()
        except Exception as error:  # protobuf's own, for what has no encoding, as 2 GiB have none
            raise ValueError(f"the model has no bytes: {error}") from None
        return hashlib.sha256(content).digest()


def files_digest(paths: Sequence[str | Path]) -> bytes:
    """A digest of the contents of files, one after the other; OSError if one cannot be read."""
    found = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.digest()


def _digest_of(file: int) -> bytes:
    with os.fdopen(os.dup(file), "rb") as opened:
        opened.seek(0)
        return hashlib.file_digest(opened, "sha256").digest()


def _content(file: int) -> bytes:
    with os.fdopen(os.dup(file), "rb") as opened:
        opened.seek(0)
        return opened.read()


def _state(status: os.stat_result) -> State:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _state_at(path: str) -> State:
    try:
        return _state(os.stat(path))
    except OSError:
        return ()
