"""ONNX's own tests of its operators on quantized tensors, with blocks, 16, 4 and 2 bits and floats
of 8 and 4 bits among them: all run by kernels, and none in onnxruntime."""

import re
from typing import Any

import onnx
import pytest
from onnx.backend.test import BackendTest

import graphflow as gf
from graphflow.api.backend import GraphflowBackend, GraphflowRep

NAMES = re.compile("quantizelinear|convinteger|matmulinteger|qlinear")
LEAST = 40
"""How many there are at least: 45 in onnx 1.23."""


class KernelsAlone(GraphflowBackend):
    """graphflow without a fallback, which refuses a node that has no kernel."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> GraphflowRep:
        options = gf.Options(workers=0, threads=1, fallback=None)
        return GraphflowRep(gf.compile(model, options=options), model)

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        return True


@pytest.mark.slow
def test_operators_on_quantized_tensors_run_by_kernels() -> None:
    """The results are the expected ones, within ONNX's tolerances."""
    cases: Any = BackendTest(KernelsAlone, __name__).test_cases["OnnxBackendNodeModelTest"]
    names = [name for name in dir(cases) if name.endswith("_cpu") and NAMES.search(name)]
    for name in names:
        getattr(cases(name), name)()
    assert len(names) >= LEAST
