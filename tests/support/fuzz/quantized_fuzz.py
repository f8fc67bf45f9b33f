"""Random quantized models, compared with onnxruntime, which computes them as ONNX says: in floats.

In: a seed.  Out: what is wrong, and how many elements there were and how many were equal.  Targets,
threads and poison go by the seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

import graphflow as gf
from graphflow.codegen import avx2_target, host_target
from support.models.quantized_models import QuantizedModel, random_quantized_model
from support.padded import normal_inputs

TARGETS = (host_target(), avx2_target())


@dataclass(frozen=True)
class Agreement:
    """`far` says where results are more than a step apart; `equal` of the `elements` are the
    same."""

    far: str
    elements: int
    equal: int
    integer_products: int


def agreement(seed: int) -> Agreement:
    """Run the model of a seed, and compare each of its outputs."""
    case = random_quantized_model(seed)
    inputs = normal_inputs(case.model, seed)
    wanted = reference(case, inputs)
    options = gf.Options(threads=1 + seed % 2, workers=0, fallback=None, poison=seed % 3 == 0)
    exe = gf.compile(case.model, target=TARGETS[seed // 2 % 2], options=options)
    found = exe.run(inputs, poison=42.0) if options.poison else exe.run(inputs)
    far, elements, equal = [], 0, 0
    for name, step in case.steps.items():
        apart = np.abs(np.float64(found[name]) - np.float64(wanted[name])) / step
        elements += apart.size
        equal += int((apart == 0).sum())
        if apart.size and apart.max() > 1.001:
            far.append(f"{name} is {apart.max():.2f} steps off in {(apart > 1.001).sum()} places")
    folded = exe.report()["summary"]["integer_products"]
    return Agreement("; ".join(far), elements, equal, folded)


def reference(case: QuantizedModel, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs as onnxruntime computes them node by node."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = list(case.steps)
    return dict(zip(names, session.run(names, inputs), strict=True))
