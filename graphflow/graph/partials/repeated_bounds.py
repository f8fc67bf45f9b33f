"""Bounds that a quantization by the range of a tensor repeats are those of the range alone.

In: a graph in which kernels quantize tensors to uint8 by the scale of their own range.  Out: the
same without the bounds of such tensors at zero and above it, where each reader has them.

    before:  v = clip(x, 0, 6)      a = max(|v[i]|)                       q = u8(clip(|v| / s))
    after:                          a = min(max(|x[i] < 0 ? 0 : x[i]|), 6)
                                    q = u8(clip(|x < 0 ? 0 : x| / s))     s = a / 255 in both

A convolution that such a tensor ends took two instructions to bound each vector of sums, which
compete with its products; what remains are maxima of integers, see `graphflow/codegen/heights.py`.
What always holds: scales and bytes keep their bits, but for bytes of what is no number.  The
largest element in bounds is the largest one, in bounds.  Where an element is above its bound h, the
scale is h / 255 but for a rounding; so h / s is 255 but for two, which rounds to the byte 255, and
what is above h saturates to it.
"""

from __future__ import annotations

from collections.abc import Set
from functools import partial
from math import inf

from graphflow import tir
from graphflow.arith import Var, constant_value
from graphflow.base.fields import replace
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.graph.partials.partial_reductions import exact_reduction
from graphflow.graph.quantized.rounded_words import rounded_value
from graphflow.graph.structure import elementwise_store
from graphflow.graph.value import Value
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.quantized import WIDE, scale_of_range
from graphflow.kernels.definitions.scalar_functions import clipped

BYTE = "uint8"
LEAST_BOUND = 2.0**-100
"""Of such a bound and more the 255th part is a normal number."""


def drop_repeated_bounds(graph: OperatorGraph) -> int:
    """Leave out the bounds of tensors that are quantized by their range; returns their number."""
    changes = 0
    for name in [node.name for node in graph.topological()]:
        # Looked up here, because an earlier step may have changed the kernel.
        node = graph.node(name)
        high = _upper_bound(node)
        end = None if high is None else _end_of_range(graph, node.outputs[0])
        if high is not None and end is not None:
            if high < inf:
                _bound_end(graph, end, high)
            _drop_bounds(graph, node)
            changes += 1
    return changes


def _upper_bound(node: Node) -> float | None:
    """The upper bound of an elementwise node that bounds its one input from zero on, infinity for
    none; None for other nodes."""
    store = elementwise_store(node.func) if node.has_definition else None
    match store:
        case tir.Store(
            value=tir.Select(tir.Comparison("lt", tir.Load() as x, tir.Literal() as low)) as value
        ) if x.dtype == WIDE and low.value == 0 and x.indices == store.indices:
            pass
        case _:
            return None
    match value.if_false:
        case tir.Select(tir.Comparison("gt", right=tir.Literal() as high)):
            enough = value == clipped(x, low, high) and float(high.value) >= LEAST_BOUND
            return float(high.value) if enough else None
        case _:
            return inf if value == clipped(x, low, None) else None


def _drop_bounds(graph: OperatorGraph, node: Node) -> None:
    """Let the readers of what a node bounds read what that is made of, and raise it to zero."""
    (source,), (result,) = node.inputs, node.outputs
    readers = dict.fromkeys(reader.name for reader, _ in graph.consumers(result))
    for name in readers:
        reader = graph.node(name)
        read = {buffer for buffer in reader.func.inputs if reader.bound[buffer.name] == result}
        body = tir.map_expressions(reader.func.body, partial(_raised, read=read))
        func = replace(reader.func, body=body)
        inputs = tuple(source if value == result else value for value in reader.inputs)
        graph.replace(name, replace(reader, func=func, inputs=inputs))
    graph.remove(node.name)
    graph.remove_value(result)
    graph.removed[result] = Removed("its readers quantize it, and bound it themselves")


def _raised(expr: tir.Expr, read: Set[tir.Buffer]) -> tir.Expr:
    """An absolute value of an element of what is `read`, of which those below zero count as it."""
    match expr:
        case tir.Unary("abs", tir.Load(buffer) as element) if buffer in read:
            return replace(expr, operand=clipped(element, tir.Literal(0.0, WIDE), None))
        case _:
            return expr


