"""onnxruntime's MatMulNBits: products with weights of 2, 4 or 8 bits, which stay packed in memory.

Weights are those of ONNX's QuantizeLinear in blocks along the depth.  Where the attribute
`accuracy_level` permits it, rows are rounded to bytes in the same blocks, and products of a block
are added up as integers; else weights are multiplied as float32.
"""

from __future__ import annotations

from math import prod

import numpy as np

from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import filled_input
from graphflow.kernels.definitions.linear_algebra.block_product import (
    LARGEST_BLOCK,
    block_product,
    grouped_weights,
    rounded_blocks,
)
from graphflow.kernels.definitions.linear_algebra.packed_product import (
    PackedWeights,
    packed_product,
    unpacked_zeros,
)
from graphflow.kernels.definitions.stages import Shape

IN_BYTES = 4
"""The `accuracy_level` that permits to round rows to bytes; lower ones stand for floats."""

WEIGHTS, SCALES, ZEROS, GROUPS, BIAS = range(1, 6)
"""Positions of inputs; input 0 is the matrix that is multiplied."""


def _matmul_nbits(call: NodeCall) -> None:
    weights = _weights(call)
    depth = call.shape(0)[-1:]
    if depth != (weights.depth,):
        raise call.invalid(f"rows of shape {depth} do not fit weights of K = {weights.depth}")
    inputs = [
        filled_input(call, 0, (len(call.shape(0)) - 1,), 0),
        _input(call, WEIGHTS, weights.shape),
        _input(call, SCALES, weights.scales),
    ]
    if weights.zeros == "float32":
        inputs.append(_input(call, ZEROS, weights.scales))
    elif weights.zeros is not None:
        # Unpacked once, when the program is loaded: each vector of weights meets them anew.
        packed = _input(call, ZEROS, weights.packed_zeros)
        inputs.append(call.emit_part(unpacked_zeros(weights), (packed,), "zeros"))
    if call.has(BIAS):
        inputs.append(_input(call, BIAS, (weights.columns,)))
    if int(call.attribute("accuracy_level", 0)) == IN_BYTES:
        why_not = _why_floats(call, weights)
        call.context.graph.rounded_products[call.outputs[0]] = why_not
        if not why_not:
            _emit_block_product(call, weights, inputs)
            return
    call.emit(packed_product(call.shape(0), weights, call.has(BIAS)), inputs)


def _why_floats(call: NodeCall, weights: PackedWeights) -> str:
    """Why products are sums of floats though rows may be rounded to bytes; empty where they are
    sums of integers."""
    if weights.zeros == "float32":
        return "its zero points are floats"
    if weights.block > LARGEST_BLOCK:
        return f"its blocks have {weights.block} elements, more than {LARGEST_BLOCK}"
    if weights.blocks == 1:
        return "all its elements are in one block"
    varying = [p for p in (WEIGHTS, SCALES, ZEROS) if call.has(p) and call.known(p) is None]
    return f"its input {call.inputs[varying[0]]} is no constant" if varying else ""


def _emit_block_product(call: NodeCall, weights: PackedWeights, inputs: list[str]) -> None:
    """Add kernels that round the rows of input 0 to bytes and multiply these by the weights."""
    x, _, *others = inputs
    shape, packed = call.shape(0), call.known(WEIGHTS)
    assert packed is not None
    names = _rounded(call, x, weights.block)
    in_groups = grouped_weights(
        packed.reshape(weights.shape).astype(np.uint8, copy=False), weights.bits
    )
    func = block_product(shape[:-1], weights, call.has(BIAS))
    call.emit(func, (*names, call.add_part(in_groups, "grouped"), *others))


def _rounded(call: NodeCall, x: str, block: int) -> list[str]:
    """The names of the bytes, the scales and the sums of rounded rows, which all products of these
    rows share."""
    shared, parts = call.context.shared, ("rounded", "steps", "sums")
    keys = [("rounded rows", x, block, part) for part in parts]
    if keys[0] not in shared:
        names = [call.part_name(part) for part in parts]
        call.emit_all(rounded_blocks(call.shape(0), block), (x,), names, "rounded")
        shared.update(zip(keys, names, strict=True))
    return [shared[key] for key in keys]


def _weights(call: NodeCall) -> PackedWeights:
    """The weights that the attributes describe."""
    columns, depth, block = (int(call.required(name)) for name in ("N", "K", "block_size"))
    bits = int(call.attribute("bits", 4))
    if bits not in (2, 4, 8):
        call.refuse(f"weights of {bits} bits", "quantize to 2, 4 or 8 bits")
    if min(columns, depth) < 1 or block < 16 or block & (block - 1):
        raise call.invalid(
            f"N = {columns} and K = {depth} must be positive, and block_size = {block} a power of "
            "two from 16 on"
        )
    if call.has(GROUPS):
        call.refuse(
            "a block for each row by the input g_idx", "reorder the rows of the weights by block"
        )
    if call.attribute("weight_prepacked", 0):
        call.refuse("weights packed for a GPU", "leave the attribute weight_prepacked out")
    if call.stored_dtype(WEIGHTS) != "uint8":
        call.refuse(f"packed weights of {call.stored_dtype(WEIGHTS)}", "store them as uint8")
    if not call.has(ZEROS):
        return PackedWeights(columns, depth, bits, block)
    is_packed = call.stored_dtype(ZEROS) == "uint8"
    return PackedWeights(columns, depth, bits, block, "uint8" if is_packed else "float32")


def _input(call: NodeCall, position: int, shape: Shape) -> str:
    """The name of an input in the shape in which the kernel reads it; models have some flat."""
    given = call.shape(position)
    if prod(given) != prod(shape):
        raise call.invalid(
            f"input {call.inputs[position]} has shape {given}, and {prod(shape)} elements are "
            f"needed: {shape}"
        )
    return call.reshaped(call.inputs[position], shape, f"in{position}")


OPERATORS: Emitters = {"com.microsoft.MatMulNBits": _matmul_nbits}
