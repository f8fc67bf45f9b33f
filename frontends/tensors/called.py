"""Kernels without statements, which stand for what a callee computes.

In: the name of a callee, and the tensors that it reads and writes.  Out: a PrimFunc with these
parameters, which the node has that stands for a foreign section or a control region.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.graph import Value
from graphflow.tir import Buffer, Param, PrimFunc, Role


def called_kernel(callee: str, inputs: Sequence[Value], outputs: Sequence[Value]) -> PrimFunc:
    """A kernel without statements, whose parameters are those of its callee."""
    params = [
        Param(Buffer(f"{letter}{number}", value.shape, value.dtype), role)
        for letter, role, values in (("x", Role.INPUT, inputs), ("y", Role.OUTPUT, outputs))
        for number, value in enumerate(values)
    ]
    return PrimFunc("foreign", tuple(params), (), callee)
