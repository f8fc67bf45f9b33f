"""From an operator graph to fusion groups, as a request asks for them.

In: a graph of kernels over row-major buffers, and a request.  Out: the canonical graph, and the
graph of fusion groups.  What always holds: each step returns a new graph.
"""

from __future__ import annotations

from graphflow.graph import (
    OperatorGraph,
    canonicalize,
    fuse_groups,
    with_brain_products,
    with_excess_precision,
    with_half_constants,
    with_multiplied_quotients,
    with_narrow_tensors,
    with_plain_products_of,
)
from graphflow.pipeline.request import CompileRequest


def canonical(graph: OperatorGraph, request: CompileRequest) -> OperatorGraph:
    """The smaller graph; products of dequantized tensors are sums of integers if the options let
    them."""
    return canonicalize(graph, request.options.integer_products)


def fusion_groups(canonical: OperatorGraph, request: CompileRequest) -> OperatorGraph:
    """The graph of fusion groups, whose products of bytes are those that the target has
    instructions for, and whose rounded numbers are stored in 16 bits where that is cheaper; others
    are not rounded if the options let them.  Rows are not reduced around pinned tensors.  Quotients
    by constants are products where that changes none, and where the target computes in float16,
    it does with constants."""
    excess = request.options.excess_precision
    plain = with_plain_products_of(canonical, request.target)
    winograd = request.options.winograd
    brain = with_brain_products(plain, request.target, request.threads, winograd)
    narrow = with_narrow_tensors(brain, request.target, excess)
    rounded = with_excess_precision(narrow) if excess else narrow
    halves = with_half_constants(with_multiplied_quotients(rounded), request.target)
    return fuse_groups(halves, request.layouts)
