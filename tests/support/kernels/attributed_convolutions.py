"""Convolutions whose window is stated as the attributes of ONNX's Conv."""

from collections.abc import Sequence
from typing import Any

from graphflow.kernels.definitions.windows.convolution import convolution
from graphflow.kernels.definitions.windows.window import Window
from graphflow.tir import PrimFunc


def attributed_convolution(
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    *,
    strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    **more: Any,
) -> PrimFunc:
    """The convolution with the window of a weight and these attributes."""
    return convolution(x_shape, w_shape, Window.of(w_shape[2:], strides, pads, dilations), **more)
