"""Float32 tensors whose elements are all float16 or bfloat16 numbers, stored in 16 bits.

In: a graph and the target.  Out: the graph in which each such tensor is stored in the 16-bit type
if that is cheaper; its readers widen each element that they load.

    before:  h = f16(v); u = f32(h); y[p] = Σ u[p + t] · w[t]
    after:   h = f16(v); y[p] = Σ f32(h[p + t]) · w[t]

If the tensor is a selection among rounded numbers, such as the result of a Clip, the rounding moves
behind the selection (`rounded.moved_roundings`), so that each element is rounded once.

What always holds: rounding changes none of these elements, and widening is exact, so the terms of
all sums are the same, bit for bit.  A tensor whose elements a reader loads many times, as a matrix
product does, stays float32: `cost.narrow_saves` compares the time that smaller memory traffic saves
with the time that widening takes.

Where a target computes in float16, constants of that type stay narrow where a sum, a difference or
a product with another number of the type is rounded to it:

    before:  u = f32(h); v[i] = u[i] + c[i]; g = f16(v)              with c in float32
    after:   u = f32(h); v[i] = u[i] + f32(d[i]); g = f16(v)         one vaddph of h and d
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from graphflow import cost, tir
from graphflow.base.dtypes import DTYPES, HALVES
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.codegen import computes_halves
from graphflow.graph.canonicalize import remove_dead
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.graph.rounded import (
    Representable,
    before_rounding,
    converted_value,
    converting_node,
    moved_as,
    rounded_to,
    stores_halves,
)
from graphflow.graph.structure import elementwise_store

WIDE, HALF = "float32", "float16"


def with_narrow_tensors(
    graph: OperatorGraph, target: Target, excess_precision: bool = False
) -> OperatorGraph:
    """The graph with tensors of 16-bit numbers stored in 16 bits where that is cheaper.

    With `excess_precision` a tensor that stays float32 is not rounded, so the price of storing it
    in 16 bits includes the rounding.
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


def with_half_constants(graph: OperatorGraph, target: Target) -> OperatorGraph:
    """The graph whose operations on float16, with a constant, have both operands in that type,
    where the target computes in it; excess precision would drop the roundings behind them.

    Rounding to float16 and widening again takes a Granite Rapids 0.6 ns for 16 lanes, which one
    operation in float16 saves.
    """
    if not stores_halves(graph) or not computes_halves(target):
        return graph
    out = graph.copy()
    known = Representable(graph)
    for node in graph.topological():
        operands = _combined(node)
        if operands is None or rounded_to(graph, node.outputs[0]) != HALF:
            continue
        constants = [value for value in operands if graph.is_constant(value)]
        if len(constants) == 1 and all(known.holds(value, HALF) for value in operands):
            read_narrow(out, constants[0], HALF, node.name)
    remove_dead(out)
    return out


def _combined(node: Node) -> tuple[str, str] | None:
    """The two float32 values of which a node makes sums, differences or products, element by
    element; None for other nodes."""
    store = elementwise_store(node.func) if node.has_definition else None
    match store:
        case tir.Store(
            value=tir.Binary("add" | "sub" | "mul", tir.Load() as left, tir.Load() as right)
        ) if left.dtype == WIDE:
            return node.bound[left.buffer.name], node.bound[right.buffer.name]
        case _:
            return None


def _may_narrow(graph: OperatorGraph, value: str) -> bool:
    """Whether `value` is a float32 tensor, computed in each run, that only reductions of kernels
    read."""
    if graph.values[value].dtype != WIDE or value in graph.outputs or graph.is_constant(value):
        return False
    readers = [reader for reader, _ in graph.consumers(value)]
    return bool(readers) and all(_reduces(reader, value) for reader in readers)


def _reduces(node: Node, value: str) -> bool:
    """Whether a kernel reads a value in a reduction.

    An elementwise reader is fused with the kernel that computes the value, which is not stored
    then.
    """
    return node.has_definition and any(
        isinstance(stmt, tir.Reduce) and node.bound.get(load.buffer.name) == value
        for stmt in tir.walk(node.func.body)
        for expr in tir.expressions_of(stmt)
        for load in tir.walk_expr(expr)
        if isinstance(load, tir.Load)
    )


def _loads(graph: OperatorGraph, value: str) -> tuple[int, int]:
    """The number of elements of a value, and the number of loads of them by all readers."""
    readers = dict.fromkeys(reader.name for reader, _ in graph.consumers(value))
    loads = sum(loads_of(graph.node(name), value) for name in readers)
    return prod(graph.values[value].shape), loads


def loads_of(reader: Node, value: str) -> int:
    """How many loads of elements of a value a node executes."""
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
    """Make all readers of a value load it in a 16-bit type and widen each element.

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
    """`store_narrow` for one reader alone; the others read the float32 value as before."""
    _read_narrow(graph, value, _narrow_source(graph, value, dtype, alone=False), (reader,))


def _read_narrow(graph: OperatorGraph, value: str, source: str, readers: Iterable[str]) -> None:
    """Make these readers of a value load `source` in its place, and widen each element."""
    dtype = graph.values[source].dtype
    for name in list(readers):
        graph.replace(name, reading_narrow(graph.node(name), {value: source}, dtype))


def reading_narrow(node: Node, sources: Mapping[str, str], dtype: str) -> Node:
    """The node with some inputs replaced: `sources` gives, by the name of an input, the value of a
    16-bit `dtype` that the node loads and widens in its place."""
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
    """The name of a tensor of type `dtype` with the elements of `value`.

    It is the tensor that `value` was widened from, an existing rounding of `value`, or a new
    tensor; a node that only moves elements is repeated in the 16-bit type.  `alone` says that
    `value` itself will have no reader any more, so that it need not be rounded.
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
    """The name of the result of a new node that moves the elements as `node` does, in a 16-bit
    type."""
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
    """If a value is a selection among rounded numbers, select among the numbers before rounding;
    the caller rounds the result of the selection."""
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
