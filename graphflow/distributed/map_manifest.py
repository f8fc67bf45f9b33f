"""The manifest of a run over files: a line of JSON for each input that is done.

In: records, as files are done.  Out: the last record of each input, for the next run.  What always
holds: on a disk a record is there as soon as it was added; a line that a killed process wrote in
part is left out.

Objects of a store cannot be appended to: there the manifest is in parts, `manifest-TIME-NUMBER
.jsonl`, each of which has the records of some seconds.  A run that is killed loses those of the
last seconds, and the next run does these files again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol

from graphflow.base.errors import GraphflowError
from graphflow.distributed.file_stores import (
    found_files,
    in_folder,
    is_on_disk,
    make_folder,
    put_file,
    read_file,
)
from graphflow.distributed.mapped_file import FileRecord

MANIFEST = "manifest.jsonl"

_PARTS = "manifest-*.jsonl"

PART_INTERVAL = 5.0
"""How long the records of a part are gathered."""


class Manifest(Protocol):
    """What takes records."""

    def add(self, record: FileRecord) -> None:
        """Add the record of one input."""


@contextmanager
def open_manifest(folder: str) -> Iterator[Manifest]:
    """The manifest of a folder, which is made if it is not there; OSError if that fails."""
    make_folder(folder)
    if is_on_disk(folder):
        with open(in_folder(folder, MANIFEST), "a+b", buffering=0) as file:
            yield _Lines(file)
        return
    parts = _Parts(folder)
    try:
        yield parts
    finally:
        parts.flush()


def read_manifest(folder: str) -> dict[str, FileRecord]:
    """The last record of each input, by its name."""
    found: dict[str, FileRecord] = {}
    for name in _files(folder):
        for line in read_file(name).decode("utf-8", errors="replace").splitlines():
            try:
                record = FileRecord(**json.loads(line))
            except (ValueError, TypeError):
                continue
            found[record.input] = record
    return found


def _files(folder: str) -> list[str]:
    if is_on_disk(folder):
        name = in_folder(folder, MANIFEST)
        return [name] if os.path.exists(name) else []
    try:
        return found_files(in_folder(folder, _PARTS))  # in the order of their times
    except (GraphflowError, FileNotFoundError):  # nothing is there yet
        return []


class _Lines:
    """A file that is appended to."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":  # a process was killed while it wrote
                file.write(b"\n")

    def add(self, record: FileRecord) -> None:
        """Append a record."""
        self._file.write(_line(record))


class _Parts:
    """Objects that are put whole."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._began = time.time_ns()
        self._number = 0
        self._lines: list[bytes] = []
        self._since = time.monotonic()

    def add(self, record: FileRecord) -> None:
        """Add a record to the part that is gathered, and put it if it is time."""
        self._lines.append(_line(record))
        if time.monotonic() - self._since >= PART_INTERVAL:
            self.flush()

    def flush(self) -> None:
        """Put the part that is gathered."""
        self._since = time.monotonic()
        if self._lines:
            name = f"manifest-{self._began:019}-{self._number:06}.jsonl"
            put_file(in_folder(self._folder, name), b"".join(self._lines))
            self._number += 1
            self._lines.clear()


def _line(record: FileRecord) -> bytes:
    return json.dumps(record.plain()).encode() + b"\n"
