"""ONNX models that a session has to read itself, besides the compiler.

In: a path or the bytes of a model.  Out: what was read of it.  This module imports ONNX, so a
session imports it only where it needs more of a model than its executable has.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from graphflow.frontends import OnnxModel, ReadModel, open_model


def opened_model(source: OnnxModel, dimensions: Mapping[str, int]) -> ReadModel:
    """A model as it is now, with the extents of dimensions written into its inputs, outputs and
    tensors; warns of names that no input has."""
    opened = open_model(source)
    graph, found = opened.proto.graph, set[str]()
    for infos in (graph.input, graph.output, graph.value_info):
        for info in infos:
            for dim in info.type.tensor_type.shape.dim:
                if dim.dim_param in dimensions:
                    found.add(dim.dim_param)
                    dim.dim_value = dimensions[dim.dim_param]
    if unknown := sorted(dimensions.keys() - found):
        warnings.warn(
            f"the model has no dimensions {', '.join(unknown)} to fix", stacklevel=_CALLER
        )
    return opened


_CALLER = 4
"""The frame of a session's caller, counted from the function that warns."""
