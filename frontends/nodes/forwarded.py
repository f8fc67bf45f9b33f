"""Operators that are one kernel, whose definition takes their attributes as they are.

In: the function that defines the kernel, and for each of its parameters the attribute that it is.
Out: the function that makes the kernel of a node, as the tables of operators have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphflow.frontends.nodes.call import Emitter, NodeCall
from graphflow.tir import PrimFunc

REQUIRED = object()
"""In place of the default of an attribute that every node has to have."""


def forwarded(
    define: Callable[..., PrimFunc],
    inputs: int = 1,
    dtype_of: int = 0,
    **parameters: tuple[str, Any],
) -> Emitter:
    """Make the kernel `define(shape of each input…, parameter=attribute…, dtype=…)` of a node.

    The shapes are those of the first `inputs` inputs; the dtype is that of input `dtype_of`.
    `parameters` has the attribute of each parameter and its default, which is a bool where the
    attribute is 0 or 1.
    """

    def emit(call: NodeCall) -> None:
        shapes = [call.shape(k) for k in range(inputs)]
        values: dict[str, Any] = {}
        for parameter, (name, default) in parameters.items():
            if default is REQUIRED:
                values[parameter] = call.required(name)
            else:
                values[parameter] = type(default)(call.attribute(name, default))
        func = define(*shapes, **values, dtype=call.dtype(dtype_of))
        call.emit(func, call.given_inputs)

    return emit
