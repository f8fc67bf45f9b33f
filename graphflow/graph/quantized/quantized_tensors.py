"""The rewrites of quantized tensors, in order.

In: a graph whose kernels quantize and dequantize around others.  Out: the same graph, edited, in
which kernels read and write the stored integers.  What always holds: without `scaled`, each element
of each result is the same bit for bit.
"""

from __future__ import annotations

from graphflow.graph.operator_graph import OperatorGraph
from graphflow.graph.quantized.dequantized_reads import (
    inline_dequantized,
    remove_unread,
    round_quantized_outputs,
)
from graphflow.graph.quantized.folded_scales import (
    fold_scales,
    join_scales,
    multiply_by_reciprocals,
)
from graphflow.graph.quantized.integer_products import with_integer_products
from graphflow.graph.quantized.quantized_magnitudes import quantize_magnitudes
from graphflow.graph.quantized.quantized_moves import move_quantized
from graphflow.graph.quantized.rounded_words import round_in_words


def with_quantized_tensors(graph: OperatorGraph, scaled: bool) -> int:
    """Apply the rewrites to `graph`; returns how many there were.

    With `scaled`, products of dequantized tensors become sums of integers that are scaled once,
    which may change a result, to at most one step of its scale from that of the exact sum.
    """
    changes = move_quantized(graph)
    changes += with_integer_products(graph, scaled)
    changes += inline_dequantized(graph) + remove_unread(graph)
    changes += multiply_by_reciprocals(graph) + fold_scales(graph)
    changes += join_scales(graph) + round_in_words(graph)
    return changes + round_quantized_outputs(graph) + quantize_magnitudes(graph)
