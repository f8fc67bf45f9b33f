"""The error between the outputs of two programs.

In: outputs by name.  Out: the largest relative error, or infinity if shapes, dtypes, the places of
NaN or infinities, or integers differ.

A small error means little for outputs that hardly vary: a saturated softmax is the same one-hot
vector for very different scores, and NaN everywhere equals NaN everywhere.  `hardly_varies` detects
such outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray


def largest_error(found: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> float:
    """The largest `‖found − expected‖ / ‖expected‖` over the outputs of `expected`."""
    return max(
        (
            relative_error(found[name], array) if name in found else inf
            for name, array in expected.items()
        ),
        default=0.0,
    )


def hardly_varies(outputs: Mapping[str, NDArray[Any]]) -> bool:
    """Whether a float output of more than two elements has at most two distinct finite values, so
    that a small error proves little."""
    return any(
        array.dtype.kind == "f"
        and array.size > 2
        and np.unique(array[np.isfinite(array)]).size <= 2
        for array in outputs.values()
    )


def relative_error(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """`‖found − expected‖ / ‖expected‖` over the finite elements."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return inf
    if expected.dtype.kind != "f":
        return 0.0 if np.array_equal(found, expected) else inf
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(found)):
        return inf
    # NaN in the same places, infinities of the same sign.
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return inf
    reference = expected[finite].astype(np.float64)
    difference = float(np.linalg.norm(found[finite].astype(np.float64) - reference))
    scale = float(np.linalg.norm(reference))
    if scale == 0.0:
        return 0.0 if difference == 0.0 else inf
    return difference / scale
