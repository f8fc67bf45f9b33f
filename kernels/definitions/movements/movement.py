"""Kernels that only move elements: copy, reshape, transpose, concatenation; and fill.

In: logical shapes and attributes.  Out: a PrimFunc whose stages store bare loads (fill: a literal).
Loops run over what is written, except that each stage of a concatenation runs over its operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.stages import Shape
from graphflow.tir import Buffer, Load, PrimFunc


def copy(shape: Shape, dtype: str = "float32", name: str = "copy") -> PrimFunc:
    """`y = x`."""
    return reshape(shape, shape, dtype, name)


def reshape(
    x_shape: Shape, y_shape: Shape, dtype: str = "float32", name: str = "reshape"
) -> PrimFunc:
    """`y` has the elements of `x` in row-major order; both shapes have the same number of
    elements."""
    if prod(x_shape) != prod(y_shape):
        raise InvalidModel(
            f"a tensor of shape {x_shape} has {prod(x_shape)} elements, {y_shape} has "
            f"{prod(y_shape)}: a reshape keeps their number"
        )
    x, y = Buffer("x", x_shape, dtype), Buffer("y", y_shape, dtype)
    loops = stages.loops_over("i", y_shape)
    if x_shape == y_shape:
        source = stages.indices_of(loops)
    else:
        source = stages.delinearize(
            stages.linearize(stages.indices_of(loops), y_shape), x_shape, loops
        )
    return stages.elementwise_kernel(name, (x,), y, loops, Load(x, source))


def transpose(x_shape: Shape, permutation: Sequence[int], dtype: str = "float32") -> PrimFunc:
    """Axis k of `y` is axis `permutation[k]` of `x`."""
    if stages.normalized_axes(permutation, len(x_shape)) != tuple(range(len(x_shape))):
        raise InvalidModel(f"{tuple(permutation)} is not a permutation of {len(x_shape)} axes")
    x = Buffer("x", x_shape, dtype)
    y = Buffer("y", tuple(x_shape[axis] for axis in permutation), dtype)
    loops = stages.loops_over("i", y.shape)
    place = {axis: var for axis, (var, _) in zip(permutation, loops, strict=True)}
    value = Load(x, tuple(place[axis] for axis in range(len(x_shape))))
    return stages.elementwise_kernel("transpose", (x,), y, loops, value)


def concat(shapes: Sequence[Shape], axis: int, dtype: str = "float32") -> PrimFunc:
    """The operands x0, x1, … concatenated along `axis`; one stage writes each of them."""
    (axis,) = stages.normalized_axes((axis,), len(shapes[0]))
    rests = {shape[:axis] + shape[axis + 1 :] for shape in shapes}
    if len(rests) != 1 or len({len(shape) for shape in shapes}) != 1:
        listed = ", ".join(map(str, shapes))
        raise InvalidModel(f"shapes {listed} must agree on each axis but {axis} to be joined there")
    total = sum(shape[axis] for shape in shapes)
    y = Buffer("y", (*shapes[0][:axis], total, *shapes[0][axis + 1 :]), dtype)
    operands = [Buffer(f"x{k}", shape, dtype) for k, shape in enumerate(shapes)]
    parts, offset = [], 0
    for k, operand in enumerate(operands):
        loops = stages.loops_over(f"i{k}_", operand.shape)
        target = [var + offset if a == axis else var for a, (var, _) in enumerate(loops)]
        value = stages.element(operand, loops)
        parts.append(stages.store_stage(f"concat{k}", y, loops, target, value))
        offset += operand.shape[axis]
    return stages.kernel_of_stages("concat", operands, (y,), parts)


def fill(shape: Shape, value: float, dtype: str = "float32") -> PrimFunc:
    """`y[i…] = value`; a kernel without inputs."""
    y = Buffer("y", shape, dtype)
    loops = stages.loops_over("i", shape)
    return stages.elementwise_kernel("fill", (), y, loops, stages.literal(value, dtype))
