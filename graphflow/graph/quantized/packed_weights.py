"""Constant weights of few bits that a product of few rows multiplies as they are stored.

In: a graph in which matrix products read constants that are dequantized in blocks along the depth.
Out: the products read the integers, packed into bytes, and unpack them where they multiply.

    before:  w[k, n] = f32(i32(q[k, n]) − z[k // 32, n]) · s[k // 32, n]; y = MatMul(a, w)
    after:   y = packed_product(a, bytes of q, s, bytes of z)

The terms of the sums are the same, bit for bit.  Weights that were dequantized once, when the
program is loaded, would take 4 to 16 times the memory, which a product of few rows reads for a
multiply-add or a few of each.  A product of more rows keeps them dequantized: its tiles would
unpack them again for every few rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from graphflow.base.dtypes import integer_limits
from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.graph.quantized.dequantized import WIDE, known_elements
from graphflow.graph.value import Array
from graphflow.kernels.definitions.linear_algebra.linear import matmul
from graphflow.kernels.definitions.linear_algebra.packed_product import (
    PackedWeights,
    packed,
    packed_product,
)
from graphflow.kernels.definitions.quantized import dequantize

BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "int8": 8, "uint8": 8}

LEAST_BLOCK = 16
"""Rows of a block from which on its scales take less memory than its weights."""

MOST_ROWS = 16
"""Of a product that unpacks: 8 rows take 0.78 of the time of onnxruntime's product of packed
weights, 128 take 1.28 of it (a Zen 4, weights of 2048 × 2048)."""


@dataclass(frozen=True)
class _Blocks:
    """Constants (depth, columns) of few bits, and the scales and zero points of their blocks."""

    numbers: Array
    scales: Array
    zeros: Array | None
    bits: int
    block: int


def pack_weights(graph: OperatorGraph) -> int:
    """Let products of few rows in `graph` read packed weights; returns how many do."""
    changes = 0
    for node in graph.topological():
        found = _weights_of(graph, node)
        if found is not None:
            _replace(graph, node, found)
            changes += 1
    return changes


def _weights_of(graph: OperatorGraph, node: Node) -> _Blocks | None:
    """The weights of a product of few rows; None for other nodes."""
    if not node.has_definition or len(node.func.inputs) != 2:
        return None
    a, b = node.func.inputs
    known = a.dtype == WIDE and len(b.shape) == 2 and len(a.shape) > 1
    if not known or a.shape[-1] != b.shape[0] or prod(a.shape[:-1]) > MOST_ROWS:
        return None
    if node.func != matmul(a.shape, b.shape):
        return None
    maker = graph.producer(node.bound[b.name])
    return None if maker is None else _blocks(graph, maker)


def _blocks(graph: OperatorGraph, maker: Node) -> _Blocks | None:
    """What a node dequantizes in blocks along the first axis; None for other nodes."""
    if not maker.has_definition or len(maker.func.inputs) not in (2, 3):
        return None
    x, scale, *zero = maker.func.inputs
    arrays = [known_elements(graph, value) for value in maker.inputs]
    if x.dtype not in BITS or len(x.shape) != 2 or len(scale.shape) != 2 or scale.shape[0] == 0:
        return None
    block, rest = divmod(x.shape[0], scale.shape[0])
    if rest or block < LEAST_BLOCK or block * BITS[x.dtype] % 8 or scale.shape[1] != x.shape[1]:
        return None
    zero_shape = zero[0].shape if zero else None
    whole = dequantize(x.shape, x.dtype, scale.shape, zero_shape=zero_shape, axis=0, block=block)
    if maker.func != whole or zero_shape not in (None, scale.shape):
        return None
    numbers, scales, *zeros = arrays
    if numbers is None or scales is None or any(array is None for array in zeros):
        return None
    return _Blocks(numbers, scales, zeros[0] if zeros else None, BITS[x.dtype], block)


def _replace(graph: OperatorGraph, node: Node, found: _Blocks) -> None:
    """Exchange the kernel of a product, and its weights by packed ones."""
    (a, _), (data, value) = node.func.inputs, node.inputs
    depth, columns = found.numbers.shape
    numbers = _unsigned(found.numbers, found.numbers)
    zeros = None if found.zeros is None else _unsigned(found.zeros, found.numbers)
    if zeros is None:
        zeros = np.full(found.scales.shape, -integer_limits(found.numbers.dtype.name)[0], np.uint8)
    weights = PackedWeights(columns, depth, found.bits, found.block, "packed")
    shape = weights.blocks, found.block, columns
    arrays = {
        "packed": packed(numbers.reshape(shape).transpose(2, 0, 1), found.bits),
        "scales": np.ascontiguousarray(found.scales.T),
        "zeros": packed(np.ascontiguousarray(zeros.T), found.bits),
    }
    names = [data]
    for role, array in arrays.items():
        names.append(graph.free_name(f"{value}.{role}"))
        graph.add_initializer(names[-1], array)
    func = packed_product(a.shape, weights)
    made = Node(node.name, node.op, func, tuple(names), node.outputs, node.origins)
    graph.replace(node.name, made)
    maker = graph.producer(value)
    if maker is not None and not graph.consumers(value) and value not in graph.outputs:
        graph.remove(maker.name)
        graph.remove_value(value)
        graph.removed[value] = Removed(f"{node.op} {node.name} unpacks it from {names[1]}")


def _unsigned(numbers: Array, like: Array) -> Array:
    """Integers as the distances from the least one of a type."""
    least, _ = integer_limits(like.dtype.name)
    return (numbers.astype(np.int16) - least).astype(np.uint8)
