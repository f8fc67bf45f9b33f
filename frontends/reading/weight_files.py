"""Files of models, which stay open, so that weights are read from them whenever they are needed.

In: the path of a regular file.  Out: its bytes, part by part.  What always holds: all parts are
those of the file as it was opened.  Whoever replaces or deletes it changes nothing, as the file
that is open stays; a write into it is an error of the next read.

A write is detected by the file's size and modification time, which advances in steps of some
milliseconds.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
import weakref

import numpy as np

from graphflow.base.errors import FileOverwritten
from graphflow.frontends.reading.weights import LARGE_BYTES, StoredArray
from graphflow.graph import Array

READ_AGAIN_BYTES = 1 << 20
"""The least bytes of a part of a file that whoever has them in memory can let go of, and read
again; all smaller ones of a network take little memory together."""

MOST_OPEN = 64
"""The most files of external data of a model that stay open.  Exporters write a file for each
weight, and a process may have 1024 open files."""

_HUGE_BYTES = 4 << 20
"""The least bytes for which huge pages are asked: 97 MiB in parts of 9 are read in 41 ms, and into
ordinary pages in 66."""

MOST_BYTES = (1 << 31) - 1
"""Protobuf's limit for one message."""


class RegularFile:
    """A regular file, open for reading until nothing refers to it: the bytes that `[begin:end]`
    gives are read then, and never kept.

    Opening a pipe would block, so nothing but a file is opened: ValueError, or an OSError.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        # Opening a device can have effects, so its kind is asked for before.
        self._require_regular(os.stat(path))
        self._number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        weakref.finalize(self, os.close, self._number)
        status = os.fstat(self._number)
        self._require_regular(status)
        self._size, self._written = status.st_size, status.st_mtime_ns

    def _require_regular(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise ValueError(f"{self._path} is {kind}")

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice, /) -> memoryview:
        """Exactly these bytes, read-only; FileOverwritten if the file was written to since it was
        opened.

        Large parts are in pages of their own, which go back to the system as soon as nothing refers
        to them; freed memory of the C library would stay with the process.
        """
        size = part.stop - part.start
        is_again = size >= READ_AGAIN_BYTES
        return self._read(part.start, size, self if is_again else None)

    def read_once(self, begin: int, size: int) -> memoryview:
        """The same of bytes that need not be read again: the file may be closed before they go."""
        return self._read(begin, size, None)

    def _read(self, begin: int, size: int, file: RegularFile | None) -> memoryview:
        memory = memoryview(_Pages(file, begin, size) if size >= LARGE_BYTES else bytearray(size))
        done = 0
        while done < size and (read := os.preadv(self._number, [memory[done:]], begin + done)):
            done += read
        status = os.fstat(self._number)
        if done < size or (status.st_size, status.st_mtime_ns) != (self._size, self._written):
            raise FileOverwritten(
                f"{self._path} was written to in place since it was opened, and weights are read "
                "from it again for each further program; compile it again, and replace such files "
                "instead of writing into them, or give graphflow.compile the bytes of the model"
            )
        return memory.toreadonly()


class _Pages(mmap.mmap):
    """Memory for `size` bytes of a file from `begin` on; `file` is that which they can be read from
    again, and stays open.  MemoryError if the system has none."""

    file: RegularFile | None
    begin: int

    def __new__(cls, file: RegularFile | None, begin: int, size: int) -> _Pages:
        try:
            made = super().__new__(cls, -1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"{size} bytes: {error}") from error
        if size >= _HUGE_BYTES:
            with contextlib.suppress(OSError):  # a kernel without them serves ordinary pages
                made.madvise(mmap.MADV_HUGEPAGE)
        made.file, made.begin = file, begin
        return made


def stored_part(array: Array) -> StoredArray | None:
    """Where the contents of an array can be read again, if it lies in a part of a file that can;
    None also if its elements do not lie there one after the other."""
    memory: object = array
    while isinstance(memory, np.ndarray | memoryview):
        memory = memory.base if isinstance(memory, np.ndarray) else memory.obj
    if not isinstance(memory, _Pages) or memory.file is None or not array.flags.c_contiguous:
        return None
    first = np.frombuffer(memory, np.uint8)
    begin = memory.begin + array.ctypes.data - first.ctypes.data
    return StoredArray(memory.file, begin, array.dtype, array.shape)


class MessageFile:
    """The bytes of a file that is one message; small parts that lie together are read at once.

    ValueError where it is too large for a message.
    """

    def __init__(self, file: RegularFile, path: str) -> None:
        self._file = file
        self._start, self._window = 0, memoryview(b"")
        if len(file) > MOST_BYTES:
            raise ValueError(
                f"{path} has {len(file)} bytes, and an ONNX file at most {MOST_BYTES}; store the "
                "weights as external data"
            )

    def __len__(self) -> int:
        return len(self._file)

    def __getitem__(self, part: slice, /) -> memoryview:
        start, stop = part.start, min(part.stop, len(self))
        if stop - start >= LARGE_BYTES:
            return self._file[start:stop]
        if not self._start <= start <= stop <= self._start + len(self._window):
            size = min(LARGE_BYTES, len(self) - start)
            self._start, self._window = start, self._file[start : start + size]
        return self._window[start - self._start : stop - self._start]
