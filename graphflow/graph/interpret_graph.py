"""The reference semantics of an operator graph: its kernels, interpreted one after the other, and
the parts of its control regions in the order in which a run executes them.

In: a graph and an array for each graph input.  Out: an array for each value asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from graphflow.base.dtypes import DTYPES
from graphflow.base.errors import InvalidModel
from graphflow.base.fields import replace
from graphflow.graph.control_regions import ControlRegion
from graphflow.graph.operator_graph import OperatorGraph
from graphflow.graph.value import Array
from graphflow.tir import Param, PrimFunc, Role, interpret


def interpret_graph(
    graph: OperatorGraph, arrays: Mapping[str, Array], values: Iterable[str] | None = None
) -> dict[str, Array]:
    """The arrays of the graph outputs by name, or of `values` if these are given.

    An input that has an initializer may be left out.  Raises InvalidModel for a missing array.
    """
    memory: dict[str, Array] = {**graph.initializers, **arrays}
    missing = [name for name in graph.inputs if name not in memory]
    if missing:
        raise InvalidModel(f"no array is given for the graph inputs {', '.join(missing)}")
    for node in graph.topological():
        operands = {
            buffer.name: memory[name]
            for buffer, name in zip(node.func.inputs, node.inputs, strict=True)
        }
        region = graph.regions.get(node.func.callee or "")
        results = (
            interpret(node.func, operands)
            if region is None
            else _interpret_region(region, node.func, operands)
        )
        for buffer, name in zip(node.func.outputs, node.outputs, strict=True):
            memory[name] = results[buffer.name]
    return {name: memory[name] for name in (graph.outputs if values is None else values)}


def _interpret_region(
    region: ControlRegion[OperatorGraph], func: PrimFunc, operands: Mapping[str, Array]
) -> dict[str, Array]:
    """The arrays of the outputs of a region's node, by their buffers; `operands` has its inputs."""
    arrays = [operands[buffer.name] for buffer in func.inputs]
    slots = dict(zip(region.inputs, arrays, strict=True))
    number = 0
    while number < len(region.parts):
        part = region.parts[number]
        given = [slots[name] for name in part.inputs]
        if isinstance(part.body, PrimFunc):
            made = _interpret_kernel(part.body, given, slots.get(part.outputs[0]))
        else:
            found = interpret_graph(part.body, dict(zip(part.body.inputs, given, strict=True)))
            made = [found[name] for name in part.body.outputs]
        slots.update(zip(part.outputs, made, strict=True))
        number += 1
        if part.jump is not None and bool(slots[part.jump.flag]) is part.jump.when:
            number = part.jump.target
    names = zip(func.outputs, region.outputs, strict=True)
    # What no iteration made is there, and nothing reads it.
    return {
        b.name: slots.get(n, np.zeros(b.shape, DTYPES[b.dtype])).view(DTYPES[b.dtype])
        for b, n in names
    }


def _interpret_kernel(func: PrimFunc, given: Sequence[Array], before: Array | None) -> list[Array]:
    """The output of a region's kernel; `before` is what is there where it stores nothing."""
    (output,) = func.outputs
    # A kernel may read memory as another type of the same width.
    typed = [a.view(DTYPES[b.dtype]) for a, b in zip(given, func.inputs, strict=True)]
    arrays = dict(zip((b.name for b in func.inputs), typed, strict=True))
    empty = np.zeros(output.shape, DTYPES[output.dtype])
    arrays[output.name] = empty if before is None else before
    func = replace(func, params=(*func.params[:-1], Param(output, Role.INOUT)))
    return [interpret(func, arrays)[output.name]]
