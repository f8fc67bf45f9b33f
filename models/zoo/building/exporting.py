"""Node sequences that today's exporters write for one call of a framework.

In: a builder and tensors.  Out: the name of the result.  PyTorch's exporter and optimum compute
shapes that depend on inputs by Shape, Gather, Unsqueeze and Concat in front of Reshape and Expand;
they write numbers as Constant nodes, and layers that an old opset lacks as plain arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np
from onnx import numpy_helper

from graphflow.models.zoo.building.layers import NetworkBuilder

LOWEST = float(np.finfo(np.float32).min)
"""What `torch.finfo(torch.float32).min` is: the usual bias of a masked attention score."""


class ExportingBuilder(NetworkBuilder):
    """A builder with what exporters write for calls of a framework."""

    def integers(self, *values: int) -> str:
        """A Constant node of int64 numbers in one dimension."""
        return self.literal(np.array(values, np.int64))

    def integer(self, value: int) -> str:
        """A Constant node of one int64 number without dimensions."""
        return self.literal(np.array(value, np.int64))

    def number(self, value: float, dtype: str = "float32") -> str:
        """A Constant node of one floating-point number without dimensions."""
        return self.literal(np.array(value, dtype))

    def size(self, x: str, axis: int) -> str:
        """`x.size(axis)`: Shape and Gather, an int64 number without dimensions."""
        return self.node("Gather", [self.node("Shape", [x]), self.integer(axis)], axis=0)

    def unsqueeze(self, x: str, *axes: int) -> str:
        """Unsqueeze with its axes as an input."""
        return self.node("Unsqueeze", [x, self.integers(*axes)])

    def shape(self, *extents: str | int) -> str:
        """A shape from numbers and from tensors without dimensions: Unsqueeze each, then Concat."""
        parts = [
            self.integers(extent) if isinstance(extent, int) else self.unsqueeze(extent, 0)
            for extent in extents
        ]
        return self.node("Concat", parts, axis=0)

    def reshape(self, x: str, *extents: str | int) -> str:
        """`x.view(extents)` where some are read from tensors."""
        return self.node("Reshape", [x, self.shape(*extents)])

    def view(self, x: str, *extents: int) -> str:
        """`x.view(extents)` where all are known: Reshape by a Constant node."""
        return self.node("Reshape", [x, self.integers(*extents)])

    def cut(self, x: str, axis: int, start: str, stop: str) -> str:
        """`x[start:stop]` along an axis, with int64 limits of one dimension and step 1."""
        return self.node("Slice", [x, start, stop, self.integers(axis), self.integers(1)])

    def expand(self, x: str, *extents: str | int) -> str:
        """`x.expand(extents)`, where -1 keeps an extent: a Where puts 1 in its place."""
        wanted = self.shape(*extents)
        one = numpy_helper.from_array(np.array([1], np.int64))
        ones = self.node("ConstantOfShape", [self.integers(len(extents))], value=one)
        kept = self.node("Equal", [wanted, self.node("Mul", [ones, self.integer(-1)])])
        return self.node("Expand", [x, self.node("Where", [kept, ones, wanted])])

    def dense(
        self, x: str, inputs: int, outputs: int, gain: float = 1.0, dtype: str = "float32"
    ) -> str:
        """`nn.Linear` on the last axis of any rank: MatMul with transposed weights, then Add.

        The bias is the first operand of Add, as PyTorch's exporter writes it.
        """
        product = self.projection(x, inputs, outputs, gain, dtype)
        return self.add(self.weight(outputs, scale=0.1, dtype=dtype), product)

    def projection(
        self, x: str, inputs: int, outputs: int, gain: float = 1.0, dtype: str = "float32"
    ) -> str:
        """`nn.Linear` without a bias."""
        weight = self.weight(inputs, outputs, scale=sqrt(gain / inputs), dtype=dtype)
        return self.node("MatMul", [x, weight])

    def embedding(self, ids: str, rows: int, width: int) -> str:
        """`nn.Embedding`: Gather of rows of a table of standard deviation 0.5."""
        return self.node("Gather", [self.weight(rows, width, scale=0.5), ids])

    def scales(self, width: int, dtype: str = "float32") -> str:
        """Scales of a normalization, around 1."""
        return self.constant((1 + 0.1 * np.cos(np.arange(width))).astype(dtype))

    def layer_norm(self, x: str, width: int, dtype: str = "float32") -> str:
        """LayerNormalization as one node, which opset 17 has."""
        inputs = [x, self.scales(width, dtype), self.weight(width, scale=0.1, dtype=dtype)]
        return self.node("LayerNormalization", inputs, axis=-1, epsilon=1e-5)

    def layer_norm_apart(
        self, x: str, width: int, epsilon: float = 1e-12, weights: tuple[str, str] | None = None
    ) -> str:
        """Layer normalization as the nine nodes that exporters write before opset 17.

        `weights` are scales and offsets that several layers share.
        """
        centred = self.node("Sub", [x, self.node("ReduceMean", [x], axes=[-1])])
        power = self.node("Pow", [centred, self.number(2.0)])
        variance = self.node("ReduceMean", [power], axes=[-1])
        deviation = self.node("Sqrt", [self.add(variance, self.number(epsilon))])
        scales, offsets = weights or (self.scales(width), self.weight(width, scale=0.1))
        normal = self.node("Div", [centred, deviation])
        return self.add(self.node("Mul", [normal, scales]), offsets)

    def rms_norm(self, x: str, width: int) -> str:
        """Division by the root of the mean of squares, as the nodes that exporters write."""
        power = self.node("Pow", [x, self.number(2.0)])
        mean = self.node("ReduceMean", [power], axes=[-1])
        root = self.node("Sqrt", [self.add(mean, self.number(1e-6))])
        normal = self.node("Mul", [x, self.node("Div", [self.number(1.0), root])])
        return self.node("Mul", [self.scales(width), normal])

    def gelu(self, x: str) -> str:
        """The exact Gelu before opset 20: x / sqrt(2), Erf, + 1, times x, times one half."""
        erf = self.node("Erf", [self.node("Div", [x, self.number(sqrt(2.0))])])
        return self.node(
            "Mul", [self.node("Mul", [x, self.add(erf, self.number(1.0))]), self.number(0.5)]
        )

    def gelu_tanh(self, x: str) -> str:
        """Gelu by Tanh, as GPT-2 has it."""
        cube = self.node("Mul", [self.number(0.044715), self.node("Pow", [x, self.number(3.0)])])
        inner = self.node("Mul", [self.number(sqrt(2.0 / np.pi)), self.add(x, cube)])
        gate = self.add(self.number(1.0), self.node("Tanh", [inner]))
        return self.node("Mul", [self.node("Mul", [self.number(0.5), x]), gate])

    def silu(self, x: str) -> str:
        """`nn.SiLU`, which has no operator of its own: x times its Sigmoid."""
        return self.node("Mul", [x, self.node("Sigmoid", [x])])

    def split_heads(self, x: str, heads: int, head: int, perm: Sequence[int] = (0, 2, 1, 3)) -> str:
        """(batch, length, heads * head) to (batch, heads, length, head), or another order of them.

        Batch and length are read from the tensor.
        """
        apart = self.reshape(x, self.size(x, 0), self.size(x, 1), heads, head)
        return self.node("Transpose", [apart], perm=list(perm))

    def join_heads(self, x: str, width: int) -> str:
        """(batch, heads, length, head) to (batch, length, width)."""
        together = self.node("Transpose", [x], perm=[0, 2, 1, 3])
        return self.reshape(together, self.size(together, 0), self.size(together, 1), width)
