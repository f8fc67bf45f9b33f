"""Compiled kernels as Python functions, and the processor's flush-to-zero mode.

In: a kernel and a target.  Out: a function from arrays to arrays, which fails where the native code
writes an input, or beside an output.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from graphflow.base.target import Target
from graphflow.codegen import compile_object, host_target
from graphflow.codegen.target_machine import object_code
from graphflow.runtime import LinkedCode, link
from graphflow.tir import PrimFunc, Role

Array: TypeAlias = np.ndarray[Any, Any]
Slices: TypeAlias = tuple[tuple[int, int], ...]

GUARD = 64
"""Bytes around each buffer that a kernel must leave alone."""

FLUSH_TO_ZERO, DENORMALS_ARE_ZERO = 0x8000, 0x0040

MXCSR_FUNCTIONS = """
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
define void @get(ptr %value) {
  call void @llvm.x86.sse.stmxcsr(ptr %value)
  ret void
}
define void @set(ptr %value) {
  call void @llvm.x86.sse.ldmxcsr(ptr %value)
  ret void
}
"""


@lru_cache(maxsize=1)
def _mxcsr_functions() -> tuple[LinkedCode, Any, Any]:
    """The code that has them, and two functions of a pointer: read the register, write it."""
    code = link((("get", object_code(MXCSR_FUNCTIONS, host_target())),))
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return code, *(kind(code.addresses[name]) for name in ("get", "set"))


@contextmanager
def flushed_denormals(flush: bool = True) -> Iterator[None]:
    """This thread's SSE and AVX arithmetic takes and gives zeros for denormals, numpy's included.

    Does nothing where `flush` is false.
    """
    if not flush:
        yield
        return
    _, get, put = _mxcsr_functions()
    old = ctypes.c_uint32()
    get(ctypes.byref(old))
    put(ctypes.byref(ctypes.c_uint32(old.value | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO)))
    try:
        yield
    finally:
        put(ctypes.byref(old))


class Native:
    """A compiled kernel; runs on copies between guard bytes."""

    def __init__(self, func: PrimFunc, target: Target) -> None:
        self.func = func
        self._code = link((("k", compile_object(func, "k", target)),))
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        kind = ctypes.CFUNCTYPE(None, pointer, number, number, pointer)
        self._call = kind(self._code.addresses["k"])

    def __call__(self, arrays: dict[str, Array], slices: Slices = ((0, 1),)) -> dict[str, Array]:
        """The outputs, after calls for these parts of the outermost parallel loop, in order."""
        storage: list[Array] = []
        views: dict[str, Array] = {}
        for param in self.func.params:
            buffer = param.buffer
            raw = np.full(buffer.bytes + 3 * GUARD, 0xA5, np.uint8)
            start = GUARD + -(raw.ctypes.data + GUARD) % 64
            view = raw[start : start + buffer.bytes].view(buffer.dtype).reshape(buffer.shape)
            if buffer.name in arrays:
                view[...] = arrays[buffer.name]
            storage.append(raw)
            views[buffer.name] = view
        before = [raw.copy() for raw in storage]
        bases = [views[p.buffer.name].ctypes.data for p in self.func.params]
        pointers = (ctypes.c_void_p * len(bases))(*bases)
        for low, high in slices:
            self._call(pointers, low, high, None)
        for param, raw, old in zip(self.func.params, storage, before, strict=True):
            if param.role is Role.INPUT:
                assert np.array_equal(raw, old), f"{param.buffer.name} was written"
            start = views[param.buffer.name].ctypes.data - raw.ctypes.data
            end = start + param.buffer.bytes
            assert np.array_equal(raw[:start], old[:start])
            assert np.array_equal(raw[end:], old[end:])
        return {b.name: views[b.name].copy() for b in self.func.outputs}
