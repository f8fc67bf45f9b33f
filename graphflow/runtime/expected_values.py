"""The values of inputs that a program was compiled for, compared bit by bit with those of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphflow.base.errors import InvalidModel

MOST_SHOWN = 64
"""The most elements of a value that a message prints."""


def require_value(name: str, expected: ArrayLike, given: ArrayLike) -> None:
    """Raise InvalidModel unless an input has, bit by bit, the value that a program was compiled
    for."""
    wanted, found = np.asarray(expected), np.asarray(given)
    if value_key(wanted) != value_key(found):
        raise InvalidModel(
            f"input {name!r} is {_value_text(found)}, and the program was compiled for "
            f"{_value_text(wanted)}; give that, or compile for the other value"
        )


def _value_text(array: NDArray[Any]) -> str:
    elements = "" if array.size > MOST_SHOWN else f" {array.tolist()}"
    return f"{array.dtype}{list(array.shape)}{elements}"


def value_key(array: NDArray[Any]) -> tuple[str, tuple[int, ...], bytes]:
    """A key that is the same for equal values: dtype, shape, and bytes in native order."""
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    return native.dtype.name, native.shape, native.tobytes()
