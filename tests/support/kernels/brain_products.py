"""Kernels that sum products of bfloat16 numbers, and whether variants of them are right."""

from typing import Any

import numpy as np

from graphflow import tir
from graphflow.base.dtypes import DTYPES
from graphflow.base.target import Target
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.recipes import KernelVariant
from graphflow.lower import lower_call
from support.kernels.attributed_convolutions import attributed_convolution
from support.kernels.narrow_products import narrow
from support.placing import Native, call_of, positions, unplace

BRAIN = ("bfloat16", "bfloat16")


def brain_matmul(rows: int, depth: int, columns: int) -> tir.PrimFunc:
    return narrow(linear.matmul((rows, depth), (depth, columns)), BRAIN)


def brain_conv(x: tuple[int, ...], w: tuple[int, ...], **more: Any) -> tir.PrimFunc:
    return narrow(attributed_convolution(x, w, **more), BRAIN)


def check_brain(
    func: tir.PrimFunc, variant: KernelVariant, target: Target, natively: bool = True
) -> str:
    """The text of the kernel, after it computed what its definition says, natively or statement by
    statement, with NaN in the padding of the data; numbers are small, so that sums are exact in any
    order."""
    kernel = lower_call(call_of(func, variant), target, "k")
    assert kernel.instead_of is None and not variant.demands
    random, boxes, arrays = np.random.default_rng(0), {}, {}
    for buffer, padding in zip(func.inputs, (np.nan, 0), strict=True):
        array = (random.integers(-64, 65, buffer.shape) / 8).astype(DTYPES["bfloat16"])
        layout = variant.layouts[buffer.name]
        box = np.full(layout.physical_shape, padding, array.dtype)
        box.reshape(-1)[positions(layout)] = array
        boxes[buffer.name], arrays[buffer.name] = box, array
    name = func.outputs[0].name
    made = Native(kernel, target)(boxes, 0.0) if natively else tir.interpret(kernel.func, boxes)
    got = unplace(variant.layouts[name], made[name])
    np.testing.assert_array_equal(got, tir.interpret(func, arrays)[name])
    return tir.to_text(kernel.func)
