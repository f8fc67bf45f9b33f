"""Memory that kernels may use: 64-byte aligned, zeroed where it outlives a run.

Blocks (constants, arenas) are private anonymous mappings, so a forked child gets copies of its own;
outputs are numpy arrays, whose memory is used again when nothing refers to it any more.  What
always holds: every address given out is a multiple of 64.  Arrays of others are read in place at
any address that suits their elements.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
from sys import getrefcount
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphflow.program import ALIGNMENT

_HUGE_PAGE = 2 * 1024 * 1024
"""Bytes of a huge page of x86-64."""


_IN_PLACE = 0x101
"""The bits of `flags.num` for C_CONTIGUOUS and ALIGNED; one question takes half the time of two."""

_PAGE = 4096
"""Bytes of a page of x86-64."""

_BEGIN_IN_PAGE = 1024
"""Where in a page an output of more than a page begins.

Numpy's large arrays begin 16 bytes behind a page, as glibc maps them.  A load whose place in its
page is that of a store just before waits for this one, until the processor knows that their pages
differ: a kernel that loads an input and stores an output 48 bytes further took up to twice as long.
"""

_MOST_RECYCLED = 32 * 1024 * 1024
"""Bytes of the largest array whose memory is kept for the next one."""


_FIRST_ELEMENT = object.__basicsize__
"""Where an array object has the address of its first element: behind what all objects begin with,
by numpy's C interface, whose compiled users read it there."""

_word_at = ctypes.c_size_t.from_address


class _Owner:
    """The only one that refers to an object."""

    __slots__ = ("_block",)

    def __init__(self) -> None:
        self._block = object()

    def references(self) -> int:
        return getrefcount(self._block)


_OF_OWNER = _Owner().references()
"""What `getrefcount` says of an attribute that nothing else refers to: versions of Python differ in
whether an argument counts."""


def data_address(array: NDArray[Any]) -> int:
    """The address of the first element.

    Read from the array object, in a tenth of a microsecond: to ask for a buffer takes three times
    as long, and numpy's own ways, which build a dict or an object each time, ten times, which
    counts in runs of ten.
    """
    return _word_at(id(array) + _FIRST_ELEMENT).value


_SAMPLE = np.empty(1)
if data_address(_SAMPLE) != _SAMPLE.__array_interface__["data"][0]:  # kernels would write anywhere
    raise ImportError(
        f"arrays of numpy {np.__version__} do not have the address of their elements where numpy's "
        "C interface says; graphflow runs on CPython with a numpy that has this interface"
    )


def zeroed_block(nbytes: int) -> NDArray[np.uint8]:
    """Fresh zeroed memory; pages that are never touched cost nothing.

    Blocks of two huge pages or more are aligned to huge pages and request them: reading weights
    through 4 KiB pages spends its time in address translation.  Raises MemoryError if the system
    has none.
    """
    huge = nbytes >= 2 * _HUGE_PAGE
    size = max(nbytes, ALIGNMENT) + (_HUGE_PAGE if huge else 0)
    try:
        mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"{size} bytes: {error}") from error
    memory = np.frombuffer(mapping, np.uint8)
    if not huge:
        return memory[:nbytes]
    with contextlib.suppress(OSError):  # a kernel without them serves ordinary pages
        mapping.madvise(mmap.MADV_HUGEPAGE)
    start = -data_address(memory) % _HUGE_PAGE
    return memory[start : start + nbytes]


def release(block: NDArray[np.uint8], start: int) -> None:
    """Return the memory of a `zeroed_block` from byte `start` on to the system; it then reads as
    zeros.

    Only whole pages are returned.
    """
    mapping: Any = block
    while isinstance(mapping, np.ndarray):
        mapping = mapping.base
    mapping = mapping.obj if isinstance(mapping, memoryview) else mapping
    base = data_address(np.frombuffer(mapping, np.uint8))
    first = data_address(block) - base + start
    first += -first % (_HUGE_PAGE if len(block) >= 2 * _HUGE_PAGE else mmap.PAGESIZE)
    if first < len(mapping):
        mapping.madvise(mmap.MADV_DONTNEED, first)


class Recycled:
    """Arrays of one shape and type, one after the other, in the same memory as long as that is
    free.

    Memory is free when no array, view or buffer refers to it any more: then nobody can see it
    change.  Asking for new memory and for its address takes half of what a new array takes, and
    memory that the system has to clear first takes several times as long as a small kernel.  A view
    of an array takes a third of the time of an array made of its parts.
    """

    __slots__ = ("_block", "_dtype", "_nbytes", "_offset", "_shape", "_whole", "address")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._shape, self._dtype = shape, dtype
        self._nbytes = math.prod(shape) * dtype.itemsize
        self._block: NDArray[np.uint8] | None = None
        self._whole: NDArray[Any] | None = None
        """The array that fills the block, to which it refers once more."""
        self._offset = self.address = 0

    def other(self) -> Recycled:
        """Arrays of the same shape and type in other memory."""
        return Recycled(self._shape, self._dtype)

    def array(self, shape: tuple[int, ...] | None = None) -> NDArray[Any]:
        """A row-major array of undefined contents, at `address`; a multiple of 64.

        It has the first elements of the memory where `shape` is smaller.  Only one thread at a time
        may ask for it.
        """
        # No variable refers to the block yet: it would count.
        if self._whole is None or getrefcount(self._block) > _OF_OWNER + 1:
            unit, begin = (_PAGE, _BEGIN_IN_PAGE) if self._nbytes > _PAGE else (ALIGNMENT, 0)
            block = np.empty(self._nbytes + unit, np.uint8)
            address = data_address(block)
            self._offset = (begin - address) % unit
            self.address = address + self._offset
            if self._nbytes > _MOST_RECYCLED:
                return np.ndarray(
                    self._shape if shape is None else shape, self._dtype, block, self._offset
                )
            self._block = block
            self._whole = np.ndarray(self._shape, self._dtype, block, self._offset)
        if shape is None:
            return self._whole[...]
        return np.ndarray(shape, self._dtype, self._block, self._offset)


def is_usable(array: NDArray[Any]) -> bool:
    """Whether kernels can read an array in place, if they need no more than aligned elements."""
    return lies_in_place(array) and array.dtype.isnative


def lies_in_place(array: NDArray[Any]) -> bool:
    """The same, of an array in native byte order."""
    return array.flags.num & _IN_PLACE == _IN_PLACE


def copy_to_front(room: NDArray[Any], array: NDArray[Any]) -> None:
    """Copy an array to the beginning of each axis of one that is as large or larger."""
    part = room if array.shape == room.shape else room[tuple(map(slice, array.shape))]
    np.copyto(part, array)


def store(block: NDArray[np.uint8], offset: int, array: NDArray[Any]) -> None:
    """Copy an array, row-major and in native byte order, to a byte offset of a block."""
    if array.flags.c_contiguous and array.dtype.isnative:
        # Element by element, numpy copies what is not aligned ten times slower.
        block[offset : offset + array.nbytes] = array.reshape(-1).view(np.uint8)
        return
    native = array.dtype.newbyteorder("=")
    block[offset : offset + array.nbytes].view(native).reshape(array.shape)[...] = array


def usable(array: NDArray[Any]) -> NDArray[Any]:
    """An array that kernels can read in place, or a copy of it that they can."""
    if is_usable(array):
        return array
    copy = np.empty(array.shape, array.dtype.newbyteorder("="))
    store(copy.reshape(-1).view(np.uint8), 0, array)
    return copy
