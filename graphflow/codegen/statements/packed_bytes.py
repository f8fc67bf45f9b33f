"""Vectors of floats rounded to bytes, four vectors at once, by the instructions that saturate; or
to words in the bounds of bytes, two at once.

In: four vectors of float32 of 8 or 16 lanes, a zero point that all lanes share, and whether the
bytes are signed.  Out: the nearest integers plus the zero point, saturated, as one vector of bytes
in order.  What always holds: they are those that `Saturated` defines, of NaN the least byte.

`vcvtps2dq` gives the least number of 32 bits for what these cannot hold and for NaN, so that only
numbers that are too large are bounded before.  Two of `vpackssdw` and one of `vpacksswb` or
`vpackuswb` saturate at both ends, and a shuffle of words orders what they moved: four instructions
for four vectors, where `vpmovdb` is two for each, and the lower bound is none.  Words are bounded
by two instructions for two vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.llvm import IrBuilder, IrValue, int_constant

GROUP = 4
"""The lanes of 32 bits that an instruction does not move out of: those of 128 bits."""

_NAMES = {
    8: ("avx2.packssdw", {True: "avx2.packsswb", False: "avx2.packuswb"}),
    16: ("avx512.packssdw.512", {True: "avx512.packsswb.512", False: "avx512.packuswb.512"}),
}
"""By lanes: LLVM's names of what narrows to 16 bits, and to signed bytes or to unsigned ones."""


def packed_bytes(
    b: IrBuilder, vectors: Sequence[IrValue], zero: IrValue | None, signed: bool
) -> IrValue:
    """The bytes of four vectors, none of whose lanes is above the largest byte less `zero`, which
    has one lane, unless the integers nearest to all of them fit 32 bits."""
    to_words, to_bytes = _NAMES[vectors[0].lanes]
    low, high = (
        _packed(b, to_words, "i16", pair) for pair in _pairs([_nearest(b, x) for x in vectors])
    )
    if zero is not None:
        point = b.convert("trunc", b.convert("fptosi", zero, "i32"), "i16")
        low, high = (b.intrinsic("sadd.sat", words, point) for words in (low, high))
    packed = _packed(b, to_bytes[signed], "i8", (low, high))
    return _in_order(b, packed)


def packed_words(
    b: IrBuilder, vectors: Sequence[IrValue], zero: IrValue | None, limits: tuple[int, int]
) -> IrValue:
    """The words of two vectors of 8 lanes within limits that 16 bits hold; the lanes are as those
    of `packed_bytes`."""
    low, high = (b.splat(int_constant(limit, "i16"), 2 * GROUP * 2) for limit in limits)
    words = _packed(b, _NAMES[2 * GROUP][0], "i16", tuple(_nearest(b, x) for x in vectors))
    if zero is not None:
        point = b.convert("trunc", b.convert("fptosi", zero, "i32"), "i16")
        words = b.intrinsic("sadd.sat", words, point)
    bounded = b.intrinsic("smin", b.intrinsic("smax", words, low), high)
    order = [*range(4), *range(8, 12), *range(4, 8), *range(12, 16)]
    return b.shuffled(bounded, IrValue("poison", "i16", bounded.lanes), order)


def _pairs(items: list[IrValue]) -> tuple[tuple[IrValue, IrValue], ...]:
    return ((items[0], items[1]), (items[2], items[3]))


def _nearest(b: IrBuilder, x: IrValue) -> IrValue:
    """The nearest numbers of 32 bits; the least one for what is too large, too small or NaN.

    LLVM's portable `lrint` promises nothing for these.
    """
    if x.lanes == GROUP * 2:
        return b.call("llvm.x86.avx.cvt.ps2dq.256", "i32", x, lanes=x.lanes)
    none = IrValue("zeroinitializer", "i32", x.lanes)
    all_lanes, as_set = int_constant(-1, "i16"), int_constant(4, "i32")
    name = "llvm.x86.avx512.mask.cvtps2dq.512"
    return b.call(name, "i32", x, none, all_lanes, as_set, lanes=x.lanes)


def _packed(b: IrBuilder, name: str, element: str, pair: Sequence[IrValue]) -> IrValue:
    return b.call(f"llvm.x86.{name}", element, *pair, lanes=2 * pair[0].lanes)


def _in_order(b: IrBuilder, packed: IrValue) -> IrValue:
    """The bytes of the first vector, then those of the second one, …: in each 128 bits are four of
    each."""
    lanes = packed.lanes // 4
    words = b.emit(f"bitcast {packed.type} {packed.text} to <{lanes} x i32>", "i32", lanes)
    order = [GROUP * group + number for number in range(4) for group in range(lanes // GROUP)]
    ordered = b.shuffled(words, IrValue("poison", "i32", lanes), order)
    return b.emit(
        f"bitcast {ordered.type} {ordered.text} to {packed.type}", packed.element, packed.lanes
    )
