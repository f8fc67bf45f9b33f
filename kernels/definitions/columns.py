"""Col2Im: adds up the columns of overlapping blocks to an image.

In: shapes and ONNX's window attributes.  Out: a PrimFunc of one reduction stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphflow.arith import conjunction, equal, floor_div, floor_mod, within
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions.stages import (
    Shape,
    indices_of,
    kernel,
    linearize,
    loops_over,
    reduction_stage,
)
from graphflow.kernels.definitions.window import Window, spatial_names
from graphflow.tir import Buffer, Load, PrimFunc, ReduceOp


def col2im(
    x_shape: Shape,
    image: Sequence[int],
    block: Sequence[int],
    *,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    dtype: str = "float32",
) -> PrimFunc:
    """`y[n, c, p…] = Σ x[n, c · taps + k, l]` over the taps k and block positions l that cover p.

    x has shape (N, C · product of the block, number of blocks), y (N, C, image…).
    """
    window = Window.of(block, strides, pads, dilations)
    taps = prod(window.kernel)
    places = window.output_shape(tuple(image))
    if len(x_shape) != 3 or x_shape[1] % taps or x_shape[2] != prod(places):
        raise InvalidModel(
            f"columns {x_shape} do not fit blocks {tuple(block)} of an image {tuple(image)}, of "
            f"which there are {prod(places)}"
        )
    channels = x_shape[1] // taps
    x = Buffer("x", x_shape, dtype)
    y = Buffer("y", (x_shape[0], channels, *image), dtype)
    loops = loops_over(("n", "c", *spatial_names("o", window.rank)), y.shape)
    inner = loops_over(spatial_names("k", window.rank), window.kernel)
    reached = [
        o + begin - k * dilation
        for (o, _), (k, _), begin, dilation in zip(
            loops[2:], inner, window.pads_begin, window.dilations, strict=True
        )
    ]
    strided = list(zip(reached, window.strides, places, strict=True))
    n, c, *_ = indices_of(loops)
    tap = linearize(indices_of(inner), window.kernel)
    place = linearize([floor_div(at, stride) for at, stride, _ in strided], places)
    whole = [equal(floor_mod(at, stride), 0) for at, stride, _ in strided]
    inside = [within(at, 0, count * stride) for at, stride, count in strided]
    stage = reduction_stage(
        "col2im",
        ReduceOp.ADD,
        y,
        loops,
        indices_of(loops),
        inner,
        Load(x, (n, c * taps + tap, place)),
        where=conjunction((*inside, *whole)),
    )
    return kernel("col2im", (x,), (y,), (stage,))
