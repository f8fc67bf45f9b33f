"""A reduction of a whole tensor as reductions of its rows, and one of their results.

In: a graph in which kernels reduce all elements of a tensor to one.  Out: the same, in which two
kernels do.

    before:  y = max(x[i, j, k] for all i, j, k)
    after:   rows[j] = max(x[i, j, k] for all i, k); y = max(rows[j] for all j)

Threads share the rows, and nothing of one result.  `whole_reductions` finds the expansions that
undo this, among which and the two kernels prices choose.  What always holds: the operator is
associative and commutative on the type, so that the order changes nothing: a minimum, a maximum, or
a sum or a product of integers, which are computed modulo a power of two.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const, constant_value, variables
from graphflow.base.fields import replace
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.stages import Loop

SHARED = 1 << 12
"""The elements from which on reductions are split: fewer are read before a second thread is
awake."""


class ExactReduction(Struct, frozen=True):
    """The update of a kernel that only reduces, in any order, and the loops over what it reduces
    to one element, from the outermost to the innermost."""

    update: tir.Reduce
    loops: tuple[Loop, ...]

    @property
    def row(self) -> Loop | None:
        """The loop over rows: that of the last axis but one, of those with several elements.

        In images these lie apart in every layout: where channels are the innermost ones, those of a
        channel would be read with gaps.
        """
        several = [loop for loop in self.loops if loop[1] > 1]
        return several[-2] if len(several) > 1 else None


def exact_reduction(node: Node) -> ExactReduction | None:
    """What a node reduces; None where it does anything else, or the order changes results."""
    if not node.has_definition or tir.matched_variables(node.func.body):
        return None
    match [s for s in tir.walk(node.func.body) if not isinstance(s, tir.Block | tir.For)]:
        case [tir.Store(value=start), tir.Reduce() as update] if start == stages.neutral(
            update.op, update.buffer.dtype
        ) and is_exact(update):
            pass
        case _:
            return None
    loops = tuple(tir.loops_of(node.func.body))
    if any(constant_value(loop.start) != 0 for loop in loops):
        return None
    own = {var for index in update.indices for var in variables(index)}
    reduced = [(x.var, constant_value(x.stop) or 0) for x in loops if x.var not in own]
    return ExactReduction(update, tuple(reduced))


def is_exact(update: tir.Reduce) -> bool:
    """Whether the order of a reduction changes no result."""
    return update.op.selects or update.buffer.dtype not in tir.FLOATS


def split_reductions(graph: OperatorGraph) -> int:
    """Split the reductions of whole tensors in `graph`; returns their number."""
    changes = 0
    for node in graph.topological():
        found = exact_reduction(node) if _may_split(graph, node) else None
        if found is None or found.update.buffer.size > 1:
            continue
        if prod(extent for _, extent in found.loops) >= SHARED:
            changes += _split(graph, node, found)
    return changes


def _may_split(graph: OperatorGraph, node: Node) -> bool:
    """Whether each run computes a node from whole tensors."""
    if not node.outputs or node.offered or graph.is_constant(node.outputs[0]):
        return False
    return not any(graph.counted.get(graph.values[v]) for v in (*node.inputs, *node.outputs))


def _split(graph: OperatorGraph, node: Node, found: ExactReduction) -> bool:
    """Put two nodes in the place of one; returns whether the tensor has rows."""
    if found.row is None:
        return False
    update, name = found.update, node.func.name
    rows = tir.Buffer("rows", (found.row[1],), update.buffer.dtype)
    others = [loop for loop in found.loops if loop != found.row]
    (row,) = stages.loops_over("i", rows.shape)
    inner = stages.loops_over("r", [extent for _, extent in others])
    values: dict[Var, IndexExpr] = {v: new for (v, _), (new, _) in zip(others, inner, strict=True)}
    # The loops over the one element of the result, which run once, are left out.
    once = {var: const(0) for index in update.indices for var in variables(index)}
    (moved,) = tir.substitute_body((update,), {**once, **values, found.row[0]: row[0]})
    assert isinstance(moved, tir.Reduce)
    first = stages.reduction_stage(f"{name}_rows", update.op, rows, (row,), inner, moved.value)
    ends = stages.loops_over("r", rows.shape)
    own = stages.loops_over("i", update.buffer.shape)
    last = stages.reduction_stage(
        name, update.op, update.buffer, own, ends, stages.element(rows, ends)
    )
    value = graph.free_name(f"{node.outputs[0]}.rows")
    kernels = (
        stages.kernel_of_stages(f"{name}_rows", node.func.inputs, (rows,), (first,)),
        stages.kernel_of_stages(name, (rows,), node.func.outputs, (last,)),
    )
    graph.replace(
        node.name,
        replace(node, name=graph.free_name(f"{node.name}.rows"), func=kernels[0], outputs=(value,)),
        replace(node, func=kernels[1], inputs=(value,)),
    )
    return True
