"""Checks of tensor protos: names are text, extents are in range, and the data has the length that
dtype and extents require.

In: protos from outside, of which nothing is known.  Out: nothing, or `InvalidModel`.  These checks
run before onnx's own code and numpy read a tensor, because both allocate what the extents ask for,
whether or not the data is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import onnx

from graphflow.base.errors import InvalidModel
from graphflow.graph import require_rank

MOST_ELEMENTS = 1 << 40
"""The most elements of a tensor: more than fit in memory, and byte counts stay below 2**63."""

_T = onnx.TensorProto
_BITS: dict[int, int] = {
    **dict.fromkeys((_T.UINT2, _T.INT2), 2),
    **dict.fromkeys((_T.UINT4, _T.INT4, _T.FLOAT4E2M1), 4),
    **dict.fromkeys((_T.UINT8, _T.INT8, _T.BOOL, _T.FLOAT8E8M0), 8),
    **dict.fromkeys((_T.FLOAT8E4M3FN, _T.FLOAT8E4M3FNUZ, _T.FLOAT8E5M2, _T.FLOAT8E5M2FNUZ), 8),
    **dict.fromkeys((_T.UINT16, _T.INT16, _T.FLOAT16, _T.BFLOAT16), 16),
    **dict.fromkeys((_T.UINT32, _T.INT32, _T.FLOAT), 32),
    **dict.fromkeys((_T.UINT64, _T.INT64, _T.DOUBLE, _T.COMPLEX64), 64),
    _T.COMPLEX128: 128,
}
"""Bits of one element; strings have none."""

_FIELDS: dict[int, str] = {
    **dict.fromkeys((_T.FLOAT, _T.COMPLEX64), "float_data"),
    **dict.fromkeys((_T.DOUBLE, _T.COMPLEX128), "double_data"),
    **dict.fromkeys((_T.UINT32, _T.UINT64), "uint64_data"),
    _T.INT64: "int64_data",
    _T.STRING: "string_data",
}
"""The typed data field of each element type, unless it is int32_data."""


def text_of(value: Any, what: str) -> str:
    """`value` as text; `InvalidModel` if it is not UTF-8, in which case protobuf gives bytes."""
    if isinstance(value, str):
        return value
    raise InvalidModel(f"{what} is {value!r}, which is not UTF-8; export the model again")


def check_extents(tensor: onnx.TensorProto, what: str) -> tuple[int, ...]:
    """The extents of a tensor proto; `InvalidModel` if one is negative or they are too large."""
    dims = tuple(tensor.dims)
    require_extents(dims, what)
    return dims


def require_extents(dims: Sequence[int], what: str) -> None:
    """Raise `InvalidModel` for a negative extent and for more than `MOST_ELEMENTS` elements, and
    `UnsupportedOp` for too many axes."""
    require_rank(len(dims), what)
    negative = next((extent for extent in dims if extent < 0), None)
    if negative is not None:
        raise InvalidModel(f"{what} has a negative extent, {negative}; the model is damaged")
    if prod(max(extent, 1) for extent in dims) > MOST_ELEMENTS:
        raise InvalidModel(
            f"{what} has extents {list(dims)}: more than {MOST_ELEMENTS} elements"
            + (", but for one that is 0" if 0 in dims else "")
        )


def tensor_bytes(data_type: int, extents: Iterable[int]) -> int:
    """Bytes of a tensor's raw data; `InvalidModel` for an element type without a fixed size."""
    if data_type not in _BITS:
        raise InvalidModel(
            f"a tensor of element type {_type_text(data_type)} cannot be stored as raw data"
        )
    return -(-prod(extents) * _BITS[data_type] // 8)


_NARROW = {
    _T.BOOL: (0, 1),
    _T.INT8: (-128, 127),
    _T.UINT8: (0, 255),
    _T.INT16: (-(1 << 15), (1 << 15) - 1),
    _T.UINT16: (0, (1 << 16) - 1),
}
"""The range of element types whose elements are stored one by one in 32-bit fields."""


def check_tensor(tensor: onnx.TensorProto, what: str, is_apart: bool = False) -> None:
    """Raise `InvalidModel` unless `tensor` has as much data as its dtype and extents require.

    Where its data `is_apart`, the name and the extents alone are checked.
    """
    name = text_of(tensor.name, f"{what}: the name of a tensor")
    what = f"{what} {name}" if name else what
    count = prod(check_extents(tensor, what))
    kind = tensor.data_type
    if is_apart:
        return
    if tensor.data_location == _T.EXTERNAL:
        raise InvalidModel(
            f"{what} has its data in an external file, and a model that is not given as a path has "
            "no folder to look in; give the path, or read the data with onnx.load"
        )
    if tensor.HasField("segment"):
        raise InvalidModel(
            f"{what} is one segment of a tensor, which nothing reads; store it whole"
        )
    if kind == _T.UNDEFINED or kind not in _T.DataType.values():
        raise InvalidModel(f"{what} has no element type: {_type_text(kind)}")
    if kind not in _BITS and kind != _T.STRING:
        return  # elements of six bits, which nothing computes with
    field, factor = _FIELDS.get(kind, "int32_data"), 1
    if tensor.HasField("raw_data"):
        found, needed, unit = len(tensor.raw_data), tensor_bytes(kind, tensor.dims), "bytes"
    else:
        if kind in (_T.COMPLEX64, _T.COMPLEX128):
            factor = 2
        found, unit = len(getattr(tensor, field)), f"elements of {field}"
        needed = count * factor if _BITS.get(kind, 8) >= 8 else tensor_bytes(kind, tensor.dims)
    if found != needed:
        raise InvalidModel(
            f"{what} of type {_type_text(kind)} and extents {list(tensor.dims)} needs {needed} "
            f"{unit} and has {found}; the model is damaged or incomplete"
        )
    if kind in _NARROW and tensor.int32_data:
        low, high = _NARROW[kind]
        if min(tensor.int32_data) < low or max(tensor.int32_data) > high:
            raise InvalidModel(
                f"{what} of type {_type_text(kind)} has an element that is not from {low} to "
                f"{high}, which readers of models take for different numbers; correct it"
            )


def _type_text(kind: int) -> str:
    return str(_T.DataType.Name(kind)) if kind in _T.DataType.values() else str(kind)
