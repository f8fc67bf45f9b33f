"""Node sequences that today's exporters write for one call of a framework.

In: a builder and tensors.  Out: the name of the result.  PyTorch's exporter and optimum compute
shapes that depend on inputs by Shape, Gather, Unsqueeze and Concat in front of Reshape and Expand;
they write numbers as Constant nodes, and layers that an old opset lacks as plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from graphflow.models.builder import ModelBuilder

LOWEST = float(np.finfo(np.float32).min)
"""What `torch.finfo(torch.float32).min` is: the usual bias of a masked attention score."""


def integers(b: ModelBuilder, *values: int) -> str:
    """A Constant node of int64 numbers in one dimension."""
    return b.literal(np.array(values, np.int64))


def integer(b: ModelBuilder, value: int) -> str:
    """A Constant node of one int64 number without dimensions."""
    return b.literal(np.array(value, np.int64))


def number(b: ModelBuilder, value: float, dtype: str = "float32") -> str:
    """A Constant node of one floating-point number without dimensions."""
    return b.literal(np.array(value, dtype))


def size(b: ModelBuilder, x: str, axis: int) -> str:
    """`x.size(axis)`: Shape and Gather, an int64 number without dimensions."""
    return b.node("Gather", [b.node("Shape", [x]), integer(b, axis)], axis=0)


def unsqueeze(b: ModelBuilder, x: str, *axes: int) -> str:
    """Unsqueeze with its axes as an input."""
    return b.node("Unsqueeze", [x, integers(b, *axes)])


def shape(b: ModelBuilder, *extents: str | int) -> str:
    """A shape from numbers and from tensors without dimensions: Unsqueeze each, then Concat."""
    parts = [
        integers(b, extent) if isinstance(extent, int) else unsqueeze(b, extent, 0)
        for extent in extents
    ]
    return b.node("Concat", parts, axis=0)


def reshape(b: ModelBuilder, x: str, *extents: str | int) -> str:
    """`x.view(extents)` where some are read from tensors."""
    return b.node("Reshape", [x, shape(b, *extents)])


def view(b: ModelBuilder, x: str, *extents: int) -> str:
    """`x.view(extents)` where all are known: Reshape by a Constant node."""
    return b.node("Reshape", [x, integers(b, *extents)])


def cut(b: ModelBuilder, x: str, axis: int, start: str, stop: str) -> str:
    """`x[start:stop]` along an axis, with int64 limits of one dimension and step 1."""
    return b.node("Slice", [x, start, stop, integers(b, axis), integers(b, 1)])


def dense(
    b: ModelBuilder, x: str, inputs: int, outputs: int, gain: float = 1.0, dtype: str = "float32"
) -> str:
    """`nn.Linear` on the last axis of any rank: MatMul with transposed weights, then Add.

    The bias is the first operand of Add, as PyTorch's exporter writes it.
    """
    weight = b.weight(inputs, outputs, scale=sqrt(gain / inputs), dtype=dtype)
    product = b.node("MatMul", [x, weight])
    return b.add(b.weight(outputs, scale=0.1, dtype=dtype), product)


def embedding(b: ModelBuilder, ids: str, rows: int, width: int) -> str:
    """`nn.Embedding`: Gather of rows of a table of standard deviation 0.5."""
    return b.node("Gather", [b.weight(rows, width, scale=0.5), ids])


def scales(b: ModelBuilder, width: int, dtype: str = "float32") -> str:
    """Scales of a normalization, around 1."""
    return b.constant((1 + 0.1 * np.cos(np.arange(width))).astype(dtype))


def layer_norm(b: ModelBuilder, x: str, width: int, dtype: str = "float32") -> str:
    """LayerNormalization as one node, which opset 17 has."""
    inputs = [x, scales(b, width, dtype), b.weight(width, scale=0.1, dtype=dtype)]
    return b.node("LayerNormalization", inputs, axis=-1, epsilon=1e-5)


def layer_norm_apart(b: ModelBuilder, x: str, width: int, epsilon: float = 1e-12) -> str:
    """Layer normalization as the nine nodes that exporters write before opset 17."""
    centred = b.node("Sub", [x, b.node("ReduceMean", [x], axes=[-1])])
    power = b.node("Pow", [centred, number(b, 2.0)])
    variance = b.node("ReduceMean", [power], axes=[-1])
    deviation = b.node("Sqrt", [b.add(variance, number(b, epsilon))])
    scaled = b.node("Mul", [b.node("Div", [centred, deviation]), scales(b, width)])
    return b.add(scaled, b.weight(width, scale=0.1))


def gelu(b: ModelBuilder, x: str) -> str:
    """The exact Gelu before opset 20: x / sqrt(2), Erf, + 1, times x, times one half."""
    erf = b.node("Erf", [b.node("Div", [x, number(b, sqrt(2.0))])])
    return b.node("Mul", [b.node("Mul", [x, b.add(erf, number(b, 1.0))]), number(b, 0.5)])


def gelu_tanh(b: ModelBuilder, x: str) -> str:
    """Gelu by Tanh, as GPT-2 has it."""
    cube = b.node("Mul", [number(b, 0.044715), b.node("Pow", [x, number(b, 3.0)])])
    inner = b.node("Mul", [number(b, sqrt(2.0 / np.pi)), b.add(x, cube)])
    gate = b.add(number(b, 1.0), b.node("Tanh", [inner]))
    return b.node("Mul", [b.node("Mul", [number(b, 0.5), x]), gate])


def silu(b: ModelBuilder, x: str) -> str:
    """`nn.SiLU`, which has no operator of its own: x times its Sigmoid."""
    return b.node("Mul", [x, b.node("Sigmoid", [x])])


def split_heads(
    b: ModelBuilder, x: str, heads: int, head: int, perm: Sequence[int] = (0, 2, 1, 3)
) -> str:
    """(batch, length, heads * head) to (batch, heads, length, head), or another order of them.

    Batch and length are read from the tensor.
    """
    apart = reshape(b, x, size(b, x, 0), size(b, x, 1), heads, head)
    return b.node("Transpose", [apart], perm=list(perm))


def join_heads(b: ModelBuilder, x: str, width: int) -> str:
    """(batch, heads, length, head) to (batch, length, width)."""
    together = b.node("Transpose", [x], perm=[0, 2, 1, 3])
    return reshape(b, together, size(b, together, 0), size(b, together, 1), width)
