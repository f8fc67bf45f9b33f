"""A model of some different kernels, for tests of the processes that make them.  Scripts of those
tests import this module and little else."""

from functools import cache
from hashlib import blake2b

import onnx

from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.models import ModelBuilder
from graphflow.pipeline.compiler import Compiled, compile_graph
from graphflow.pipeline.request import CompileRequest


def convolutions() -> onnx.ModelProto:
    """Some different kernels: convolutions, a pool, elementwise groups, conversions."""
    build = ModelBuilder(seed=1, name="convolutions")
    x = build.input("x", (1, 3, 9, 9))
    for channels in (5, 16, 24):
        x = build.relu(build.conv(x, channels, 3, pads=[1, 1, 1, 1]))
    build.output(build.node("Softmax", [build.node("GlobalAveragePool", [x])], axis=1))
    return build.model()


@cache
def compiled_here(target: Target) -> Compiled:
    """The model's program, made without another process."""
    return compile_graph(CompileRequest(convolutions(), target=target, options=Options(workers=0)))


def objects_digest(compiled: Compiled) -> str:
    """Equal for equal native code."""
    return blake2b(repr(compiled.spec.objects).encode()).hexdigest()
