"""A builder of small ONNX models with seeded weights, for tests and demos.

In: one method call for each node.  Out: a checked proto.  Tensors are referred to by name, and each
method that adds a node returns the name of its result.  The same calls with the same seed give the
same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import checker, helper, numpy_helper, shape_inference

IR_VERSION = 8
"""An IR version that every onnxruntime reads with which graphflow is tested."""


class ModelBuilder:
    """A graph under construction."""

    def __init__(self, seed: int = 0, opset: int = 17, name: str = "model") -> None:
        self._rng = np.random.default_rng(seed)
        self._opset = opset
        self._name = name
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._counts: dict[str, int] = {}
        self._channels: dict[str, int] = {}

    def _fresh(self, prefix: str) -> str:
        number = self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return f"{prefix}_{number}"

    def input(self, name: str, shape: Sequence[int | str], dtype: str = "float32") -> str:
        """A graph input; a text as an extent makes that dimension symbolic."""
        elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, elem_type, list(shape)))
        if len(shape) > 1 and isinstance(shape[1], int):
            self._channels[name] = shape[1]
        return name

    def constant(self, array: ArrayLike, name: str = "") -> str:
        """An initializer."""
        name = name or self._fresh("constant")
        self._initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, *shape: int, scale: float = 1.0, dtype: str = "float32") -> str:
        """An initializer of normally distributed numbers with this standard deviation."""
        values = scale * self._rng.standard_normal(shape)
        return self.constant(values.astype(dtype), self._fresh("weight"))

    def literal(self, value: ArrayLike) -> str:
        """A Constant node, as exporters write numbers of the program that are not weights."""
        return self.node("Constant", [], value=numpy_helper.from_array(np.asarray(value)))

    def node(
        self,
        op_type: str,
        inputs: Sequence[str],
        outputs: Sequence[str] | None = None,
        **attributes: Any,
    ) -> str:
        """Add a node of any operator; returns its first output, by default called
        `<op>_<number>`."""
        names = list(outputs) if outputs else [self._fresh(op_type.lower())]
        node = helper.make_node(op_type, list(inputs), names, name=f"{names[0]}_node", **attributes)
        self._nodes.append(node)
        if inputs and inputs[0] in self._channels:
            self._channels[names[0]] = self._channels[inputs[0]]
        return names[0]

    def conv(
        self,
        x: str,
        channels: int,
        kernel: int | Sequence[int],
        *,
        in_channels: int | None = None,
        group: int = 1,
        bias: bool = True,
        gain: float = 2.0,
        **attributes: Any,
    ) -> str:
        """A 2-d convolution with random weights; `kernel` is one number or (height, width).

        Weights have the variance gain / fan-in: 2 keeps the scale of activations through Relu.
        `in_channels` is needed if the builder cannot know it, such as behind a Concat that was
        added by `node`.
        """
        kernel = (kernel, kernel) if isinstance(kernel, int) else tuple(kernel)
        depth = (in_channels or self._channels[x]) // group
        fan_in = depth * int(np.prod(kernel))
        w = self.weight(channels, depth, *kernel, scale=(gain / fan_in) ** 0.5)
        inputs = [x, w, self.weight(channels, scale=0.1)] if bias else [x, w]
        result = self.node("Conv", inputs, group=group, **attributes)
        self._channels[result] = channels
        return result

    def relu(self, x: str) -> str:
        """Relu."""
        return self.node("Relu", [x])

    def add(self, a: str, b: str) -> str:
        """Addition with broadcasting."""
        return self.node("Add", [a, b])

    def conv_transpose(self, x: str, channels: int, kernel: int, stride: int) -> str:
        """A 2-d transposed convolution with random weights and a bias, scaled for use without
        Relu."""
        depth = self._channels[x]
        # A result element is touched by kernel² / stride² taps of each channel.
        fan_in = depth * kernel**2 / stride**2
        w = self.weight(depth, channels, kernel, kernel, scale=fan_in**-0.5)
        inputs = [x, w, self.weight(channels, scale=0.1)]
        result = self.node("ConvTranspose", inputs, strides=[stride, stride])
        self._channels[result] = channels
        return result

    def linear(self, x: str, features: int, gain: float = 1.0) -> str:
        """A Gemm with random weights, stored (out, in) as exporters do, and a bias."""
        w = self.weight(features, self._channels[x], scale=(gain / self._channels[x]) ** 0.5)
        result = self.node("Gemm", [x, w, self.weight(features, scale=0.1)], transB=1)
        self._channels[result] = features
        return result

    def concat(self, *parts: str) -> str:
        """Concat of channels."""
        result = self.node("Concat", parts, axis=1)
        self._channels[result] = sum(self._channels[part] for part in parts)
        return result

    def split(self, x: str, *sizes: int) -> tuple[str, ...]:
        """Split of channels into parts of these sizes; needs opset 13 or later."""
        parts = [self._fresh("split") for _ in sizes]
        self.node("Split", [x, self.constant(np.array(sizes, np.int64))], parts, axis=1)
        self._channels |= dict(zip(parts, sizes, strict=True))
        return tuple(parts)

    def slice_channels(self, x: str, start: int, stop: int) -> str:
        """Channels `start` up to `stop`, as a Slice; needs opset 10 or later."""
        axis = 1
        limits = [self.constant(np.array([n], np.int64)) for n in (start, stop, axis)]
        result = self.node("Slice", [x, *limits])
        self._channels[result] = stop - start
        return result

    def channels(self, x: str) -> int:
        """The extent of axis 1 of a tensor that this builder made."""
        return self._channels[x]

    def set_channels(self, x: str, channels: int) -> None:
        """State the extent of axis 1 of `x` if the operator does not tell it, as behind a
        Reshape."""
        self._channels[x] = channels

    def batch_norm(self, x: str, gain: float = 1.0, **attributes: Any) -> str:
        """BatchNormalization with random parameters, scales around `gain`, variances positive."""
        channels = self._channels[x]
        scales = (gain * (1 + 0.1 * self._normal(channels))).astype(np.float32)
        scale = self.constant(scales, self._fresh("scale"))
        variance = self.constant(np.exp(0.2 * self._normal(channels)), self._fresh("variance"))
        bias, mean = self.weight(channels, scale=0.1), self.weight(channels, scale=0.1)
        return self.node("BatchNormalization", [x, scale, bias, mean, variance], **attributes)

    def _normal(self, *shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
        return self._rng.standard_normal(shape).astype(np.float32)

    def output(
        self, *names: str, shape: Sequence[int | str] | None = None, dtype: str = "float32"
    ) -> None:
        """Make tensors graph outputs, in order.

        Their types are inferred, or given by `shape` and `dtype` if inference cannot find them.
        """
        for name in names:
            info = onnx.ValueInfoProto(name=name)
            if shape is not None:
                elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
                info = helper.make_tensor_value_info(name, elem_type, list(shape))
            self._outputs.append(info)

    def model(self) -> onnx.ModelProto:
        """The checked model, with the types of its outputs inferred.

        Of the domains of its nodes other than ONNX's it imports version 1.
        """
        graph = helper.make_graph(
            self._nodes, self._name, self._inputs, self._outputs, self._initializers
        )
        others = sorted({node.domain for node in self._nodes if node.domain})
        opsets = [helper.make_opsetid("", self._opset)]
        opsets += [helper.make_opsetid(domain, 1) for domain in others]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        typed = shape_inference.infer_shapes(model, data_prop=True)
        checker.check_model(typed)
        return typed
