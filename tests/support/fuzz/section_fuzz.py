"""Random graphs of sections between operators that move elements: a section knows no strides.

In: a seed.  Out: a model whose `FOREIGN` operators have no kernel, and how many tensors of it were
copied for sections, after its results were compared with onnxruntime's.
"""

from unittest import mock

import numpy as np
import onnx
import onnxruntime

import graphflow as gf
from graphflow.cost import roofline
from graphflow.frontends import OPERATORS
from support.models.fuzzing import STEPS, Draft, Tensor
from support.padded import normal_inputs

FOREIGN = ("Tanh", "Mul")
"""Operators without a kernel here, of one and of two inputs."""

MOVEMENTS = ("Split", "Concat", "Slice", "Transpose", "Reshape")
MOST_STEPS = 9


def section_model(seed: int) -> onnx.ModelProto:
    """Operators of sections, of kernels and of views, each of them often behind another kind."""
    draft = Draft(seed)
    draft.keep(draft.input((draft.among((2, 4)), 4, draft.among((3, 6)))))
    for _ in range(MOST_STEPS):
        op = draft.among((*FOREIGN, *FOREIGN, "Relu", "Add", *MOVEMENTS))
        moved = STEPS[op][1](draft) if op in MOVEMENTS else None
        draft.keep(*(moved or (_pointwise(draft, op if op not in MOVEMENTS else "Relu"),)))
    return draft.model()


def _pointwise(draft: Draft, op: str) -> Tensor:
    x = draft.pick()
    assert x is not None
    others = [draft.pick(lambda t: t.shape == x.shape) or x] if op in ("Add", "Mul") else []
    return draft.emit(op, [x, *others], x.shape)


def copied_for_sections(model: onnx.ModelProto, seed: int) -> int:
    """Compares the results for inputs of a seed; how many tensors were copied for sections."""
    inputs = normal_inputs(model, seed)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    natively = {op: kernel for op, kernel in OPERATORS.items() if op not in FOREIGN}
    with (
        mock.patch.dict(OPERATORS, natively, clear=True),
        # Else a kernel that moves the elements costs less than a copy behind a view.
        mock.patch.object(roofline, "COPY_START_UP", 0.0),
    ):
        exe = gf.compile(model, options=gf.Options(threads=1, workers=0, poison=True))
    found = exe.run(inputs)
    for output, want in zip(session.get_outputs(), session.run(None, inputs), strict=True):
        np.testing.assert_allclose(
            found[output.name], want, rtol=1e-5, atol=1e-6, err_msg=f"{seed}"
        )
    return sum("in one contiguous piece" in c.because for c in exe.compiled.plan.conversions)
