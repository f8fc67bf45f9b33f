"""A file format of named sections in which every byte has a checksum.

In: a header (JSON values) and sections (bytes).  Out: one file:

    preamble   magic, format version, sizes, SHA-256 of the header, CRC-32 of the preamble itself
    header     JSON, among it the name, the size and the checksums of each section
    sections   in the header's order, each from a multiple of 4096 bytes on, filled up with zeros

What always holds: the zeros between sections are under a checksum too; a file appears under its
name complete or not at all; no part of it is used before it was checked.  The checksums detect
damage.  They say nothing about who wrote the file.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import stat
import struct
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.base.plain import integer, listed, mapping, text
from graphflow.runtime.aligned_memory import zeroed_block
from graphflow.runtime.cpus import default_threads
from graphflow.runtime.drafts import replace_file
from graphflow.runtime.watch import Watch, state_of

MAGIC = b"\x89GFX\r\n\x1a\n"
"""The first bytes are no text, and conversions of line ends would change them."""

FORMAT_VERSION = 16
"""The version of the file format, including the contents of the sections.

The first 72 bytes have the same meaning in all versions.
"""

PAGE = 4096
CHUNK = 1 << 20
"""The number of bytes that one checksum covers."""

PREAMBLE = struct.Struct("<8sIIQQ32sQ")
"""Magic, format version, zero, bytes of the header, bytes of the file, SHA-256 of the header with
its padding, CRC-32 of all that."""

Bytes: TypeAlias = "bytes | memoryview"

_FEW_BYTES = 8 * CHUNK
"""Sections up to this size are checked by one thread, which takes some milliseconds."""

_REPAIR = "compile the ONNX model and save it again"


def is_container(path: str | Path) -> bool:
    """Whether a file begins with the magic bytes; False if it cannot be read."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return False
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


# Writing ----------------------------------------------------------------------------------------


def write_container(
    path: str | Path,
    header: Mapping[str, Any],
    sections: Mapping[str, Bytes],
    survives_crashes: bool = True,
) -> None:
    """Write `path`; until the new file is complete on disk, the old one, or none, is there; unless
    it `survives_crashes`, that holds while the machine does not crash.

    Raises GraphflowError if the system refuses; the old file is then unchanged.
    """
    table = [
        {"name": name, "bytes": len(content), "sums": _checksums(_padded_chunks(content))}
        for name, content in sections.items()
    ]
    text = json.dumps({**header, "sections": table}, separators=(",", ":")).encode("ascii")
    block = text + bytes(_padding(PREAMBLE.size + len(text)))
    total = PREAMBLE.size + len(block) + sum(_padded(len(s)) for s in sections.values())
    fields = (MAGIC, FORMAT_VERSION, 0, len(text), total, hashlib.sha256(block).digest())
    start = PREAMBLE.pack(*fields, 0)
    start = PREAMBLE.pack(*fields, zlib.crc32(start[:-8]))

    def write(file: BinaryIO) -> None:
        file.writelines([start, block])
        for content in sections.values():
            file.write(content)
            file.write(bytes(_padding(len(content))))

    try:
        replace_file(os.fspath(path), write, survives_crashes=survives_crashes)
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        raise GraphflowError(
            f"cannot write {path}: {getattr(error, 'strerror', None) or error}; what was there "
            "before is unchanged"
        ) from error


# Reading ----------------------------------------------------------------------------------------


