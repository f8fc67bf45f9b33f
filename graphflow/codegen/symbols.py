"""Renames the symbol that a kernel's object file defines, in place.

In: an object that `make_object` compiled, its symbol, and a new one.  Out: the same object with the
new symbol.  Kernels are compiled under a long placeholder name, and any name that is not longer
fits into its room in the string table.  The code of a kernel is therefore the same in every
program that uses it, and can be cached.
"""

from __future__ import annotations

from graphflow.base.errors import CodegenError
from graphflow.llvm import read_object

ANONYMOUS = "graphflow_kernel"
"""The placeholder under which kernels are compiled; no other symbol in an object ends like it."""

_ENDINGS = ("", ".body")
"""Endings of the symbols that an object defines for its kernel, as `emit` names them."""


def renamed(code: bytes, symbol: str, new: str) -> bytes:
    """The object with its kernel's symbol replaced by `new`.

    CodegenError if the object does not define `symbol` as `make_object` does, or if `new` is longer
    than `ANONYMOUS`.
    """
    if symbol == new:
        return code
    if len(new) > len(ANONYMOUS):
        raise CodegenError(f"the symbol {new} is longer than {ANONYMOUS}, and does not fit")
    changed = bytearray(code)
    found = 0
    for place in (one.name_offset for one in read_object(symbol, code).symbols):
        for ending in _ENDINGS:
            old, room = f"{symbol}{ending}".encode(), len(ANONYMOUS) + len(ending)
            if code[place : place + room + 1] == old.ljust(room + 1, b"\0"):
                changed[place : place + room] = f"{new}{ending}".encode().ljust(room, b"\0")
                found += not ending
    if found != 1:
        raise CodegenError(f"the object does not define {symbol} as make_object does")
    return bytes(changed)
