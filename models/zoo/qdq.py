"""A quantized network in QDQ format, as onnxruntime's and PyTorch's quantizers write it.

In: an image, float32.  Out: logits, float32, dequantized by the last node.  Activations are uint8
with one scale for each tensor, weights int8 with one scale for each channel, biases int32 with the
product of both scales; each Conv, MatMul and Add is enclosed by DequantizeLinear and
QuantizeLinear.
"""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray

from graphflow.models.builder import ModelBuilder
from graphflow.models.zoo.building.layers import pads

CLASSES = 20


class _Quantizer:
    """Adds quantized layers to a builder; knows the scale of what stands behind each."""

    def __init__(self, b: ModelBuilder, seed: int) -> None:
        self.b = b
        self.rng = np.random.default_rng([seed, 1])
        self.scales: dict[str, float] = {}

    def activation(self, x: str, low: float, high: float) -> str:
        """Quantize to uint8 over low … high and back; gives the float32 tensor behind it."""
        step = (high - low) / 255
        scale = self.b.constant(np.array(step, np.float32))
        zero = self.b.constant(np.array(round(-low / step), np.uint8))
        stored = self.b.node("QuantizeLinear", [x, scale, zero])
        result = self.b.node("DequantizeLinear", [stored, scale, zero])
        self.scales[result] = step
        return result

    def weight(self, values: NDArray[np.float64], axis: int) -> tuple[str, NDArray[np.float64]]:
        """An int8 weight with a scale for each index of `axis`, dequantized; and the scales."""
        others = tuple(i for i in range(values.ndim) if i != axis)
        steps = np.abs(values).max(others) / 127
        shape = [-1 if i == axis else 1 for i in range(values.ndim)]
        stored = np.round(values / steps.reshape(shape)).astype(np.int8)
        inputs = [
            self.b.constant(stored),
            self.b.constant(steps.astype(np.float32)),
            self.b.constant(np.zeros(len(steps), np.int8)),
        ]
        return self.b.node("DequantizeLinear", inputs, axis=axis), steps

    def bias(self, x: str, steps: NDArray[np.float64]) -> str:
        """An int32 bias, dequantized; its scales are those of the input times the weight's."""
        scales = self.scales[x] * steps
        stored = np.round(0.1 * self.rng.standard_normal(len(steps)) / scales).astype(np.int32)
        inputs = [
            self.b.constant(stored),
            self.b.constant(scales.astype(np.float32)),
            self.b.constant(np.zeros(len(steps), np.int32)),
        ]
        return self.b.node("DequantizeLinear", inputs, axis=0)

    def conv(self, x: str, inputs: int, outputs: int, stride: int = 1, group: int = 1) -> str:
        """A 3x3 Conv and Relu, quantized over 0 … 4."""
        fan_in = 9 * inputs // group
        shape = (outputs, inputs // group, 3, 3)
        values = (2 / fan_in) ** 0.5 * self.rng.standard_normal(shape)
        weight, steps = self.weight(values, axis=0)
        operands = [x, weight, self.bias(x, steps)]
        y = self.b.node("Conv", operands, strides=[stride] * 2, pads=pads(3), group=group)
        return self.activation(self.b.relu(y), 0.0, 4.0)

    def matmul(self, x: str, inputs: int, outputs: int) -> str:
        """A MatMul with weights quantized by column, then Add of a bias in float32."""
        values = (2 / inputs) ** 0.5 * self.rng.standard_normal((inputs, outputs))
        weight, _ = self.weight(values, axis=1)
        y = self.activation(self.b.node("MatMul", [x, weight]), -4.0, 4.0)
        return self.activation(self.b.add(y, self.b.weight(outputs, scale=0.1)), -4.0, 4.0)


def qdq(seed: int, image: int = 32) -> onnx.ModelProto:
    """Convolutions, one of them depthwise, a residual sum, the mean and two linear layers."""
    b = ModelBuilder(seed, opset=13, name="qdq")
    q = _Quantizer(b, seed)
    x = q.activation(b.input("image", (1, 3, image, image)), -4.0, 4.0)
    x = q.conv(x, 3, 16, stride=2)
    y = q.conv(x, 16, 16, group=16)
    x = q.activation(b.add(x, q.conv(y, 16, 16)), 0.0, 8.0)
    x = q.conv(x, 16, 32, stride=2)
    means = q.activation(b.node("GlobalAveragePool", [x]), 0.0, 4.0)
    flat = b.node("Reshape", [means, b.constant(np.array([1, -1], np.int64))])
    q.scales[flat] = q.scales[means]
    hidden = q.activation(b.relu(q.matmul(flat, 32, 48)), 0.0, 4.0)
    b.node("Identity", [q.matmul(hidden, 48, CLASSES)], ["logits"])
    b.output("logits", shape=(1, CLASSES))
    return b.model()
