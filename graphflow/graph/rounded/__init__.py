"""Tensors of 16-bit floats: rewrites that round and widen elements less often.

In: an operator graph with kernels that round float32 numbers to float16 or bfloat16, and widen
them.  Out: an equivalent graph, whose results have the same bits, except with excess precision.
"""

from graphflow.graph.rounded.moved_roundings import before_rounding
from graphflow.graph.rounded.multiplied_quotients import with_multiplied_quotients
from graphflow.graph.rounded.narrow_weights import read_narrow_weights
from graphflow.graph.rounded.roundings import (
    Representable,
    converted_value,
    converting_node,
    drop_roundings,
    rounded_to,
    stores_halves,
    with_excess_precision,
)
from graphflow.graph.rounded.widened_moves import moved_as, widen_moves

__all__ = [
    "Representable",
    "before_rounding",
    "converted_value",
    "converting_node",
    "drop_roundings",
    "moved_as",
    "read_narrow_weights",
    "rounded_to",
    "stores_halves",
    "widen_moves",
    "with_excess_precision",
    "with_multiplied_quotients",
]
