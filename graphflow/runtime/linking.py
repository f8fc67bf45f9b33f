"""Linking of object code into the process.

In: relocatable objects, one for each kernel symbol.  Out: the memory that holds their machine code,
and the addresses of their symbols.  What always holds: memory is never writable and executable at
once; each symbol is found, in the objects or in the process, and each displacement fits.

Kernels are position-independent and need nothing but their own constants, so a relocation is a
displacement within one block of memory.  So a process that loads a saved program does without LLVM,
which takes 70 MiB of memory and 50 ms (docs/performance.md, "Memory").
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from graphflow.base.errors import CodegenError, GraphflowError
from graphflow.llvm import ObjectFile, ObjectSection, ObjectSymbol, read_object

Memory = NDArray[np.uint8]

_IN_MEMORY, _WRITABLE, _EXECUTABLE, _OF_THREADS = 2, 1, 4, 0x400
"""Flags of sections."""

_CONTENT, _ZEROS, _NOTES, _UNWINDING = 1, 8, 7, 0x70000001
"""Kinds of sections; notes and tables for unwinding have no effect on what code computes."""

_PROTECTIONS = {
    _EXECUTABLE: mmap.PROT_READ | mmap.PROT_EXEC,
    0: mmap.PROT_READ,
    _WRITABLE: mmap.PROT_READ | mmap.PROT_WRITE,
}
"""By flags of sections; memory has them in this order, each from a page of its own on."""

_JUMP = b"\xff\x25\x00\x00\x00\x00"
"""jmp [rip + 0]: to the address in the next eight bytes."""
_JUMP_BYTES = 16


class LinkedCode(Struct, frozen=True):
    """Machine code in this process, and the addresses of all global symbols; it stays valid while
    `memory` lives."""

    memory: Memory
    addresses: dict[str, int]


_RELOCATIONS: Mapping[int, tuple[np.dtype[Any], bool]] = {
    1: (np.dtype("<i8"), False),
    2: (np.dtype("<i4"), True),
    4: (np.dtype("<i4"), True),
    24: (np.dtype("<i8"), True),
}
"""By R_X86_64_64, PC32, PLT32 and PC64 of the System V ABI for x86-64: the number that is stored,
and whether that is the distance to the symbol from where it is stored, or the symbol's address."""


def link(objects: tuple[tuple[str, bytes], ...]) -> LinkedCode:
    """Load the objects; each must define its symbol, and every symbol that it uses must be found.

    Raises CodegenError for a damaged object, one for another machine, a missing or doubly defined
    symbol, and code that was not compiled position-independent; GraphflowError if memory runs out.
    """
    files = [read_object(symbol, code) for symbol, code in objects]
    outside = _outside(files)
    image = _placed(files, outside)
    for file, places in zip(files, image.places, strict=True):
        _relocate(image, file, places)
    _protect(image)
    return LinkedCode(image.memory, image.addresses)


def _outside(files: list[ObjectFile]) -> dict[str, int]:
    """The addresses of symbols that the process defines, and not the objects."""
    owner: dict[str, str] = {}
    for file in files:
        if file.kernel not in file.defined:
            raise CodegenError(f"the object of kernel {file.kernel!r} does not define that symbol")
        for name in sorted(file.defined):
            if owner.setdefault(name, file.kernel) != file.kernel:
                raise CodegenError(
                    f"the objects of kernels {owner[name]!r} and {file.kernel!r} both define "
                    f"{name!r}; give it internal linkage"
                )
    found: dict[str, int] = {}
    for file in files:
        for name in sorted(file.needed - owner.keys()):
            address = _address_in_process(name)
            if address is None:
                raise CodegenError(
                    f"kernel {file.kernel!r} needs the symbol {name!r}, which nothing in this "
                    "process defines; expand that operation in the emitter"
                )
            found[name] = address
    return found


