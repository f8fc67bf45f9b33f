"""ONNX protos of tensors and their types, read as numpy arrays, dtype names and shapes.

What always holds: an element type that ONNX does not define and data that does not fit its shape
are `InvalidModel`; an element type that kernels do not have is `UnsupportedOp`, where the caller
asks for one that they have.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from graphflow.base.dtypes import DTYPES
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.graph import Array


def check_dtype(what: str, dtype: str) -> None:
    """Raise `UnsupportedOp` for an element type that kernels do not have; `what` names the
    tensor."""
    if dtype not in DTYPES:
        raise UnsupportedOp(
            f"{what} has dtype {dtype}, which is not built; use one of {', '.join(DTYPES)}"
        )


def is_open(dim: onnx.TensorShapeProto.Dimension) -> bool:
    """Whether an extent is unknown; many exporters write −1 for that."""
    return not dim.HasField("dim_value") or dim.dim_value < 0


def declared_extents(tensor: onnx.TypeProto.Tensor) -> list[int | str | None]:
    """The extents of a type: numbers, the names of those that are open, and None for those without
    a name."""
    return [(d.dim_param or None) if is_open(d) else int(d.dim_value) for d in tensor.shape.dim]


def dtype_name(elem_type: int) -> str:
    """numpy's name of an ONNX element type; `InvalidModel` for a number that ONNX does not
    define."""
    if elem_type not in onnx.helper.get_all_tensor_dtypes():
        raise InvalidModel(
            f"a tensor has the element type {elem_type}, which ONNX {onnx.__version__} does not "
            "know; state its type in the model"
        )
    name: str = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(elem_type)).name
    return name


def declared_type(
    info: onnx.ValueInfoProto,
) -> tuple[str, tuple[int | None, ...] | None] | None:
    """The declared dtype and shape of a tensor; None if no dtype is declared or it is no tensor.

    The shape is None if it is not declared, an extent is None if it is symbolic.
    """
    tensor = info.type.tensor_type
    if not tensor.elem_type:
        return None
    if not tensor.HasField("shape"):
        return dtype_name(tensor.elem_type), None
    shape = tuple(None if is_open(dim) else int(dim.dim_value) for dim in tensor.shape.dim)
    return dtype_name(tensor.elem_type), shape


def tensor_array(tensor: onnx.TensorProto, what: str) -> Array:
    """A tensor proto as an array; `UnsupportedOp` if kernels do not have its element type."""
    check_dtype(what, dtype_name(tensor.data_type))
    return known_array(tensor, what)


def known_array(tensor: onnx.TensorProto, what: str) -> Array:
    """A tensor proto of any element type as an array; `InvalidModel` if its data is damaged."""
    # Protos hand out read-only views into their bytes; those are fine, nothing here writes.
    try:
        array: Array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError) as error:
        raise InvalidModel(
            f"{what}: its data does not fit dtype and shape {tuple(tensor.dims)}: {error}"
        ) from None
    return array
