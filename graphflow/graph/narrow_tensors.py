"""Tensors of rounded numbers that are stored in 16 bits for kernels that read them few times.

In: a graph, of which all elements of some float32 tensors are numbers of float16 or bfloat16, and
the target.  Out: the same, in which such a tensor is stored in that type, and its readers widen
what they load, where that is cheaper.

    before:  h = f16(v); u = f32(h); y[p] = Σ u[p + t] · w[t]
    after:   h = f16(v); y[p] = Σ f32(h[p + t]) · w[t]

If the tensor is a selection among rounded numbers, such as what Clip returns, the rounding is done
behind it (`rounded.moved_roundings`), so that each element is rounded once.

What always holds: rounding changes none of these elements, and widening is exact, so the terms of
all sums are the same, bit for bit.  Tensors that some reader loads often, as products do, stay
float32: `cost.narrow_saves` compares what moving them takes with what widening takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from graphflow import cost, tir
from graphflow.base.dtypes import DTYPES, HALVES
from graphflow.base.target import Target
from graphflow.graph.canonicalize import remove_dead
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.graph.rounded import (
    Representable,
    before_rounding,
    converted_value,
    converting_node,
    moved_as,
    stores_halves,
)
from graphflow.graph.structure import elementwise_store

WIDE = "float32"


def with_narrow_tensors(
    graph: OperatorGraph, target: Target, excess_precision: bool = False
) -> OperatorGraph:
    """The graph whose tensors of rounded numbers are stored in 16 bits where that is cheaper.

    With `excess_precision` numbers are rounded only where they are stored so, which is charged.
    """
    if not stores_halves(graph):
        return graph
    out = graph.copy()
    known = Representable(out)
    for node in out.topological():
        value = node.outputs[0]
        if not node.has_definition or len(node.outputs) > 1 or not _may_narrow(out, value):
            continue
        dtype = next((dtype for dtype in HALVES if known.holds(value, dtype)), None)
        if dtype is not None and cost.narrow_saves(*_loads(out, value), target, excess_precision):
            store_narrow(out, value, dtype)
    remove_dead(out)
    return out


def _may_narrow(graph: OperatorGraph, value: str) -> bool:
    """Whether each run computes a value of float32 for kernels alone, which reduce it."""
    if graph.values[value].dtype != WIDE or value in graph.outputs or graph.is_constant(value):
        return False
    readers = [reader for reader, _ in graph.consumers(value)]
    return bool(readers) and all(_reduces(reader, value) for reader in readers)


def _reduces(node: Node, value: str) -> bool:
    """Whether a kernel reads a value in reductions.

    An elementwise kernel is fused with what makes the value, and stores none of it.
    """
    return node.has_definition and any(
        isinstance(stmt, tir.Reduce) and node.bound.get(load.buffer.name) == value
        for stmt in tir.walk(node.func.body)
        for expr in tir.expressions_of(stmt)
        for load in tir.walk_expr(expr)
        if isinstance(load, tir.Load)
    )


def _loads(graph: OperatorGraph, value: str) -> tuple[int, int]:
    """The elements of a value, and how many elements its readers load, each as often as read."""
    readers = dict.fromkeys(reader.name for reader, _ in graph.consumers(value))
    loads = sum(loads_of(graph.node(name), value) for name in readers)
    return prod(graph.values[value].shape), loads


def loads_of(reader: Node, value: str) -> int:
    """How many elements of a value a node loads, each as often as it is read."""
    loads = 0
    for site in tir.sites(reader.func.body):
        each = sum(
            isinstance(load, tir.Load) and reader.bound.get(load.buffer.name) == value
            for expr in tir.expressions_of(site.stmt)
            for load in tir.walk_expr(expr)
        )
        loads += each * tir.iteration_count(site.domain.axes) if each else 0
    return loads


def store_narrow(graph: OperatorGraph, value: str, dtype: str) -> None:
    """Let all readers of a value read it in a type of 16 bits, and widen what they load.

    All elements of the value must be numbers of that type.
    """
    maker = graph.producer(value)
    source = _narrow_source(graph, value, dtype, alone=True)
    readers = dict.fromkeys(reader.name for reader, _ in graph.consumers(value))
    _read_narrow(graph, value, source, (n for n in readers if graph.node(n).outputs != (source,)))
    if maker is not None and not graph.consumers(value):
        graph.remove(maker.name)
        graph.remove_value(value)
        graph.removed[value] = Removed(f"its readers widen what they load of {source}", source)


def read_narrow(graph: OperatorGraph, value: str, dtype: str, reader: str) -> None:
    """As `store_narrow`, for one of the readers."""
    _read_narrow(graph, value, _narrow_source(graph, value, dtype, alone=False), (reader,))


def _read_narrow(graph: OperatorGraph, value: str, source: str, readers: Iterable[str]) -> None:
    """Let readers of a value widen what they load of `source` instead."""
    dtype = graph.values[source].dtype
    for name in list(readers):
        graph.replace(name, reading_narrow(graph.node(name), {value: source}, dtype))


def reading_narrow(node: Node, sources: Mapping[str, str], dtype: str) -> Node:
    """A node that reads other values, of a type of 16 bits, in place of some, and widens what it
    loads of these."""
    narrow = {
        buffer: replace(buffer, dtype=dtype)
        for buffer in node.func.inputs
        if node.bound[buffer.name] in sources
    }

    def change(expr: tir.Expr) -> tir.Expr:
        if isinstance(expr, tir.Load) and expr.buffer in narrow:
            return tir.Cast(tir.Load(narrow[expr.buffer], expr.indices), WIDE)
        return expr

    params = tuple(replace(p, buffer=narrow.get(p.buffer, p.buffer)) for p in node.func.params)
    func = replace(node.func, params=params, body=tir.map_expressions(node.func.body, change))
    return replace(node, func=func, inputs=tuple(sources.get(v, v) for v in node.inputs))


def _narrow_source(graph: OperatorGraph, value: str, dtype: str, alone: bool) -> str:
    """The value of a type of 16 bits whose elements are those of `value`: what it is widened from,
    or a new one.  What only moves elements moves them in that type.

    `alone` says that nothing else will read `value`, so that it need not be rounded itself.
    """
    maker = graph.producer(value)
    source = None if maker is None else converted_value(maker)
    if source is not None and graph.values[source].dtype == dtype:
        return source
    rounded = (r.outputs[0] for r, _ in graph.consumers(value) if converted_value(r) is not None)
    known = next((name for name in rounded if graph.values[name].dtype == dtype), None)
    if known is not None:
        return known
    if maker is None and graph.is_constant(value):
        name = graph.free_name(f"{value}.{dtype}")
        graph.add_initializer(name, graph.initializers[value].astype(DTYPES[dtype]))
        return name
    if maker is not None and maker.has_definition and tir.only_moves(maker.func):
        return _moved_narrow(graph, maker, dtype, alone)
    if alone:
        _select_before_rounding(graph, value, dtype)
    narrow = converting_node(graph, value, dtype)
    graph.add(narrow)
    return narrow.outputs[0]


def _moved_narrow(graph: OperatorGraph, node: Node, dtype: str, alone: bool) -> str:
    """The result of a node that moves elements, in a type of 16 bits."""
    sources: dict[str, str] = {}
    for buffer, value in zip(node.func.inputs, node.inputs, strict=True):
        if buffer.dtype == WIDE and value not in sources:
            only = alone and {reader.name for reader, _ in graph.consumers(value)} == {node.name}
            sources[value] = _narrow_source(graph, value, dtype, only)
    name = graph.free_name(f"{node.outputs[0]}.{dtype}")
    inputs = tuple(sources.get(value, value) for value in node.inputs)
    func = moved_as(node.func, dtype)
    made = graph.free_name(f"{name}.node")
    graph.add(replace(node, name=made, func=func, inputs=inputs, outputs=(name,)))
    return name


def _select_before_rounding(graph: OperatorGraph, value: str, dtype: str) -> None:
    """If a value is a selection among rounded numbers, select among them as they were: it is
    rounded behind that."""
    node = graph.producer(value)
    store = None if node is None else elementwise_store(node.func)
    if node is None or store is None or len(set(node.inputs)) != 1:
        return
    widening = graph.producer(node.inputs[0])
    rounded = None if widening is None else converted_value(widening)
    rounding = None if rounded is None else graph.producer(rounded)
    source = None if rounding is None else converted_value(rounding)
    if rounded is None or source is None:
        return
    if graph.values[rounded].dtype != dtype or graph.values[source].dtype != WIDE:
        return
    element = tir.Load(node.func.inputs[0], store.indices)
    selected = before_rounding(store.value, element, dtype)
    if selected is None:
        return

    def changed(stmt: tir.Stmt) -> tir.Body:
        return (replace(stmt, value=selected),) if stmt is store else (stmt,)

    func = replace(node.func, body=tir.map_body(node.func.body, changed))
    graph.replace(node.name, replace(node, func=func, inputs=(source,) * len(node.inputs)))
