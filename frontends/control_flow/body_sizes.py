"""Sizes in a body: tensors that have room for more elements than a run gives them.

In: the sizes of the graph around a body, and the body's own graph.  Out: the same sizes in the
body, each as an input of its graph, and for a size that the body computes the same one around it.
What always holds: a size of a body has one number in each of its executions, which is computed
before the body's first step: before the run, or, where it follows from the number of an iteration,
before that iteration.  So kernels of the body end at it as those of a run end at sizes of inputs,
and what is proven of extents around the body holds in it.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphflow.frontends.tensors.context import ImportContext
from graphflow.frontends.tensors.derived_sizes import derived_size
from graphflow.graph import DerivedSize, OperatorGraph

Sources = dict[str, str | None]
"""For each input of a body's graph the tensor around it; None for what each execution gets."""


def share_sizes(context: ImportContext, sub: ImportContext, sources: Sources) -> None:
    """Make the sizes of the graph around a body known in it."""
    for name, size in context.sizes.items():
        value = context.graph.values[name]
        sources[sub.graph.add_input(name, value.dtype, value.shape)] = name
        sub.sizes[name] = size
    sub.data_sizes.update(context.data_sizes)
    sub.graph.sizes = context.graph.sizes  # relations may be found between them
    held = context.sizes.keys()
    sub.sums.update((terms, name) for terms, name in context.sums.items() if name in held)
    sub.summed.update((name, terms) for name, terms in context.summed.items() if name in held)
    sub.steps.update(context.steps)
    sub.nonnegative.extend(context.nonnegative)
    sub.limiting.extend(context.limiting)
    sub.lesser_counts.update(
        (pair, name) for pair, name in context.lesser_counts.items() if name in held
    )


def size_around(
    count: str, context: ImportContext, graph: OperatorGraph, sources: Sources
) -> str | None:
    """The tensor around a body that holds the number of a count of the body; None if each
    execution has another one, as the body computes it or is given what it is computed from.

    A size that is computed from sizes around the body is computed around it.
    """
    if sources.get(count) is not None:
        return sources[count]
    made = next((one for one in graph.derived if one.tensor == count), None)
    if made is None:
        return None
    operands = [size_around(one, context, graph, sources) for one in made.operands]
    names = tuple(name for name in operands if name is not None)
    if len(names) != len(operands):
        return None
    sources[count] = _derived_around(made, names, context)
    return sources[count]


def _derived_around(made: DerivedSize, operands: tuple[str, ...], context: ImportContext) -> str:
    for known in context.graph.derived:
        if (known.formula, known.operands, known.size) == (made.formula, operands, made.size):
            return known.tensor
    return derived_size(context, made.size, made.formula, operands)


def give_sizes(
    context: ImportContext, sub: ImportContext, sources: Sources, results: Iterable[str]
) -> tuple[DerivedSize, ...]:
    """Give a finished body its sizes as plain inputs, and only those that its nodes read or that
    count elements of its tensors; returns those that each execution computes anew."""
    graph = sub.graph
    held = {*graph.size_tensors, *(n for n, around in sources.items() if around in context.sizes)}
    read = {name for node in graph.nodes for name in node.inputs}.union(results)
    given, graph.counted = {*graph.inputs}, sub.counted_values()
    graph.counted = {
        value: {
            axis: count
            for axis, count in counts.items()
            if count in given or graph.producer(count) is not None
        }
        for value, counts in graph.counted.items()
        if value.name in read
    }
    read.update(count for counts in graph.counted.values() for count in counts.values())
    anew: list[DerivedSize] = []
    for one in reversed(graph.derived):
        if one.tensor in read and size_around(one.tensor, context, graph, sources) is None:
            anew.append(one)
            read.update(one.operands)
    for name in held & read:
        size_around(name, context, graph, sources)
    unread = held - read
    graph.sizes, graph.derived = (), ()
    graph.set_inputs(name for name in graph.inputs if name not in unread)
    for name in unread & graph.values.keys():
        graph.remove_value(name)
    return tuple(reversed(anew))
