"""Folders on a machine's disk that all workers of one user on it share.

In: what a folder is for.  Out: the folder.  What always holds: no other user can write there.
"""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from graphflow.base.errors import GraphflowError


def own_folder(purpose: str) -> Path:
    """A folder of this user on this machine's disk, which its workers share.

    Raises GraphflowError if others may write there.
    """
    folder = Path(tempfile.gettempdir(), f"graphflow-{purpose}-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_own or found.st_mode & 0o022:
        raise GraphflowError(f"{folder} belongs to others, or others may write there; remove it")
    return folder
