"""Linking of object code into the process.

In: relocatable objects, one for each kernel symbol.  Out: an engine that owns the machine code, and
the addresses of the kernels.  LLVM's linker ends the process if a symbol is missing, and silently
truncates absolute 32-bit addresses; so the ELF tables are checked for both first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from llvmlite import binding as llvm
from numpy.typing import NDArray

from graphflow.base.errors import CodegenError
from graphflow.runtime.driver import new_engine

_SECTION = np.dtype([("name", "<u4"), ("kind", "<u4"), ("flags", "<u8"), ("address", "<u8"),
                     ("offset", "<u8"), ("size", "<u8"), ("link", "<u4"), ("info", "<u4"),
                     ("align", "<u8"), ("entry", "<u8")])  # fmt: skip
_SYMBOL = np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"),
                    ("value", "<u8"), ("size", "<u8")])  # fmt: skip
_RELOCATION = np.dtype([("offset", "<u8"), ("kind", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])

_KIND_SYMBOLS, _KIND_RELOCATIONS, _FLAG_LOADED = 2, 4, 2
_ABSOLUTE_32_BIT = (10, 11)  # R_X86_64_32, R_X86_64_32S
_MADE_BY_LINKER = frozenset({"_GLOBAL_OFFSET_TABLE_"})


@dataclass(frozen=True, slots=True)
class LinkedCode:
    """Machine code in this process; it stays valid while `engine` lives."""

    engine: Any
    addresses: dict[str, int]


@dataclass(frozen=True, slots=True)
class _SymbolNames:
    defined: frozenset[str]
    undefined: frozenset[str]


def link(objects: tuple[tuple[str, bytes], ...]) -> LinkedCode:
    """Load the objects; each must define its symbol, and every symbol that it uses must be found.

    Raises CodegenError for a damaged object, one for another machine, a missing or doubly defined
    symbol, and code that was not compiled position-independent.
    """
    # LLVM finds the symbols of the process, such as memcpy, from its first engine on.
    engine = new_engine()
    _check(objects)
    for _, code in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    addresses = {symbol: int(engine.get_function_address(symbol)) for symbol, _ in objects}
    return LinkedCode(engine, addresses)


def reachable(objects: tuple[tuple[str, bytes], ...], wanted: Iterable[str]) -> set[str]:
    """The symbols of the objects that define `wanted`, or what those need in turn."""
    names = {symbol: _names(symbol, code) for symbol, code in objects}
    owner = {name: symbol for symbol, found in names.items() for name in found.defined}
    found: set[str] = set()
    todo = [owner[name] for name in wanted if name in owner]
    while todo:
        symbol = todo.pop()
        if symbol not in found:
            found.add(symbol)
            todo += [owner[name] for name in names[symbol].undefined if name in owner]
    return found


def _check(objects: tuple[tuple[str, bytes], ...]) -> None:
    names = {symbol: _names(symbol, code) for symbol, code in objects}
    owner: dict[str, str] = {}
    for symbol, found in names.items():
        if symbol not in found.defined:
            raise CodegenError(f"the object of kernel {symbol!r} does not define that symbol")
        for name in sorted(found.defined):
            if owner.setdefault(name, symbol) != symbol:
                raise CodegenError(
                    f"the objects of kernels {owner[name]!r} and {symbol!r} both define {name!r}; "
                    "give it internal linkage"
                )
    for symbol, found in names.items():
        for name in sorted(found.undefined - _MADE_BY_LINKER):
            if name not in owner and llvm.address_of_symbol(name) is None:
                raise CodegenError(
                    f"kernel {symbol!r} needs the symbol {name!r}, which nothing in this process "
                    "defines; expand that operation in the emitter"
                )


def _names(symbol: str, code: bytes) -> _SymbolNames:
    """The global names that an object defines, and those that it needs."""
    if code[:6] != b"\x7fELF\x02\x01" or len(code) < 64:
        raise CodegenError(f"the object of kernel {symbol!r} is not 64-bit little-endian ELF")
    kind, machine = np.frombuffer(code, "<u2", 2, 16).tolist()
    if (kind, machine) != (1, 62):
        raise CodegenError(
            f"the object of kernel {symbol!r} is no relocatable x86-64 object (ELF type {kind}, "
            f"machine {machine})"
        )
    try:
        start = int(np.frombuffer(code, "<u8", 1, 40)[0])
        count = int(np.frombuffer(code, "<u2", 1, 60)[0])
        sections = np.frombuffer(code, _SECTION, count, start)
        _check_relocations(symbol, code, sections)
        return _read_names(code, sections)
    except (ValueError, IndexError, UnicodeDecodeError) as error:
        raise CodegenError(f"the object of kernel {symbol!r} is damaged: {error}") from error


def _table(code: bytes, section: Any, row: np.dtype[Any]) -> NDArray[Any]:
    count = int(section["size"]) // row.itemsize
    return np.frombuffer(code, row, count, int(section["offset"])) if count else np.empty(0, row)


def _check_relocations(symbol: str, code: bytes, sections: NDArray[Any]) -> None:
    for section in sections[sections["kind"] == _KIND_RELOCATIONS]:
        loaded = int(sections[int(section["info"])]["flags"]) & _FLAG_LOADED
        if loaded and np.isin(_table(code, section, _RELOCATION)["kind"], _ABSOLUTE_32_BIT).any():
            raise CodegenError(
                f"the object of kernel {symbol!r} holds absolute 32-bit addresses; emit it "
                "position-independent (reloc='pic' or jit=True)"
            )


def _read_names(code: bytes, sections: NDArray[Any]) -> _SymbolNames:
    defined: set[str] = set()
    undefined: set[str] = set()
    for section in sections[sections["kind"] == _KIND_SYMBOLS]:
        strings = sections[int(section["link"])]
        start, size = int(strings["offset"]), int(strings["size"])
        text = code[start : start + size]
        for row in _table(code, section, _SYMBOL):
            if row["info"] >> 4 and row["name"]:  # binding 0 is local
                name = _string(text, int(row["name"]))
                (defined if row["section"] else undefined).add(name)
    return _SymbolNames(frozenset(defined), frozenset(undefined))


def _string(text: bytes, start: int) -> str:
    return text[start : text.index(b"\0", start)].decode()
