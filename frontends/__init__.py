"""Frontends: models from outside become operator graphs."""

from graphflow.frontends.importer import OPERATORS, import_model
from graphflow.frontends.load import frozen_inputs, symbolic_inputs, tensor_names
from graphflow.frontends.read import read_model

__all__ = [
    "OPERATORS",
    "frozen_inputs",
    "import_model",
    "read_model",
    "symbolic_inputs",
    "tensor_names",
]