class Container:
    """An open file whose preamble and header have been checked; each section is checked when it is
    read.

    Raises InvalidModel for a file that is damaged, incomplete, of another format version, or no
    saved model.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._mapped: list[tuple[str, NDArray[np.uint8], list[int]]] = []
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
            raise InvalidModel(f"cannot read the saved model {path}: {error}") from error
        try:
            self._size = self._regular_size()
            self._state = state_of(self._descriptor)
            self.header = self._header()
            self._places = self._sections()
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            self.close()
            raise self.refuse(f"its header has another structure ({error!r:.200})") from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Container:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; sections that were returned stay valid."""
        os.close(self._descriptor)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the sections, in order."""
        return tuple(self._places)

    def read(self, name: str) -> bytes:
        """A copy of a section; the copy is what is checked."""
        offset, size, sums = self._place(name)
        content = self._read(offset, _padded(size))
        self._check(name, np.frombuffer(content, np.uint8), sums)
        return content[:size]

    def map(self, name: str) -> NDArray[np.uint8]:
        """A checked section as read-only memory that is shared with the file.

        It starts at a multiple of 4096.  This module replaces files and never writes into them; a
        write by anyone else changes this memory too, which `watch` detects.
        """
        offset, size, sums = self._place(name)
        if not size:
            return np.empty(0, np.uint8)
        try:
            shared = mmap.mmap(
                self._descriptor,
                _padded(size),
                flags=mmap.MAP_PRIVATE,
                prot=mmap.PROT_READ,
                offset=offset,
            )
        except OSError as error:
            raise InvalidModel(f"cannot map the saved model {self.path}: {error}") from error
        memory = np.frombuffer(shared, np.uint8)
        self._check(name, memory, sums)
        self._mapped.append((name, memory, sums))
        return memory[:size]

    def copy(self, name: str) -> NDArray[np.uint8]:
        """A checked section as private read-only memory at a multiple of 64."""
        offset, size, sums = self._place(name)
        memory = zeroed_block(_padded(size))
        self._fill(memory.data, offset)
        self._check(name, memory, sums)
        memory.flags.writeable = False
        return memory[:size]

    def sha256(self) -> str:
        """The SHA-256 of the whole file, in hexadecimal digits."""
        digest = hashlib.sha256()
        for offset in range(0, self._size, CHUNK):
            digest.update(self._read(offset, min(CHUNK, self._size - offset)))
        return digest.hexdigest()

    def watch(self) -> Watch:
        """A watch that detects writes to the sections that were mapped so far."""
        mapped = tuple(self._mapped)

        def verify() -> None:
            for name, memory, sums in mapped:
                self._check(name, memory, sums)

        return Watch(self.path, self._descriptor, verify)

    def require_unchanged(self) -> None:
        """Raise InvalidModel if the file was written to since it was opened."""
        if state_of(self._descriptor) != self._state:
            raise InvalidModel(
                f"the saved model {self.path} changed while it was loaded; load it again"
            )

    def refuse(self, what: str) -> InvalidModel:
        """The error for a damaged file."""
        return InvalidModel(f"the saved model {self.path} is damaged: {what}; {_REPAIR}")

    def _regular_size(self) -> int:
        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidModel(f"cannot read the saved model {self.path}: it is no regular file")
        return status.st_size

    def _header(self) -> dict[str, Any]:
        start = self._read(0, min(PREAMBLE.size, self._size))
        if not start or start[: len(MAGIC)] != MAGIC[: len(start)]:
            raise InvalidModel(
                f"{self.path} is no saved model: it does not begin as one; give a file that "
                "Executable.save or `graphflow compile -o` wrote"
            )
        if len(start) < PREAMBLE.size:
            raise self.refuse(f"it ends after {len(start)} bytes")
        _, version, _, length, total, digest, checksum = PREAMBLE.unpack(start)
        if zlib.crc32(start[:-8]) != checksum:
            raise self.refuse("the checksum of its first 72 bytes does not fit")
        if version != FORMAT_VERSION:
            raise InvalidModel(
                f"the saved model {self.path} has format {version}, this graphflow reads format "
                f"{FORMAT_VERSION}; load it with the graphflow that wrote it, or {_REPAIR}"
            )
        if total != self._size:
            raise self.refuse(f"it is {self._size} bytes long instead of {total}")
        end = _padded(PREAMBLE.size + length)
        if end > self._size:
            raise self.refuse(f"its header of {length} bytes leaves the file")
        block = self._read(PREAMBLE.size, end - PREAMBLE.size)
        if hashlib.sha256(block).digest() != digest:
            raise self.refuse("the checksum of its header does not fit")
        self._first = end
        return mapping(json.loads(block[:length]))

    def _sections(self) -> dict[str, tuple[int, int, list[int]]]:
        offset, found = self._first, dict[str, tuple[int, int, list[int]]]()
        for section in listed(self.header["sections"]):
            name, size = text(section["name"]), integer(section["bytes"])
            if name in found:
                raise ValueError(f"two sections are called {name!r}")
            found[name] = offset, size, [integer(sum) for sum in listed(section["sums"])]
            offset += _padded(size)
        if offset != self._size:
            raise self.refuse(f"its sections end at byte {offset} of {self._size}")
        return found

    def _place(self, name: str) -> tuple[int, int, list[int]]:
        if name not in self._places:
            raise self.refuse(f"it has no section {name!r}")
        return self._places[name]

    def _read(self, offset: int, size: int) -> bytes:
        memory = bytearray(size)
        self._fill(memoryview(memory), offset)
        return bytes(memory)

    def _fill(self, view: memoryview, offset: int) -> None:
        done = 0
        while done < len(view):
            try:
                count = os.preadv(self._descriptor, [view[done:]], offset + done)
            except OSError as error:
                raise InvalidModel(f"cannot read the saved model {self.path}: {error}") from error
            if not count:
                raise self.refuse(f"it ends at byte {offset + done}")
            done += count

    def _check(self, name: str, content: NDArray[np.uint8], sums: list[int]) -> None:
        found = _checksums(content[k : k + CHUNK] for k in range(0, len(content), CHUNK))
        if found != sums:
            where = [k * CHUNK for k, (a, b) in enumerate(zip(found, sums, strict=False)) if a != b]
            raise self.refuse(
                f"the checksum of its section {name!r} does not fit"
                + (f" from byte {where[0]} of it on" if where else "")
            )


# Checksums --------------------------------------------------------------------------------------


def _checksums(chunks: Iterator[Any]) -> list[int]:
    """CRC-32 of each chunk; zlib releases the interpreter lock, so large sections use all cores."""
    listed = list(chunks)
    if len(listed) * CHUNK <= _FEW_BYTES:
        return [zlib.crc32(chunk) for chunk in listed]
    with ThreadPoolExecutor(min(default_threads(), 8)) as pool:
        return list(pool.map(zlib.crc32, listed))


def _padded_chunks(content: Bytes) -> Iterator[Any]:
    """The chunks of a section as it is in the file, including the zeros behind it."""
    view, padding = memoryview(content), bytes(_padding(len(content)))
    for start in range(0, len(view), CHUNK):
        chunk = view[start : start + CHUNK]
        # Chunks are whole pages, so the padding belongs to the last one.
        yield chunk if start + CHUNK <= len(view) else bytes(chunk) + padding


def _padded(size: int) -> int:
    return size + _padding(size)


def _padding(size: int) -> int:
    return -size % PAGE
