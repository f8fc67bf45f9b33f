"""Frontends: models from outside become operator graphs."""

from graphflow.frontends.importer import OPERATORS, import_model

__all__ = ["OPERATORS", "import_model"]
