"""Random graphs of sections between operators that move elements: a section knows no strides.

In: a seed.  Out: a model whose `FOREIGN` operators have no kernel, and how many tensors of it were
copied for sections, after its results were compared with onnxruntime's.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import graphflow as gf
from graphflow.frontends import OPERATORS

FOREIGN = ("Tanh", "Mul")
"""Operators without a kernel here, of one and of two inputs."""

NATIVE = ("Relu", "Add", "Split", "Concat", "Slice", "Transpose", "Reshape")


class Graph:
    """A model that grows node by node from `x`, with the shape of each value."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        shape = (int(self.rng.choice([2, 4])), 4, int(self.rng.choice([3, 6])))
        self.shapes: dict[str, tuple[int, ...]] = {"x": shape}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def pick(self, *items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def made(
        self, op: str, inputs: list[str], shapes: list[tuple[int, ...]], **attributes: Any
    ) -> None:
        names = [f"v{len(self.shapes) + k}" for k in range(len(shapes))]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        self.shapes |= zip(names, shapes, strict=True)

    def constant(self, values: list[int]) -> str:
        name = f"c{len(self.constants)}"
        tensor = helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
        self.constants.append(tensor)
        return name

    def grow(self) -> None:
        op = self.pick(*FOREIGN, *FOREIGN, *NATIVE)
        # Later values more often: then most of them are read.
        source = list(self.shapes)[-int(self.rng.integers(1, 4)) :][0]
        shape = self.shapes[source]
        axis = int(self.rng.integers(len(shape)))
        alike = [name for name, other in self.shapes.items() if other == shape]
        match op:
            case "Relu" | "Tanh":
                self.made(op, [source], [shape])
            case "Add" | "Mul":
                self.made(op, [source, self.pick(*alike)], [shape])
            case "Split":
                if shape[axis] % 2 == 0:
                    half = (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])
                    self.made(op, [source], [half, half], axis=axis, num_outputs=2)
            case "Concat":
                other = self.pick(*alike)
                double = (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :])
                self.made(op, [source, other], [double], axis=axis)
            case "Slice":
                if shape[axis] > 1:
                    less = (*shape[:axis], shape[axis] - 1, *shape[axis + 1 :])
                    bounds = [self.constant([v]) for v in (1, shape[axis], axis)]
                    self.made(op, [source, *bounds], [less])
            case "Transpose":
                order = [int(k) for k in self.rng.permutation(len(shape))]
                self.made(op, [source], [tuple(shape[k] for k in order)], perm=order)
            case "Reshape":
                flat = (shape[0] * shape[1], *shape[2:], 1)
                self.made(op, [source, self.constant(list(flat))], [flat])

    def model(self) -> onnx.ModelProto:
        while len(self.nodes) < 9:
            self.grow()
        read = {name for node in self.nodes for name in node.input}
        ends = [name for name in self.shapes if name not in read]
        inner = [name for name in self.shapes if name in read and name != "x"]
        if inner and self.rng.random() < 0.3:
            ends.append(self.pick(*inner))
        infos = {
            name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in self.shapes.items()
        }
        graph = helper.make_graph(
            self.nodes, "g", [infos["x"]], [infos[name] for name in ends], self.constants
        )
        return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])


def section_model(seed: int) -> onnx.ModelProto:
    model = Graph(seed).model()
    onnx.checker.check_model(model)
    return model


def copied_for_sections(model: onnx.ModelProto, seed: int) -> int:
    """Compares the results for inputs of a seed; how many tensors were copied for sections."""
    (info,) = model.graph.input
    shape = [dimension.dim_value for dimension in info.type.tensor_type.shape.dim]
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    natively = {op: kernel for op, kernel in OPERATORS.items() if op not in FOREIGN}
    with mock.patch.dict(OPERATORS, natively, clear=True):
        exe = gf.compile(model, options=gf.Options(threads=1, workers=0, poison=True))
    found = exe.run({"x": x})
    for output, want in zip(session.get_outputs(), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(
            found[output.name], want, rtol=1e-5, atol=1e-6, err_msg=f"{seed}"
        )
    return sum("in one contiguous piece" in c.because for c in exe.compiled.plan.conversions)
