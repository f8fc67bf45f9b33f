"""Messages between a process and its workers.

In: the bytes of a message, or a pipe.  Out: the message written to the pipe, or read from it.  What
always holds: a message is a magic number, the length, and that many bytes; a pipe that ends, inside
a message too, gives None.

    parent → worker   a pickled call, or a hint: one that is not answered
    worker → parent   its identity when it is ready, then a pickled answer to each call
"""

from __future__ import annotations

import pickle
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from msgspec import Struct

from graphflow.base.trace import Times
from graphflow.base.version import VERSION

IDENTITY = f"graphflow {VERSION} in {Path(__file__).resolve()}, Python {sys.version}"
"""Processes exchange pickles only if they agree on this text."""

_HEADER = struct.Struct("<4sQ")
_MAGIC = b"gfwk"


class Done(Struct, frozen=True):
    """The result of a call, and the times of its steps."""

    result: Any
    times: Times


class Failed(Struct, frozen=True):
    """The error that a call raised, and its traceback as text."""

    error: Exception
    traceback: str


class Unable(Struct, frozen=True):
    """The worker could not read the call, or could not send its result, which is unknown."""

    reason: str


Answer: TypeAlias = Done | Failed | Unable


_HINT = f"{IDENTITY}\0".encode()


def as_hint(call: bytes) -> bytes:
    """A pickled call as a message that may be sent before the worker is ready."""
    return _HINT + call


def is_hint(message: bytes) -> bool:
    """Whether a message to a worker is a hint, and no pickled call."""
    return not message.startswith(pickle.PROTO)


def hinted_call(message: bytes) -> bytes | None:
    """The pickled call of a hint; None if another installation sent it."""
    return message.removeprefix(_HINT) if message.startswith(_HINT) else None


def in_short(error: Exception) -> str:
    """An error as the reason of an answer or notice."""
    return f"{type(error).__name__}: {error}"


def write_message(pipe: BinaryIO, message: bytes) -> None:
    """Write a message; OSError if nobody reads the pipe."""
    rest = memoryview(_HEADER.pack(_MAGIC, len(message)) + message)
    while rest:
        rest = rest[pipe.write(rest) :]


def read_message(pipe: BinaryIO) -> bytes | None:
    """The next message; None if the pipe ended, between two messages or inside one."""
    start = _read_exactly(pipe, _HEADER.size)
    if start is None:
        return None
    magic, size = _HEADER.unpack(start)
    if magic != _MAGIC:
        raise ValueError(f"{start!r} is not the start of a message")
    return _read_exactly(pipe, size)


def _read_exactly(pipe: BinaryIO, size: int) -> bytes | None:
    parts = []
    while size:
        part = pipe.read(size)
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
