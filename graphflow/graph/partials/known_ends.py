"""Least elements that are known before a run, as no element can be less.

In: a graph in which a kernel finds the least of a bound and all elements of a tensor that are
numbers.  Out: the same with the bound itself, where no element is below it.

    before:  v = Relu(x); low = min(v[i] < 0 ? v[i] : 0 for all i)
    after:   v = Relu(x); low = 0

So the range of a tensor that DynamicQuantizeLinear quantizes takes one reduction.  What always
holds: results keep their bits, as NaN counts as the bound on both ways.
"""

from __future__ import annotations

import numpy as np

from graphflow import tir
from graphflow.base.dtypes import DTYPES
from graphflow.graph.number_sets import NonNegative
from graphflow.graph.operator_graph import OperatorGraph
from graphflow.graph.partials.partial_reductions import exact_reduction


def know_least_elements(graph: OperatorGraph) -> int:
    """Put zeros in the place of reductions to the least of zero and elements that are never below
    zero; returns their number."""
    known = NonNegative(graph)
    changes = 0
    for node in graph.topological():
        found = exact_reduction(node)
        if found is None or not all(extent for _, extent in found.loops):
            continue
        match found.update:
            case tir.Reduce(
                op=tir.ReduceOp.MIN,
                value=tir.Select(
                    tir.Comparison("lt", tir.Load() as element, tir.Literal() as bound),
                    if_true,
                    if_false,
                ),
            ) if bound.value == 0 and if_true == element and if_false == bound:
                pass
            case _:
                continue
        if known.holds(node.bound[element.buffer.name]):
            update = found.update.buffer
            graph.remove(node.name)
            zeros = np.zeros(update.shape, DTYPES[update.dtype])
            graph.add_initializer(node.outputs[0], zeros)
            changes += 1
    return changes
