"""Bits of the words of vectors of 8, put together as bytes or as integers of 16 bits: with AVX2.

In: four or two vectors of i32, and the bit at which what is wanted of each word begins.  Out: one
vector, in order.  What always holds: no bit of one word becomes part of another one's.

Each vector is shifted so that what is wanted of it lies where that of no other one does, and blends
choose it.  Then one shuffle within 16 bytes and one across them order what they moved: for four
vectors nine instructions, of which three shuffle, where each vector by itself takes four.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.llvm import IrBuilder, IrValue, int_constant

LANES, WORD = 8, 32
"""The words of a vector, and their bits."""

GROUP = 4
"""The words of 16 bytes."""


def narrow_at(b: IrBuilder, words: Sequence[IrValue], begin: int) -> IrValue:
    """The bits from bit `begin` on of each word: a byte of four vectors, 16 bits of two."""
    count = len(words)
    bits, lanes = WORD // count, LANES * count
    parts = [
        _bitcast(b, _moved(b, one, begin - bits * number), bits) for number, one in enumerate(words)
    ]
    step = 1
    while len(parts) > 1:
        # Of two neighbours, the second one where the number in the word has this bit.
        chosen = [k + lanes * bool(k % count & step) for k in range(lanes)]
        parts = [
            b.shuffled(low, high, chosen) for low, high in zip(parts[::2], parts[1::2], strict=True)
        ]
        step *= 2
    within = [
        count * (GROUP * half + word) + number
        for half in range(LANES // GROUP)
        for number in range(count)
        for word in range(GROUP)
    ]
    groups = _bitcast(b, _ordered(b, parts[0], within), GROUP * bits)
    across = [count * half + number for number in range(count) for half in range(LANES // GROUP)]
    return _bitcast(b, _ordered(b, groups, across), bits)


def _ordered(b: IrBuilder, vector: IrValue, order: list[int]) -> IrValue:
    return b.shuffled(vector, IrValue("poison", vector.element, vector.lanes), order)


def _moved(b: IrBuilder, word: IrValue, by: int) -> IrValue:
    """The words of a vector shifted to the right by so many bits, or to the left."""
    return b.binary("lshr" if by > 0 else "shl", word, int_constant(abs(by), "i32"))


def _bitcast(b: IrBuilder, vector: IrValue, bits: int) -> IrValue:
    lanes = LANES * WORD // bits
    text = f"bitcast {vector.type} {vector.text} to <{lanes} x i{bits}>"
    return b.emit(text, f"i{bits}", lanes)