def _end_of_range(graph: OperatorGraph, value: str) -> Node | None:
    """The node that finds the largest element of a tensor, where all other readers of the tensor
    quantize it by the scale that follows from that and from a lower end of zero; else None."""
    if value in graph.outputs:
        return None
    readers = dict.fromkeys(reader.name for reader, _ in graph.consumers(value))
    nodes = [graph.node(name) for name in readers]
    ends = [node for node in nodes if _finds_largest(node)]
    quantizing = [node for node in nodes if node not in ends]
    if len(ends) != 1 or not quantizing:
        return None
    (end,) = ends
    same = all(_is_quantized(graph, node, value, end.outputs[0]) for node in quantizing)
    return end if same else None


def _finds_largest(node: Node) -> bool:
    """Whether a node finds the largest magnitude of all elements of what it reads, of which there
    are some."""
    found = exact_reduction(node)
    if found is None or found.update.buffer.size != 1:
        return False
    extents = {loop.var: constant_value(loop.stop) for loop in tir.loops_of(node.func.body)}
    match found.update:
        case tir.Reduce(op=tir.ReduceOp.MAX, value=tir.Unary("abs", tir.Load() as element)):
            indices, shape = element.indices, element.buffer.shape
            whole = all(
                isinstance(at, Var) and extents.get(at) == extent > 0
                for at, extent in zip(indices, shape, strict=True)
            )
            return whole and len({*indices}) == len(indices)
        case _:
            return False


def _is_quantized(graph: OperatorGraph, node: Node, value: str, above: str) -> bool:
    """Whether a node only rounds `value` to bytes by the scale of the range from 0 to `above`."""
    store = elementwise_store(node.func) if node.has_definition else None
    if store is None or store.buffer.dtype != BYTE or node.inputs.count(value) > 1:
        return False
    match rounded_value(store.value):
        case (tir.Binary("div", tir.Unary("abs", tir.Load() as element), tir.Load() as by), zero):
            pass
        case _:
            return False
    bound = node.bound
    scale = graph.producer(bound[by.buffer.name])
    if bound[element.buffer.name] != value or scale is None:
        return False
    match zero:
        case tir.Load(buffer) if _is_zero(graph, bound[buffer.name]):
            pass
        case None:
            pass
        case _:
            return False
    return _reaches_from_zero(graph, scale, above)


def _reaches_from_zero(graph: OperatorGraph, scale: Node, above: str) -> bool:
    """Whether a node computes the scale of the range from 0 to `above`."""
    store = elementwise_store(scale.func) if scale.has_definition else None
    bound = scale.bound
    match None if store is None else store.value:
        case (
            tir.Select(
                if_false=tir.Binary("div", tir.Binary("sub", high, tir.Unary("neg", low)))
            ) as value
        ) if value == scale_of_range(tir.Unary("neg", low), high):
            pass
        case _:
            return False
    match _reached(low), _reached(high):
        case tir.Load(lower), tir.Load(upper):
            return bound[upper.name] == above and _is_zero(graph, bound[lower.name])
        case _:
            return False


def _reached(side: tir.Expr) -> tir.Expr:
    """What an expression is, or bounds from below by zero alone."""
    match side:
        case tir.Select(if_false=end) if side == clipped(end, tir.Literal(0.0, WIDE), None):
            return end
        case _:
            return side


def _is_zero(graph: OperatorGraph, value: str) -> bool:
    """Whether all elements of a value are known to be zero before a run."""
    known = value in graph.initializers and value not in graph.inputs
    return known and not graph.initializers[value].any()


def _bound_end(graph: OperatorGraph, end: Node, high: float) -> None:
    """Let a node write the largest element to a new value, of which what it wrote is a part in
    bounds."""
    (result,) = end.outputs
    shape = graph.values[result].shape
    found = Value(graph.free_name(f"{result}.found"), WIDE, shape)
    graph.add_value(found)
    bounded = replace(
        end,
        name=graph.free_name(f"{end.name}.bounded"),
        func=elementwise.clip(shape, None, high),
        inputs=(found.name,),
        outputs=(result,),
    )
    graph.replace(end.name, replace(end, outputs=(found.name,)), bounded)
