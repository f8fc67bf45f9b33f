"""Running one kernel as machine code, with guard bytes around its buffers.

In: a kernel and its object code, an array for each parameter that the caller hands in.  Out: the
memory of its outputs after a run.  What always holds: `Trespass` is raised if a run changed an
input or a guard.

All bits of the guards are ones.  As floats these are NaN, so reading a guard shows in the result.
"""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
from msgspec import Struct

from graphflow.kernels.lowering import LoweredKernel
from graphflow.program import ALIGNMENT
from graphflow.runtime import LinkedCode, link
from graphflow.tir import DTYPES, Buffer, undefined_value
from graphflow.validation.inputs import Array

GUARD = 4 * ALIGNMENT
"""The number of guard bytes before and behind each buffer."""

ONES = 0xFF

Slices = Sequence[tuple[int, int]]
"""Slices of a kernel's parallel loop, in the order in which they are run."""


class Trespass(Exception):
    """A kernel wrote outside of its outputs; the message says where."""


class _Guarded(Struct, frozen=True):
    """A buffer's memory with guard bytes around it."""

    raw: Array
    view: Array

    @staticmethod
    def of(buffer: Buffer, contents: Any) -> _Guarded:
        raw = np.full(buffer.bytes + 2 * GUARD + ALIGNMENT, ONES, np.uint8)
        start = GUARD + -(raw.ctypes.data + GUARD) % ALIGNMENT
        view = raw[start : start + buffer.bytes].view(DTYPES[buffer.dtype])
        view[...] = contents.reshape(-1) if isinstance(contents, np.ndarray) else contents
        return _Guarded(raw, view)

    def check(self, name: str) -> None:
        """Raise `Trespass` if a guard has changed."""
        start = self.view.ctypes.data - self.raw.ctypes.data
        for guard, side in (
            (self.raw[:start][::-1], "before"),
            (self.raw[start + self.view.nbytes :], "behind"),
        ):
            changed = np.flatnonzero(guard != ONES)
            if changed.size:
                distance = int(changed[0]) + (side == "before")
                raise Trespass(f"it writes {distance} bytes {side} the memory of {name}")

    def checksum(self) -> int:
        """The checksum of the contents; copies of large inputs would take too much memory."""
        return zlib.crc32(self.view.view(np.uint8).data)


class LinkedKernel:
    """A kernel that is linked into this process."""

    def __init__(self, kernel: LoweredKernel, code: bytes) -> None:
        """Raises CodegenError for object code that cannot be linked."""
        self._kernel = kernel
        self._code: LinkedCode = link(((kernel.symbol, code),))
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        kind = ctypes.CFUNCTYPE(None, pointer, number, number, pointer)
        self._call = kind(self._code.addresses[kernel.symbol])

    def run(
        self, inputs: Mapping[str, Array], before: Mapping[str, Any], slices: Slices
    ) -> dict[str, Array]:
        """The flat memory of each output; `before` is its initial contents, an array or one number.

        Slices of a kernel in phases are run at once, by threads that meet behind each phase.
        Workspaces begin undefined, and sizes are the greatest.  Raises `Trespass`.
        """
        outputs = {b.name for b in self._kernel.task.definition.outputs}
        held: dict[str, _Guarded] = {}
        sizes = {size.buffer.name: size.most for size in self._kernel.sizes}
        for param in self._kernel.func.params:
            buffer = param.buffer
            contents = inputs.get(buffer.name, before.get(buffer.name, sizes.get(buffer.name)))
            if contents is None:
                contents = undefined_value(buffer.dtype, float("nan"))
            held[buffer.name] = _Guarded.of(buffer, contents)
        read = [b.name for b in self._kernel.task.definition.inputs]
        sums = {name: held[name].checksum() for name in read}
        pointers = [held[p.buffer.name].view.ctypes.data for p in self._kernel.func.params]
        table = (ctypes.c_void_p * len(pointers))(*pointers)
        given = [(low, high) for low, high in slices if low < high]
        if self._kernel.in_phases and len(given) > 1:
            self._run_at_once(table, given)
        else:
            for low, high in given:
                self._call(table, low, high, None)
        for name, guarded in held.items():
            guarded.check(name)
            if name in sums and sums[name] != guarded.checksum():
                raise Trespass(f"it writes to its input {name}")
        return {name: held[name].view for name in held if name in outputs}

    def _run_at_once(self, table: object, slices: Slices) -> None:
        """Run slices of a kernel in phases in a thread each."""
        barrier = Barrier(len(slices))
        meeting = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: barrier.wait() and None)
        worker = (ctypes.c_void_p * 1)(ctypes.cast(meeting, ctypes.c_void_p))
        with ThreadPoolExecutor(len(slices)) as threads:
            runs = [threads.submit(self._call, table, *part, worker) for part in slices]
            for run in runs:
                run.result()


def one_slice(extent: int) -> Slices:
    """The loop in one slice."""
    return ((0, extent),)


def three_slices(extent: int) -> Slices:
    """The loop in three slices, the last one first."""
    first, second = extent // 3, extent - extent // 3
    return ((second, extent), (0, first), (first, second))
