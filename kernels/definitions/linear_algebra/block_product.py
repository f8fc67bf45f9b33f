"""Products with weights of a few bits that are computed in integers, block by block.

In: logical shapes, and how the weights are packed.  Out: a PrimFunc that rounds rows to bytes by a
scale for each block, and one that multiplies these by the weights, which are grouped for it.

Rows are rounded as onnxruntime rounds them where `accuracy_level` permits it (MLAS, CompInt8): the
element of largest magnitude of a block becomes 127 or −127.  Then the sum of a block of products is
one of integers, which is exact, and which the scales of row and weights make a float:

    y[m, n] = bias[n] + Σ_q (steps[m, q] · scales[n, q]) · Σ_k a[m, q, k] · (w[n, q, k] − z[n, q])

The inner sum begins with `−z[n, q] · Σ_k a[m, q, k]`, and adds up unsigned weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graphflow.arith import Var, less_than
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.linear_algebra.packed_product import (
    BYTE,
    FLOAT,
    WIDE,
    PackedWeights,
    unpacked,
)
from graphflow.kernels.definitions.scalar_functions import (
    compared,
    converted,
    divide,
    multiply,
    subtract,
)
from graphflow.kernels.definitions.stages import Shape
from graphflow.tir import Allocate, Buffer, Load, PrimFunc, Reduce, ReduceOp, Select, Store, Unary
from graphflow.tir import nest as nested

TERMS = 4
"""Neighbours along the depth that instructions multiply in one lane."""

LARGEST_BLOCK = 256
"""The sum of a block of so many products of bytes is exact as float32 too."""

LEAST = 2.0**-120
"""Blocks with all magnitudes below this are rounded to zeros: 127 / LEAST is no infinity."""


def rounded_blocks(shape: Shape, block: int) -> PrimFunc:
    """Rows [..., depth] as bytes in blocks.

    Outputs: `a` [..., blocks, block], int8, with zeros behind the depth; `steps` [..., blocks], the
    largest magnitude of a block / 127; `sums` [..., blocks], the sums of the bytes, int32.  In a
    block with NaN or an infinity all bytes are 0, and the step is no number or infinite.
    """
    *lead, depth = shape
    blocks = -(-depth // block)
    by_block, whole = (*lead, blocks), (*lead, blocks, block)
    x, a = Buffer("x", shape, FLOAT), Buffer("a", whole, "int8")
    steps, sums = Buffer("steps", by_block, FLOAT), Buffer("sums", by_block, WIDE)
    most, factors = (Buffer(name, by_block, FLOAT) for name in ("most", "factors"))

    def loops(stage: int) -> tuple[stages.Loop, ...]:
        return stages.loops_over([f"{name}{stage}" for name in _names(lead)], by_block)

    def inner(stage: int) -> stages.Loop:
        return Var(f"k{stage}"), block

    outer, (k, _) = loops(0), inner(0)
    *rows, q = stages.indices_of(outer)
    magnitude = Unary("abs", Load(x, (*rows, q * block + k)))
    largest = stages.reduction_stage(
        "largest", ReduceOp.MAX, most, outer, ((k, block),), magnitude,
        init=stages.literal(0, FLOAT), where=less_than(q * block + k, depth),
    )  # fmt: skip
    outer = loops(1)
    step = divide(stages.element(most, outer), 127)
    scaled = stages.elementwise_stage("step", steps, outer, step)
    outer = loops(2)
    of_block = stages.element(most, outer)
    inverse = divide(stages.literal(127, FLOAT), of_block)
    factor = Select(compared("lt", of_block, LEAST), stages.literal(0, FLOAT), inverse)
    factors_stage = stages.elementwise_stage("factor", factors, outer, factor)
    outer, (k, _) = loops(3), inner(3)
    *rows, q = stages.indices_of(outer)
    inside = less_than(q * block + k, depth)
    scaled_x = multiply(Load(x, (*rows, q * block + k)), stages.element(factors, outer))
    is_number = compared("lt", Unary("abs", scaled_x), 128)
    value = converted(Unary("round", Select(is_number, scaled_x, stages.literal(0, FLOAT))), "int8")
    if depth % block:
        value = Select(inside, value, stages.literal(0, "int8"))
    bytes_stage = stages.elementwise_stage("rounded", a, (*outer, (k, block)), value)
    outer, (k, _) = loops(4), inner(4)
    code = converted(Load(a, (*stages.indices_of(outer), k)), WIDE)
    summed = stages.reduction_stage("summed", ReduceOp.ADD, sums, outer, ((k, block),), code)
    body = (largest, scaled, factors_stage, bytes_stage, summed)
    return stages.kernel_of_stages("rounded_blocks", (x,), (a, steps, sums), body)


def _names(lead: Shape | list[int]) -> list[str]:
    return [*(f"i{axis}_" for axis in range(len(lead))), "q"]


def block_product(lead: Shape, weights: PackedWeights, bias: bool = False) -> PrimFunc:
    """`y[..., n]` of rows in blocks, as the module says; the weights are `grouped_weights`.

    Parameters: a, steps and sums as `rounded_blocks` gives them, the bytes of the weights, their
    scales, their zero points (bytes) if there are any, and the bias.
    """
    by_block = (*lead, weights.blocks)
    a = Buffer("a", (*by_block, weights.block), "int8")
    steps, sums = Buffer("steps", by_block, FLOAT), Buffer("sums", by_block, WIDE)
    packed, scales = Buffer("b", weights.shape, BYTE), Buffer("scales", weights.scales, FLOAT)
    zeros = Buffer("zeros", weights.scales, BYTE) if weights.zeros else None
    start = Buffer("bias", (weights.columns,), FLOAT) if bias else None
    y = Buffer("y", (*lead, weights.columns), FLOAT)
    total = Buffer("total", y.shape, WIDE)
    rows = stages.loops_over("i", lead)
    at, (n, q, g, h, e) = stages.indices_of(rows), (Var(name) for name in "nqghe")
    middle = stages.literal(2 ** (weights.bits - 1), WIDE)
    zero = middle if zeros is None else converted(Load(zeros, (n, q)), WIDE)
    less = multiply(Load(sums, (*at, q)), zero)
    byte = Load(packed, (n, q, g * TERMS + e))
    code = converted(Load(a, (*at, q, (g * weights.in_byte + h) * TERMS + e)), WIDE)
    term = multiply(code, unpacked(byte, h, weights.bits))
    inner = ((g, weights.shape[2] // TERMS), (h, weights.in_byte), (e, TERMS))
    scale = multiply(Load(steps, (*at, q)), Load(scales, (n, q)))
    value = multiply(converted(Load(total, (*at, n)), FLOAT), scale)
    of_block = (
        Store(total, (*at, n), subtract(stages.literal(0, WIDE), less)),
        *nested(inner, (Reduce(ReduceOp.ADD, total, (*at, n), term),)),
        Reduce(ReduceOp.ADD, y, (*at, n), value),
    )
    first = stages.literal(0, FLOAT) if start is None else Load(start, (n,))
    body = (Store(y, (*at, n), first), *nested(((q, weights.blocks),), of_block))
    inputs = [x for x in (a, steps, sums, packed, scales, zeros, start) if x is not None]
    return stages.nest_kernel(
        "block_product", inputs, y, (*rows, (n, weights.columns)), body, Allocate(total)
    )


def grouped_weights(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Packed weights [columns, blocks, bytes] with neighbours along the depth in other bytes.

    Before, a byte holds neighbours; behind, four bytes hold four neighbours in their lowest bits,
    the next four in the next bits, and so on.
    """
    words = np.ascontiguousarray(packed).view("<u4")  # by single bytes it took 16 times as long
    grouped = np.zeros_like(words)
    for number in range(TERMS * 8 // bits):
        place, byte = divmod(number, TERMS)
        weight = words >> np.uint32(number * bits) & np.uint32(2**bits - 1)
        grouped |= weight << np.uint32(8 * byte + bits * place)
    as_bytes: NDArray[np.uint8] = grouped.view(np.uint8)
    return as_bytes
