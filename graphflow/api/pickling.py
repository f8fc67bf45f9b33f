"""What pickles of executables consist of: the path and digest of a saved file, or its bytes.

In: the file that an executable was loaded from, or the models of one that was compiled.  Out: the
digest of that file, or the bytes that `Executable.save` writes, and from these the models again.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from graphflow.api.model import Models
from graphflow.api.saved import load_models, save_models
from graphflow.base.declaration import Declaration
from graphflow.base.errors import InvalidModel

Identity = tuple[int, ...]
"""Device, inode, size and time of the last write of a file."""


class LoadedFile(Struct, frozen=True):
    """The file that an executable was loaded from, and how it was loaded.

    `path` is absolute, so that a process in another folder finds it.
    """

    path: str
    threads: int | None
    mmap: bool
    identity: Identity | None

    @staticmethod
    def of(path: str | Path, threads: int | None, mmap: bool) -> LoadedFile:
        """The file as it is now; its identity is None if it cannot be read."""
        whole = os.path.abspath(path)
        return LoadedFile(whole, threads, mmap, _identity(whole))

    def sha256(self) -> str:
        """The digest of the file; InvalidModel if it is not the one any more that was loaded."""
        try:
            with open(self.path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InvalidModel(
                f"an executable that was loaded from {self.path} is pickled by the path and digest "
                f"of this file, which cannot be read: {error}"
            ) from error
        if _identity(self.path) != self.identity:
            raise InvalidModel(
                f"{self.path} was written to since this executable was loaded from it, so a pickle "
                "cannot refer to it; load it again"
            )
        return digest


def saved_bytes(models: Models, declaration: Declaration | None) -> bytes:
    """The bytes of the file that `save_models` writes."""
    with TemporaryDirectory(prefix="graphflow-") as folder:
        path = Path(folder, "pickled.gfx")
        save_models(path, models, declaration)
        return path.read_bytes()


def models_of(data: bytes) -> tuple[Models, Declaration | None]:
    """The models of `saved_bytes`, in memory of their own, and what their ONNX file declares."""
    with TemporaryDirectory(prefix="graphflow-") as folder:
        path = Path(folder, "pickled.gfx")
        path.write_bytes(data)
        return load_models(path, None, mmap=False)


def _identity(path: str) -> Identity | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # of a path with a NUL, which opening the file refuses by name
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
