"""Constant folding at import: ONNX nodes whose inputs are all known are evaluated.

In: such nodes, of any operator.  Out: their results, computed by the reference evaluator of the
onnx package.  Small results (shapes, bounds, indices) are computed at once.  A large result whose
operator has a kernel is left to the compiled program, which computes it once when it is loaded; it
is computed here only if something at compile time depends on its contents.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import NoReturn, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.frontends.protos.inference import output_types, schema_of, tensor_type
from graphflow.frontends.protos.steps import ImportStep, subgraphs
from graphflow.graph import Array

Types: TypeAlias = "Mapping[str, onnx.TypeProto]"

SMALL = 1024
"""The most input and output elements of a node that is evaluated at once."""

LARGEST = 1 << 27
"""The most input and output elements of a node that is evaluated: 512 MiB of floats."""

LARGEST_IN_PYTHON = 1 << 16
"""The same for operators that the evaluator computes element by element, which takes about 1 s."""

SECONDS = 60.0
"""Seconds that all evaluations of one import may take together."""

RANDOM = frozenset(
    {
        "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
        "RandomUniformLike",
    }
)  # fmt: skip
"""Operators whose results differ from run to run."""

_NEVER = RANDOM | {"Dropout"}
"""Operators that are not evaluated: random ones, among them Dropout in training mode."""

_WHOLE_ARRAYS = frozenset(
    {
        "Abs", "Add", "And", "ArgMax", "ArgMin", "BitCast", "BitShift", "BitwiseAnd", "BitwiseNot",
        "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Clip", "Concat", "ConstantOfShape",
        "Cos", "Cosh", "CumSum", "DequantizeLinear", "Div", "Equal", "Exp", "Expand", "EyeLike",
        "Flatten", "Floor", "Gather", "GatherElements", "Greater", "GreaterOrEqual", "Identity",
        "IsInf", "IsNaN", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg",
        "NonZero", "Not", "OneHot", "Or", "Pad", "Pow", "QuantizeLinear", "Range", "Reciprocal",
        "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Reshape",
        "Round", "Shape", "Sigmoid", "Sign", "Sin", "Sinh", "Size", "Slice", "Softmax", "Split",
        "Sqrt", "Squeeze", "Sub", "Sum", "Tan", "Tanh", "Tile", "Transpose", "Trilu", "Unique",
        "Unsqueeze", "Where", "Xor",
    }
)  # fmt: skip
"""Operators that the evaluator computes by a fixed number of numpy calls."""

_LEFT_TO_KERNELS = frozenset({"DequantizeLinear"})
"""Operators of which small results are no constants of the graph at once: a product may read the
stored integers instead."""

_RIGHT_SINCE = {"Hardmax": 13, "LogSoftmax": 13, "Resize": 11, "RoiAlign": 16, "Softmax": 13}
"""Operators whose evaluator implements this opset and later ones only, also if an older one is
asked for."""

_NEVER_RIGHT = frozenset({"Scatter", "Upsample"})
"""Operators for which the evaluator follows ONNX in no opset."""

_WRITTEN_SINCE = {"DequantizeLinear": 19}
"""Operators that the evaluator has from this opset on; older definitions mean the same."""


@dataclass(slots=True)
class Folding:
    """The constant tensors of a model, and the nodes that are evaluated only if needed."""

    known: dict[str, Array] = field(default_factory=dict)
    """Contents by name."""
    _deferred: dict[str, ImportStep] = field(default_factory=dict)
    _seconds: float = 0.0

    def is_constant(self, name: str) -> bool:
        """Whether the contents are known, or could be computed."""
        return name in self.known or name in self._deferred

    def has_constant_inputs(self, step: ImportStep) -> bool:
        """Whether `step` gives the same results in every run."""
        for name in step.node.input:  # first what most nodes fail by
            if name and not self.is_constant(name):
                return False
        return step.node.op_type not in _NEVER and not subgraphs(step.node)

    def defer(self, step: ImportStep) -> None:
        """Record that `step` gives constants that are evaluated only if asked for; else a kernel
        does it."""
        self._deferred.update(dict.fromkeys(step.outputs, step))

    def constant(self, name: str) -> Array | None:
        """The contents of a tensor; None if a run decides them.

        Raises `UnsupportedOp` if a constant takes too much time or memory to compute.
        """
        pending = [name]
        while pending:
            top = pending[-1]
            if top in self.known or top not in self._deferred:
                pending.pop()
                continue
            step = self._deferred[top]
            missing = [other for other in step.inputs if other not in self.known]
            if missing:
                pending += missing
                continue
            self.known.update(self.evaluate(step))
        return self.known.get(name)

    def evaluate_small(self, step: ImportStep) -> dict[str, Array] | None:
        """The outputs of a step with constant inputs if evaluating it is cheap, else None.

        Cheap means few elements and an operator of few numpy calls.  Raises `UnsupportedOp` if the
        evaluator fails.
        """
        op = step.node.op_type
        if op not in _WHOLE_ARRAYS or op in _LEFT_TO_KERNELS or _is_older_than_evaluator(step):
            return None
        if any(name not in self.known for name in step.inputs):
            return None
        arrays = self._arrays(step)
        types = _inferred(step, arrays)
        elements = _elements(step, arrays, types)
        return None if elements > SMALL else self._evaluated(step, arrays, types, elements)

    def evaluate(self, step: ImportStep) -> dict[str, Array]:
        """The outputs of a step with constant inputs.

        Raises `UnsupportedOp` if the evaluator fails, or if a limit of this module is exceeded.
        """
        for name in step.inputs:
            self.constant(name)
        arrays = self._arrays(step)
        types = _inferred(step, arrays)
        return self._evaluated(step, arrays, types, _elements(step, arrays, types))

    def _evaluated(
        self, step: ImportStep, arrays: Mapping[str, Array], types: Types, elements: int
    ) -> dict[str, Array]:
        limit = LARGEST if step.node.op_type in _WHOLE_ARRAYS else LARGEST_IN_PYTHON
        if elements > limit:
            _refuse(step, f"it touches {elements} elements, more than {limit}")
        if _is_older_than_evaluator(step):
            _refuse(step, f"ONNX's reference evaluator does not follow opset {step.opset} there")
        if self._seconds > SECONDS:
            _refuse(step, f"the constants before it took more than {SECONDS:.0f} s")
        _check_division(step, arrays)
        _check_indices(step, arrays)
        start = time.perf_counter()
        try:
            return _results(step, arrays, types)
        finally:
            self._seconds += time.perf_counter() - start

    def _arrays(self, step: ImportStep) -> dict[str, Array]:
        return {name: self.known[name] for name in step.inputs}


def _refuse(step: ImportStep, reason: str) -> NoReturn:
    raise UnsupportedOp(
        f"{step}: the inputs are constants, but the result is not computed when the model is "
        f"compiled: {reason}. Store the result as an initializer"
    )


def _inferred(step: ImportStep, arrays: Mapping[str, Array]) -> Types:
    """The types of the outputs as ONNX infers them from the contents of the inputs."""
    types = {name: tensor_type(array.dtype, array.shape) for name, array in arrays.items()}
    try:
        return output_types(step, types, arrays)
    except InvalidModel as error:
        # Some of ONNX's own bodies are not as its inference wants them; kernels may take them.
        _refuse(step, str(error))


def _elements(step: ImportStep, arrays: Mapping[str, Array], types: Types) -> int:
    """An upper estimate of the elements that evaluating `step` reads and writes."""
    if schema_of(step) is None:
        return LARGEST + 1
    given = sum(array.size for array in arrays.values())
    if step.is_standard and step.node.op_type in ("Shape", "Size"):
        given = 0
    made = 0
    for type_proto in types.values():
        shape = _known_shape(type_proto)
        if shape is not None:
            made += math.prod(shape)
        else:
            # The contents decide the extent: at most each element once for each axis, or as often
            # as a number among the inputs says.
            counts = [a.reshape(()).item() for a in arrays.values() if _is_count(a)]
            made += given * max(8, *counts, 0)
    return given + made


def _known_shape(type_proto: onnx.TypeProto) -> tuple[int, ...] | None:
    tensor = type_proto.tensor_type
    dims = tensor.shape.dim
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in dims):
        return None
    return tuple(dim.dim_value for dim in dims)


def _is_older_than_evaluator(step: ImportStep) -> bool:
    op = step.node.op_type
    return step.is_standard and (op in _NEVER_RIGHT or step.opset < _RIGHT_SINCE.get(op, 0))


def _is_count(array: Array) -> bool:
    return array.size == 1 and array.dtype.kind in "iu"


def _check_division(step: ImportStep, arrays: Mapping[str, Array]) -> None:
    if step.is_standard and step.node.op_type in ("Div", "Mod"):
        divisor = arrays[step.input(1)]
        if divisor.dtype.kind in "iu" and not np.all(divisor):
            _refuse(step, "it divides integers by zero")


def _check_indices(step: ImportStep, arrays: Mapping[str, Array]) -> None:
    """GatherElements, whose evaluator takes indices modulo the extent, by adding it repeatedly."""
    if step.is_standard and step.node.op_type == "GatherElements":
        data, indices = (arrays[step.input(k)] for k in (0, 1))
        axis = step.attribute("axis", 0)
        if not indices.size or not -data.ndim <= axis < data.ndim:
            return
        extent = data.shape[axis]
        if indices.min() < -extent or indices.max() >= extent:
            _refuse(
                step, f"{step.input(1)} has indices outside of the {extent} elements of axis {axis}"
            )


def _results(step: ImportStep, arrays: Mapping[str, Array], types: Types) -> dict[str, Array]:
    made = _written_down(step, arrays, types)
    if made is None:
        made = _computed(step, arrays)
    for name, inferred in types.items():
        if name in made and not _agrees(made[name], inferred.tensor_type):
            _refuse(step, f"ONNX's reference evaluator and its type inference disagree on {name}")
    return made


def _written_down(
    step: ImportStep, arrays: Mapping[str, Array], types: Types
) -> dict[str, Array] | None:
    """The output of an operator that only reshapes or fills; None for other operators.

    The evaluator takes 0.3 ms for such a node, and exported networks have hundreds of them.
    """
    if not step.is_standard or len(step.outputs) != 1 or step.outputs[0] not in types:
        return None
    output, shape = step.outputs[0], _known_shape(types[step.outputs[0]])
    array = arrays[step.input(0)] if step.input(0) else None
    if shape is None or array is None:
        return None
    match step.node.op_type:
        case "Flatten" | "Identity" | "Reshape" | "Squeeze" | "Unsqueeze":
            return {output: array.reshape(shape)} if math.prod(shape) == array.size else None
        case "ConstantOfShape":
            tensor = step.attribute("value")
            element = np.zeros((), np.float32) if tensor is None else _element(tensor)
            return None if element is None else {output: np.full(shape, element, element.dtype)}
        case _:
            return None


def _element(tensor: onnx.TensorProto) -> Array | None:
    """The only element of a tensor; None if it has several, or if its data is damaged."""
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError):
        return None
    return array.reshape(()) if array.size == 1 and array.dtype.kind != "O" else None


def _computed(step: ImportStep, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The results of ONNX's reference evaluator."""
    function = onnx.FunctionProto(name="constant", domain="graphflow")
    function.input.extend(arrays)
    function.output.extend(step.outputs)
    function.node.append(step.node)
    opsets = dict(step.opsets)
    if step.is_standard:
        opsets[""] = max(step.opset, _WRITTEN_SINCE.get(step.node.op_type, 0))
    function.opset_import.extend(
        helper.make_opsetid(domain, version) for domain, version in opsets.items()
    )
    # Few models need it, and it takes a twentieth of the time in which the compiler is imported.
    reference = import_module("onnx.reference")
    try:
        with np.errstate(all="ignore"):
            results = reference.ReferenceEvaluator(function).run(None, dict(arrays), attributes={})
    except Exception as error:
        # The evaluator's operators raise whatever their numpy code raises.
        _refuse(step, f"ONNX's reference evaluator fails with {type(error).__name__}: {error}")
    return {name: np.asarray(result) for name, result in zip(step.outputs, results, strict=True)}


def _agrees(array: Array, inferred: onnx.TypeProto.Tensor) -> bool:
    actual = tensor_type(array.dtype, array.shape).tensor_type
    if inferred.elem_type and inferred.elem_type != actual.elem_type:
        return False
    if not inferred.HasField("shape"):
        return True
    dims = inferred.shape.dim
    return len(dims) == array.ndim and all(
        not dim.HasField("dim_value") or dim.dim_value == extent
        for dim, extent in zip(dims, array.shape, strict=True)
    )
