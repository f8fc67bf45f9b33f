"""Whether a mapped file still holds what was checked when it was mapped.

In: an open file and a check of its contents.  Out: an object that is called before each use of the
mapping.  What always holds: a file that was written to in place is checked again before its memory
is used, and one that became shorter is not touched at all, as that would end the process.

A write shows in the file's time, whose steps are some milliseconds: what is written within one of
them after the file was saved, or while a run is under way, goes unnoticed.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from pathlib import Path

from graphflow.base.errors import InvalidModel


class Watch:
    """Calls `verify` where the file has another size or time of change than at the last call.

    `verify` raises where the contents differ.  The descriptor is duplicated, and closed with this.
    """

    def __init__(self, path: str | Path, descriptor: int, verify: Callable[[], None]) -> None:
        self._path = path
        self._verify = verify
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)
        self._seen = state_of(descriptor)

    def __call__(self) -> None:
        """InvalidModel where the file was overwritten."""
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

    def _refusal(self) -> InvalidModel:
        return InvalidModel(
            f"the saved model {self._path} was overwritten in place while it is in use; load it "
            "again, and replace such files instead of writing into them (as Executable.save does), "
            "or load them with mmap=False"
        )


def state_of(descriptor: int) -> tuple[int, int]:
    """Size and time of the last change of an open file."""
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns
