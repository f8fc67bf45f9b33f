"""Files by name, on disks that all workers see and in stores that fsspec knows.

In: a path, or a URL such as `s3://bucket/in/0.npy`.  Out: its content; or a file with a new
content.  What always holds: a file on a disk is replaced whole, under a temporary name first; an
object of a store is put whole, which object stores do at once or not at all.
"""

from __future__ import annotations

import glob
import os
import posixpath
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from graphflow.base.errors import GraphflowError
from graphflow.runtime import replace_file


def found_files(pattern: str) -> list[str]:
    """The names of the files of a pattern, in order: absolute paths, or URLs.

    Raises GraphflowError if there is none, or if no store is known by such a URL.
    """
    store, path = _store_of(pattern)
    if store is None:
        found = sorted(os.path.abspath(name) for name in glob.glob(path, recursive=True))
        files = [name for name in found if os.path.isfile(name)]
    else:
        listed = store.glob(path, detail=True)
        files = [
            store.unstrip_protocol(name)
            for name, about in sorted(listed.items())
            if about["type"] == "file"
        ]
    if not files:
        raise GraphflowError(f"no file is named as {pattern}; give a pattern such as 'in/*.npy'")
    return files


def is_on_disk(name: str) -> bool:
    """Whether a name is a path, or a URL of one."""
    return _store_of(name)[0] is None


def stem_and_suffix(name: str) -> tuple[str, str]:
    """The last part of a name, cut before its suffix, such as `.npy`."""
    return posixpath.splitext(posixpath.basename(name))


def in_folder(folder: str, name: str) -> str:
    """The name of a file in a folder; the folder of a path becomes absolute."""
    store, path = _store_of(folder)
    if store is None:
        return os.path.join(os.path.abspath(path), name)
    return f"{folder.rstrip('/')}/{name}"


def make_folder(folder: str) -> None:
    """Make a folder on a disk; stores need none."""
    store, path = _store_of(folder)
    if store is None:
        os.makedirs(path, exist_ok=True)


def read_file(name: str) -> bytes:
    """The content of a file; OSError if it cannot be read."""
    store, path = _store_of(name)
    if store is not None:
        content: bytes = store.cat_file(path)
        return content
    with open(path, "rb") as file:
        return file.read()


def put_file(name: str, content: bytes) -> None:
    """Replace or make a file; OSError if it cannot be written."""
    store, path = _store_of(name)
    if store is not None:
        store.pipe_file(path, content)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    replace_file(path, lambda file: file.writelines([content]))


def _store_of(name: str) -> tuple[Any | None, str]:
    """The file system of a URL, and the path in it; None for this machine's disks.

    Credentials and addresses of stores are those of fsspec's configuration and of the environment.
    """
    if "://" not in name:
        return None, name
    try:
        store, path = fsspec.core.url_to_fs(name)
    except (ImportError, ValueError) as error:
        raise GraphflowError(f"cannot reach {name}: {error}") from error
    return (None if isinstance(store, LocalFileSystem) else store), path
