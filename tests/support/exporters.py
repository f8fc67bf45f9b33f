"""Objects that export their memory as other libraries' tensors do."""

from __future__ import annotations

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


class OnDevice:
    """A tensor in memory that this processor cannot read."""

    def __dlpack__(self, **wanted: Any) -> Any:
        raise BufferError("the tensor is on cuda:0")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0
