"""Col2Im: adds up the columns of overlapping blocks to an image.

In: shapes and a window.  Out: a PrimFunc of one reduction stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.stages import Shape
from graphflow.kernels.definitions.windows.window import Window, spatial_names
from graphflow.tir import Buffer, Load, PrimFunc, ReduceOp


def col2im(
    x_shape: Shape,
    image: Sequence[int],
    window: Window,
    dtype: str = "float32",
) -> PrimFunc:
    """`y[n, c, p…] = Σ x[n, c · taps + k, l]` over the taps k and block positions l that cover p.

    x has shape (N, C · product of the block, number of blocks), y (N, C, image…); `window` slides
    blocks of its kernel's extents over the image.
    """
    taps = prod(window.kernel)
    places = window.output_shape(tuple(image))
    if len(x_shape) != 3 or x_shape[1] % taps or x_shape[2] != prod(places):
        raise InvalidModel(
            f"columns {x_shape} do not fit blocks {window.kernel} of an image {tuple(image)}, of "
            f"which there are {prod(places)}"
        )
    channels = x_shape[1] // taps
    x = Buffer("x", x_shape, dtype)
    y = Buffer("y", (x_shape[0], channels, *image), dtype)
    loops = stages.loops_over(("n", "c", *spatial_names("o", window.rank)), y.shape)
    inner = stages.loops_over(spatial_names("k", window.rank), window.kernel)
    n, c, *_ = stages.indices_of(loops)
    tap = stages.linearize(stages.indices_of(inner), window.kernel)
    numbers, covered = window.covering(loops[2:], inner, window.pads_begin, places)
    value = Load(x, (n, c * taps + tap, stages.linearize(numbers, places)))
    stage = stages.reduction_stage("col2im", ReduceOp.ADD, y, loops, inner, value, where=covered)
    return stages.kernel_of_stages("col2im", (x,), (y,), (stage,))
