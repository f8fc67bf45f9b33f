"""Movement of quantized tensors: kernels that only move, or only compare, work on stored integers.

In: a graph.  Out: the same, in which fewer floats are moved.  With one scale and one zero point for
a tensor, an element is dequantized or quantized by itself, wherever it is, so that

    before:  y = move(dequantize(q))            after:  y = dequantize(move(q))
    before:  p = quantize(move(x))              after:  p = move(quantize(x))
    before:  y = max(dequantize(q), …)          after:  y = dequantize(max(q, …))
    before:  p = quantize(dequantize(q))        after:  p = q

The first three give the same bits.  A literal 0 that is moved in becomes the zero point, since
`(z − z)·s` is 0 where s is finite; where integers are only shifted, by `q − z`, also one that a run
computes.  A maximum needs a positive scale, with which dequantizing is
monotone, and that each element has something to compare.  The last needs the same scale s and zero
point on both sides: `f32(n)·s/s` is within two roundings of the integer n of at most 16 bits, if
`n·s` neither overflows nor is subnormal, hence rounds to n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from graphflow import arith, tir
from graphflow.base.dtypes import integer_limits
from graphflow.base.fields import replace
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.graph.quantized.dequantized import (
    EXACT,
    WIDE,
    Dequantized,
    Floats,
    Quantized,
    dequantized,
    equal_parameters,
    equal_scales,
    equal_zeros,
    known_floats,
    quantization,
    uniform_integer,
)
from graphflow.kernels.definitions import quantized, stages
from graphflow.kernels.definitions.movements import movement

LEAST_SCALE = 2.0**-126
MOST_SCALE = 2.0**100
"""Between these, a scale times an integer of 16 bits is a normal number."""


def move_quantized(graph: OperatorGraph) -> int:
    """Move stored integers in place of floats; returns the number of changes."""
    changes = sum(_dequantize_behind(graph, node) for node in graph.topological())
    for name in [node.name for node in reversed(graph.topological())]:
        # Looked up here, because an earlier step may have replaced or removed it.
        changes += name in graph and _quantize_before(graph, graph.node(name))
    return changes + sum(_drop_requantized(graph, node) for node in graph.topological())


def _dequantize_behind(graph: OperatorGraph, node: Node) -> bool:
    """Let a node that moves dequantized values move the integers."""
    moved = _moved_operands(node)
    if not moved or graph.is_constant(node.outputs[0]):
        return False
    known = [dequantized(graph, node.bound[buffer.name]) for buffer in moved]
    sources = [one for one in known if one is not None]
    if len(sources) < len(known) or not _fits(graph, node.func, sources[0]):
        return False
    first = sources[0]
    if not all(one.per_tensor and equal_parameters(graph, first, one) for one in sources):
        return False
    zero, zeros = _zero_point(graph, node, first)
    lowest = tir.Literal(integer_limits(first.stored.dtype)[0], first.stored.dtype)
    func = _of_integers(
        node.func, moved, first.stored.dtype, lambda value: zero if value == 0 else lowest, [*zeros]
    )
    value = node.outputs[0]
    name = graph.free_name(f"{value}.quantized")
    bound = dict(zip((b.name for b in moved), (one.source for one in sources), strict=True))
    bound |= {buffer.name: read for buffer, read in zeros.items()}
    behind = _dequantizing(graph, first, graph.free_name(f"{node.name}.dequantize"), name, value)
    graph.count_like(replace(graph.values[value], name=name, dtype=first.stored.dtype), value)
    graph.replace(node.name, _rebound(node, func, bound, name), behind)
    return True


def _zero_point(
    graph: OperatorGraph, node: Node, known: Dequantized
) -> tuple[tir.Expr, dict[tir.Buffer, str]]:
    """The zero point of a value with one for all elements, as a kernel that moves it would write
    it, and where a run computes it the parameter that it is read from, with what is bound to it."""
    number, value = uniform_integer(graph, known.zero_value), known.zero_value
    if number is not None or known.zero is None or value is None or not _has_literals(node.func):
        return tir.Literal(number or 0, known.stored.dtype), {}
    name = stages.fresh("zero", {buffer.name for buffer in tir.buffers_of(node.func)})
    buffer = replace(known.zero.buffer, name=name)
    return tir.Load(buffer, tuple(arith.const(0) for _ in buffer.shape)), {buffer: value}


def _quantize_before(graph: OperatorGraph, node: Node) -> bool:
    """Let a node that moves what one kernel quantizes move the integers."""
    moved = _moved_operands(node)
    value = node.outputs[0]
    readers = graph.consumers(value)
    if not moved or len(readers) != 1 or value in graph.outputs or graph.is_constant(value):
        return False
    behind = quantization(readers[0][0])
    if behind is None or not _is_cheaper(graph, node, moved):
        return False
    quantize = _quantizing_literals(graph, node, behind)
    if quantize is None:
        return False
    before: list[Node] = []
    bound: dict[str, str] = {}
    for buffer in moved:
        source = node.bound[buffer.name]
        made = next((n.outputs[0] for n in before if n.inputs[0] == source), None)
        if made is None:
            made = graph.free_name(f"{source}.quantized", {n.outputs[0] for n in before})
            before.append(_quantizing(graph, behind, source, made))
            stored = replace(graph.values[source], name=made, dtype=behind.target)
            graph.count_like(stored, source)
        bound[buffer.name] = made
    func = _of_integers(node.func, moved, behind.target, quantize)
    final = behind.maker.outputs[0]
    graph.remove(behind.maker.name)
    graph.replace(node.name, *before, _rebound(node, func, bound, final))
    graph.remove_value(value)
    graph.removed[value] = Removed(f"{behind.maker.op} {behind.maker.name} quantizes before it")
    return True


def _drop_requantized(graph: OperatorGraph, node: Node) -> bool:
    """A kernel that quantizes what was dequantized alike only copies."""
    behind = quantization(node)
    known = None if behind is None else dequantized(graph, node.inputs[0])
    if behind is None or known is None or known.stored.dtype != behind.target:
        return False
    if not known.per_tensor or not _same_parameters(graph, known, behind):
        return False
    scale = known_floats(graph, known.scale_value)
    if scale is None or not (LEAST_SCALE <= float(scale.reshape(-1)[0]) <= MOST_SCALE):
        return False
    copy = movement.copy(node.func.outputs[0].shape, behind.target)
    graph.replace(node.name, replace(node, func=copy, inputs=(known.source,)))
    return True


def _rebound(node: Node, func: tir.PrimFunc, bound: Mapping[str, str], output: str) -> Node:
    """The node with another kernel, with the values `bound` to its inputs in place of its own."""
    own = {**node.bound, **bound}
    inputs = tuple(own[buffer.name] for buffer in func.inputs)
    return replace(node, func=func, inputs=inputs, outputs=(output,))


def _is_cheaper(graph: OperatorGraph, node: Node, moved: Sequence[tir.Buffer]) -> bool:
    """Whether something that is computed for the node alone can be quantized where it is computed,
    and no more elements are quantized unless they are."""
    sources = {node.bound[buffer.name] for buffer in moved}
    alone = [
        value
        for value in sources
        if value not in graph.outputs
        and len(graph.consumers(value)) == 1
        and (maker := graph.producer(value)) is not None
        and not tir.only_moves(maker.func)
        and maker.func.callee is None
    ]
    size = sum(graph.values[value].size for value in sources)
    return len(alone) == len(sources) or (
        bool(alone) and size <= graph.values[node.outputs[0]].size
    )


def _fits(graph: OperatorGraph, func: tir.PrimFunc, known: Dequantized) -> bool:
    """Whether a kernel may do with integers what it does with the numbers they stand for."""
    if known.stored.buffer.bytes >= known.maker.func.outputs[0].bytes:
        return False
    if not _has_literals(func) and not _compares(func):
        return True
    if known.scale is None:  # q − z, which is 0 for z
        same = known.zero is None or known.zero.dtype == known.stored.dtype
        return same and not _compares(func) and _writes_only(func, (0,))
    scale = known_floats(graph, known.scale_value)
    if uniform_integer(graph, known.zero_value) is None or not _is_positive(scale):
        return False
    if _compares(func):
        return _writes_only(func, (0, -np.inf)) and _always_compares(func)
    return _writes_only(func, (0,))


def _writes_only(func: tir.PrimFunc, numbers: Sequence[float]) -> bool:
    """Whether all literals that a kernel writes are among some numbers."""
    return all(e.value in numbers for e in _written(func) if isinstance(e, tir.Literal))


def _quantizing_literals(
    graph: OperatorGraph, node: Node, behind: Quantized
) -> Callable[[float], tir.Expr] | None:
    """How the numbers that a kernel writes besides those it moves are quantized; None where that is
    not known, or where a maximum of quantized numbers is none of the numbers."""
    func = node.func
    if not _has_literals(func) and not _compares(func):
        return lambda value: tir.Literal(0, behind.target)
    scale = known_floats(graph, behind.scale_value)
    zero = uniform_integer(graph, behind.zero_value)
    if scale is None or zero is None or not _is_positive(scale):
        return None
    if _compares(func) and not _always_compares(func):
        return None
    lowest, highest = integer_limits(behind.target)

    def quantize(value: float) -> tir.Expr:
        quotient = np.rint(np.float32(value) / np.float32(scale.reshape(-1)[0]))
        stored = int(np.clip(quotient + np.float32(zero), lowest, highest))
        return tir.Literal(stored, behind.target)

    return quantize


def _is_positive(scale: Floats | None) -> bool:
    return scale is not None and bool(np.isfinite(scale).all() and (scale > 0).all())


def _written(func: tir.PrimFunc) -> Iterator[tir.Expr]:
    """What the statements of a kernel write, each alternative of it."""
    for write in tir.writes_in(func.body):
        yield from _parts(write.value)


def _has_literals(func: tir.PrimFunc) -> bool:
    return any(isinstance(value, tir.Literal) for value in _written(func))


def _compares(func: tir.PrimFunc) -> bool:
    return any(isinstance(write, tir.Reduce) for write in tir.writes_in(func.body))


def _moved_operands(node: Node) -> list[tir.Buffer]:
    """The inputs whose elements a kernel moves, or takes the greatest of, to its output; none where
    it does anything else with them."""
    func = node.func
    if not node.has_definition or func.outputs[0].dtype not in (WIDE, EXACT):
        return []
    writes = list(tir.writes_in(func.body))
    if any(w.buffer not in func.outputs for w in writes):
        return []
    if any(isinstance(w, tir.Reduce) and w.op is not tir.ReduceOp.MAX for w in writes):
        return []
    moved = dict[tir.Buffer, None]()
    for part in _written(func):
        match part:
            case tir.Load(buffer) if buffer in func.inputs:
                moved[buffer] = None
            case tir.Literal(value) if not np.isnan(value):
                pass
            case _:
                return []
    read = [load.buffer for load in tir.loads_in(func.body)]
    placed = [e.buffer for e in _written(func) if isinstance(e, tir.Load)]
    # What conditions or indices read has to stay what it is.
    return list(moved) if all(read.count(b) == placed.count(b) for b in moved) else []


def _parts(value: tir.Expr) -> Iterator[tir.Expr]:
    """What a value is one of."""
    if isinstance(value, tir.Select):
        yield from _parts(value.if_true)
        yield from _parts(value.if_false)
    else:
        yield value


def _always_compares(func: tir.PrimFunc) -> bool:
    """Whether each element that a kernel takes the greatest of has one to compare."""
    found = [s for s in tir.sites(func.body) if isinstance(s.stmt, tir.Reduce)]
    if len(found) != 1 or found[0].guards:
        return False
    stmt = found[0].stmt
    assert isinstance(stmt, tir.Reduce)
    names = tuple(arith.Var(f"i{axis}") for axis in range(len(stmt.buffer.shape)))
    image = arith.Image(found[0].domain, stmt.indices)
    return image.covers(arith.TRUE, names, stmt.buffer.shape).proven


def _of_integers(
    func: tir.PrimFunc,
    moved: Sequence[tir.Buffer],
    stored: str,
    quantize: Callable[[float], tir.Expr],
    added: Sequence[tir.Buffer] = (),
) -> tir.PrimFunc:
    """The kernel with its moved operands and its output of a type of integers; what stands for its
    literals may read `added` parameters."""
    exchanged = {b: replace(b, dtype=stored) for b in (*moved, *func.outputs)}

    def integers(value: tir.Expr) -> tir.Expr:
        match value:
            case tir.Select():
                sides = integers(value.if_true), integers(value.if_false)
                return tir.Select(value.condition, *sides)
            case tir.Literal(number):
                return quantize(number)
        return value

    def change(stmt: tir.Stmt) -> tir.Stmt:
        if isinstance(stmt, tir.Store | tir.Reduce):
            return replace(stmt, value=integers(stmt.value))
        return stmt

    body = tir.rename_buffers(tir.map_body(func.body, change), exchanged)
    params = tuple(replace(p, buffer=exchanged.get(p.buffer, p.buffer)) for p in func.params)
    made = tir.PrimFunc(func.name, params, body)
    return stages.with_inputs(made, (*made.inputs, *added), body) if added else made


def _dequantizing(
    graph: OperatorGraph, known: Dequantized, name: str, stored: str, value: str
) -> Node:
    """A node that dequantizes `stored` to `value`, as the maker of a known value does."""
    zero = None if known.zero is None else known.zero.buffer.shape
    shape, dtype = graph.values[value].shape, known.stored.dtype
    func = (
        quantized.shifted(shape, dtype, zero, 0)
        if known.scale is None
        else quantized.dequantize(shape, dtype, known.scale.buffer.shape, zero_shape=zero)
    )
    parameters = (v for v in (known.scale_value, known.zero_value) if v is not None)
    return Node(name, known.maker.op, func, (stored, *parameters), (value,), known.maker.origins)


def _quantizing(graph: OperatorGraph, known: Quantized, value: str, stored: str) -> Node:
    """A node that quantizes `value` to `stored`, as a known node does."""
    maker = known.maker
    func = quantized.quantize_elements(
        graph.values[value].shape,
        WIDE,
        maker.func.inputs[1].shape,
        known.target,
        zero_shape=maker.func.inputs[2].shape if len(maker.inputs) > 2 else None,
    )
    inputs = (value, *maker.inputs[1:])
    return Node(graph.free_name(f"{stored}.node"), maker.op, func, inputs, (stored,), maker.origins)


def _same_parameters(graph: OperatorGraph, known: Dequantized, behind: Quantized) -> bool:
    return equal_scales(graph, known.scale_value, behind.scale_value) and equal_zeros(
        graph, known.zero_value, behind.zero_value
    )
