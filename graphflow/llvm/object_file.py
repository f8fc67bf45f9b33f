"""Object code: ELF's tables of relocatable objects for x86-64.

In: object code, with the symbol of the kernel that it holds.  Out: `ObjectFile`, its sections,
symbols and relocations as rows.  What always holds: each table lies inside the object, so damaged
code ends in a `CodegenError` that names the kernel.
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.base.errors import CodegenError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])

_RELOCATABLE, _X86_64 = 1, 62
_SYMBOLS, _RELOCATIONS = 2, 4
_UNDEFINED = 0
"""The section of a symbol that an object needs and does not define."""


class ObjectSection(NamedTuple):
    """A row of the table of sections, as the specification of ELF has it."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class ObjectSymbol(NamedTuple):
    """A symbol: its name, empty where it is not global; the index of its section, and its place in
    that; and the offset in the object at which its name begins, also of one that is not global."""

    name: str
    section: int
    value: int
    name_offset: int


class ObjectFile(Struct, frozen=True, dict=True):
    """The tables of the object that holds the kernel `kernel`."""

    kernel: str
    code: bytes
    sections: tuple[ObjectSection, ...]
    symbols: tuple[ObjectSymbol, ...]

    @cached_property
    def defined(self) -> frozenset[str]:
        """The global names that it defines."""
        return frozenset(s.name for s in self.symbols if s.name and s.section != _UNDEFINED)

    @cached_property
    def needed(self) -> frozenset[str]:
        """The names that others have to define."""
        return frozenset(s.name for s in self.symbols if s.name and s.section == _UNDEFINED)

    def content(self, section: ObjectSection) -> bytes:
        """The bytes of a section."""
        found = self.code[section.offset : section.offset + section.size]
        if len(found) != section.size:
            raise self.damaged(f"a section of {section.size} bytes has {len(found)}")
        return found

    def relocations(self, index: int) -> NDArray[Any]:
        """The relocations of section `index`: offset, kind, number of the symbol, addend."""
        tables = [s for s in self.sections if s.kind == _RELOCATIONS and s.info == index]
        return np.frombuffer(b"".join(map(self.content, tables)), _RELOCATION)

    def damaged(self, why: object) -> CodegenError:
        """The error for an object that contradicts itself."""
        return CodegenError(f"the object of kernel {self.kernel!r} is damaged: {why}")


def read_object(kernel: str, code: bytes) -> ObjectFile:
    """Read the tables; CodegenError if they are damaged, or those of another machine."""
    if code[:6] != b"\x7fELF\x02\x01":
        raise CodegenError(f"the object of kernel {kernel!r} is not 64-bit little-endian ELF")
    bare = ObjectFile(kernel, code, (), ())
    if len(code) < _HEADER.size:
        raise bare.damaged(f"its header has {len(code)} of {_HEADER.size} bytes")
    header = _HEADER.unpack_from(code)
    kind, machine, start, count = header[1], header[2], header[6], header[12]
    if (kind, machine) != (_RELOCATABLE, _X86_64):
        raise CodegenError(
            f"the object of kernel {kernel!r} is no relocatable x86-64 object (ELF type {kind}, "
            f"machine {machine})"
        )
    try:
        table = code[start : start + count * _SECTION.size]
        sections = tuple(map(ObjectSection._make, _SECTION.iter_unpack(table)))
        if len(sections) != count:
            raise ValueError(f"it has {len(sections)} of {count} sections")
        return ObjectFile(kernel, code, sections, _symbols(bare, sections))
    except (struct.error, ValueError, IndexError) as error:
        raise bare.damaged(error) from error


def _symbols(file: ObjectFile, sections: tuple[ObjectSection, ...]) -> tuple[ObjectSymbol, ...]:
    found: list[ObjectSymbol] = []
    for section in sections:
        if section.kind == _SYMBOLS:
            strings = sections[section.link]
            names = file.content(strings)
            for start, info, _, owner, value, _ in _SYMBOL.iter_unpack(file.content(section)):
                is_global = info >> 4
                name = _string(names, start) if is_global else ""
                found.append(ObjectSymbol(name, owner, value, strings.offset + start))
    for symbol in found:
        if 0 < symbol.section < len(sections) and symbol.value > sections[symbol.section].size:
            raise ValueError(f"the symbol {symbol.name!r} lies behind its section")
    return tuple(found)


def _string(text: bytes, start: int) -> str:
    return text[start : text.index(b"\0", start)].decode()
