"""Kernels that sum products of narrow integers, and whether variants of them are right."""

from typing import Any

import numpy as np

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.recipes import KernelVariant, kernel_variants
from graphflow.lower import lower_call
from graphflow.tir import interpret
from support.kernels.attributed_convolutions import attributed_convolution
from support.kernels.narrow_products import narrow
from support.placing import Native, call_of, positions, unplace


def matmul(rows: int, depth: int, columns: int, types: tuple[str, str]) -> tir.PrimFunc:
    return narrow(linear.matmul((rows, depth), (depth, columns), "int32"), types)


def conv(
    x: tuple[int, ...], w: tuple[int, ...], types: tuple[str, str], **more: Any
) -> tir.PrimFunc:
    return narrow(attributed_convolution(x, w, dtype="int32", **more), types)


def variants(func: tir.PrimFunc, target: Target) -> list[KernelVariant]:
    weights = frozenset({func.inputs[1].name})
    return list(kernel_variants(func, weights, target))


def check(
    func: tir.PrimFunc,
    variant: KernelVariant,
    target: Target,
    natively: bool = True,
    pad: float | str = "undef",
) -> str:
    """The text of the kernel, after it computed what its definition says: as machine code, or else
    statement by statement.  The padding of the output gets `pad`."""
    kernel = lower_call(call_of(func, variant, pad), target, "k")
    assert kernel.instead_of is None
    rng = np.random.default_rng(0)
    arrays = {}
    for buffer in func.inputs:
        limits = np.iinfo(buffer.dtype) if buffer.dtype.endswith("8") else np.iinfo("int8")
        arrays[buffer.name] = rng.integers(limits.min, limits.max + 1, buffer.shape).astype(
            buffer.dtype
        )
    boxes = {}
    for name, array in arrays.items():
        layout = variant.layouts[name]
        # The padding is what is demanded, or else something on which nothing may depend.
        padding = 0 if name in variant.demands else 77
        box = np.full(layout.physical_shape, padding, array.dtype)
        box.reshape(-1)[positions(layout)] = array
        boxes[name] = box
    output = func.outputs[0].name
    made = Native(kernel, target)(boxes, 0.0) if natively else interpret(kernel.func, boxes)
    got = made[output]
    np.testing.assert_array_equal(
        unplace(variant.layouts[output], got), interpret(func, arrays)[output]
    )
    if pad != "undef":
        rest = np.delete(got.reshape(-1), positions(variant.layouts[output]))
        np.testing.assert_array_equal(rest, pad)
    return tir.to_text(kernel.func)


def without_matrices(target: Target) -> Target:
    """A target as if it had no matrix registers."""
    features = target.features.replace("+amx-", "-amx-")
    return replace(target, name=f"{target.name}-plain", features=features)
