"""Digests of immutable values, which are the same in every process.

In: plain values, tuples, mappings, sets, enumerations, structs and frozen dataclasses with all
their fields (also those that equality ignores), and objects whose `__reduce__` names functions and
classes of graphflow.  Out: 20 bytes.  What always holds: values that differ in anything have
different digests; so do equal values of different types, such as 1 and 1.0.  Addresses and Python's
hashes, which differ between processes, are not used.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Set
from enum import Enum
from functools import lru_cache
from hashlib import blake2b, sha256
from types import FunctionType
from typing import Any

from graphflow.base.fields import field_names

SIZE = 20
_DIGITS = 32

_SIMPLE: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"",
    bool: lambda value: b"1" if value else b"0",
    int: lambda value: str(value).encode(),
    float: lambda value: struct.pack("<d", value),
    str: lambda value: value.encode("utf-8", "surrogatepass"),
    bytes: bytes,
}


class Digests:
    """Computes digests; a part that several values share is digested once.

    Raises TypeError for a value of an unknown kind, such as a function made by another function.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, bytes]] = {}

    def of(self, value: object) -> bytes:
        """The digest of a value."""
        simple = _SIMPLE.get(type(value))
        if simple is not None:
            return _joined(type(value).__name__, (simple(value),))
        known = self._known.get(id(value))
        if known is None:  # keep the value, so that its address is not reused
            known = self._known[id(value)] = (value, self._of_parts(value))
        return known[1]

    def _of_parts(self, value: object) -> bytes:
        if isinstance(value, tuple):
            return self._all("tuple", value)
        if isinstance(value, Enum):
            return _joined(_name(type(value)), (value.name.encode(),))
        if isinstance(value, type | FunctionType):
            return _joined("name", (_found_by_name(value),))
        of_type: Any = type(value)
        record = _record(of_type)
        if record is not None:
            kind, names = record
            return self._all(kind, [getattr(value, name) for name in names])
        if isinstance(value, list):
            return self._all("list", value)
        if isinstance(value, Mapping):
            return self._all("mapping", [part for item in value.items() for part in item])
        if isinstance(value, Set):
            return _joined("set", sorted(self.of(part) for part in value))
        if type(value).__reduce__ is not object.__reduce__:
            return self._all("made", value.__reduce__())
        raise TypeError(f"a {type(value).__name__} has no digest")

    def _all(self, kind: str, parts: Any) -> bytes:
        return _joined(kind, [self.of(part) for part in parts])


def _joined(kind: str, parts: Iterable[bytes]) -> bytes:
    text = [kind.encode(), b"\0"]
    for part in parts:
        text += (len(part).to_bytes(8, "little"), part)
    return blake2b(b"".join(text), digest_size=SIZE).digest()


@lru_cache(maxsize=1024)
def _record(kind: Any) -> tuple[str, tuple[str, ...]] | None:
    """The name of a struct or a dataclass, and the names of its fields; None for any other type."""
    names = field_names(kind)
    return None if names is None else (_name(kind), names)


def _name(value: type | FunctionType) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _found_by_name(value: type | FunctionType) -> bytes:
    """The qualified name of a class or function of a graphflow module; TypeError for any other.

    A name says nothing about the code behind it: a user of digests has to add a digest of that
    code.
    """
    module, own = value.__module__, value.__module__.startswith("graphflow.")
    if not own or getattr(sys.modules.get(module), value.__qualname__, None) is not value:
        raise TypeError(f"{_name(value)} is not a class or function of graphflow")
    return _name(value).encode()


def text_digest(text: str) -> str:
    """A short digest of a text, the same in every process."""
    return sha256(text.encode()).hexdigest()[:_DIGITS]
