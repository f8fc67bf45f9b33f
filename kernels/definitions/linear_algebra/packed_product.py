"""Products with weights of a few bits, several of which lie in one byte.

In: logical shapes, and how the weights are packed.  Out: a PrimFunc of one reduction stage, which
reads the bytes and unpacks them where it multiplies; and one that unpacks zero points.

A weight of `bits` bits is `(q − zero) · scale`; scale and zero point belong to a block of `block`
neighbours along the depth.  A byte holds `8 / bits` neighbours along the depth, the first one in
its lowest bits; with 4 bits, the byte 0x53 holds 3 and then 5.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from graphflow.arith import IndexExpr, Var, floor_div, floor_mod, less_than
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.scalar_functions import converted, multiply, subtract
from graphflow.kernels.definitions.stages import Loop, Shape
from graphflow.tir import Binary, Buffer, Expr, IndexValue, Load, PrimFunc, ReduceOp

FLOAT, WIDE, BYTE = "float32", "int32", "uint8"


class PackedWeights(Struct, frozen=True):
    """Weights of `columns` columns and `depth` rows, each column by itself in whole blocks.

    `zeros` is the dtype of the zero points, of which each block has one; None where all are the
    middle of the range, `2 ** (bits − 1)`.
    """

    columns: int
    depth: int
    bits: int
    block: int
    zeros: Literal["uint8", "float32"] | None = None

    @property
    def blocks(self) -> int:
        """The number of blocks of a column, of which the last may have spare places."""
        return -(-self.depth // self.block)

    @property
    def in_byte(self) -> int:
        """The number of weights in a byte."""
        return 8 // self.bits

    @property
    def shape(self) -> Shape:
        """(columns, blocks, bytes of a block)."""
        return self.columns, self.blocks, -(-self.block // self.in_byte)

    @property
    def scales(self) -> Shape:
        """(columns, blocks)."""
        return self.columns, self.blocks

    @property
    def packed_zeros(self) -> Shape:
        """(columns, bytes of the zero points of a column), where these are packed as weights are,
        along the blocks."""
        return self.columns, -(-self.blocks // self.in_byte)

    def centred(self, number: Expr, zero: Expr | None) -> Expr:
        """A number of 32 bits less the zero point of its block, as a float.

        Where both are integers their difference is exact as one.
        """
        if zero is None:
            return converted(subtract(number, 2 ** (self.bits - 1)), FLOAT)
        if zero.dtype == FLOAT:
            return subtract(converted(number, FLOAT), zero)
        return converted(subtract(number, converted(zero, WIDE)), FLOAT)


def unpacked(byte: Load, place: IndexExpr, bits: int) -> Expr:
    """The number at a place of a byte, in 32 bits: no instruction shifts the bytes of a vector."""
    wide = converted(byte, WIDE)
    if bits == 8:
        return wide
    shifted = Binary("shr", wide, IndexValue(place * bits, WIDE))
    return Binary("and", shifted, stages.literal(2**bits - 1, WIDE))


def unpacked_zeros(weights: PackedWeights) -> PrimFunc:
    """`y[n, q]`: the zero points (columns, blocks) as bytes of their own, from `packed_zeros`."""
    x, y = Buffer("x", weights.packed_zeros, BYTE), Buffer("y", weights.scales, BYTE)
    loops = stages.loops_over("i", weights.scales)
    column, block = stages.indices_of(loops)
    byte = Load(x, (column, floor_div(block, weights.in_byte)))
    number = unpacked(byte, floor_mod(block, weights.in_byte), weights.bits)
    return stages.elementwise_kernel("unpacked_zeros", (x,), y, loops, converted(number, BYTE))


def packed_product(a_shape: Shape, weights: PackedWeights, bias: bool = False) -> PrimFunc:
    """`y[…, n] = Σ_k a[…, k] · w[k, n] + bias[n]`, a row-major product; float32 outside the bytes.

    Parameters: a, the bytes, the scales, the zero points if there are any, and the bias.
    """
    *lead, depth = a_shape
    assert depth == weights.depth
    a, packed = Buffer("a", a_shape, FLOAT), Buffer("b", weights.shape, BYTE)
    scales = Buffer("scales", weights.scales, FLOAT)
    zeros = Buffer("zeros", weights.scales, weights.zeros) if weights.zeros else None
    start = Buffer("bias", (weights.columns,), FLOAT) if bias else None
    y = Buffer("y", (*lead, weights.columns), FLOAT)
    rows = stages.loops_over("i", lead)
    column, block, byte, place = Var("n"), Var("q"), Var("j"), Var("h")
    depths: tuple[Loop, ...] = (
        (block, weights.blocks), (byte, weights.shape[2]), (place, weights.in_byte)
    )  # fmt: skip
    k = block * weights.block + byte * weights.in_byte + place
    number = unpacked(Load(packed, (column, block, byte)), place, weights.bits)
    zero = None if zeros is None else Load(zeros, (column, block))
    weight = multiply(weights.centred(number, zero), Load(scales, (column, block)))
    stage = stages.reduction_stage(
        "packed_product",
        ReduceOp.ADD,
        y,
        (*rows, (column, weights.columns)),
        depths,
        multiply(Load(a, (*stages.indices_of(rows), k)), weight),
        init=None if start is None else Load(start, (column,)),
        where=less_than(k, depth),
    )
    inputs = [x for x in (a, packed, scales, zeros, start) if x is not None]
    return stages.kernel_of_stages("packed_product", inputs, (y,), (stage,))
