"""Sizes along which every run could be cut: whether each row of a result is computed from the same
rows of the inputs alone.

In: the imported graph, and one of its sizes.  Out: why that is not proven; nothing if it is.  What
always holds: if it is proven, a run whose inputs are those of several runs, one behind the other
along that size, has their results, one behind the other, if none of its checks fails.

It is proven kernel by kernel, from the inputs on.  A tensor with rows along an axis is read and
written there by the index of one loop, on which nothing else in the statement depends.  No kernel
reads the size itself, or a number that follows from it, but to choose between a row and what stands
behind the rows of a run.  So tensors without rows are the same in all these runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from graphflow import tir
from graphflow.arith import Var
from graphflow.base.errors import ExtentsLost
from graphflow.base.fields import replace
from graphflow.frontends import passed_counts
from graphflow.graph import Node, OperatorGraph, SizeInput


def dependence_of_rows(graph: OperatorGraph, size: SizeInput) -> str:
    """Why rows along a size may depend on each other, as a sentence; empty if none does."""
    found = _Rows.of(graph, size)
    if found.computed:
        return found.computed
    for node in _nodes_of_results(graph):
        reason = found.pass_on(node)
        if reason:
            return f"node {node.name} ({node.op}): {reason}"
    for name in graph.results:
        if not found.axes.get(name):
            return f"the output {name} has no axis of this size"
    return ""


def _nodes_of_results(graph: OperatorGraph) -> list[Node]:
    """The nodes from which the results and their extents are computed, in order.  Others serve
    checks, which may fail for the whole run."""
    wanted = {*graph.results, *(trim.extents for trim in graph.trims)}
    found = []
    for node in reversed(graph.nodes):
        if not wanted.isdisjoint(node.outputs):
            wanted.update(node.inputs)
            found.append(node)
    return found[::-1]


class _Rows(Struct, frozen=True):
    """The tensors with rows: `axes` are the axes with rows of each, by name.

    `tensor` holds the size, `numbers` are the tensors that hold it or what follows from it, and
    `computed` says which extent does.
    """

    graph: OperatorGraph
    tensor: str
    numbers: frozenset[str]
    computed: str
    axes: dict[str, tuple[int, ...]]

    @staticmethod
    def of(graph: OperatorGraph, size: SizeInput) -> _Rows:
        """What the inputs of a graph have."""
        numbers = {size.tensor}
        for derived in graph.derived:
            if not numbers.isdisjoint(derived.operands):
                numbers.add(derived.tensor)
        axes: dict[str, tuple[int, ...]] = {}
        for name, axis in size.axes:
            axes[name] = (*axes.get(name, ()), axis)
        others = numbers - {size.tensor}
        computed = (
            f"an extent of {value.name} is computed from {size.size.name}"
            for value, counts in graph.counted.items()
            if not others.isdisjoint(counts.values())
        )
        return _Rows(graph, size.tensor, frozenset(numbers), next(computed, ""), axes)

    def pass_on(self, node: Node) -> str:
        """Add the rows of a node's outputs; a reason if they may depend on other rows."""
        func = self._without_choices(node)
        read = {load.buffer for load in _loads(func)}
        for name, buffer in zip(node.inputs, func.inputs, strict=True):
            if name in self.numbers and buffer in read:
                return "it computes with the size"
        given = {
            buffer: dict.fromkeys(axes, self.tensor)
            for buffer, name in _bound(node)
            if (axes := self.axes.get(name) or self._stated(name))
        }
        if not given:
            return ""
        if func.callee is not None:
            return "it is no kernel, so nothing is known of what it reads"
        try:
            passed = passed_counts(func, given, (self.tensor,))
        except ExtentsLost as error:
            return str(error)
        for name, buffer in zip(node.outputs, func.outputs, strict=True):
            self.axes[name] = tuple(passed.get(buffer, ()))
        return ""

    def _stated(self, name: str) -> tuple[int, ...]:
        """The axes of a tensor that have the size as their extent in each run."""
        counts = self.graph.counted.get(self.graph.values[name], {})
        return tuple(axis for axis, count in counts.items() if count == self.tensor)

    def _without_choices(self, node: Node) -> tir.PrimFunc:
        """The kernel with `row` in place of `select(number of the row < size, row, …)`, which is
        the same for rows that a run gives."""
        rows = {buffer: self.axes.get(name, ()) for buffer, name in _bound(node)}
        sizes = {buffer for buffer, name in _bound(node) if name == self.tensor}
        if not sizes:
            return node.func

        def change(expr: tir.Expr) -> tir.Expr:
            match expr:
                case tir.Select(
                    tir.Comparison("lt", tir.IndexValue(Var() as row), tir.Load(buffer)), chosen
                ) if buffer in sizes and row in _row_indices(chosen, rows):
                    return chosen
            return expr

        return replace(node.func, body=tir.map_expressions(node.func.body, change))


def _bound(node: Node) -> Iterator[tuple[tir.Buffer, str]]:
    """The buffers of a kernel with the tensors that they are bound to."""
    buffers = (*node.func.inputs, *node.func.outputs)
    return zip(buffers, (*node.inputs, *node.outputs), strict=True)


def _loads(func: tir.PrimFunc) -> Iterator[tir.Load]:
    for site in tir.sites(func.body):
        for value in (*tir.expressions_of(site.stmt), *site.guards):
            yield from (node for node in tir.walk_expr(value) if isinstance(node, tir.Load))


def _row_indices(expr: tir.Expr, rows: Mapping[tir.Buffer, tuple[int, ...]]) -> set[object]:
    """The indices along axes with rows in the loads of an expression."""
    loads = (node for node in tir.walk_expr(expr) if isinstance(node, tir.Load))
    return {load.indices[axis] for load in loads for axis in rows.get(load.buffer, ())}
