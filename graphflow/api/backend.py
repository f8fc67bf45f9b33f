"""graphflow as an ONNX backend, which ONNX's own test runner can drive.

In: ONNX protos, and numpy arrays in the order of the graph's inputs.  Out: a tuple of arrays in the
order of its outputs, as `onnx.backend.base` specifies.  An operator without a kernel raises
`UnsupportedOp`, so that a test runner can tell a refusal from a failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from graphflow.api.compilation import compile
from graphflow.api.executable import Executable
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.frontends import graph_types, read_model


class GraphflowRep(BackendRep):  # type: ignore[misc]
    """A compiled model that takes its inputs by position."""

    def __init__(self, exe: Executable, proto: onnx.ModelProto) -> None:
        self.executable = exe
        constants = {tensor.name for tensor in proto.graph.initializer}
        self._inputs = [i.name for i in proto.graph.input if i.name not in constants]
        self._outputs = [output.name for output in proto.graph.output]

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs in the graph's order, accessible by name too; inputs are given by position or
        by name."""
        _refuse_options(kwargs)
        results = self.executable.run(_by_name(self._inputs, inputs))
        outputs = namedtupledict("Outputs", self._outputs)
        return outputs(*(results[name] for name in self._outputs))  # type: ignore[no-any-return]


class GraphflowBackend(Backend):  # type: ignore[misc]
    """The backend that `onnx.backend.test.BackendTest` drives."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether `model` compiles."""
        try:
            cls.prepare(model, device, **kwargs)
        except UnsupportedOp:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> GraphflowRep:
        """Compile `model` for repeated runs."""
        _refuse_options(kwargs)
        if not GraphflowBackend.supports_device(device):
            raise UnsupportedOp(f"device {device} is not built; graphflow compiles for CPU only")
        proto = read_model(model)
        return GraphflowRep(compile(proto), proto)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Compile and run once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one operator; without `outputs_info` ONNX's shape inference gives the types of its
        outputs."""
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        _refuse_options(kwargs)
        names = [name for name in node.input if name]
        arrays = _by_name(names, inputs)
        given = [_info(name, np.asarray(array)) for name, array in arrays.items()]
        results = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        if outputs_info is not None:
            results = [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
                )
                for name, (dtype, shape) in zip(node.output, outputs_info, strict=True)
            ]
        graph = helper.make_graph([node], node.op_type, given, results)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        inferred = graph_types(model, check_type=False, strict_mode=False)
        return cls.prepare(inferred, device).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for `CPU` only."""
        return device.split(":")[0] == "CPU"


def _info(name: str, array: NDArray[Any]) -> onnx.ValueInfoProto:
    element = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, element, array.shape)


def _by_name(names: Sequence[str], inputs: Any) -> dict[str, Any]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    arrays = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
    if len(arrays) != len(names):
        raise InvalidModel(
            f"{len(arrays)} arrays are given for the {len(names)} inputs {', '.join(names)}"
        )
    return dict(zip(names, arrays, strict=True))


def _refuse_options(options: Mapping[str, Any]) -> None:
    if options:
        raise UnsupportedOp(f"backend options {sorted(options)} are not built; leave them out")


is_compatible = GraphflowBackend.is_compatible
prepare = GraphflowBackend.prepare
run_model = GraphflowBackend.run_model
run_node = GraphflowBackend.run_node
supports_device = GraphflowBackend.supports_device
