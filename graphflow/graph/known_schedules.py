"""Offer the schedules that earlier searches found to the nodes of a fused graph.

In: a graph, sketches, and the timings of earlier searches.  Out: the graph in which each node has
the fastest known schedule of each sketch as an offer, beside the variants that recipes make.  What
always holds: nothing is searched here, and without timings of a search the graph is returned as it
is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.cost import Timings
from graphflow.graph.contents import constant_inputs
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.kernels.recipes import (
    best_found,
    is_made_by_recipe,
    kernel_variants,
    search_key,
    timed_searches,
)
from graphflow.schedule import Sketch
from graphflow.tir import PrimFunc


def searchable_nodes(graph: OperatorGraph) -> Iterator[Node]:
    """The nodes for which schedules may be searched.

    These are the nodes that run a kernel of graphflow, except for those whose kernel its author
    scheduled and offered as the only variant.
    """
    for node in graph.nodes:
        runs = not all(graph.is_constant(value) for value in node.outputs)
        if runs and node.func.callee is None and not node.only_offered:
            yield node


def offer_found(
    graph: OperatorGraph,
    sketches: Sequence[Sketch],
    timings: Timings,
    target: Target,
    compiler: str,
) -> OperatorGraph:
    """The graph with the fastest timed schedule of each sketch offered to each node.

    A schedule that a recipe makes as well is no offer.

    `compiler` is the digest under which the timings were filed; see `search_key`.
    """
    timed = timed_searches(timings.known)
    if not timed:
        return graph
    done = graph.copy()
    for node in searchable_nodes(graph):
        for sketch in sketches:
            points = timed.get(search_key(sketch, node.func, compiler), {})
            best = best_found(sketch, node.func, target, points)
            if best is not None and not _is_variant(graph, node, best[0].func, target):
                schedule, found = best
                done.offer(node.name, schedule)
                offered = done.node(node.name)
                done.replace(node.name, replace(offered, found=(*offered.found, found)))
    return done


def _is_variant(graph: OperatorGraph, node: Node, kernel: PrimFunc, target: Target) -> bool:
    """Whether a recipe's variant of the node is this kernel already."""
    variants = kernel_variants(node.func, constant_inputs(graph, node), target)
    return is_made_by_recipe(kernel, node.func, variants, target)
