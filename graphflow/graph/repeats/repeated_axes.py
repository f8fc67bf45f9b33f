"""Products read what a tensor repeats along an axis where it is not repeated.

In: a graph in which heads of keys and values are repeated for the queries that share them, as
exporters and the body of Attention write it (Unsqueeze, Expand, Reshape), and products read them.
Out: the same, in which the products, and the kernels between two of them, have an axis for the
heads of keys and one for the queries of each; reshapes around them are views.

    before:  r = repeat(k, 4); y[h, i, j] = Σ q[h, i, c] · r[h, c, j]
    after:   q' = reshape(q); y'[o, g, i, j] = Σ q'[o, g, i, c] · k[o, c, j]; y = reshape(y')

What always holds: every number is computed from the same numbers in the same order, and an axis is
split only if all that reads the repeated tensor in a sum is indexed by it, as batches are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from graphflow import arith, tir
from graphflow.base.fields import replace
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.repeats.split_axes import (
    SplitKernel,
    shortened_axis,
    split_axis,
    split_shape,
)
from graphflow.graph.structure import reads_in_place
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.movements import movement


class _Repetition(Struct, frozen=True):
    """A tensor whose neighbours along `axis`, `times` of them, are one element of `source`."""

    value: str
    axis: int
    times: int
    source: str
    indices: tuple[arith.IndexExpr, ...]
    """The element of `source`, by the variables of `loops`."""
    loops: tuple[arith.Var, ...]
    through: tuple[Node, ...] = ()
    """Elementwise nodes behind the moves, from the last to the first."""


@dataclass(slots=True)
class _Splits:
    """What is known while the kernels of a graph are split."""

    graph: OperatorGraph
    repeated: Mapping[str, _Repetition]
    tensors: dict[tuple[str, int, int], str] = field(default_factory=dict)
    """The tensor with two axes for one, by the tensor, that axis, and the elements of the inner."""
    sources: dict[str, str] = field(default_factory=dict)
    """By tensor that repeats elements, the one that has each once, with the same axes."""


def read_unrepeated(graph: OperatorGraph) -> int:
    """Let products of batches read operands unrepeated; returns how many kernels changed."""
    repeated: dict[str, _Repetition] = {}
    readers: set[str] = set()
    for node in graph.topological():
        for buffer, value in zip(node.func.inputs, node.inputs, strict=True):
            if node.has_definition and _multiplies(node.func, buffer):
                found = repeated.get(value) or _repeated_by_nodes(graph, value)
                if found is not None and _is_batch(node.func, buffer, found.axis):
                    repeated[value] = found
                    readers.add(node.name)
    if not readers:
        return 0
    splits, before, changes = _Splits(graph, repeated), _makers_of_inputs(graph, readers), 0
    for node in graph.topological():
        if node.name in readers or (node.name in before and not tir.only_moves(node.func)):
            changes += _split_node(splits, node, node.name in readers)
    return changes


def _makers_of_inputs(graph: OperatorGraph, names: set[str]) -> set[str]:
    """The nodes on which some nodes depend."""
    found: set[str] = set()
    wanted = {value for name in names for value in graph.node(name).inputs}
    for node in reversed(graph.topological()):
        if not wanted.isdisjoint(node.outputs):
            found.add(node.name)
            wanted.update(node.inputs)
    return found


# Which tensors repeat elements --------------------------------------------------------------------


def _repeated_by_nodes(graph: OperatorGraph, value: str) -> _Repetition | None:
    """What moves, and elementwise nodes behind them, make of elements that the moves repeat."""
    through: list[Node] = []
    while (node := _elementwise(graph, value)) is not None:
        through.append(node)
        value = node.inputs[0]
    found = _repeated(graph, value)
    if found is None:
        return None
    for node in through:
        kernel = shortened_axis(node.func, node.func.inputs[0], found.axis, 1)
        if kernel is None or kernel.axes.keys() != {node.func.inputs[0], node.func.outputs[0]}:
            return None
    return replace(found, through=tuple(through))


def _elementwise(graph: OperatorGraph, value: str) -> Node | None:
    """The node that computes each element of `value` of the same one of its first operand."""
    maker = graph.producer(value)
    if maker is None or not maker.has_definition or not maker.inputs:
        return None
    moves = tir.only_moves(maker.func) or graph.is_constant(value)
    return maker if not moves and reads_in_place(maker.func, 0) else None


def _repeated(graph: OperatorGraph, value: str) -> _Repetition | None:
    """What moves make of elements that they repeat along one axis; None if they do not.

    The source is what the first move reads that repeats any, or that tensor without axes of one
    element.
    """
    loops = tuple(arith.Var(f"i{axis}") for axis in range(len(graph.values[value].shape)))
    source, indices = value, tuple[arith.IndexExpr, ...](loops)
    found: _Repetition | None = None
    while (move := _move_to(graph, source)) is not None:
        earlier, places, stored = move
        at = dict(zip(stored, indices, strict=True))
        before, indices = indices, tuple(arith.substitute(place, at) for place in places)
        if found is not None and _not_constant(indices) != _not_constant(before):
            break
        source = earlier
        found = _repetition(graph, value, source, indices, loops) or found
    return found


def _not_constant(indices: tuple[arith.IndexExpr, ...]) -> list[arith.IndexExpr]:
    return [index for index in indices if arith.constant_value(index) is None]


def _move_to(
    graph: OperatorGraph, value: str
) -> tuple[str, tuple[arith.IndexExpr, ...], tuple[arith.Var, ...]] | None:
    """The tensor from which one move makes all of `value`, the index of the element that it loads,
    and the variables of the element that it stores."""
    maker = graph.producer(value)
    if maker is None or not graph.may_rewrite(maker):
        return None
    moves = tir.moves_of(maker.func)
    store = tir.in_order_store(maker.func.body, maker.func.outputs[0].shape)
    if moves is None or store is None or len(moves) != 1:
        return None
    load = moves[0][1]
    variables = tuple(index for index in store.indices if isinstance(index, arith.Var))
    return maker.bound[load.buffer.name], load.indices, variables


def _repetition(
    graph: OperatorGraph,
    value: str,
    source: str,
    indices: tuple[arith.IndexExpr, ...],
    loops: tuple[arith.Var, ...],
) -> _Repetition | None:
    """Whether `indices` of `source` are the variables of `value`, but one of them divided or
    missing."""
    shape = graph.values[value].shape
    free = {var for var, extent in zip(loops, shape, strict=True) if extent > 1}
    divided: dict[arith.Var, int] = {}
    for index in _not_constant(indices):
        var = index.numerator if isinstance(index, arith.FloorDiv) else index
        if not isinstance(var, arith.Var) or var not in free:
            return None
        free.remove(var)
        if isinstance(index, arith.FloorDiv):
            divided[var] = index.divisor
    divided |= {var: shape[loops.index(var)] for var in free}
    if len(divided) != 1:
        return None
    ((var, times),) = divided.items()
    axis = loops.index(var)
    if shape[axis] % times or axis in graph.counted.get(graph.values[value], {}):
        return None
    return _Repetition(value, axis, times, source, indices, loops)


# Which kernels multiply batches -------------------------------------------------------------------


def _sums_of(func: tir.PrimFunc, buffer: tir.Buffer) -> Iterator[tuple[tir.Reduce, list[tir.Load]]]:
    """The sums of a kernel whose terms load a buffer, with all that these load."""
    for stmt in tir.walk(func.body):
        if isinstance(stmt, tir.Reduce):
            loads = [e for e in tir.walk_expr(stmt.value) if isinstance(e, tir.Load)]
            if any(load.buffer == buffer for load in loads):
                yield stmt, loads


def _multiplies(func: tir.PrimFunc, buffer: tir.Buffer) -> bool:
    """Whether a kernel adds up terms of a buffer and of another one."""
    return any(len({load.buffer for load in loads}) > 1 for _, loads in _sums_of(func, buffer))


def _is_batch(func: tir.PrimFunc, buffer: tir.Buffer, axis: int) -> bool:
    """Whether all sums with terms of a buffer are indexed as `axis` of it, and so all of their
    terms."""
    for stmt, loads in _sums_of(func, buffer):
        places = {load.indices[axis] for load in loads if load.buffer == buffer}
        accesses = (stmt.indices, *(load.indices for load in loads))
        if not all(places.issubset(indices) for indices in accesses):
            return False
    return True


# The kernels that are split -----------------------------------------------------------------------


def _split_node(splits: _Splits, node: Node, reads_repeated: bool) -> bool:
    """Split an axis of a node that reads a repeated tensor, or one that was split."""
    for buffer, value in zip(node.func.inputs, node.inputs, strict=True):
        known = splits.repeated.get(value) if reads_repeated else None
        pairs = [(known.axis, known.times)] if known is not None else []
        pairs += [(axis, times) for name, axis, times in splits.tensors if name == value]
        for axis, times in pairs:
            kernel = split_axis(node.func, buffer, axis, times)
            if kernel is not None and _fits(splits.graph, node, kernel):
                _exchange(splits, node, kernel, times)
                return True
    return False


def _fits(graph: OperatorGraph, node: Node, kernel: SplitKernel) -> bool:
    """Whether a run gives all of each axis that is split, and the output has one."""
    (output,) = node.func.outputs
    values = {**node.bound, output.name: node.outputs[0]}
    for buffer, axis in kernel.axes.items():
        if buffer.name in values and axis in graph.counted.get(
            graph.values[values[buffer.name]], {}
        ):
            return False
    return output in kernel.axes


def _exchange(splits: _Splits, node: Node, kernel: SplitKernel, times: int) -> None:
    """Put a split kernel in the place of a node, between reshapes."""
    graph, func = splits.graph, kernel.func
    new: list[Node] = []
    inputs: list[str] = []
    for old, buffer, value in zip(node.func.inputs, func.inputs, node.inputs, strict=True):
        axis = kernel.axes.get(old)
        known = splits.repeated.get(value)
        if axis is None:
            inputs.append(value)
        elif known is not None and (known.axis, known.times) == (axis, times):
            func = _reading_once(func, buffer, axis)
            inputs.append(_unrepeated(splits, value, new))
        else:
            inputs.append(_split_tensor(splits, value, axis, times, new))
    (result,), made = node.outputs, func.outputs[0]
    axis = kernel.axes[node.func.outputs[0]]
    name = splits.tensors[result, axis, times] = graph.free_name(f"{result}.split")
    _count(graph, name, made.dtype, made.shape, result, axis)
    whole = graph.values[result]
    back = movement.reshape(made.shape, whole.shape, whole.dtype)
    merge = Node(graph.free_name(f"{node.name}.merge"), "Reshape", back, (name,), (result,))
    graph.replace(
        node.name, *new, replace(node, func=func, inputs=tuple(inputs), outputs=(name,)), merge
    )


def _reading_once(func: tir.PrimFunc, buffer: tir.Buffer, axis: int) -> tir.PrimFunc:
    """A kernel that reads a buffer without its axis behind `axis`, along which it repeats."""
    shape = (*buffer.shape[: axis + 1], *buffer.shape[axis + 2 :])
    once = replace(buffer, shape=shape)
    body = tir.redirect_accesses(
        func.body, buffer, once, lambda at: (*at[: axis + 1], *at[axis + 2 :])
    )
    params = tuple(replace(p, buffer=once) if p.buffer == buffer else p for p in func.params)
    return replace(func, params=params, body=body)


def _unrepeated(splits: _Splits, value: str, new: list[Node]) -> str:
    """The tensor that has each element of `value` once, with nodes in `new` where they make it."""
    if value not in splits.sources:
        known = splits.repeated[value]
        name = _moved_once(splits, known, new)
        for node in reversed(known.through):
            name = _computed_once(splits, node, known, name, new)
        splits.sources[value] = name
    return splits.sources[value]


def _moved_once(splits: _Splits, known: _Repetition, new: list[Node]) -> str:
    """What the moves of a repetition make of its source without it."""
    graph = splits.graph
    moved = known.through[-1].inputs[0] if known.through else known.value
    whole, source = graph.values[moved], graph.values[known.source]
    shape = _once(whole.shape, known)
    var = known.loops[known.axis]
    once = {var: arith.weighted(((var, known.times),))}
    indices = tuple(arith.substitute(index, once) for index in known.indices)
    if indices == known.loops and source.shape == shape:
        return known.source
    x, y = tir.Buffer("x", source.shape, source.dtype), tir.Buffer("y", shape, whole.dtype)
    loops = tuple(zip(known.loops, shape, strict=True))
    func = stages.elementwise_kernel("unrepeated", (x,), y, loops, tir.Load(x, indices))
    maker = graph.producer(moved)
    assert maker is not None  # one of the moves
    return _added(splits, Node("", maker.op, func, (known.source,), (moved,)), known, new)


def _computed_once(
    splits: _Splits, node: Node, known: _Repetition, operand: str, new: list[Node]
) -> str:
    """What an elementwise node makes of an operand without its repetition."""
    buffer = node.func.inputs[0]
    count = buffer.shape[known.axis] // known.times
    kernel = shortened_axis(node.func, buffer, known.axis, count)
    assert kernel is not None  # as found
    inputs = (operand, *node.inputs[1:])
    return _added(splits, replace(node, func=kernel.func, inputs=inputs), known, new)


def _added(splits: _Splits, node: Node, known: _Repetition, new: list[Node]) -> str:
    """The output of a node that makes its tensor without a repetition, which is put into `new`."""
    graph, whole = splits.graph, splits.graph.values[node.outputs[0]]
    name = graph.free_name(f"{whole.name}.once", {n.outputs[0] for n in new})
    graph.count_like(replace(whole, name=name, shape=_once(whole.shape, known)), whole.name)
    new.append(replace(node, name=graph.free_name(f"{name}.node"), outputs=(name,)))
    return name


def _once(shape: tuple[int, ...], known: _Repetition) -> tuple[int, ...]:
    """A shape without a repetition along one axis."""
    axis = known.axis
    return (*shape[:axis], shape[axis] // known.times, *shape[axis + 1 :])


def _split_tensor(splits: _Splits, value: str, axis: int, times: int, new: list[Node]) -> str:
    """`value` with two axes in place of one, with a node in `new` where one makes it."""
    key = value, axis, times
    if key not in splits.tensors:
        graph = splits.graph
        whole = graph.values[value]
        shape = split_shape(whole.shape, axis, times)
        name = splits.tensors[key] = graph.free_name(f"{value}.split")
        _count(graph, name, whole.dtype, shape, value, axis)
        func = movement.reshape(whole.shape, shape, whole.dtype)
        new.append(Node(graph.free_name(f"{name}.node"), "Reshape", func, (value,), (name,)))
    return splits.tensors[key]


def _count(
    graph: OperatorGraph, name: str, dtype: str, shape: tuple[int, ...], value: str, axis: int
) -> None:
    """Note how many elements a run gives of a tensor that is `value` with two axes for one."""
    whole = graph.values[value]
    axes = {k if k < axis else k + 1: k for k in range(len(whole.shape)) if k != axis}
    graph.count_like(replace(whole, name=name, dtype=dtype, shape=shape), value, axes)
