"""Files of arrays, as numpy writes them.

In: a file `.npy` or `.npz`.  Out: arrays by input name.  What always holds: nothing is read that
needs pickle.
"""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray


def arrays_of_file(
    file: str | PathLike[str] | BinaryIO, only: Callable[[], str]
) -> dict[str, NDArray[Any]]:
    """The arrays of a file `.npz` by their names, or the array of a file `.npy`, whose name is what
    `only` returns.

    Raises OSError, ValueError or EOFError for a file that cannot be read.
    """
    found = np.load(file, allow_pickle=False)
    if isinstance(found, np.ndarray):
        return {only(): found}
    with found:
        return dict(found)
