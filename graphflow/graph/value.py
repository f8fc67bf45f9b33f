"""A tensor of a graph: name, element type and shape, without contents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor: its ONNX name, numpy's name of its dtype, and its logical shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))
