"""Objects that export their memory as other libraries' tensors do."""

import ctypes
from typing import Any

from numpy.typing import NDArray


class Exporter:
    """A tensor that is no array for numpy: it exports DLPack and has nothing else."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array

    def __dlpack__(self, **wanted: Any) -> Any:
        return self.array.__dlpack__(**wanted)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class SmallFloats:
    """A tensor of a float type that numpy lacks, of which `bits` are the elements.

    It exports the bits, and then writes DLPack's code of the type into what it exported.
    """

    def __init__(self, bits: NDArray[Any], code: int, is_versioned: bool = True) -> None:
        self.bits, self._code, self._is_versioned = bits, code, is_versioned

    def __dlpack__(self, max_version: tuple[int, int] | None = None) -> Any:
        versioned = self._is_versioned and max_version is not None
        capsule = self.bits.__dlpack__(max_version=max_version if versioned else None)
        name, at = (b"dltensor_versioned", 52) if versioned else (b"dltensor", 20)
        pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", ctypes.pythonapi)
        )
        ctypes.c_uint8.from_address(pointer(capsule, name) + at).value = self._code
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class OnDevice:
    """A tensor in memory that this processor cannot read."""

    def __dlpack__(self, **wanted: Any) -> Any:
        raise BufferError("the tensor is on cuda:0")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0
