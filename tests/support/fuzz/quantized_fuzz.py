"""Random quantized models, compared with onnxruntime, which computes them as ONNX says: in floats.

In: a seed.  Out: what is wrong, and how many elements there were and how many were equal.  Targets,
threads and poison go by the seed.

A number that is half-way between two steps may be rounded to either, and layers behind it then
differ by more than one.  So where an output is further off than a step, each layer is compared by
itself: onnxruntime computes it from the quantized tensors that graphflow computed.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort
from onnx import shape_inference

import graphflow as gf
from graphflow.codegen import avx2_target, host_target
from support.fuzz.fuzz_test import Failure, Result, attempted
from support.models.quantized_models import QuantizedModel, random_quantized_model
from support.padded import normal_inputs

TARGETS = (host_target(), avx2_target())
GIVEN = ".given"
STEP = 1.001

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Agreement:
    """`far` says where results are more than a step apart; `equal` of the `elements` are the same.

    `folded` of the products were sums of integers.
    """

    far: str
    elements: int
    equal: int
    folded: int


def run_quantized(seed: int) -> Result:
    """The result of the fuzz test for a seed."""
    counts = Counter(cases=1)

    def check() -> None:
        found = agreement(seed)
        counts.update(elements=found.elements, equal=found.equal, folded=found.folded)
        if found.far:
            raise Failure("numbers", found.far)

    return Result(attempted(check), counts)


def agreement(seed: int) -> Agreement:
    """Run the model of a seed, and compare each of its outputs."""
    case = random_quantized_model(seed)
    inputs = normal_inputs(case.model, seed)
    wanted = computed(case.model, inputs, list(case.steps))
    options = gf.Options(
        threads=1 + seed % 2, workers=0, fallback=None, poison=seed % 3 == 0, cache="off"
    )
    exe = gf.compile(case.model, target=TARGETS[seed // 2 % 2], options=options)
    found = exe.run(inputs, poison=42.0) if options.poison else exe.run(inputs)
    apart = {name: _apart(found[name], wanted[name], step) for name, step in case.steps.items()}
    far = [name for name, steps in apart.items() if (steps > STEP).any()]
    return Agreement(
        _unexplained(case, inputs, found, far) if far else "",
        sum(steps.size for steps in apart.values()),
        sum(int((steps == 0).sum()) for steps in apart.values()),
        exe.report()["summary"]["integer_products"],
    )


def _apart(one: np.ndarray, other: np.ndarray, step: float) -> np.ndarray:
    return np.abs(np.float64(one) - np.float64(other)) / step


def _unexplained(case: QuantizedModel, inputs: Arrays, found: Arrays, far: list[str]) -> str:
    """What is wrong where outputs are `far` off: a layer that is more than a step off, computed
    from the same quantized tensors, or an output that differs from that of a program that returns
    these."""
    whole, cut = every_layer(case.model)
    layers = [output.name for output in whole.graph.output]
    options = gf.Options(threads=1, workers=0, fallback=None, cache="off")
    own = gf.compile(whole, options=options).run(inputs)
    given = {name + GIVEN: own[name] for name in layers if name + GIVEN in _inputs(cut)}
    wanted = computed(cut, {**inputs, **given}, layers)
    for name in layers:
        steps = _apart(own[name], wanted[name], case.steps.get(name, 1.0))
        if (steps > STEP).any():
            return f"{name} is {steps.max():.2f} steps off in {(steps > STEP).sum()} places"
    for name in far:
        steps = _apart(found[name], own[name], case.steps[name])
        if steps.max() > STEP:
            return f"{name} is {steps.max():.2f} steps off if no other layer is returned"
    return ""


def every_layer(model: onnx.ModelProto) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """The model that returns all quantized tensors, and the same in which each of them is an input
    wherever it is read."""
    whole = shape_inference.infer_shapes(model)
    stored = [n.output[0] for n in whole.graph.node if n.op_type == "QuantizeLinear"]
    known = {info.name: info for info in (*whole.graph.value_info, *whole.graph.output)}
    there = {info.name for info in whole.graph.output}
    whole.graph.output.extend(known[name] for name in stored if name not in there)
    cut = onnx.ModelProto()
    cut.CopyFrom(whole)
    for name in stored:
        info = onnx.ValueInfoProto()
        info.CopyFrom(known[name])
        info.name = name + GIVEN
        cut.graph.input.append(info)
    for node in cut.graph.node:
        node.input[:] = [name + GIVEN if name in stored else name for name in node.input]
    return whole, cut


def _inputs(model: onnx.ModelProto) -> set[str]:
    return {info.name for info in model.graph.input}


def computed(model: onnx.ModelProto, inputs: Arrays, names: list[str]) -> Arrays:
    """The outputs as onnxruntime computes them node by node."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return dict(zip(names, session.run(names, inputs), strict=True))
