"""Add calls of kernels that a user wrote as nodes of an operator graph.

In: kernels, or schedules of them.  Out: nodes, and graphs of one node.  What always holds: a node's
`func` has serial loops and one block for each nest, and says what is computed; the loops that the
author chose are an offered kernel, and the node's only variant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TypeAlias

from graphflow.base.errors import VerifyError
from graphflow.base.fields import replace
from graphflow.base.scalar_limits import ScalarLimits
from graphflow.graph.inout_copies import output_names
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.program_kernels import program_kernel, scalar_conditions
from graphflow.kernels.recipes import on_host
from graphflow.layout import row_major
from graphflow.schedule import Schedule, parameter_layouts, require_sound
from graphflow.tir import Block, For, LoopKind, PrimFunc, loops_of, walk, with_serial_loops

Kernel: TypeAlias = "PrimFunc | Schedule"


def call(
    graph: OperatorGraph,
    kernel: Kernel,
    *inputs: str,
    outputs: Sequence[str] | None = None,
    name: str | None = None,
) -> tuple[str, ...]:
    """Add a node that calls `kernel` on the values `inputs`; returns the names of its outputs.

    A schedule, or a kernel with loops that are not serial, is taken as it is written; a kernel of
    serial loops gets the variants that recipes make.  Outputs are called `<node>_<buffer>` unless
    `outputs` names them; the node is called like the kernel, with a number appended where that name
    is taken.

    Behind the inputs of the kernel's buffers, those that it reads and writes among them, come the
    graph inputs that give its scalars, int64 tensors without axes; each run checks what the kernel
    assumes of them.  Raises VerifyError where the kernel is not sound or does not fit the inputs.
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
    _limit_scalars(graph, kernel, inputs)
    return tuple(made)


def _limit_scalars(graph: OperatorGraph, kernel: Kernel, inputs: Sequence[str]) -> None:
    """Make each run check what a kernel assumes of its scalars, which come last in `inputs`."""
    kernels = (kernel.definition, kernel.func) if isinstance(kernel, Schedule) else (kernel,)
    scalars = kernels[-1].scalars
    if not scalars:
        return
    given = inputs[len(inputs) - len(scalars) :]
    for name in given:
        if name not in graph.inputs:
            raise VerifyError(
                f"{name} gives {kernels[-1].name} a scalar and is no graph input; runs check what "
                "a kernel assumes of its scalars before they begin"
            )
    conditions = dict.fromkeys(str(c) for func in kernels for c in scalar_conditions(func))
    pairs = tuple(zip(map(str, scalars), given, strict=True))
    limits = ScalarLimits(kernels[-1].name, pairs, tuple(conditions))
    graph.scalar_limits = (*graph.scalar_limits, limits)


def graph_of(kernel: Kernel) -> OperatorGraph:
    """A graph that calls one kernel; graph inputs and outputs have the names of its parameters."""
    func, _ = _definition(kernel)
    graph = OperatorGraph()
    for buffer in func.inputs:
        graph.add_input(buffer.name, buffer.dtype, buffer.shape)
    outputs = [b.name for b in func.outputs]
    call(graph, kernel, *graph.inputs, outputs=outputs)
    graph.set_outputs(outputs)
    return graph


def nests_in_blocks(func: PrimFunc) -> PrimFunc:
    """`func` with each loop nest of its body in a block, as analyses take blocks for stages."""
    used = {stmt.name for stmt in walk(func.body) if isinstance(stmt, Block)}
    names = (name for k in count() if (name := f"compute{k or ''}") not in used)
    body = tuple(
        Block(next(names), (stmt,)) if isinstance(stmt, For) else stmt for stmt in func.body
    )
    return replace(func, body=body)


def _definition(kernel: Kernel) -> tuple[PrimFunc, tuple[PrimFunc, ...]]:
    """The compute definition of a kernel, and the kernels that are the only variants of its node.

    The second is empty for a kernel of serial loops.
    """
    if isinstance(kernel, Schedule):
        outputs = output_names(kernel)
        func = _on_host(kernel.func, outputs)
        meaning = _on_host(kernel.definition, outputs) if _keeps_parameters(kernel) else func
        return nests_in_blocks(with_serial_loops(meaning)), (func,)
    if not isinstance(kernel, PrimFunc):
        raise VerifyError(
            f"a node calls a PrimFunc or a Schedule, not {type(kernel).__name__}; graphflow.kernel "
            "makes a PrimFunc of a text or a decorated function"
        )
    kernel = _on_host(kernel, output_names(kernel))
    serial = all(loop.kind is LoopKind.SERIAL for loop in loops_of(kernel.body))
    return nests_in_blocks(with_serial_loops(kernel)), () if serial else (kernel,)


def _keeps_parameters(schedule: Schedule) -> bool:
    """Whether each parameter's elements are where those of the definition are.

    Equal shapes do not tell: a transposed square has the shape that it had.
    """
    given = (one.layout for one in parameter_layouts(schedule).values())
    return schedule.func.params == schedule.definition.params and all(
        layout == row_major(layout.logical_shape) for layout in given
    )


def _on_host(func: PrimFunc, outputs: Mapping[str, str]) -> PrimFunc:
    """The kernel with arrays alone as parameters, and without state and memories of others."""
    require_sound(func)
    return program_kernel(on_host(func), outputs)


def _free_name(graph: OperatorGraph, name: str) -> str:
    number, free = 1, name
    while free in graph:
        number += 1
        free = f"{name}{number}"
    return free
