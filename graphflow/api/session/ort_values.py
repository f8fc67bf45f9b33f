"""`OrtValue`: a tensor or another value, for sessions and their bindings.

In: numpy arrays, addresses, states of runs, or objects that export DLPack or `__array__`.  Out: the
same memory again, but copies of states.  What always holds: nothing is copied that the processor
can read where it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from graphflow.base.element_types import dtype_of, number_of, type_string
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.runtime import StateTensor, given_array


class OrtValue:
    """A value in the memory of the processor: a tensor, strings, or a sequence.

    It holds what it was made of: an array, or an object that exports one, which is asked for it at
    each use.  A state, which a run left in the memory of the program, moves to an array of its own
    when its address is asked for, or it is to be written.
    """

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Any, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A tensor in the memory of the array, or in a copy if that is not C-contiguous."""
        require_processor(device_type)
        return cls(np.asarray(given_array("numpy_obj", numpy_obj), order="C"))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(
        cls, data: NDArray[Any], /, onnx_element_type: int
    ) -> OrtValue:
        """A tensor in the memory of an array, whose bits are elements of ONNX's number."""
        dtype = dtype_of(onnx_element_type)
        if dtype.itemsize != data.dtype.itemsize:
            raise InvalidModel(
                f"elements of {data.dtype} have {data.dtype.itemsize} bytes, and {dtype} has "
                f"{dtype.itemsize}"
            )
        return cls(np.asarray(data, order="C").view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """A new tensor of undefined contents; the type is numpy's, or one of ONNX's numbers."""
        require_processor(device_type)
        return cls(np.empty(tuple(shape), dtype_of(element_type)))

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """A tensor in the memory of an object that exports DLPack or `__array__`, or of a capsule.

        An object may export another array each time; it is asked at each use.
        """
        if hasattr(data, "__dlpack__") or hasattr(data, "__array__"):
            return cls(data)
        return cls(np.from_dlpack(_Capsule(data)))

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: Any) -> NoReturn:
        """Refused: there are no sparse tensors."""
        raise UnsupportedOp("sparse tensors are not built; give a dense one")

    def as_sparse_tensor(self) -> NoReturn:
        """Refused: no value is a sparse tensor."""
        raise UnsupportedOp("the value is no sparse tensor; graphflow has none")

    @property
    def value(self) -> Any:
        """What a run is given: the array or the state of a tensor, or the value itself."""
        if type(self._value) is np.ndarray or self.is_state:
            return self._value
        return self.numpy() if self.is_tensor() else self._value

    @property
    def is_state(self) -> bool:
        """Whether it is in the memory of the program, where a run that takes it leaves it."""
        return isinstance(self._value, StateTensor)

    def in_place(self) -> NDArray[Any]:
        """The tensor as an array in the same memory; a state moves to an array of its own."""
        if isinstance(self._value, StateTensor):
            self._value = self._value.copy()
        return self.numpy()

    def _described(self) -> NDArray[Any] | StateTensor:
        """What has the tensor's shape and dtype."""
        return self._value if isinstance(self._value, StateTensor) else self.numpy()

    def numpy(self) -> NDArray[Any]:
        """The tensor as an array in the same memory, or a copy of a state; InvalidModel for another
        value."""
        if type(self._value) is np.ndarray:
            return self._value
        if not self.is_tensor():
            raise InvalidModel(f"the value is {type(self._value).__name__}, which is no tensor")
        if isinstance(self._value, StateTensor):
            return self._value.copy()
        return given_array("OrtValue", self._value)

    def is_tensor(self) -> bool:
        """Whether it is a tensor, of numbers or of strings."""
        return hasattr(self._value, "__dlpack__") or hasattr(self._value, "__array__")

    def is_sparse_tensor(self) -> bool:
        """False: there are none."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Whether it is a sequence of tensors."""
        return isinstance(self._value, list)

    def has_value(self) -> bool:
        """Whether an optional value is there."""
        return self._value is not None

    def data_ptr(self) -> int:
        """The address of the first element."""
        address: int = self.in_place().__array_interface__["data"][0]
        return address

    def device_name(self) -> str:
        """The device that has the memory."""
        return "cpu"

    def shape(self) -> list[int]:
        """The extents of the tensor."""
        return list(self._described().shape)

    def data_type(self) -> str:
        """The type, such as `tensor(float)`."""
        if self.is_tensor_sequence():
            held = [OrtValue(value).data_type() for value in self._value[:1]]
            return f"seq({held[0] if held else ''})"
        dtype = self._described().dtype
        return type_string("object" if dtype.kind in "OSU" else dtype.name)

    def element_type(self) -> int:
        """ONNX's number of the element type."""
        return number_of(self._described().dtype)

    def tensor_size_in_bytes(self) -> int:
        """The bytes of the elements."""
        described = self._described()
        return prod(described.shape) * described.dtype.itemsize

    def update_inplace(self, data: Any) -> None:
        """Copy the elements of an array or of another value into this tensor.

        InvalidModel if their number or dtype differs, or if the memory is read-only.
        """
        source = data.numpy() if isinstance(data, OrtValue) else given_array("data", data)
        target = self.in_place()
        if (source.dtype, source.size) != (target.dtype, target.size):
            raise InvalidModel(
                f"a tensor of {target.dtype}{list(target.shape)} is updated with "
                f"{source.dtype}{list(source.shape)}; give as many elements of that dtype"
            )
        if not target.flags.writeable:
            raise InvalidModel("the memory of the tensor is read-only, so it cannot be updated")
        np.copyto(target, source.reshape(target.shape))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.numpy()
        return np.array(array, dtype) if copy else np.asarray(array, dtype)

    def __dlpack__(self, **wanted: Any) -> Any:
        return self.in_place().__dlpack__(**wanted)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._described().__dlpack_device__()

    def __repr__(self) -> str:
        if not self.is_tensor():
            return f"<OrtValue: {type(self._value).__name__}>"
        return f"<OrtValue: {self.data_type()}{self.shape()}>"


class _Capsule:
    """What numpy takes a DLPack capsule from."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **wanted: Any) -> Any:
        return self._capsule


def require_processor(device_type: str) -> None:
    """Raise UnsupportedOp for memory of another device."""
    if str(device_type).lower() != "cpu":
        raise UnsupportedOp(
            f"there is no device {device_type!r}; graphflow runs on the processor: give 'cpu'"
        )


def array_at(address: int, element_type: Any, shape: Sequence[int]) -> NDArray[Any]:
    """The row-major tensor at an address, which the caller keeps alive."""
    dtype, extents = dtype_of(element_type), tuple(shape)
    size = prod(extents) * dtype.itemsize
    memory = (ctypes.c_uint8 * size).from_address(address if size else 0)
    return np.ctypeslib.as_array(memory).view(dtype).reshape(extents)
