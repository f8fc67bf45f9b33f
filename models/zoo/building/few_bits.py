"""Networks with weights of a few bits, as onnxruntime's quantizer of weights writes them.

In: a model in which MatMul nodes read constant matrices.  Out: the model with a MatMulNBits in the
place of each, whose weights are rounded to the nearest of `2 ** bits` numbers that lie evenly
around 0, by a scale for each block of 32 neighbours along the depth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

BLOCK = 32
DOMAIN = "com.microsoft"


def with_few_bits(model: onnx.ModelProto, bits: int = 4) -> onnx.ModelProto:
    """`model`, which is changed, with products by constant matrices as MatMulNBits.

    `bits` are 2, 4 or 8.
    """
    graph = model.graph
    matrices = {x.name: x for x in graph.initializer if len(x.dims) == 2}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in matrices:
            name = node.input[1]
            weights = numpy_helper.to_array(matrices[name])
            _replace(node, weights.shape, bits)
            packed, scales = weights_in_bytes(weights, bits)
            graph.initializer.remove(matrices.pop(name))
            graph.initializer.append(numpy_helper.from_array(packed, node.input[1]))
            graph.initializer.append(numpy_helper.from_array(scales, node.input[2]))
    model.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
    return model


def _replace(node: onnx.NodeProto, shape: tuple[int, ...], bits: int) -> None:
    """Make a MatMul node with weights of this shape one of MatMulNBits."""
    depth, columns = shape
    data, name = node.input
    node.op_type, node.domain = "MatMulNBits", DOMAIN
    node.input[:] = [data, f"{name}_Q{bits}", f"{name}_scales"]
    attributes = {"K": depth, "N": columns, "bits": bits, "block_size": BLOCK}
    node.attribute.extend(onnx.helper.make_attribute(k, v) for k, v in attributes.items())


def weights_in_bytes(
    weights: NDArray[Any], bits: int
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Weights (depth, columns) as bytes (columns, blocks, bytes of a block), and the scales
    (columns, blocks)."""
    depth, columns = weights.shape
    blocks = -(-depth // BLOCK)
    whole = np.zeros((columns, blocks * BLOCK), np.float32)
    whole[:, :depth] = weights.T
    parts = whole.reshape(columns, blocks, BLOCK)
    middle, in_byte = 2 ** (bits - 1), 8 // bits
    scales = np.abs(parts).max(-1) / middle
    numbers = np.rint(parts / np.maximum(scales, 1e-30)[..., None]) + middle
    numbers = np.clip(numbers, 0, 2**bits - 1).astype(np.uint8)
    places = numbers.reshape(columns, blocks, BLOCK // in_byte, in_byte)
    shifts = np.arange(in_byte, dtype=np.uint8) * bits
    packed = np.bitwise_or.reduce(places << shifts, axis=-1)
    return packed.astype(np.uint8), scales.astype(np.float32)
