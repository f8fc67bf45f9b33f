"""A model whose names contain what file formats and terminals give a meaning to."""

import numpy as np
import onnx

from graphflow.models import ModelBuilder

INPUT = 'x "quoted" \\ back\\nslash <b> {a|b} [red] %s'
INNER = "line\nbreak\ttab é ∂ 名前 \x1b[31m; -> n1"
OUTPUT = "node"


def hostile_names() -> onnx.ModelProto:
    """A padded channel count, a tensor that is copied, and a sum that masks the padding."""
    b = ModelBuilder(3)
    x = b.input(INPUT, (1, 3, 4, 4))
    e = b.node("Exp", [b.conv(x, 17, 1)], [INNER])
    total = b.node("ReduceSum", [e, b.constant(np.array([1]))], keepdims=1)
    b.output(b.node("Add", [b.conv(e, 17, 1), total], [OUTPUT]))
    return b.model()
