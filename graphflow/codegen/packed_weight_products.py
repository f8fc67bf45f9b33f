"""The instructions of x86 processors for dot products with weights of which a byte holds several.

In: the operands of a call.  Out: LLVM IR that shifts and masks four bytes of weights for each lane
at once, and multiplies them by four signed bytes, which all lanes share.  What always holds: sums
are exact, and saturate nowhere: a sum of two products of weights below 16 fits 16 bits.
"""

from __future__ import annotations

from graphflow.codegen.call_operands import CallOperands, Instruction
from graphflow.codegen.x86_instructions import (
    add_word_pairs,
    as_bytes,
    bits_for_lanes,
    dot_product,
    dot_product_features,
    in_words,
    word_product_feature,
)
from graphflow.llvm import IrValue, int_constant
from graphflow.tir import PrimFunc, parse

SPLIT_BITS = 4
"""Weights of at most so many bits may be multiplied in pairs whose sums have 16 bits."""


def packed_weight_products() -> tuple[Instruction, ...]:
    """All of them; of those with one definition but for its name, the first ones are preferred."""
    places = [(bits, place) for bits in (8, 4, 2) for place in range(8 // bits)]
    return (
        *(_dots(lanes, *place) for lanes in (16, 8) for place in places),
        *(_split_dots(lanes, *place) for lanes in (16, 8) for place in places),
    )


def _definition(kind: str, lanes: int, bits: int, place: int) -> PrimFunc:
    """Sums of four products; the weights are those at a place of their bytes."""
    weight = "cast(i32, b[lane, byte])"
    if bits < 8:
        weight = f"({weight} >> index({bits * place}, i32) & i32({2**bits - 1}))"
    return parse(f"""
    @primfunc
    def {kind}{bits}_{place}_{lanes}(c: inout[i32[{lanes}]], a: i8[4], b: u8[{lanes}, 4]):
        for lane in vectorized(0, {lanes}):
            for byte in serial(0, 4):
                c[lane] += cast(i32, a[byte]) * {weight}
    """)


def _weights(of: CallOperands, lanes: int, bits: int, place: int) -> IrValue:
    """The four weights at a place of the bytes of each lane, as bytes."""
    b = of.builder
    weights = of.vector("b")
    if bits == 8:
        return weights
    words = b.emit(f"bitcast {weights.type} {weights.text} to <{lanes} x i32>", "i32", lanes)
    if place:
        words = b.binary("lshr", words, b.splat(int_constant(bits * place, "i32"), lanes))
    mask = int_constant((2**bits - 1) * 0x01010101, "i32")
    return as_bytes(of, b.binary("and", words, b.splat(mask, lanes)))


def _dots(lanes: int, bits: int, place: int) -> Instruction:
    """With VNNI, whose unsigned factor is the weights."""

    def emitted(of: CallOperands) -> None:
        data = as_bytes(of, bits_for_lanes(of, 4, lanes))
        of.store("c", dot_product(of, lanes, _weights(of, lanes, bits, place), data))

    definition = _definition("weight_dot", lanes, bits, place)
    return Instruction(definition, dot_product_features(lanes), emitted)


def _split_dots(lanes: int, bits: int, place: int) -> Instruction:
    """Without: the sums of pairs of products, then those of pairs of these; of weights of a byte
    the even and the odd ones as 16-bit integers."""

    def emitted(of: CallOperands) -> None:
        b, data = of.builder, bits_for_lanes(of, 4, lanes)
        weights = _weights(of, lanes, bits, place)
        if bits <= SPLIT_BITS:
            wide = lanes == 16
            name = "llvm.x86.avx512.pmaddubs.w.512" if wide else "llvm.x86.avx2.pmadd.ub.sw"
            pairs = b.call(name, "i16", weights, as_bytes(of, data), lanes=2 * lanes)
            add_word_pairs(of, lanes, pairs, b.splat(int_constant(1, "i16"), 2 * lanes))
            return
        shift = b.splat(int_constant(8, "i16"), 2 * lanes)
        weights, data = in_words(of, weights, lanes), in_words(of, data, lanes)
        low = b.binary("lshr", b.binary("shl", weights, shift), shift)
        even = b.binary("ashr", b.binary("shl", data, shift), shift)
        add_word_pairs(of, lanes, low, even)
        add_word_pairs(of, lanes, b.binary("lshr", weights, shift), b.binary("ashr", data, shift))

    definition = _definition("split_weight_dot", lanes, bits, place)
    return Instruction(definition, word_product_feature(lanes), emitted, composed=True)
