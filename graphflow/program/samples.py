"""Random inputs for a compiled model.

In: the signature of a program and a seed.  Out: an array for each input.  What always holds: an
array depends only on the seed and on the position of its input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphflow.base.dtypes import FLOATING
from graphflow.base.errors import InvalidModel, shapes_remedy
from graphflow.program.program_tensors import OpenTensor, TensorSpec


def random_inputs(
    tensors: Sequence[TensorSpec | OpenTensor], seed: int = 0
) -> dict[str, NDArray[Any]]:
    """Normally distributed floats; integers and bools are 0 or 1, which are valid for most indices.

    Raises InvalidModel for a tensor with unknown extents.
    """
    found = {}
    for place, tensor in enumerate(tensors):
        shape = _known_shape(tensor)
        rng = np.random.default_rng([seed, place])
        dtype = np.dtype(tensor.dtype)
        if tensor.dtype in FLOATING:
            found[tensor.name] = np.asarray(rng.standard_normal(shape)).astype(dtype)
        else:
            found[tensor.name] = np.asarray(rng.integers(0, 2, shape)).astype(dtype)
    return found


def _known_shape(tensor: TensorSpec | OpenTensor) -> tuple[int, ...]:
    shape = () if tensor.shape is None else tensor.shape
    known = tuple(extent for extent in shape if isinstance(extent, int))
    if tensor.shape is None or len(known) < len(shape):
        raise InvalidModel(
            f"the shape of {tensor} is symbolic, and a random input needs one",
            remedies=(shapes_remedy({tensor.name: tensor.shape}),),
        )
    return known
