"""Quantized tensors: rewrites that let kernels read and write the stored integers.

In: an operator graph with kernels that quantize and dequantize.  Out: an equivalent graph in which
products add up integers, and other kernels dequantize what they read and quantize what they write.
What always holds: definitions and access relations decide, operator names do not.
"""

from graphflow.graph.quantized.dequantized import (
    is_dequantized,
    is_finite_dequantized,
    stores_integers,
    with_inlined,
)
from graphflow.graph.quantized.quantized_tensors import with_quantized_tensors
from graphflow.graph.quantized.zero_points import with_plain_products_of

__all__ = [
    "is_dequantized",
    "is_finite_dequantized",
    "stores_integers",
    "with_inlined",
    "with_plain_products_of",
    "with_quantized_tensors",
]
