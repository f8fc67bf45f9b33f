"""Compute definitions: PrimFuncs from logical shapes and attributes, without layout or machine."""

from graphflow.kernels.definitions.convolution import convolution, transposed_convolution
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
from graphflow.kernels.definitions.indexing import (
    gather_at,
    gather_elements,
    gather_nd,
    one_hot,
    scatter_elements,
    scatter_nd,
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
    global_max_pool,
    max_pool,
)
from graphflow.kernels.definitions.ranking import at_ranks, ranks, selected
from graphflow.kernels.definitions.reduction import (
    REDUCTIONS,
    arg_reduce,
    log_softmax,
    log_sum_exp,
    reduce,
    softmax,
)
from graphflow.kernels.definitions.resize import Coordinates, resize_linear, resize_nearest
from graphflow.kernels.definitions.segments import (
    ReadThrough,
    Segment,
    Weight,
    copied,
    reduced_through,
)
from graphflow.kernels.definitions.selection import (
    MOST_RUNS,
    depth_to_space,
    expand,
    gather,
    pad,
    runs_of,
    space_to_depth,
    take_slice,
    tile,
)
from graphflow.kernels.definitions.stages import Shape
from graphflow.kernels.definitions.values import UNARY_VALUES
from graphflow.kernels.definitions.window import Window

__all__ = [
    "MOST_RUNS",
    "REDUCTIONS",
    "UNARY_VALUES",
    "Coordinates",
    "ReadThrough",
    "Segment",
    "Shape",
    "Weight",
    "Window",
    "arg_reduce",
    "at_ranks",
    "average_pool",
    "binary",
    "broadcast",
    "cast",
    "clip",
    "concat",
    "convolution",
    "copied",
    "copy",
    "depth_to_space",
    "elementwise",
    "expand",
    "fill",
    "gather",
    "gather_at",
    "gather_elements",
    "gather_nd",
    "gemm",
    "global_average_pool",
    "global_max_pool",
    "group_normalization",
    "layer_normalization",
    "local_response_normalization",
    "log_softmax",
    "log_sum_exp",
    "matmul",
    "max_pool",
    "normalization_scale",
    "normalization_shift",
    "one_hot",
    "pad",
    "power",
    "prelu",
    "ranks",
    "reduce",
    "reduced_through",
    "reshape",
    "resize_linear",
    "resize_nearest",
    "runs_of",
    "scale_and_shift",
    "scatter_elements",
    "scatter_nd",
    "selected",
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
