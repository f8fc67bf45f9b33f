"""Frontends: import of ONNX models into operator graphs."""

from graphflow.frontends.call import NodeCall
from graphflow.frontends.data_extents import ExtentsLost
from graphflow.frontends.importer import (
    OPERATORS,
    OwnOperators,
    check_supported,
    import_checked,
    import_model,
)
from graphflow.frontends.load import frozen_inputs, symbolic_inputs, tensor_names
from graphflow.frontends.read import OnnxModel, open_model, read_model
from graphflow.frontends.signature import input_defaults, signature
from graphflow.frontends.sized_inputs import sized_axes
from graphflow.frontends.values import fixed_values
from graphflow.frontends.weights import ReadModel

__all__ = [
    "OPERATORS",
    "ExtentsLost",
    "NodeCall",
    "OnnxModel",
    "OwnOperators",
    "ReadModel",
    "check_supported",
    "fixed_values",
    "frozen_inputs",
    "import_checked",
    "import_model",
    "input_defaults",
    "open_model",
    "read_model",
    "signature",
    "sized_axes",
    "symbolic_inputs",
    "tensor_names",
]
