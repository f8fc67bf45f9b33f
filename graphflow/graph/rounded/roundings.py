"""Roundings of elements that are numbers of the narrower type already.

In: a graph in which each tensor of a stored type, such as float16, is rounded to it, and widened
where kernels compute with it.  Out: the same without those pairs that change nothing.

    before:  h = f16(v); w = f32(h); y = Clip(w, 0, 6); g = f16(y); z = f32(g); Conv(z, …)
    after:   h = f16(v); w = f32(h); y = Clip(w, 0, 6); Conv(y, …)

With excess precision, where a user permits it, also without those that do change elements:

    after:   y = Clip(v, 0, 6); Conv(y, …)

What always holds: a widened number is one of the narrower type, and so is what selects one of such
numbers, its negative, or the largest of some: no rounding changes these.  NaN stays NaN.  What a
run stores as an output, and what anything but widening reads, is rounded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from graphflow import tir
from graphflow.base.dtypes import DTYPES, HALVES, STORED_FLOATS
from graphflow.base.fields import replace
from graphflow.graph.number_sets import Holds, NumberSet, Operation
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.graph.structure import elementwise_store
from graphflow.graph.value import Array
from graphflow.kernels.definitions.elementwise import cast

KEEPING: tuple[str, ...] = ("neg", "abs", "max", "min")
"""Operators whose results are operands, up to the sign.  So a result that is rounded is that of the
rounded operands, too."""


def stores_halves(graph: OperatorGraph) -> bool:
    """Whether any value of a graph is a float of 16 bits."""
    return any(value.dtype in HALVES for value in graph.values.values())


def drop_roundings(graph: OperatorGraph) -> int:
    """Readers of a value that is rounded and widened again read it as it was, where no rounding
    changes an element; returns the number of such values."""
    known = Representable(graph)
    changes = 0
    for name in [node.name for node in graph.topological()]:
        # Looked up here, because an earlier step may have redirected its input.
        found = _rounded_and_widened(graph, graph.node(name))
        if found is None or not known.holds(found.source, found.dtype):
            continue
        _read_unrounded(graph, found)
        reason = f"rounding to {found.dtype} changes no element of {found.source}"
        graph.removed[found.widened] = Removed(reason, found.source)
        changes += 1
    return changes


def with_excess_precision(graph: OperatorGraph) -> OperatorGraph:
    """The graph in which readers of a value that is rounded to 16 bits and widened again read it
    as it was, whatever the rounding changes.

    The values that are not rounded are in `unrounded` of the graph.
    """
    if not stores_halves(graph):
        return graph
    out = graph.copy()
    for name in [node.name for node in out.topological()]:
        if name not in out:
            continue
        found = _rounded_and_widened(out, out.node(name))
        if found is None or found.dtype not in HALVES:
            continue
        _read_unrounded(out, found)
        out.unrounded[found.source] = found.dtype
        removed = Removed(f"excess precision is allowed, so {found.source} is read unrounded")
        out.removed[found.widened] = removed
        rounding = out.producer(found.rounded)
        if rounding is not None and not _is_read(out, found.rounded):
            out.remove(rounding.name)
            out.remove_value(found.rounded)
            out.removed[found.rounded] = removed
    return out


class _Rounding(NamedTuple):
    """A value that is rounded to a narrower type, and widened again."""

    source: str
    rounded: str
    widened: str
    widening: str
    """The node that widens it."""
    dtype: str
    """The narrower type."""


def _rounded_and_widened(graph: OperatorGraph, node: Node) -> _Rounding | None:
    """What a node widens, if that was rounded from the type of the result, which is no output."""
    rounded = converted_value(node)
    rounding = None if rounded is None else graph.producer(rounded)
    source = None if rounding is None else converted_value(rounding)
    value = node.outputs[0]
    if rounded is None or source is None or value in graph.outputs:
        return None
    narrow, wide = graph.values[rounded].dtype, graph.values[value].dtype
    widens = narrow in STORED_FLOATS and graph.values[source].dtype == wide in tir.FLOATS
    if not widens or _counts_differ(graph, source, value):
        return None
    return _Rounding(source, rounded, value, node.name, narrow)


def _read_unrounded(graph: OperatorGraph, found: _Rounding) -> None:
    """Let the readers of a widened value read what was rounded."""
    graph.redirect(found.widened, found.source)
    graph.remove(found.widening)
    graph.remove_value(found.widened)


def _is_read(graph: OperatorGraph, value: str) -> bool:
    """Whether a node reads a value, or a run does."""
    return value in graph.outputs or bool(graph.consumers(value))


def _counts_differ(graph: OperatorGraph, one: str, other: str) -> bool:
    """Whether a run gives different numbers of elements of two values."""
    return graph.counted.get(graph.values[one]) != graph.counted.get(graph.values[other])


def converted_value(node: Node) -> str | None:
    """The value that a node converts to another type, element by element; None for other nodes."""
    store = elementwise_store(node.func) if node.has_definition else None
    match store:
        case tir.Store(indices=indices, value=tir.Cast(operand=tir.Load() as load)):
            return node.bound[load.buffer.name] if load.indices == indices else None
        case _:
            return None


def rounded_to(graph: OperatorGraph, value: str) -> str | None:
    """The type of 16 bits that all readers of a value round it to, element by element; None where
    there is none."""
    readers = [reader for reader, _ in graph.consumers(value)]
    dtypes = {graph.values[reader.outputs[0]].dtype for reader in readers}
    if value in graph.outputs or len(dtypes) != 1:
        return None
    (dtype,) = dtypes
    rounds = all(converted_value(reader) == value for reader in readers)
    return dtype if rounds and dtype in HALVES else None


def converting_node(graph: OperatorGraph, value: str, dtype: str) -> Node:
    """A new node that converts a value to another type; it is not in the graph yet."""
    known = graph.values[value]
    name = graph.free_name(f"{value}.{dtype}")
    graph.count_like(replace(known, name=name, dtype=dtype), value)
    func = cast(known.shape, known.dtype, dtype)
    return Node(graph.free_name(f"{name}.node"), "Cast", func, (value,), (name,))


class Representable:
    """Which values of a graph have elements that are all numbers of a narrower type."""

    def __init__(self, graph: OperatorGraph) -> None:
        self._graph = graph
        self._sets: dict[str, _NumbersOf] = {}

    def holds(self, value: str, dtype: str) -> bool:
        """Whether each element of `value` is a number of `dtype`, or NaN."""
        if dtype not in self._sets:
            self._sets[dtype] = _NumbersOf(self._graph, dtype)
        return self._sets[dtype].holds(value)


class _NumbersOf(NumberSet):
    """The numbers of a narrower type."""

    def __init__(self, graph: OperatorGraph, dtype: str) -> None:
        super().__init__(graph)
        self._dtype = dtype

    def has_all(self, array: Array) -> bool:
        return is_unchanged(array, self._dtype)

    def keeps(self, expr: Operation, holds: Holds) -> bool:
        match expr:
            case tir.Cast():
                return expr.operand.dtype == self._dtype
            case tir.Select():
                return holds(expr.if_true) and holds(expr.if_false)
            case tir.Unary():
                return expr.op in KEEPING and holds(expr.operand)
            case tir.Binary():
                return expr.op in KEEPING and holds(expr.left) and holds(expr.right)


def is_unchanged(array: Array, dtype: str) -> bool:
    """Whether rounding to `dtype` changes no element of an array, NaN aside."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = array.astype(DTYPES[dtype]).astype(array.dtype)
    return bool(np.array_equal(rounded, array, equal_nan=True))
