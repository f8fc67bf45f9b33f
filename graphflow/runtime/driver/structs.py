"""Descriptions of the structs that Python code and native code share.

In: the fields of a struct, by name and type.  Out: from this one description its LLVM type, its
size and the byte offset of each field, and the ctypes class and numpy dtype that Python code reads
and writes it by.  What always holds: a field lies at the next multiple of its own alignment, as in
C on x86-64; all padding is stated in the LLVM type, so LLVM adds none.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct


class ScalarType(Struct, frozen=True):
    """An integer or a pointer: its LLVM type, its size in bytes, its ctypes and numpy types."""

    llvm: str
    size: int
    ctype: Any = None
    code: str = ""

    @property
    def alignment(self) -> int:
        """Scalars are aligned to their size."""
        return self.size


BOOL = ScalarType("i1", 1)
"""A truth value; native code only, so it has no type in Python and is no field of a struct."""
INT8 = ScalarType("i8", 1, ctypes.c_int8, "<i1")
INT32 = ScalarType("i32", 4, ctypes.c_int32, "<i4")
INT64 = ScalarType("i64", 8, ctypes.c_int64, "<i8")
POINTER = ScalarType("ptr", 8, ctypes.c_void_p, "<i8")


class ArrayType(Struct, frozen=True):
    """`length` elements one after another; 0 where the struct does not say how many follow."""

    element: DataType
    length: int

    @property
    def llvm(self) -> str:
        """The type in LLVM IR."""
        return f"[{self.length} x {self.element.llvm}]"

    @property
    def size(self) -> int:
        """Bytes; 0 for an array of unstated length."""
        return self.length * self.element.size

    @property
    def alignment(self) -> int:
        """That of an element."""
        return self.element.alignment

    @property
    def ctype(self) -> Any:
        """The ctypes class."""
        return self.element.ctype * self.length


class StructField(Struct, frozen=True):
    """A field of a struct."""

    name: str
    type: DataType


class StructMember(Struct, frozen=True):
    """Where a field lies: its position among the elements of the LLVM type, and its byte offset."""

    type: DataType
    position: int
    offset: int


class StructType(Struct, frozen=True, dict=True):
    """A named struct of one or more groups of fields.

    Each group begins at a multiple of `group_bytes`, and the size is a multiple of it: groups that
    different threads write at the same time can so be given cache lines of their own.
    """

    name: str
    groups: tuple[tuple[StructField, ...], ...]
    group_bytes: int = 8

    @property
    def llvm(self) -> str:
        """The name of the type in LLVM IR."""
        return f"%{self.name}"

    @property
    def llvm_definition(self) -> str:
        """The line that defines the type in LLVM IR."""
        elements = ", ".join(kind.llvm for _, kind, _ in self._elements)
        return f"{self.llvm} = type {{ {elements} }}"

    @cached_property
    def size(self) -> int:
        """Bytes, with padding; fields of unstated length begin behind them."""
        _, last, offset = self._elements[-1]
        return offset + last.size

    @property
    def alignment(self) -> int:
        """The largest alignment of a field."""
        return max(member.type.alignment for member in self.members.values())

    @cached_property
    def members(self) -> dict[str, StructMember]:
        """All fields by name, in order of their offsets."""
        return {
            name: StructMember(kind, position, offset)
            for position, (name, kind, offset) in enumerate(self._elements)
            if name
        }

    @property
    def ctype(self) -> Any:
        """The ctypes class of the same layout, with each padding as a field `_padding…`."""
        fields = [(name or f"_padding{at}", kind.ctype) for name, kind, at in self._elements]
        return type(self.name, (ctypes.Structure,), {"_fields_": fields})

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype of one element of a table; for structs of scalars only."""
        columns = [
            (name, member.type.code, member.offset)
            for name, member in self.members.items()
            if isinstance(member.type, ScalarType)
        ]
        names, formats, offsets = zip(*columns, strict=True)
        layout: Any = {"names": names, "formats": formats, "offsets": offsets}
        layout["itemsize"] = self.size
        dtype: np.dtype[Any] = np.dtype(layout)
        return dtype

    @cached_property
    def _elements(self) -> list[tuple[str, DataType, int]]:
        """Name ("" for padding), type and offset of each element of the LLVM type."""
        return list(self._placed())

    def _placed(self) -> Iterator[tuple[str, DataType, int]]:
        end = 0
        for group in self.groups:
            for field in group:
                at = _round_up(end, field.type.alignment)
                yield from _padding(end, at)
                yield field.name, field.type, at
                end = at + field.type.size
            at = _round_up(end, self.group_bytes)
            yield from _padding(end, at)
            end = at


DataType: TypeAlias = ScalarType | ArrayType | StructType


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _padding(start: int, stop: int) -> Iterator[tuple[str, DataType, int]]:
    if start < stop:
        yield "", ArrayType(INT8, stop - start), start
