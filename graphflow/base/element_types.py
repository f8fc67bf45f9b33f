"""Element types in the words of onnxruntime: `tensor(float)` for float32.

In: numpy dtypes, numbers of ONNX's `TensorProto.DataType`, or type strings.  Out: the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphflow.base.dtypes import DTYPES
from graphflow.base.errors import InvalidModel

_ELEMENTS = (
    ("float", 1, "float32"),
    ("uint8", 2, "uint8"),
    ("int8", 3, "int8"),
    ("uint16", 4, "uint16"),
    ("int16", 5, "int16"),
    ("int32", 6, "int32"),
    ("int64", 7, "int64"),
    ("string", 8, "object"),
    ("bool", 9, "bool"),
    ("float16", 10, "float16"),
    ("double", 11, "float64"),
    ("uint32", 12, "uint32"),
    ("uint64", 13, "uint64"),
    ("complex64", 14, "complex64"),
    ("complex128", 15, "complex128"),
    ("bfloat16", 16, "bfloat16"),
    ("float8e4m3fn", 17, "float8_e4m3fn"),
    ("float8e4m3fnuz", 18, "float8_e4m3fnuz"),
    ("float8e5m2", 19, "float8_e5m2"),
    ("float8e5m2fnuz", 20, "float8_e5m2fnuz"),
    ("uint4", 21, "uint4"),
    ("int4", 22, "int4"),
    ("float4e2m1", 23, "float4_e2m1fn"),
    ("float8e8m0", 24, "float8_e8m0fnu"),
    ("uint2", 25, "uint2"),
    ("int2", 26, "int2"),
)
"""onnxruntime's name of each element type, ONNX's number, and numpy's name."""

_WORDS = {dtype: word for word, _, dtype in _ELEMENTS}
_NUMBERS = {dtype: number for _, number, dtype in _ELEMENTS}
_DTYPES = {number: dtype for _, number, dtype in _ELEMENTS}


def type_string(dtype: str) -> str:
    """The type of a tensor with elements of numpy's name `dtype`."""
    return f"tensor({_WORDS.get(dtype, dtype)})"


def type_string_of_number(number: int) -> str:
    """The type of a tensor with elements of ONNX's `number`."""
    return type_string(_DTYPES.get(number, f"element type {number}"))


def number_of(dtype: np.dtype[Any]) -> int:
    """ONNX's number of a dtype; strings may be objects or numpy's."""
    return _NUMBERS["object" if dtype.kind in "OSU" else dtype.name]


def dtype_of(element_type: Any) -> np.dtype[Any]:
    """The dtype that a caller names: a number of ONNX's, or what numpy takes.

    InvalidModel for a number that stands for no dtype.
    """
    if isinstance(element_type, int):
        if element_type not in _DTYPES:
            raise InvalidModel(f"{element_type} is no element type of ONNX's TensorProto.DataType")
        name = _DTYPES[element_type]
        return DTYPES.get(name, np.dtype(name))
    dtype: np.dtype[Any] = np.dtype(element_type)
    return dtype


def dtype_of_tensor(type_string: str) -> np.dtype[Any] | None:
    """The dtype of the elements of `tensor(…)`; None for another type, and for strings."""
    for word, _, dtype in _ELEMENTS:
        if type_string == f"tensor({word})" and dtype != "object":
            return DTYPES.get(dtype, np.dtype(dtype) if dtype.startswith("complex") else None)
    return None
