"""Frontends: models from outside become operator graphs."""

from graphflow.frontends.importer import OPERATORS, import_model
from graphflow.frontends.load import read_model, symbolic_inputs, tensor_names

__all__ = ["OPERATORS", "import_model", "read_model", "symbolic_inputs", "tensor_names"]
