"""Inputs to try a model with.

In: the signature of a program and a seed.  Out: an array for each input.  What always holds: an
array depends on the seed and on the place of its input only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphflow.dtypes import FLOATING
from graphflow.runtime import TensorSpec


def random_inputs(tensors: Sequence[TensorSpec], seed: int = 0) -> dict[str, NDArray[Any]]:
    """Normally distributed floats; integers and bools are 0 or 1, which suits most indices."""
    found = {}
    for place, tensor in enumerate(tensors):
        rng = np.random.default_rng([seed, place])
        dtype = np.dtype(tensor.dtype)
        if tensor.dtype in FLOATING:
            found[tensor.name] = np.asarray(rng.standard_normal(tensor.shape)).astype(dtype)
        else:
            found[tensor.name] = np.asarray(rng.integers(0, 2, tensor.shape)).astype(dtype)
    return found
