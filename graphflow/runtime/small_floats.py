"""Tensors of bfloat16 and float8 by DLPack, which numpy itself does not read.

In: an object that exports DLPack.  Out: an array of a dtype of `ml_dtypes` in the same memory.
What always holds: the array keeps the exporter's capsule, whose destructor gives the memory back;
it is read-only if the exporter says so, or is too old to say.

The structs are those of DLPack 1 (dlpack.h); https://dmlc.github.io/dlpack/latest/c_api.html.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphflow.base.dtypes import DTYPES

_PROCESSORS = (1, 3, 11)
"""The device types whose memory the processor reads: its own, and what CUDA and ROCm pin there."""

_DTYPES = {
    (4, 16): "bfloat16",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
}
"""Dtypes by DLPack's code and the number of bits."""

_READ_ONLY = 1
"""The bit of `flags`."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)


def small_floats(exporter: Any) -> NDArray[Any] | None:
    """The tensor of an object with `__dlpack__` as an array; None for other element types.

    Errors are the exporter's, and BufferError for memory of another device.
    """
    try:
        capsule = exporter.__dlpack__(max_version=(1, 0))
    except TypeError:  # an exporter of before that argument
        capsule = exporter.__dlpack__()
    if _is_valid(capsule, b"dltensor_versioned"):
        found = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        tensor, is_read_only = found.tensor, found.major != 1 or bool(found.flags & _READ_ONLY)
    else:
        tensor, is_read_only = _Tensor.from_address(_pointer(capsule, b"dltensor")), True
    dtype = _DTYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        return None
    if tensor.device_type not in _PROCESSORS:
        raise BufferError("the tensor is on another device; give one in the processor's memory")
    return np.asarray(_Held(capsule, tensor, is_read_only)).view(DTYPES[dtype])


class _Held:
    """The memory of a tensor as numpy takes it, as integers of the elements' size."""

    def __init__(self, capsule: Any, tensor: _Tensor, is_read_only: bool) -> None:
        self._keep = capsule
        size, rank = tensor.bits // 8, tensor.rank
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"<u{size}",
            "data": (tensor.data + tensor.byte_offset, is_read_only),
            "shape": tuple(tensor.shape[:rank]) if rank else (),
            "strides": tuple(n * size for n in tensor.strides[:rank])
            if rank and tensor.strides
            else None,
        }
