"""Models whose first dimension is left open, as exporters write dynamic batches."""

from __future__ import annotations

import onnx


def with_open_batch(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """A copy in which the first dimension of all inputs has a symbolic name.

    Stated shapes of outputs and inner tensors go, as they hold for one batch.
    """
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    constants = {tensor.name for tensor in opened.graph.initializer}
    for info in opened.graph.input:
        if info.name not in constants and info.type.tensor_type.shape.dim:
            info.type.tensor_type.shape.dim[0].dim_param = name
    for info in opened.graph.output:
        info.type.tensor_type.ClearField("shape")
    del opened.graph.value_info[:]
    return opened
