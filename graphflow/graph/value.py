"""A tensor of a graph: name, element type and shape, without contents."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.base.errors import UnsupportedOp

Array: TypeAlias = NDArray[np.generic]

MOST_AXES = 32
"""The most axes of a tensor: numpy broadcasts no more."""


def require_rank(rank: int, what: str) -> None:
    """Raise `UnsupportedOp` for a tensor, which messages call `what`, of more than `MOST_AXES`."""
    if rank > MOST_AXES:
        raise UnsupportedOp(
            f"{what} has {rank} axes; tensors of more than {MOST_AXES} are not built. Merge axes "
            "that lie side by side"
        )


class Value(Struct, frozen=True):
    """A tensor: its ONNX name, numpy's name of its dtype, and its logical shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))
