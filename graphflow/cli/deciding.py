"""The decisions about a model for a processor that this one need not be.

In: parsed arguments.  Out: what the compiler decides, without a program.
"""

from __future__ import annotations

import argparse

from graphflow.api.compiled_model import Decided
from graphflow.base.sizes import sizes_of
from graphflow.cli.compiling import LaterBar, once, onnx_model, options, values
from graphflow.codegen import named_target
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest


def decided(wanted: argparse.Namespace, bar: LaterBar) -> Decided:
    """The decisions about the ONNX model, whose compilation the progress bar shows."""
    model = onnx_model(wanted.model, wanted.reseed)
    request = CompileRequest(
        model=model,
        name=model if isinstance(model, str) else None,
        input_shapes={} if wanted.size else dict(wanted.shape),
        input_values=values(wanted),
        sizes=sizes_of(dict(wanted.size)),
        target=named_target(wanted.target),
        overridable=wanted.overridable,
        layouts=once("--layout", wanted.layout),
        assume=once("--assume", wanted.assume),
        options=options(wanted),
        progress=bar.stage,
        counting=bar.count,
    )
    return Decided(compile_graph(request))
