"""onnxruntime's results of a model, and whether every correct implementation must agree with them.

In: a model, inputs.  Out: a `Reference`: its outputs, or why they cannot be compared.  Two correct
implementations differ in rounding and in the order of sums.  A case is comparable if that is shown
not to matter, by the values that onnxruntime computes on the way:

- *Rounding.*  The model runs again with noise multiplied into every tensor, inputs included, some
  ten times as large as a rounding error, and a little added where functions saturate (there
  approximations differ absolutely).  Where outputs then differ by more than half the tolerance, or
  elsewhere are NaN or infinite, the case is ill-conditioned: a comparison of nearly equal numbers,
  a sum that cancels, an exponential about to overflow.  A case ten times less sensitive than that
  to each rounding agrees within the tolerance.
- *Order.*  Infinities and NaN in a sum give the same in any order, as long as no partial sum of
  finite terms overflows: so for each sum, that of all finite elements' sizes must stay finite,
  times the largest factor; likewise squares where squares are summed, and for products the sum of
  all logarithms.
  An overflowing product may be contracted with a sum behind it, so none may overflow.
- *Maxima.*  onnxruntime keeps a NaN in a window or a reduction depending on its position, and
  starts at the lowest number instead of −∞; what reaches them holds neither.
  (tests/system/networks/test_nan_rules.py compares those.)
- *Running sums.*  onnxruntime's LRN adds what enters a window and subtracts what leaves it, so
  that an infinity is seen by windows that do not hold it; what reaches it is finite.
- *Weights of zero.*  Whether a linear resize multiplies an element beside a sample by 0 or leaves
  it out, only an infinity tells; what reaches it is finite too.
- *ThresholdedRelu* keeps NaN (tests/frontends/operators/test_operators.py); onnxruntime makes it 0.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphflow.models import expose
from support.padded import HUGE, Array, Arrays, session

TOLERANCE = 1e-4
"""Of ‖y − y_reference‖ / ‖y_reference‖ over what is finite."""

NOISE = 2e-6
FLOOR = 1e-7
"""Of what is added behind functions that saturate."""

RUNS = 3
OVERFLOW = 3e38
ONE_WAY = ("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin")
SATURATING = ("Sigmoid", "Tanh", "Erf", "Softmax", "HardSigmoid", "Softsign")
SUMS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "ReduceSum", "ReduceMean", "ReduceL1",
        "AveragePool", "GlobalAveragePool", "Add", "Sub", "Sum", "Mean", "Resize",
        "BatchNormalization", "PRelu", "Selu", "Elu", "LeakyRelu")  # fmt: skip
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul", "PRelu")
"""Sums of products of elements of the first two operands."""

SQUARES = ("ReduceSumSquare", "ReduceL2", "LayerNormalization", "InstanceNormalization", "LRN")
CUBES = ("HardSwish", "Mish", "Softplus", "ReduceLogSumExp", "Softmax", "LogSoftmax")
"""Numbers this large in them are left to other tests: formulas differ in where they overflow."""


@dataclass(frozen=True)
class Reference:
    """Outputs by name; `refused` says why they cannot be compared, or is empty."""

    outputs: Arrays
    refused: str = ""


def difference(actual: Array, expected: Array) -> tuple[float, str]:
    """The relative error in norm, and what else differs: NaN and infinities that are elsewhere.

    Huge numbers are compared apart from the others, so that they do not drown them.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return np.inf, f"{actual.dtype}{actual.shape}, expected {expected.dtype}{expected.shape}"
    for name, test in (("NaN", np.isnan), ("+Inf", np.isposinf), ("-Inf", np.isneginf)):
        here, there = test(actual), test(expected)
        if not np.array_equal(here, there):
            return np.inf, f"{name} in {here.sum()} places, expected in {there.sum()}"
    finite = np.isfinite(expected)
    a, e = actual[finite].astype(np.float64), expected[finite].astype(np.float64)
    worst = 0.0
    for part in (np.abs(e) > HUGE, np.abs(e) <= HUGE):
        error, scale = np.linalg.norm(a[part] - e[part]), np.linalg.norm(e[part])
        worst = max(worst, float(error / (scale + 1e-30)))
    return worst, f"error {worst:.3g}"


def differs(actual: Arrays, expected: Arrays, tolerance: float = TOLERANCE) -> str:
    """Which output differs by more than the tolerance, and how; empty if none does."""
    for name, array in expected.items():
        error, text = difference(actual[name], array)
        if not error <= tolerance:
            return f"{name}: {text}"
    return ""


