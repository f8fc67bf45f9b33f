"""The files that models are served from, by name and version.

In: what the user named on the command line, and folders with models.  Out: `ModelFile`s, their
digests, and whether they are still what was read.  What always holds: a name that a client sends is
looked up among the names that are known, and is never made a path.

A folder of models has `NAME/VERSION/model.gfx`, or `model.onnx` in its place.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from graphflow.base.errors import GraphflowError, InvalidModel

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""What a model may be called; a version is a number from 1 on."""

VERSION_NUMBER = re.compile(r"[1-9][0-9]{0,8}")

MODEL_FILES = ("model.gfx", "model.onnx")
"""What a version of a model is called in its folder; the first that is there is taken."""

Identity: TypeAlias = tuple[int, int, int, int]
"""Device, inode, size and time of the last write of a file."""

Versions: TypeAlias = Mapping[str, Mapping[str, "ModelFile"]]
"""The files by name and version."""


class ModelFile(Struct, frozen=True):
    """One version of a model: where it is, and the only digest that its file may have, if the user
    stated one."""

    name: str
    version: str
    path: Path
    sha256: str | None = None

    def identity(self) -> Identity | None:
        """What changes with the file; None if it cannot be read."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def digest(self) -> str:
        """The SHA-256 of the file; InvalidModel if it cannot be read, or is not the stated one."""
        try:
            with open(self.path, "rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InvalidModel(f"cannot read the model {self.path}: {error}") from error
        if self.sha256 is not None and found != self.sha256:
            raise InvalidModel(
                f"{self.path} has the SHA-256 {found}, and only {self.sha256} is to be served"
            )
        return found


def named_model(text: str) -> ModelFile:
    """The file of `[NAME[:VERSION]=]PATH[@sha256:DIGEST]`; its own name stands for NAME, 1 for
    VERSION.  Raises GraphflowError for other texts."""
    rest, _, digest = text.partition("@sha256:")
    if digest and not re.fullmatch("[0-9a-fA-F]{64}", digest):
        raise GraphflowError(f"{text!r}: the digest behind @sha256: has 64 hexadecimal digits")
    front, equals, path = rest.partition("=")
    name, _, version = front.partition(":") if equals else (Path(rest).stem, "", "")
    file = Path(path if equals else rest)
    name, version = name or file.stem, version or "1"
    if not NAME.fullmatch(name) or not VERSION_NUMBER.fullmatch(version):
        raise GraphflowError(
            f"{text!r} would be served as {name!r}, version {version!r}; give NAME=PATH or "
            "NAME:VERSION=PATH, with a name of letters, digits, '_', '.' and '-', and a number"
        )
    return ModelFile(name, version, file, digest.lower() or None)


class ModelFiles(Struct, frozen=True):
    """All models that may be served: those that the user `named`, and those in `folders`."""

    named: tuple[ModelFile, ...]
    folders: tuple[Path, ...] = ()

    def found(self) -> Versions:
        """What is there now; GraphflowError if two files have one name and version."""
        versions: dict[str, dict[str, ModelFile]] = {}
        for file in (*self.named, *_in_folders(self.folders)):
            known = versions.setdefault(file.name, {})
            if file.version in known:
                raise GraphflowError(
                    f"{known[file.version].path} and {file.path} are both version {file.version} "
                    f"of the model {file.name!r}; give them different names or versions"
                )
            known[file.version] = file
        return versions


def _in_folders(folders: Iterable[Path]) -> Iterator[ModelFile]:
    for folder in folders:
        for place in _subfolders(folder, NAME):
            for version in _subfolders(place, VERSION_NUMBER):
                files = (version / name for name in MODEL_FILES)
                file = next((path for path in files if path.is_file()), None)
                if file is not None:
                    yield ModelFile(place.name, version.name, file)


def _subfolders(folder: Path, names: re.Pattern[str]) -> list[Path]:
    """The folders in a folder whose names fit, in order; GraphflowError if it cannot be read."""
    try:
        found = [path for path in folder.iterdir() if path.is_dir() and names.fullmatch(path.name)]
    except OSError as error:
        raise GraphflowError(f"cannot read the folder of models {folder}: {error}") from error
    return sorted(found)
