"""Files by key in a folder of bounded size, which processes share.

In: keys, and functions that write a file.  Out: the paths of files that are complete.  What always
holds: a file is never written to in place, so a process that has opened one keeps what it has read;
the least recently used files are removed first.  Whoever reads a file has to check that it is
undamaged: it may hold code, so the folder is refused if other users may write into it.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from graphflow.processes.store import require_own, trim_folder


class CachedFiles:
    """The files with one of the `suffixes` in a folder, of at most `most_bytes` together.

    OSError if the path is not a folder, or if other users may write into it.
    """

    def __init__(self, folder: str, suffixes: tuple[str, ...], most_bytes: int) -> None:
        self._folder, self._suffixes, self._most = Path(folder), suffixes, most_bytes
        with contextlib.suppress(FileNotFoundError):
            require_own(self._folder)

    def found(self, name: str) -> Path | None:
        """The path of a file, which becomes the most recently used; None if there is none."""
        path = self._folder / name
        try:
            written = path.stat().st_mtime_ns  # which readers watch, so it stays
        except OSError:
            return None
        with contextlib.suppress(OSError):  # a read-only folder can still be read from
            os.utime(path, ns=(time.time_ns(), written))
        return path

    def place(self, name: str) -> Path:
        """The path at which a new file may be put; OSError if the folder cannot be made."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        require_own(self._folder)
        return self._folder / name

    def remove(self, path: Path) -> None:
        """Remove a file that turned out to be damaged."""
        with contextlib.suppress(OSError):
            path.unlink()

    def trim(self) -> None:
        """Remove the least recently used files if the folder exceeds its bound."""
        trim_folder(self._folder, self._suffixes, self._most, lambda about: about.st_atime)
