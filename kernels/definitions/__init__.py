"""Compute definitions: PrimFuncs from logical shapes and attributes, without layout or machine."""

from graphflow.kernels.definitions.convolution import convolution
from graphflow.kernels.definitions.elementwise import (
    UNARY_VALUES,
    binary,
    broadcast,
    cast,
    clip,
    elementwise,
    normalization_scale,
    normalization_shift,
    scale_and_shift,
    unary,
    variadic,
)
from graphflow.kernels.definitions.linear import gemm, matmul
from graphflow.kernels.definitions.movement import concat, copy, fill, reshape, transpose
from graphflow.kernels.definitions.pooling import (
    average_pool,
    global_average_pool,
    global_max_pool,
    max_pool,
)
from graphflow.kernels.definitions.reduction import REDUCTIONS, reduce, softmax
from graphflow.kernels.definitions.stages import Shape
from graphflow.kernels.definitions.window import Window

__all__ = [
    "REDUCTIONS",
    "UNARY_VALUES",
    "Shape",
    "Window",
    "average_pool",
    "binary",
    "broadcast",
    "cast",
    "clip",
    "concat",
    "convolution",
    "copy",
    "elementwise",
    "fill",
    "gemm",
    "global_average_pool",
    "global_max_pool",
    "matmul",
    "max_pool",
    "normalization_scale",
    "normalization_shift",
    "reduce",
    "reshape",
    "scale_and_shift",
    "softmax",
    "transpose",
    "unary",
    "variadic",
]
