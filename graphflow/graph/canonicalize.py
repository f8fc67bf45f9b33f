"""Canonicalize: a list of passes, each of which makes the graph smaller and keeps its meaning.

In: an operator graph.  Out: another one; the one given is not changed.  Each pass edits the copy in
place and returns its number of changes.  A value that disappears is recorded in `graph.removed`
with the reason and, if another value has the same contents, that value's name.  What always holds:
graph inputs and outputs keep their names and their order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import InvalidModel
from graphflow.base.fields import replace
from graphflow.graph.neutral_operands import drop_neutral_operands
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.graph.partials import (
    decide_selections,
    drop_repeated_bounds,
    know_ends,
    split_reductions,
)
from graphflow.graph.quantized import is_dequantized, stores_integers, with_quantized_tensors
from graphflow.graph.repeats import read_unrepeated
from graphflow.graph.rounded import drop_roundings, read_narrow_weights, widen_moves
from graphflow.graph.structure import elements_touched, is_identity
from graphflow.graph.value import Array
from graphflow.tir import interpret

CONSTANT_LIMIT = 4096
"""The most elements of a buffer of a kernel that is evaluated at compile time.

The evaluator is the interpreter, which is slow; larger constants are computed natively, once, when
the program is loaded.
"""


def canonicalize(graph: OperatorGraph, integer_products: bool = True) -> OperatorGraph:
    """A copy of `graph` after each of `PASSES` once, in order.  Raises InvalidModel where a guard
    on a constant does not hold.

    With `integer_products`, products of dequantized tensors become sums of integers; what else is
    done keeps results bit for bit.
    """
    out = graph.copy()
    if stores_integers(out):
        # Before constants are evaluated: a dequantized weight is to be read as bytes.
        drop_identities(out)
        evaluate_constants(out, is_dequantized)
        with_quantized_tensors(out, integer_products)
    for step in PASSES:
        step(out)
    out.validate()
    return out


def drop_identities(graph: OperatorGraph) -> int:
    """`y = copy(x)` → uses of y read x.

    After: a copy remains only from a graph input, an initializer or another graph output to a graph
    output, where both names are needed.
    """
    changes = 0
    for name in [node.name for node in graph.topological()]:
        # Looked up here, because an earlier step may have redirected its input.
        node = graph.node(name)
        if not is_identity(node.func):
            continue
        (source,), (result,) = node.inputs, node.outputs
        if result not in graph.outputs:
            graph.remove(node.name)
            graph.redirect(result, source)
            kept, dropped = source, result
        elif graph.producer(source) is not None and source not in graph.outputs:
            graph.remove(node.name)
            _rename_result(graph, source, result)
            kept, dropped = result, source
        else:
            continue
        graph.remove_value(dropped)
        graph.removed[dropped] = Removed(f"{node.op} {node.name} only copies", kept)
        changes += 1
    return changes


def _rename_result(graph: OperatorGraph, old: str, new: str) -> None:
    """Make the producer of `old` write `new` instead, and each use of `old` read `new`.

    Where `old` is read, as many elements of `new` are given as were of it: its readers may rely on
    what the producer writes behind those of a run.
    """
    producer = graph.producer(old)
    assert producer is not None
    is_read = bool(graph.consumers(old))
    outputs = tuple(new if value == old else value for value in producer.outputs)
    graph.replace(producer.name, replace(producer, outputs=outputs))
    graph.redirect(old, new)
    if is_read:
        value = graph.values[new]
        graph.counted = {one: counts for one, counts in graph.counted.items() if one != value}
        graph.count_like(value, old)


def evaluate_constants(
    graph: OperatorGraph, kept: Callable[[Node], bool] = lambda node: False
) -> int:
    """A kernel of initializers alone → its results as initializers, if no buffer is too large.

    After: a node with constant inputs only touches more than `CONSTANT_LIMIT` elements, is one of
    those `kept`, or depends on one of these.  The interpreter evaluates, so numpy re-implements no
    operator.
    """
    changes = 0
    for node in graph.topological():
        ready = all(n in graph.initializers and n not in graph.inputs for n in node.inputs)
        if not ready or node.func.callee or elements_touched(node.func) > CONSTANT_LIMIT:
            continue
        if kept(node):
            continue
        arrays = [graph.initializers[name] for name in node.inputs]
        names = [buffer.name for buffer in node.func.inputs]
        results = interpret(node.func, dict(zip(names, arrays, strict=True)))
        graph.remove(node.name)
        for buffer, name in zip(node.func.outputs, node.outputs, strict=True):
            graph.add_initializer(name, results[buffer.name])
        changes += 1
    return changes


def settle_guards(graph: OperatorGraph) -> int:
    """A guard on a tensor with known contents → no guard.

    After: each guard reads a tensor that is computed in a run.  Raises InvalidModel where a guard
    does not hold, since no run could succeed.
    """
    known = {name for name in graph.initializers if name not in graph.inputs}
    settled = [guard for guard in graph.guards if guard.value in known]
    for guard in settled:
        wrong = guard.violation(graph.initializers[guard.value])
        if wrong is not None:
            raise InvalidModel(wrong)
    graph.guards = tuple(guard for guard in graph.guards if guard.value not in known)
    return len(settled)


def remove_dead(graph: OperatorGraph) -> int:
    """Remove the nodes, values and initializers that no graph output depends on.

    After: each node reaches a graph output, or an output of the model that is no tensor, or counts
    elements of a tensor that does, and sections make only such objects as others take.  Graph
    inputs stay, except for derived sizes.
    """
    live = _outputs_and_counts(graph)
    objects = {made.name for made in graph.objects_out}
    changes = 0
    for node in reversed(graph.topological()):
        section = graph.sections.get(node.func.callee or "")
        taken = () if section is None else tuple(n for n in section.objects_out if n in objects)
        if not taken and live.isdisjoint(node.outputs):
            graph.remove(node.name)
            changes += 1
            continue
        live.update(node.inputs)
        if section is not None:
            objects.update(section.objects_in)
            graph.sections[section.name] = replace(section, objects_out=taken)
    _drop_unread_sizes(graph, live)
    for name in sorted(graph.values, key=graph.counting.__contains__):  # before what counts them
        # A live node may have an output that no node reads; its kernel still writes it.
        if name in live or name in graph.inputs or graph.producer(name) is not None:
            continue
        graph.remove_value(name)
        graph.removed[name] = Removed("no output depends on it")
        changes += 1
    return changes


def _outputs_and_counts(graph: OperatorGraph) -> set[str]:
    """The graph outputs, and what counts elements of tensors on which a graph output or one of
    these depends."""
    live = set(graph.outputs)
    if not graph.counting:
        return live
    makers = {value: node for node in graph.nodes for value in node.outputs}
    counts = {value.name: of.values() for value, of in graph.counted.items()}
    sections = (node for node in graph.nodes if node.func.callee in graph.sections)
    # Objects that sections make may be of use to others, and are no values.
    pending = [*live, *(name for node in sections for name in node.inputs)]
    reached: set[str] = set()
    while pending:
        name = pending.pop()
        if name in reached:
            continue
        reached.add(name)
        live.update(counts.get(name, ()))
        pending += counts.get(name, ())
        if name in makers:
            pending += (*makers[name].inputs, *makers[name].outputs)
    return live


def _drop_unread_sizes(graph: OperatorGraph, live: set[str]) -> None:
    """Make inputs of the graph only those derived sizes that a live node, an output or a kept size
    reads, or that count elements of a live tensor or of an output."""
    read = {*live, *(n for v, of in graph.counted.items() if v.name in live for n in of.values())}
    read.update(trim.extents for trim in graph.trims)
    for one in reversed(graph.derived):
        if one.tensor in read:
            read.update(one.operands)
    dropped = {one.tensor for one in graph.derived if one.tensor not in read}
    if dropped:
        graph.derived = tuple(one for one in graph.derived if one.tensor not in dropped)
        graph.set_inputs(name for name in graph.inputs if name not in dropped)


def merge_initializers(graph: OperatorGraph) -> int:
    """Initializers of equal dtype, shape and bytes → the first of them.

    After: no two constant initializers are equal, unless one of them is a graph output.
    """
    kept: dict[tuple[str, tuple[int, ...], bytes], list[str]] = {}
    changes = 0
    for name, array in tuple(graph.initializers.items()):
        if name in graph.inputs:
            continue
        alike = kept.setdefault((array.dtype.name, array.shape, _sample(array)), [])
        equal = next((k for k in alike if _same_bytes(graph.initializers[k], array)), None)
        if equal is None or name in graph.outputs:
            alike.append(name)
            continue
        graph.redirect(name, equal)
        graph.remove_value(name)
        graph.removed[name] = Removed("equal to another initializer", equal)
        changes += 1
    return changes


def _sample(array: Array) -> bytes:
    """Some 64 elements as bytes, so that only arrays that agree in these are compared in full."""
    flat = array.reshape(-1)
    return flat[:: max(flat.size // 64, 1)].tobytes()


def _same_bytes(left: Array, right: Array) -> bool:
    # As bytes, because -0.0 equals 0.0 and NaN does not equal itself.
    return np.array_equal(_bytes(left), _bytes(right))


def _bytes(array: Array) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


PASSES: tuple[Callable[[OperatorGraph], int], ...] = (
    drop_identities,
    know_ends,
    decide_selections,
    evaluate_constants,
    drop_repeated_bounds,
    drop_neutral_operands,
    read_unrepeated,
    widen_moves,
    drop_roundings,
    read_narrow_weights,
    split_reductions,
    settle_guards,
    remove_dead,
    merge_initializers,
)
"""In this order: constants are found behind identities, and behind selections that known ends of
ranges decide; ranges repeat bounds where zero points are known; repeated tensors are found behind
factors of 1; numbers that are moved widened may need no rounding; evaluating constants, dropping
roundings, and dropping guards on constants leave dead nodes."""
