"""Models compiled for the usual processor of tests, on one thread, to be looked at: nothing runs
them, and their kernels do nothing."""

from functools import cache
from typing import Any

from graphflow.base.options import Options
from graphflow.base.processors import PROCESSORS
from graphflow.models.zoo import zoo_model
from graphflow.pipeline.compiler import Compiled, compile_graph
from graphflow.pipeline.request import CompileRequest
from support.kernels.planned_only import code_left_out
from support.targets import USUAL


def compiled_model(model: Any) -> Compiled:
    """A compiled proto or operator graph; its convolutions are plain sums, with padded layouts."""
    options = Options(threads=1, winograd=False)
    request = CompileRequest(model, target=PROCESSORS[USUAL], options=options)
    with code_left_out():
        return compile_graph(request)


@cache
def compiled_network(name: str) -> Compiled:
    """A compiled network of the zoo."""
    return compiled_model(zoo_model(name, 0))
