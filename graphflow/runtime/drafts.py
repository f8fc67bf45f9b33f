"""Atomic replacement of files: a draft beside the destination is completed and takes its name.

In: a path and a function that writes the content.  Out: the new file under that name, or the old
one unchanged.  What always holds: only a regular file or an unused name is replaced.  The process
that writes a draft holds a lock on it, so an unlocked draft was left by a killed process; the next
save under the same name removes it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Callable
from typing import BinaryIO

_LONGEST = 200
"""The most bytes of the destination's name in the name of a draft; file systems allow 255."""

_TRIES = 8
"""Attempts to make a draft; another process may remove one before it is locked."""


def replace_file(
    path: str, write: Callable[[BinaryIO], None], *, survives_crashes: bool = True
) -> None:
    """Replace the contents of `path` by what `write` writes.

    Unless it `survives_crashes`, the file may be incomplete after a crash of the machine, and the
    disk is not waited for.  Raises OSError if the system refuses, or if `path` is no regular file.
    """
    target = os.path.realpath(path)
    _require_replaceable(target)
    folder, name = os.path.split(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, f"there is no folder {folder}")
    prefix = f".{os.fsdecode(os.fsencode(name)[:_LONGEST])}."
    _remove_leftovers(folder, prefix)
    draft, file = _new_draft(folder, prefix)
    try:
        with file:
            write(file)
            file.flush()
            if survives_crashes:
                os.fsync(file.fileno())
            _require_replaceable(target)
            os.replace(draft, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
    if survives_crashes:
        _sync_folder(folder)


def _require_replaceable(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise OSError(f"it is {kind}; give the name of a new file or of one to replace")


def _new_draft(folder: str, prefix: str) -> tuple[str, BinaryIO]:
    """A new file, locked until it is closed, which also happens when the process dies."""
    for _ in range(_TRIES):
        draft = os.path.join(folder, f"{prefix}{secrets.token_hex(8)}.tmp")
        file = open(draft, "xb")  # noqa: SIM115 (the caller closes it)
        try:
            with contextlib.suppress(OSError):  # some network file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX)
            # Another process may have taken it for a leftover before it was locked.
            if os.fstat(file.fileno()).st_nlink:
                return draft, file
        except BaseException:
            file.close()
            raise
        file.close()
    raise OSError(f"other processes keep removing drafts from {folder}")


def _remove_leftovers(folder: str, prefix: str) -> None:
    """Remove drafts that no live process has locked; drafts that cannot be opened are left."""
    leftover = re.compile(re.escape(prefix) + r"[0-9a-f]{16}\.tmp")
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if leftover.fullmatch(name):
                with contextlib.suppress(OSError):
                    _remove_unlocked(os.path.join(folder, name))


def _remove_unlocked(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
    finally:
        os.close(descriptor)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
