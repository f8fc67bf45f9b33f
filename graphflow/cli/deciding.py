"""The decisions about a model for a processor that this one need not be.

In: parsed arguments.  Out: what the compiler decides, without a program.
"""

from __future__ import annotations

import argparse

from graphflow.api.compiled_model import Decided
from graphflow.base.sizes import sizes_of
from graphflow.cli.compiling import LaterBar, onnx_model, stated
from graphflow.codegen import named_target
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest


def decided(wanted: argparse.Namespace, bar: LaterBar) -> Decided:
    """The decisions about the ONNX model, whose compilation the progress bar shows."""
    model = onnx_model(wanted.model, wanted.reseed)
    request = CompileRequest(
        model=model,
        name=model if isinstance(model, str) else None,
        sizes=sizes_of(dict(wanted.size)),
        target=named_target(wanted.target),
        **stated(wanted, wanted.shape, bar),
    )
    return Decided(compile_graph(request))
