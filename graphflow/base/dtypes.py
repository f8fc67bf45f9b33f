"""The element types of tensors and kernels, as tables that all packages share.

Kernels compute in `FLOATS`, in integers and in bools.  `STORED` types exist in memory only: kernels
load, store, copy and select them, and cast them to and from one of their `CARRIERS`; no operator
computes in them.  Types that numpy does not have come from `ml_dtypes`; importing this module
registers their names with numpy.  Each integer of fewer than 8 bits occupies one byte.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

FLOATS = ("float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")

BYTES = ("uint8", "int8")

HALVES = ("float16", "bfloat16")
"""Floats of 16 bits; operators that accept float32 accept them too."""

STORED_FLOATS = (
    *HALVES, "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn",
)  # fmt: skip
STORED_INTEGERS = ("int4", "uint4", "int2", "uint2")
STORED = (*STORED_FLOATS, *STORED_INTEGERS)

CARRIERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(STORED_FLOATS, ("float32",)),
    "float16": ("float32", "float64"),  # from float64 it is rounded once
    "int4": ("int8",),
    "int2": ("int8",),
    "uint4": ("uint8",),
    "uint2": ("uint8",),
}
"""The types that each stored type is cast to and from; the first is the default."""

FLOATING = (*FLOATS, *STORED_FLOATS)

DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(getattr(ml_dtypes, name, name))
    for name in (*FLOATS, *SIGNED, *UNSIGNED, "bool", *STORED)
}
"""The numpy dtype of each element type."""


def integer_limits(dtype: str) -> tuple[int, int]:
    """The smallest and the largest value of an integer type."""
    limits = ml_dtypes.iinfo(DTYPES[dtype])  # type: ignore[no-untyped-call]
    return int(limits.min), int(limits.max)


def largest(dtype: str) -> float:
    """The largest finite number of a float type."""
    return float(ml_dtypes.finfo(DTYPES[dtype]).max)  # type: ignore[no-untyped-call]


def smallest(dtype: str) -> float:
    """The smallest positive number of a float type, most often a denormal."""
    limits = ml_dtypes.finfo(DTYPES[dtype])  # type: ignore[no-untyped-call]
    return float(limits.smallest_subnormal)
