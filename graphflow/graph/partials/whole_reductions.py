"""Reductions of rows and of their results at once: expansions that read a tensor in one kernel.

In: a graph with the expansions that are known.  Out: further expansions: a reduction of the partial
results of rows has one that reduces the tensor itself, and the kernel of the rows is not executed.

    before:  rows[j] = max(x[i, j, k] for all i, k); y = max(rows[j] for all j)
    after:   y = max(x[i, j, k] for all i, j, k)

Two kernels are shared by threads, and one needs no barrier.  What always holds: both reduce by the
same operator, whose order changes no result.
"""

from __future__ import annotations

from graphflow import tir
from graphflow.arith import Var, variables
from graphflow.base.fields import replace
from graphflow.graph.expansions import Expansion, Expansions
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.partials.partial_reductions import (
    ExactReduction,
    exact_reduction,
    is_exact,
)
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.stages import Loop


def reducing_at_once(known: Expansions) -> Expansions:
    """`known` and the expansions of reductions that read what the partial results are of."""
    graph = known.graph
    found: dict[str, list[Expansion]] = {}
    origins: dict[str, tuple[str, ...]] = {}
    for node in graph.nodes:
        expansion = _expansion(graph, node)
        if expansion is not None:
            found[node.name] = [expansion]
            origins.update(dict.fromkeys(expansion.absorbed, ()))
    if not found:
        return known
    return replace(known, of_node=known.adding(found), origins={**known.origins, **origins})


def _expansion(graph: OperatorGraph, node: Node) -> Expansion | None:
    """The expansion of a node that begins by reducing partial results; None where it does not."""
    if not graph.may_rewrite(node):
        return None
    for loop in tir.loops_of(node.func.body):
        match loop.body:
            case (tir.Reduce(value=tir.Load(rows, (index,))) as update,) if index is loop.var:
                value = node.bound.get(rows.name)
                maker = None if value is None else graph.producer(value)
                if maker is None or not _is_read_once(graph, maker.outputs[0], node):
                    continue
                partial = exact_reduction(maker)
                if partial is not None and is_exact(update) and partial.update.op is update.op:
                    return _at_once(node, loop, maker, partial)
    return None


def _is_read_once(graph: OperatorGraph, value: str, node: Node) -> bool:
    """Whether a node alone reads a value, once."""
    reads = [position for position, name in enumerate(node.inputs) if name == value]
    return value not in graph.outputs and len(graph.consumers(value)) == len(reads) == 1


def _at_once(node: Node, loop: tir.For, maker: Node, partial: ExactReduction) -> Expansion:
    """The node with the elements of the tensor in the place of the results of rows, which `loop`
    reduces."""
    (update,) = loop.body
    assert isinstance(update, tir.Reduce) and isinstance(update.value, tir.Load)
    taken = {each.var.name for each in tir.loops_of(node.func.body)}
    names = {buffer.name for buffer in tir.buffers_of(node.func)}
    fresh = {var: Var(stages.fresh(var.name, taken)) for var, _ in partial.loops}
    (row,) = partial.update.indices
    assert isinstance(row, Var)
    buffers = {b: replace(b, name=stages.fresh(b.name, names)) for b in maker.func.inputs}
    # The variables of the rows' kernel, and not those of the node that have the same names.
    (rows,) = tir.substitute_body((partial.update,), {row: loop.var, **fresh})
    assert isinstance(rows, tir.Reduce)
    (whole,) = tir.rename_buffers((replace(update, value=rows.value),), buffers)
    loops = [(loop.var, update.value.buffer.size)]
    loops += [(fresh[var], extent) for var, extent in partial.loops]
    nest = tir.nest(_in_memory_order(loops, whole), (whole,))

    def change(stmt: tir.Stmt) -> tir.Stmt | tuple[tir.Stmt, ...]:
        return nest if isinstance(stmt, tir.For) and stmt.var == loop.var else stmt

    bound = node.bound
    inputs = {b: bound[b.name] for b in node.func.inputs if b != update.value.buffer}
    inputs |= {buffers[b]: maker.bound[b.name] for b in maker.func.inputs}
    func = stages.with_inputs(node.func, inputs, tir.map_body(node.func.body, change))
    taking = replace(
        node,
        func=func,
        inputs=tuple(inputs.values()),
        origins=tuple(dict.fromkeys((*maker.origins, *node.origins))),
        offered=(),
        found=(),
    )
    why = f"it reduces the elements of {', '.join(maker.inputs)} themselves, in one kernel"
    return Expansion(taking, absorbed=maker.outputs, because=why)


def _in_memory_order(loops: list[Loop], update: tir.Stmt) -> list[Loop]:
    """Loops as the indices of what an update reads first follow each other."""
    first = next(tir.loads_in((update,)))
    place = {var: axis for axis, index in enumerate(first.indices) for var in variables(index)}
    return sorted(loops, key=lambda loop: place.get(loop[0], len(place)))
