"""Products with weights of a few bits, several of which lie in one byte.

In: logical shapes, and how the weights are packed.  Out: a PrimFunc of one reduction stage, which
reads the bytes and unpacks them where it multiplies.

A weight of `bits` bits is `(q − zero) · scale`; scale and zero point belong to a block of `block`
neighbours along the depth.  A byte holds `8 / bits` neighbours along the depth, the first one in
its lowest bits; with 4 bits, the byte 0x53 holds 3 and then 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from graphflow.arith import IndexExpr, Var, floor_div, floor_mod, less_than
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.scalar_functions import converted, multiply, subtract
from graphflow.kernels.definitions.stages import Loop, Shape
from graphflow.tir import Binary, Buffer, Expr, IndexValue, Load, PrimFunc, ReduceOp

FLOAT, WIDE, BYTE = "float32", "int32", "uint8"

ZeroPoints = Literal["middle", "packed", "floats"]
"""Where zero points come from: all are the middle of the range, `2 ** (bits − 1)`; they are packed
as the weights are, along the blocks of a column; or they are floats, one for each block."""


@dataclass(frozen=True)
class PackedWeights:
    """Weights of `columns` columns and `depth` rows, each column by itself in whole blocks."""

    columns: int
    depth: int
    bits: int
    block: int
    zeros: ZeroPoints = "middle"

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
    def zero_points(self) -> Buffer | None:
        """The parameter of the zero points; None where they are the middle of the range."""
        match self.zeros:
            case "middle":
                return None
            case "packed":
                return Buffer("zeros", (self.columns, -(-self.blocks // self.in_byte)), BYTE)
            case "floats":
                return Buffer("zeros", self.scales, FLOAT)

    def centred(
        self,
        packed: Buffer,
        zeros: Buffer | None,
        at: tuple[IndexExpr, IndexExpr, IndexExpr],
        place: IndexExpr,
    ) -> Expr:
        """The number at a place of a byte less the zero point of its block, as a float.

        Where both are integers their difference is exact as one.
        """
        column, block, _ = at
        number = self._unpacked(Load(packed, at), place)
        if zeros is None:
            return converted(subtract(number, 2 ** (self.bits - 1)), FLOAT)
        if zeros.dtype == FLOAT:
            return subtract(converted(number, FLOAT), Load(zeros, (column, block)))
        byte = Load(zeros, (column, floor_div(block, self.in_byte)))
        zero = self._unpacked(byte, floor_mod(block, self.in_byte))
        return converted(subtract(number, zero), FLOAT)

    def _unpacked(self, byte: Load, place: IndexExpr) -> Expr:
        """The number at a place of a byte, in 32 bits: processors do not shift the bytes of a
        vector."""
        wide = converted(byte, WIDE)
        if self.bits == 8:
            return wide
        shifted = Binary("shr", wide, IndexValue(place * self.bits, WIDE))
        return Binary("and", shifted, stages.literal(2**self.bits - 1, WIDE))


def packed_product(a_shape: Shape, weights: PackedWeights, bias: bool = False) -> PrimFunc:
    """`y[…, n] = Σ_k a[…, k] · w[k, n] + bias[n]`, a row-major product; float32 outside the bytes.

    Parameters: a, the bytes, the scales, the zero points if there are any, and the bias.
    """
    *lead, depth = a_shape
    assert depth == weights.depth
    a, packed = Buffer("a", a_shape, FLOAT), Buffer("b", weights.shape, BYTE)
    scales, zeros = Buffer("scales", weights.scales, FLOAT), weights.zero_points
    start = Buffer("bias", (weights.columns,), FLOAT) if bias else None
    y = Buffer("y", (*lead, weights.columns), FLOAT)
    rows = stages.loops_over("i", lead)
    column, block, byte, place = Var("n"), Var("q"), Var("j"), Var("h")
    depths: tuple[Loop, ...] = (
        (block, weights.blocks), (byte, weights.shape[2]), (place, weights.in_byte)
    )  # fmt: skip
    k = block * weights.block + byte * weights.in_byte + place
    centred = weights.centred(packed, zeros, (column, block, byte), place)
    weight = multiply(centred, Load(scales, (column, block)))
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
