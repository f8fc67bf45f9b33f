"""Signals: overlapping frames, and the matrix of a discrete Fourier transform.

In: shapes, lengths, steps.  Out: a PrimFunc that only moves elements, or the factors of the
transform as an array.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.stages import Shape
from graphflow.tir import Buffer, Load, PrimFunc


def frames(x_shape: Shape, length: int, step: int, dtype: str = "float32") -> PrimFunc:
    """`y[b, f, j, …] = x[b, f · step + j, …]` for all frames of `length` that lie inside axis 1."""
    if len(x_shape) < 2 or not 1 <= length <= x_shape[1] or step < 1:
        raise InvalidModel(
            f"frames of {length} elements every {step} do not fit a signal of shape {x_shape}"
        )
    count = (x_shape[1] - length) // step + 1
    step = min(step, x_shape[1])  # the step of one frame may be any number
    x = Buffer("x", x_shape, dtype)
    y = Buffer("y", (x_shape[0], count, length, *x_shape[2:]), dtype)
    loops = stages.loops_over("i", y.shape)
    batch, frame, place, *rest = stages.indices_of(loops)
    value = Load(x, (batch, frame * step + place, *rest))
    return stages.elementwise_kernel("frames", (x,), y, loops, value)


def fourier_factors(
    given: int, complex_input: bool, length: int, *, inverse: bool, onesided: bool
) -> NDArray[np.float64]:
    """Factors f of the Fourier transform `y[k, d] = Σ_j Σ_c f[j, c, k, d] · x[j, c]`.

    c and d are 0 for the real and 1 for the imaginary part.  x has `given` elements along the axis;
    it is cut or padded with zeros to `length`.  With `onesided` k ends at half the length; with
    `inverse` too, j does instead, and y is real (d is 0 only).
    """
    half = length // 2 + 1
    used = min(given, half if inverse and onesided else length)
    outputs = half if onesided and not inverse else length
    # Exact products modulo the length: large angles would lose digits.
    turns = np.outer(np.arange(used), np.arange(outputs)) % max(length, 1)
    angles = 2 * np.pi / length * turns * (-1.0 if inverse else 1.0)
    cosine, sine = np.cos(angles), np.sin(angles)
    factors = np.zeros((given, 2, outputs, 2))
    factors[:used, 0, :, 0], factors[:used, 0, :, 1] = cosine, -sine
    factors[:used, 1, :, 0], factors[:used, 1, :, 1] = sine, cosine
    if inverse:
        factors /= length
    if inverse and onesided:
        # The other half holds the conjugates: each element but those that are their own counts
        # twice.
        twice = [j > 0 and 2 * j != length for j in range(used)]
        factors[:used][twice] *= 2
        factors = factors[..., :1]
    return factors if complex_input else factors[:, :1]
