"""Compute definitions: PrimFuncs from logical shapes and attributes, without layout or machine."""

from graphflow.kernels.definitions.convolution import convolution, transposed_convolution
from graphflow.kernels.definitions.elementwise import (
    binary,
    broadcast,
    cast,
    clip,
    elementwise,
    modulo,
    normalization_scale,
    normalization_shift,
    power,
    predicate,
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
)
from graphflow.kernels.definitions.pooling import (
    average_pool,
    global_average_pool,
    global_lp_pool,
    global_max_pool,
    lp_pool,
    max_pool,
)
from graphflow.kernels.definitions.reduction import (
    REDUCTIONS,
    arg_reduce,
    hardmax,
    log_softmax,
    log_sum_exp,
    reduce,
    softmax,
)
from graphflow.kernels.definitions.resize import Coordinates, resize_linear, resize_nearest
from graphflow.kernels.definitions.scan import cumulative, triangle
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
from graphflow.kernels.definitions.stages import Shape
from graphflow.kernels.definitions.values import UNARY_VALUES
from graphflow.kernels.definitions.window import Window

__all__ = [
    "REDUCTIONS",
    "UNARY_VALUES",
    "Coordinates",
    "ReadThrough",
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
    "concat",
    "convolution",
    "copied",
    "copy",
    "cumulative",
    "depth_to_space",
    "elementwise",
    "expand",
    "fill",
    "gather",
    "gemm",
    "global_average_pool",
    "global_lp_pool",
    "global_max_pool",
    "group_normalization",
    "hardmax",
    "layer_normalization",
    "local_response_normalization",
    "log_softmax",
    "log_sum_exp",
    "lp_pool",
    "matmul",
    "max_pool",
    "modulo",
    "normalization_scale",
    "normalization_shift",
    "pad",
    "power",
    "predicate",
    "prelu",
    "reduce",
    "reduced_through",
    "reshape",
    "resize_linear",
    "resize_nearest",
    "scale_and_shift",
    "softmax",
    "space_to_depth",
    "take_slice",
    "tile",
    "transpose",
    "transposed_convolution",
    "triangle",
    "unary",
    "variadic",
    "where",
]
