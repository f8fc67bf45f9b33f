"""Detection of writes to a mapped file after its contents were checked.

In: an open file and a check of its contents.  Out: an object that is called before each use of the
mapping.  What always holds: if the file was written to in place, its contents are checked again
before the memory is used; if it became shorter, its memory is not accessed, as that would end the
process.

Writes are detected by the file's modification time, which advances in steps of some milliseconds.
So a write within the same step as the save, or during a run, goes unnoticed.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from pathlib import Path

from graphflow.base.errors import FileOverwritten, InvalidModel


class Watch:
    """Calls `verify` if the size or the modification time of a file changed since the last call.

    `verify` raises if the contents differ.  The descriptor is duplicated, and closed with this
    object.
    """

    def __init__(self, path: str | Path, descriptor: int, verify: Callable[[], None]) -> None:
        self._path = path
        self._verify = verify
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)
        self._seen = state_of(descriptor)

    def __call__(self) -> None:
        """Raise FileOverwritten if the file was overwritten."""
        found = state_of(self._descriptor)
        if found == self._seen:
            return
        if found[0] == self._seen[0]:
            try:
                self._verify()
            except InvalidModel as error:
                raise self._refusal() from error
            self._seen = found
            return
        raise self._refusal()

    def _refusal(self) -> FileOverwritten:
        return FileOverwritten(
            f"the saved model {self._path} was overwritten in place while it is in use; load it "
            "again, and replace such files instead of writing into them (as Executable.save does), "
            "or load them with mmap=False"
        )


def state_of(descriptor: int) -> tuple[int, int]:
    """Size and time of the last change of an open file."""
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns
