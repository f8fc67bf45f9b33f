"""Calls of kernels that somebody wrote, as nodes of an operator graph.

In: kernels, or schedules of them.  Out: nodes, and graphs of one node.  What always holds: a node's
`func` says what is computed, with serial loops, one block for each nest; what its author decided
about loops is an offered kernel, and the only one that may be taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import TypeAlias

from graphflow.base.errors import VerifyError
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.schedule import Schedule
from graphflow.tir import Block, For, LoopKind, PrimFunc, loops_of, walk, with_serial_loops

Kernel: TypeAlias = "PrimFunc | Schedule"


def call(
    graph: OperatorGraph,
    kernel: Kernel,
    *inputs: str,
    outputs: Sequence[str] | None = None,
    name: str | None = None,
) -> tuple[str, ...]:
    """Adds a node that calls `kernel` on the values `inputs`; the names of its outputs.

    A schedule, and a kernel with loops that are not serial, is taken as it is written; a kernel of
    serial loops gets the forms that the compiler finds.  Outputs are called `<node>_<buffer>`
    unless `outputs` names them; the node is called as the kernel, with a number where that is
    taken.  VerifyError where the kernel is not sound or does not fit the inputs.
    """
    func, offered = _definition(kernel)
    chosen = _free_name(graph, func.name) if name is None else name
    made = [f"{chosen}_{b.name}" for b in func.outputs] if outputs is None else list(outputs)
    graph.add(
        Node(
            chosen,
            func.name,
            func,
            tuple(inputs),
            tuple(made),
            offered=offered,
            only_offered=bool(offered),
        )
    )
    return tuple(made)


def graph_of(kernel: Kernel) -> OperatorGraph:
    """A graph that calls one kernel: its inputs and outputs are the parameters, by name."""
    func, _ = _definition(kernel)
    graph = OperatorGraph()
    for buffer in func.inputs:
        graph.add_input(buffer.name, buffer.dtype, buffer.shape)
    outputs = [b.name for b in func.outputs]
    call(graph, kernel, *graph.inputs, outputs=outputs)
    graph.set_outputs(outputs)
    return graph


def in_blocks(func: PrimFunc) -> PrimFunc:
    """`func` with each loop nest of its body in a block: analyses take blocks as the stages."""
    used = {stmt.name for stmt in walk(func.body) if isinstance(stmt, Block)}
    names = (name for k in count() if (name := f"compute{k or ''}") not in used)
    body = tuple(
        Block(next(names), (stmt,)) if isinstance(stmt, For) else stmt for stmt in func.body
    )
    return replace(func, body=body)


def _definition(kernel: Kernel) -> tuple[PrimFunc, tuple[PrimFunc, ...]]:
    """What a kernel computes, and the kernels that a node of it may be made of, if stated."""
    if isinstance(kernel, Schedule):
        if kernel.func.params == kernel.definition.params:
            return in_blocks(with_serial_loops(kernel.definition)), (kernel.func,)
        return in_blocks(with_serial_loops(kernel.func)), (kernel.func,)
    if not isinstance(kernel, PrimFunc):
        raise VerifyError(
            f"a node calls a PrimFunc or a Schedule, not {type(kernel).__name__}; graphflow.kernel "
            "makes a PrimFunc of a text or a decorated function"
        )
    serial = all(loop.kind is LoopKind.SERIAL for loop in loops_of(kernel.body))
    return in_blocks(with_serial_loops(kernel)), () if serial else (kernel,)


def _free_name(graph: OperatorGraph, name: str) -> str:
    number, free = 1, name
    while free in graph:
        number += 1
        free = f"{name}{number}"
    return free