class Peer:
    """onnxruntime for one model: as it is, with its inner tensors, and with noise in it."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._names = [output.name for output in model.graph.output]
        self._inner = [n for node in model.graph.node for n in node.output if n not in self._names]
        self._clean = session(expose(model, self._inner))
        self._noisy, self._shapes = _with_noise(model)

    def values(self, inputs: Arrays) -> dict[str, Array]:
        """Every tensor of the model but its initializers."""
        names = [output.name for output in self._clean.get_outputs()]
        found = dict(zip(names, self._clean.run(names, dict(inputs)), strict=True))
        return {**inputs, **found}

    def reference(self, inputs: Arrays, seed: int) -> Reference:
        """The outputs for these inputs."""
        values = self.values(inputs)
        outputs = {name: values[name] for name in self._names}
        for why in _order_matters(self._model, values):
            return Reference(outputs, why)
        rng = np.random.default_rng(seed)
        for _ in range(RUNS):
            noise = {
                name: np.asarray(
                    name.startswith("noise×") + scale * rng.standard_normal(shape), np.float32
                )
                for name, (shape, scale) in self._shapes.items()
            }
            found = dict(zip(self._names, self._noisy.run(None, {**inputs, **noise}), strict=True))
            text = differs(found, outputs, TOLERANCE / 2)
            if text:
                return Reference(outputs, f"ill-conditioned: {text}")
        return Reference(outputs)


def _with_noise(model: onnx.ModelProto) -> tuple[Any, dict[str, tuple[tuple[int, ...], float]]]:
    """The model with a product (and where functions saturate a sum) behind each float tensor."""
    graph = model.graph
    types = {v.name: v.type.tensor_type for v in (*graph.input, *graph.value_info, *graph.output)}
    defaults = {tensor.name for tensor in graph.initializer}
    shapes: dict[str, tuple[tuple[int, ...], float]] = {}
    noisy: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []

    def disturb(name: str, result: str, op: str) -> None:
        shape = tuple(d.dim_value for d in types[name].shape.dim)
        shapes[f"noise×{name}"] = shape, NOISE
        if op not in SATURATING:
            nodes.append(helper.make_node("Mul", [name, f"noise×{name}"], [result]))
            return
        shapes[f"noise+{name}"] = shape, FLOOR
        nodes.append(helper.make_node("Mul", [name, f"noise×{name}"], [f"{name}~"]))
        nodes.append(helper.make_node("Add", [f"{name}~", f"noise+{name}"], [result]))

    for value in graph.input:
        if value.name not in defaults:
            noisy[value.name] = f"{value.name}.noisy"
            disturb(value.name, noisy[value.name], "")
    for node in graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [noisy.get(name, name) for name in node.input]
        nodes.append(copy)
        for name in node.output:
            if types[name].elem_type == TensorProto.FLOAT:
                noisy[name] = f"{name}.noisy"
                disturb(name, noisy[name], node.op_type)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, (shape, _) in shapes.items()
    ]
    outputs = [onnx.ValueInfoProto(name=noisy.get(o.name, o.name)) for o in graph.output]
    made = helper.make_graph(nodes, "noisy", [*graph.input, *inputs], outputs, graph.initializer)
    proto = helper.make_model(made, opset_imports=model.opset_import, ir_version=model.ir_version)
    return session(onnx.shape_inference.infer_shapes(proto)), shapes


def _order_matters(model: onnx.ModelProto, values: Arrays) -> Iterator[str]:
    """Where the order of a sum, or of what a maximum looks at, could show."""
    constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    for node in model.graph.node:
        given = [values[n] if n in values else constants[n] for n in node.input if n]
        x = given[0]
        if x.dtype != np.float32:
            continue
        if node.op_type in ONE_WAY and (np.isnan(x) | np.isneginf(x)).any():
            yield f"{node.name}: NaN or −∞ in a maximum"
        if node.op_type in ("LRN", "Resize") and not np.isfinite(x).all():
            yield f"{node.name}: NaN or ∞ in a running sum or beside a sample"
        if node.op_type == "ThresholdedRelu" and np.isnan(x).any():
            yield f"{node.name}: NaN"
        if node.op_type == "ReduceMin" and np.isposinf(x).any():
            yield f"{node.name}: ∞ in a minimum"
        if node.op_type == "ReduceProd" and _logarithms(node, x, given) > 120:
            yield f"{node.name}: a product that may overflow in some order"
        largest = max(_largest(array) for array in given if array.dtype == np.float32)
        if largest > 1e5 and _partial(node, given, values, largest) >= OVERFLOW:
            yield f"{node.name}: a sum that may overflow in some order"


def _largest(array: Array) -> float:
    finite = np.abs(array[np.isfinite(array)].astype(np.float64))
    return float(finite.max()) if finite.size else 0.0


def _total(array: Array) -> float:
    return float(np.abs(array[np.isfinite(array)].astype(np.float64)).sum())


def _factor(node: onnx.NodeProto, given: list[Array]) -> float:
    """No term of a sum is multiplied by more than this."""
    if node.op_type in PRODUCTS:
        return max(1.0, _largest(given[1]))
    if node.op_type == "BatchNormalization":
        return max(1.0, _largest(given[1])) / min(1.0, float(given[4].min())) ** 0.5
    return 2.0 if node.op_type == "Selu" else 1.0


def _logarithms(node: onnx.NodeProto, x: Array, given: list[Array]) -> float:
    """The largest sum of |log₂| over what is multiplied together."""
    sizes = np.abs(x[np.isfinite(x) & (x != 0)].astype(np.float64))
    if x.size == 0 or sizes.size == 0:
        return 0.0
    logs = np.zeros(x.shape)
    used = np.isfinite(x) & (x != 0)
    logs[used] = np.abs(np.log2(sizes))
    return float(logs.sum(axis=tuple(int(k) for k in given[1])).max())


def _partial(node: onnx.NodeProto, given: list[Array], values: Arrays, largest: float) -> float:
    """No partial sum, and no product that is summed, is larger than this."""
    if node.op_type in SUMS:
        return sum(map(_total, given)) * _factor(node, given)
    if node.op_type in SQUARES:
        return largest**2 * given[0].size
    if node.op_type in CUBES:
        return largest**3
    if node.op_type == "Mul":
        result = values[node.output[0]]
        made = np.isinf(result) & np.isfinite(given[0]) & np.isfinite(given[1])
        return np.inf if made.any() else 0.0
    return 0.0
