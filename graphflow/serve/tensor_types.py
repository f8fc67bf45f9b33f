"""The element types of the Open Inference Protocol, and what they are in numpy.

In: the protocol's name of an element type, or numpy's.  Out: the other one.  What always holds: the
bytes of a tensor in the protocol's binary form are those of numpy's little-endian array.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

_NUMPY = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BF16": ml_dtypes.bfloat16,
}

DTYPES: Mapping[str, np.dtype[Any]] = MappingProxyType(
    {name: np.dtype(scalar) for name, scalar in _NUMPY.items()}
)
"""The dtype of each element type that has one; texts (`BYTES`) have none."""

_NAMES = {dtype.name: name for name, dtype in DTYPES.items()}


def protocol_type(dtype: str) -> str | None:
    """The protocol's name for the element type that numpy calls `dtype`; None if it has none."""
    return _NAMES.get(dtype)
