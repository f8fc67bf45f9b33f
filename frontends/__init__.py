"""Frontends: import of ONNX models into operator graphs."""

from graphflow.frontends.importer import (
    OPERATORS,
    OwnOperators,
    check_supported,
    import_checked,
    import_model,
)
from graphflow.frontends.nodes.call import NodeCall
from graphflow.frontends.reading.declared_model import declaration
from graphflow.frontends.reading.graph_types import graph_types
from graphflow.frontends.reading.listed_inputs import (
    ListedInput,
    ListedTypes,
    listed_inputs,
    with_tensors,
)
from graphflow.frontends.reading.load import (
    frozen_inputs,
    require_inputs,
    require_valid,
    symbolic_inputs,
    tensor_names,
)
from graphflow.frontends.reading.read import OnnxModel, open_model, read_model
from graphflow.frontends.reading.signature import input_defaults, signature
from graphflow.frontends.reading.weight_files import READ_AGAIN_BYTES, stored_part
from graphflow.frontends.reading.weights import ReadModel, StoredArray
from graphflow.frontends.tensors.data_extents import passed_counts
from graphflow.frontends.tensors.sized_inputs import sized_axes, stating_inputs
from graphflow.frontends.tensors.values import fixed_values

__all__ = [
    "OPERATORS",
    "READ_AGAIN_BYTES",
    "ListedInput",
    "ListedTypes",
    "NodeCall",
    "OnnxModel",
    "OwnOperators",
    "ReadModel",
    "StoredArray",
    "check_supported",
    "declaration",
    "fixed_values",
    "frozen_inputs",
    "graph_types",
    "import_checked",
    "import_model",
    "input_defaults",
    "listed_inputs",
    "open_model",
    "passed_counts",
    "read_model",
    "require_inputs",
    "require_valid",
    "signature",
    "sized_axes",
    "stating_inputs",
    "stored_part",
    "symbolic_inputs",
    "tensor_names",
    "with_tensors",
]