def _address_in_process(name: str) -> int | None:
    """Of a function, such as memcpy, in a library that this process has loaded."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    except AttributeError:
        return None


class _Image(Struct, frozen=True):
    """The memory of linked objects.

    places: for each object, by index of a section, where that begins in memory.
    ends: by flags of sections, where the part of memory with these ends.
    addresses: of all global symbols; those of the process are jumps here.
    """

    memory: Memory
    places: list[dict[int, int]]
    ends: dict[int, int]
    addresses: dict[str, int] = field(default_factory=dict)

    @property
    def base(self) -> int:
        return int(self.memory.ctypes.data)


def _placed(files: list[ObjectFile], outside: Mapping[str, int]) -> _Image:
    """The sections in new memory, as they are in the objects, and the addresses of symbols."""
    places: list[dict[int, int]] = [{} for _ in files]
    ends: dict[int, int] = {}
    end = len(outside) * _JUMP_BYTES
    for access in _PROTECTIONS:
        for file, found in zip(files, places, strict=True):
            for index, section in _sections(file, access):
                found[index] = -(-end // section.align) * section.align
                end = found[index] + section.size
        end = ends[access] = -(-end // mmap.PAGESIZE) * mmap.PAGESIZE
    image = _Image(_new_memory(end), places, ends)
    for number, (name, address) in enumerate(outside.items()):
        jump = _JUMP + address.to_bytes(8, "little")
        image.memory[number * _JUMP_BYTES :][: len(jump)] = np.frombuffer(jump, np.uint8)
        image.addresses[name] = image.base + number * _JUMP_BYTES
    for file, found in zip(files, places, strict=True):
        for index, place in found.items():
            section = file.sections[index]
            if section.kind == _CONTENT:
                content = np.frombuffer(file.content(section), np.uint8)
                image.memory[place : place + section.size] = content
        for symbol in file.symbols:
            if symbol.name in file.defined:
                image.addresses[symbol.name] = _address(image, symbol, found)
    return image


def _sections(file: ObjectFile, access: int) -> Iterator[tuple[int, ObjectSection]]:
    """The sections that code needs in memory of this access."""
    for index, section in enumerate(file.sections):
        if not section.flags & _IN_MEMORY or section.kind in (_NOTES, _UNWINDING):
            continue
        if section.kind not in (_CONTENT, _ZEROS) or section.flags & _OF_THREADS:
            raise CodegenError(
                f"the object of kernel {file.kernel!r} has a section of kind {section.kind} and "
                f"flags {section.flags}, which needs more than memory; emit code without it"
            )
        if section.align < 1 or section.align > mmap.PAGESIZE:
            raise file.damaged(f"a section is aligned to {section.align} bytes")
        if section.flags & (_WRITABLE | _EXECUTABLE) == access:
            yield index, section


def _new_memory(size: int) -> Memory:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        return np.frombuffer(mmap.mmap(-1, max(size, mmap.PAGESIZE), flags), np.uint8)
    except (OSError, OverflowError) as error:
        raise GraphflowError(
            f"memory ran out for a program with {size} bytes of machine code ({error}); it needs a "
            "machine with more"
        ) from error


def _relocate(image: _Image, file: ObjectFile, places: Mapping[int, int]) -> None:
    """Store what the sections of an object, which are at `places`, need to know of addresses."""
    symbols = np.array([_address(image, symbol, places) for symbol in file.symbols], np.int64)
    for index, place in places.items():
        rows = file.relocations(index)
        if len(rows) and int(rows["symbol"].max()) >= len(symbols):
            raise file.damaged("a relocation needs a symbol that is none")
        for kind in np.unique(rows["kind"]).tolist():
            number, is_distance = _relocation(file, kind)
            chosen = rows[rows["kind"] == kind]
            if int(chosen["offset"].max()) + number.itemsize > file.sections[index].size:
                raise file.damaged("a relocation lies outside of its section")
            at = place + chosen["offset"].astype(np.int64)
            wanted = symbols[chosen["symbol"]]
            if not wanted.all():
                raise file.damaged("a relocation needs a symbol that is not in memory")
            values = wanted + chosen["addend"] - (image.base + at if is_distance else 0)
            stored = values.astype(number)
            if (stored != values).any():
                raise file.damaged("a distance does not fit into four bytes")
            places_of_bytes = at[:, None] + np.arange(number.itemsize)
            image.memory[places_of_bytes] = stored[:, None].view(np.uint8)


def _relocation(file: ObjectFile, kind: int) -> tuple[np.dtype[Any], bool]:
    if kind not in _RELOCATIONS:
        raise CodegenError(
            f"the object of kernel {file.kernel!r} has relocations of type {kind}, which "
            "position-independent code in one block of memory has not; emit it with reloc='pic' "
            "and codemodel='small'"
        )
    return _RELOCATIONS[kind]


def _address(image: _Image, symbol: ObjectSymbol, places: Mapping[int, int]) -> int:
    """Of a symbol of the object whose sections are at `places`; 0 if it is not in memory."""
    if symbol.section in places:
        return image.base + places[symbol.section] + symbol.value
    return image.addresses.get(symbol.name, 0)


def _protect(image: _Image) -> None:
    system = ctypes.CDLL(None, use_errno=True).mprotect
    system.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    start = 0
    for access, end in image.ends.items():
        if end > start and system(image.base + start, end - start, _PROTECTIONS[access]):
            why = os.strerror(ctypes.get_errno())
            raise CodegenError(
                f"the system refuses memory for machine code ({why}); kernels need memory that "
                "was written before and is executed then, which a policy of this system may forbid"
            )
        start = end
