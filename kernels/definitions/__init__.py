"""Compute definitions: PrimFuncs from logical shapes and attributes, without layout or machine."""

from graphflow.kernels.definitions.columns import col2im
from graphflow.kernels.definitions.convolution import convolution, transposed_convolution
from graphflow.kernels.definitions.determinant import determinant
from graphflow.kernels.definitions.einsum import einsum, label_extents
from graphflow.kernels.definitions.elementwise import (
    binary,
    broadcast,
    cast,
    clip,
    elementwise,
    normalization_scale,
    normalization_shift,
    power,
    prelu,
    scale_and_shift,
    unary,
    variadic,
    where,
)
from graphflow.kernels.definitions.linear import gemm, matmul
from graphflow.kernels.definitions.movement import concat, copy, fill, reshape, transpose
from graphflow.kernels.definitions.normalization import (
    group_normalization,
    layer_normalization,
    local_response_normalization,
    lp_normalization,
)
from graphflow.kernels.definitions.pooling import (
    average_pool,
    global_average_pool,
    global_lp_pool,
    global_max_pool,
    lp_pool,
    max_pool,
)
from graphflow.kernels.definitions.recurrent import (
    ACTIVATIONS,
    LANES,
    Activation,
    Recurrence,
    gru,
    lstm,
    rnn,
)
from graphflow.kernels.definitions.reduction import (
    REDUCTIONS,
    arg_reduce,
    log_softmax,
    log_sum_exp,
    one_at,
    reduce,
    softmax,
)
from graphflow.kernels.definitions.resize import (
    Coordinates,
    filter_taps,
    resize_linear,
    resize_nearest,
    resize_outside,
    resize_taps,
)
from graphflow.kernels.definitions.segments import (
    ReadThrough,
    Segment,
    Weight,
    copied,
    reduced_through,
)
from graphflow.kernels.definitions.selection import (
    depth_to_space,
    expand,
    gather,
    pad,
    space_to_depth,
    take_slice,
    tile,
)
from graphflow.kernels.definitions.signal import fourier_factors, frames
from graphflow.kernels.definitions.stages import Shape
from graphflow.kernels.definitions.values import UNARY_VALUES
from graphflow.kernels.definitions.window import Window

__all__ = [
    "ACTIVATIONS",
    "LANES",
    "REDUCTIONS",
    "UNARY_VALUES",
    "Activation",
    "Coordinates",
    "ReadThrough",
    "Recurrence",
    "Segment",
    "Shape",
    "Weight",
    "Window",
    "arg_reduce",
    "average_pool",
    "binary",
    "broadcast",
    "cast",
    "clip",
    "col2im",
    "concat",
    "convolution",
    "copied",
    "copy",
    "depth_to_space",
    "determinant",
    "einsum",
    "elementwise",
    "expand",
    "fill",
    "filter_taps",
    "fourier_factors",
    "frames",
    "gather",
    "gemm",
    "global_average_pool",
    "global_lp_pool",
    "global_max_pool",
    "group_normalization",
    "gru",
    "label_extents",
    "layer_normalization",
    "local_response_normalization",
    "log_softmax",
    "log_sum_exp",
    "lp_normalization",
    "lp_pool",
    "lstm",
    "matmul",
    "max_pool",
    "normalization_scale",
    "normalization_shift",
    "one_at",
    "pad",
    "power",
    "prelu",
    "reduce",
    "reduced_through",
    "reshape",
    "resize_linear",
    "resize_nearest",
    "resize_outside",
    "resize_taps",
    "rnn",
    "scale_and_shift",
    "softmax",
    "space_to_depth",
    "take_slice",
    "tile",
    "transpose",
    "transposed_convolution",
    "unary",
    "variadic",
    "where",
]
