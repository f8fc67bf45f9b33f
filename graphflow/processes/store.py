"""A store of byte strings by key in a folder, of bounded size, shared between processes.

In: keys, and bytes to keep.  Out: the same bytes, or nothing.  What always holds: an entry is
written to a temporary file and renamed, so that it is complete or absent, for other processes and
after `kill -9` too; a checksum covers it, so that an entry that was damaged, or lost by a crash of
the machine, counts as absent.  No operation raises an error: an entry that cannot be written is not
kept.

    KEY.entry             magic, size of the bytes, their digest, the bytes
    .KEY.RANDOM.tmp       an entry that is being written, or that a killed process left
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import tempfile
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

_HEADER = struct.Struct("<8sQ20s")
_MAGIC = b"gfentry1"
_SUFFIX, _ASIDE = ".entry", ".tmp"

MOST_BYTES = 256 << 20
"""The default bound of a store: about ten thousand kernels."""

LEFT_BEHIND = 3600.0
"""Seconds after which a temporary file counts as left by a killed process, and is removed."""

ROOM = 0.75
"""The fraction of its bound to which a store that exceeds the bound is trimmed."""


class EntryStore:
    """The entries in a folder, which is created for the first entry.

    Raises OSError if the path is not a folder, or if other users may write into it: an entry may
    hold code.
    """

    def __init__(self, folder: str | Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = Path(folder)
        self._most = most_bytes
        with contextlib.suppress(FileNotFoundError):
            require_own(self._folder)

    def get(self, key: str) -> bytes | None:
        """The bytes of an entry, which becomes the most recently used; None if it is absent or
        damaged."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        found = _checked(data)
        with contextlib.suppress(OSError):  # a read-only folder can still be read from
            if found is None:
                path.unlink()
            else:
                os.utime(path)
        return found

    def put(self, key: str, data: bytes) -> bool:
        """Keep bytes under a key; False if they cannot be written."""
        aside = None
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            require_own(self._folder)
            number, aside = tempfile.mkstemp(_ASIDE, f".{key}.", self._folder)
            with os.fdopen(number, "wb") as file:
                file.write(_HEADER.pack(_MAGIC, len(data), _digest(data)))
                file.write(data)
            # No fsync: after a crash of the machine the checksum tells whether all of it is there.
            os.replace(aside, self._path(key))
        except OSError:
            if aside is not None:
                with contextlib.suppress(OSError):
                    os.unlink(aside)
            return False
        return True

    def trim(self) -> None:
        """Remove the least recently used entries if the store exceeds its bound."""
        trim_folder(self._folder, (_SUFFIX,), self._most, lambda about: about.st_mtime)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{_SUFFIX}"


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=20).digest()


def _checked(data: bytes) -> bytes | None:
    if len(data) < _HEADER.size:
        return None
    magic, size, digest = _HEADER.unpack_from(data)
    rest = data[_HEADER.size :]
    return rest if magic == _MAGIC and len(rest) == size and _digest(rest) == digest else None


def trim_folder(
    folder: Path,
    suffixes: tuple[str, ...],
    most_bytes: int,
    last_used: Callable[[os.stat_result], float],
) -> None:
    """Remove the least recently used files with these suffixes if they have more than `most_bytes`
    together, and temporary files that killed processes left.  No error is raised."""
    entries: list[tuple[float, int, str]] = []
    now = time.time()
    try:
        with os.scandir(folder) as found:
            for file in found:
                with contextlib.suppress(OSError):  # another process removed it
                    about = file.stat(follow_symlinks=False)
                    if file.name.endswith(suffixes):
                        entries.append((last_used(about), about.st_size, file.path))
                    elif file.name.endswith(_ASIDE) and now - about.st_mtime > LEFT_BEHIND:
                        os.unlink(file.path)
    except OSError:
        return
    total = sum(size for _, size, _ in entries)
    if total <= most_bytes:
        return
    for _, size, path in sorted(entries):
        if total <= ROOM * most_bytes:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size


def require_own(folder: Path) -> None:
    """OSError unless the folder belongs to this user or to root and no other user may write to
    it."""
    about = folder.stat()
    if not stat.S_ISDIR(about.st_mode):
        raise NotADirectoryError(f"{folder} is not a folder")
    if about.st_uid not in (os.geteuid(), 0):
        raise PermissionError(f"{folder} belongs to another user")
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"others may write to {folder}; take that away with chmod go-w")
