"""Instructions of AVX-512 that LLVM has no portable form for, and its mask registers.

In: a builder and float32 or index values of any number of lanes.  Out: values with as many lanes.
What always holds: a value that does not fill a register is widened by undefined lanes, and a longer
one is computed a register at a time; no lane depends on other lanes of its operands.

LLVM keeps vectors of i1 in mask registers, whatever their width.  `Avx512Builder` avoids what LLVM
makes of them that is wrong or slow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from graphflow.base.target import Target
from graphflow.llvm import IrBuilder, IrValue, int_constant, lanes_of, typed_constant

RANGE_SMALLER, RANGE_LARGER = 0b0100, 0b0101
"""vrangeps: the smaller, the larger, with the sign that comparing gives."""
RANGE_NEARER_ZERO = 0b0010
"""vrangeps: the smaller absolute value, with the sign of the first operand; one that is NaN is
passed over."""
RANGE_MAGNITUDE = 0b1010
"""vrangeps: the smaller absolute value, without a sign; one that is a quiet NaN is passed over, a
signalling one makes the result NaN."""

CHOICE = 0b11001010
"""vpternlogd: bits of the second operand where the first one has ones, else of the third."""

QUIET_NAN = 0x22
"""vfixupimmps: the kinds of operands that are replaced, four bits of each, from the lowest on: a
quiet and a signalling NaN by themselves, quiet."""

_ROUND_AS_SET = int_constant(4, "i32")
_MASKED: dict[int, tuple[int, IrValue, tuple[IrValue, ...]]] = {
    4: (128, int_constant(-1, "i8"), ()),
    8: (256, int_constant(-1, "i8"), ()),
    16: (512, int_constant(-1, "i16"), (_ROUND_AS_SET,)),
}
"""By lanes of a register: its bits, the mask of all lanes, and the rounding argument if any."""

_MOST = max(_MASKED)

ByteTaker: TypeAlias = Callable[[IrBuilder, Sequence[IrValue], int], IrValue]
"""`bytes_at`, or `multishifted_bytes_at`, which gives the same bytes."""

TABLE_ENTRIES = 16
"""Entries of a table that one register holds."""

MASK_ADDITION = {8: "b", 16: "w", 32: "d", 64: "q"}
"""Suffixes of `llvm.x86.avx512.kadd`, by the number of lanes."""


class Avx512Builder(IrBuilder):
    """A builder for processors with mask registers."""

    lanes_of_registers = tuple(_MASKED)
    register_letter = "v"

    def chosen_lanes(self, bits: int, width: int) -> IrValue:
        """Truth in the lanes of these bits, as a mask that LLVM does not know.

        Of selections by lanes that it knows it makes shuffles, more of them than selections.
        """
        return self.remembered_at_entry(
            ("chosen lanes", bits, width), lambda: self._unknown_lanes(bits, width)
        )

    def _unknown_lanes(self, bits: int, width: int) -> IrValue:
        name, given = f"%lanes{bits}.{width}", f"i{width} {bits}"
        self.entry.append(f'  {name}.bits = call i{width} asm "", "=r,0"({given})')
        self.entry.append(f"  {name} = bitcast i{width} {name}.bits to <{width} x i1>")
        return IrValue(name, "i1", width)

    def unless_nan(self, x: IrValue, otherwise: IrValue) -> IrValue:
        """One instruction in place of a comparison, whose mask register is waited for, and an
        operation under that mask."""
        if x.lanes == 1:
            return super().unless_nan(x, otherwise)
        return _by_registers(self, self._fixed_up, otherwise, x)

    def _fixed_up(self, values: IrValue, operands: IrValue) -> IrValue:
        lanes = next(count for count in _MASKED if count >= values.lanes)
        bits, mask, rounding = _MASKED[lanes]
        kept, tested = (self.widened(operand, lanes) for operand in (values, operands))
        table = self.splat(int_constant(QUIET_NAN, "i32"), lanes)
        name, none = f"llvm.x86.avx512.mask.fixupimm.ps.{bits}", int_constant(0, "i32")
        result = self.call(name, "float", kept, tested, table, none, mask, *rounding, lanes=lanes)
        return self.part(result, 0, values.lanes)

    def readable(self, truths: IrValue) -> IrValue:
        """A vector of i1 plus zero; anything else as it is.

        Where the mask of a sign test is moved to a general register (vpmovq2m, kmov), LLVM 22
        (X86CompressEVEX) makes that one instruction (vmovmskpd) and drops the mask register,
        although it may be read again by an instruction that overwrites it (kshift, kor).  The sum
        stands between the two instructions, so that LLVM does not combine them, and LLVM has no
        rule that simplifies it.
        """
        if truths.element != "i1" or truths.lanes == 1 or truths.is_constant:
            return truths
        return self.remembered(("readable", truths.text), lambda: self._plus_zero(truths))

    def _plus_zero(self, truths: IrValue) -> IrValue:
        # Frozen, because the sum of lanes is one number: one that is poison would spoil all.
        truths, lanes = self.freeze(truths), truths.lanes
        width = max(lanes, min(MASK_ADDITION))
        none = IrValue("zeroinitializer", "i1", lanes)
        if lanes < width:
            truths = self.shuffled(truths, none, [min(k, lanes) for k in range(width)])
        name = f"llvm.x86.avx512.kadd.{MASK_ADDITION[width]}"
        total = self.call(name, "i1", truths, none._replace(lanes=width), lanes=width)
        return self.part(total, 0, lanes)


def vrange(b: IrBuilder, choice: int, x: IrValue, y: IrValue) -> IrValue:
    """One of `x` and `y` in each lane, by the immediate operand `choice` of vrangeps."""
    return _masked(b, "range", x, y, int_constant(choice, "i32"))


def scaled(b: IrBuilder, x: IrValue, exponent: IrValue) -> IrValue:
    """`x · 2ⁿ`, rounded once, where n is `exponent` rounded down.

    Infinite exponents give zero and infinity, whatever `x` is, and NaN gives NaN.
    """
    return _masked(b, "scalef", x, exponent)


def looked_up(b: IrBuilder, table: Sequence[float], indices: IrValue) -> IrValue:
    """The entries of a table of `TABLE_ENTRIES` float32 numbers, by the low bits of i32 indices."""
    if len(table) != TABLE_ENTRIES:
        raise ValueError(f"a table has {TABLE_ENTRIES} entries, not {len(table)}")
    entries = ", ".join(f"float {typed_constant(entry, 'float32').text}" for entry in table)
    constant = IrValue(f"<{entries}>", "float", TABLE_ENTRIES)

    def of_register(places: IrValue) -> IrValue:
        return permuted_words(b, constant, places)

    return _by_registers(b, of_register, indices)


def permuted_words(b: IrBuilder, register: IrValue, places: IrValue) -> IrValue:
    """The float32 or i32 elements of a register at i32 places in it, of which the low bits count.

    A register of 8 elements is AVX2's.
    """
    kind, lanes = ("ps", "sf") if register.element == "float" else ("d", "si"), register.lanes
    names = {8: f"llvm.x86.avx2.perm{kind[0]}", 16: f"llvm.x86.avx512.permvar.{kind[1]}.512"}
    filled = b.widened(places, lanes)
    fetched = b.call(names[lanes], register.element, register, filled, lanes=lanes)
    return b.part(fetched, 0, places.lanes)


def bytes_at(b: IrBuilder, words: Sequence[IrValue], begin: int) -> IrValue:
    """The byte that begins at bit `begin` of each word of four vectors of 16, in order.

    The bytes of four words, one of each vector, are put into one word: each is shifted to its
    place, and vpternlogd selects bits.  vpshufb and vpermd then order them.  That is 9
    instructions, two of which move bytes, where four vpmovdb move bytes twice each.
    """
    octets, moved = 64, []
    for number, one in enumerate(words):
        by = begin - 8 * number
        shift = "lshr" if by > 0 else "shl"
        moved.append(b.binary(shift, one, int_constant(abs(by), "i32")))
    merged = moved[0]
    for number, one in enumerate(moved[1:], 1):
        merged = _merged(b, (1 << 8 * number) - 1, merged, one)
    # In each 16 bytes: four of the first vector, four of the second, …
    control = lanes_of((4 * (lane % 4) + lane % 16 // 4 for lane in range(octets)), "i8")
    name, held = "llvm.x86.avx512.pshuf.b.512", _bitcast(b, merged, "i8")
    groups = _bitcast(b, b.call(name, "i8", held, control, lanes=octets), "i32")
    order = [4 * group + number for number in range(4) for group in range(4)]
    none = IrValue("poison", groups.element, groups.lanes)
    return _bitcast(b, b.shuffled(groups, none, order), "i8")


def _merged(b: IrBuilder, mask: int, inside: IrValue, outside: IrValue) -> IrValue:
    """The bits of `inside` where `mask` has ones, and those of `outside` elsewhere.

    Of portable operations LLVM 22 makes shuffles of each operand, twice as many instructions.
    """
    chosen = b.splat(int_constant(mask, "i32"), inside.lanes)
    name, choice = "llvm.x86.avx512.pternlog.d.512", int_constant(CHOICE, "i32")
    return b.call(name, "i32", chosen, inside, outside, choice, lanes=inside.lanes)


def multishifted_bytes_at(b: IrBuilder, words: Sequence[IrValue], begin: int) -> IrValue:
    """`bytes_at` with AVX-512 VBMI.

    vpmultishiftqb takes bytes from any bits of 64: two words of a vector at a time, which a mask
    puts behind those of the vectors before, and vpermw orders the pairs.
    """
    name, octets = "llvm.x86.avx512.pmultishift.qb.512", 64
    control = lanes_of((begin, begin + 32) * (octets // 2), "i8")
    found = [b.call(name, "i8", control, _bitcast(b, one, "i8"), lanes=octets) for one in words]
    pairs = found[0]
    for number, one in enumerate(found[1:], 1):
        own = b.chosen_lanes(sum(1 << k for k in range(octets) if k % 8 // 2 >= number), octets)
        pairs = b.select(own, one, pairs)
    pairs = _bitcast(b, pairs, "i16")
    order = [4 * lane + number for number in range(4) for lane in range(pairs.lanes // 4)]
    none = IrValue("poison", pairs.element, pairs.lanes)
    return _bitcast(b, b.shuffled(pairs, none, order), "i8")


def ordered_bytes(b: IrBuilder, value: IrValue, order: Sequence[int]) -> IrValue:
    """The 64 bytes of a vector in another order, with AVX-512 VBMI (vpermb)."""
    name = "llvm.x86.avx512.permvar.qi.512"
    return b.call(name, "i8", value, lanes_of(order, "i8"), lanes=len(order))


def _bitcast(b: IrBuilder, value: IrValue, element: str) -> IrValue:
    """The bits of a vector as one of i8, i16 or i32."""
    lanes = value.lanes * int(value.element[1:]) // int(element[1:])
    return b.emit(f"bitcast {value.type} {value.text} to <{lanes} x {element}>", element, lanes)


def _masked(b: IrBuilder, name: str, x: IrValue, y: IrValue, *more: IrValue) -> IrValue:
    """A masked intrinsic of two operands with all lanes."""

    def of_register(x: IrValue, y: IrValue) -> IrValue:
        lanes = next(count for count in _MASKED if count >= x.lanes)
        bits, mask, rounding = _MASKED[lanes]
        left, right = (b.widened(operand, lanes) for operand in (x, y))
        full, operands = f"llvm.x86.avx512.mask.{name}.ps.{bits}", (left, right, *more, left, mask)
        result = b.call(full, x.element, *operands, *rounding, lanes=lanes)
        return b.part(result, 0, x.lanes)

    return _by_registers(b, of_register, *b.matched(x, y))


def _by_registers(b: IrBuilder, compute: Callable[..., IrValue], *operands: IrValue) -> IrValue:
    """`compute` of values with equally many lanes, at most a register of them at once."""
    lanes = operands[0].lanes
    if lanes <= _MOST:
        return compute(*operands)
    half = lanes // 2
    low, high = (
        _by_registers(b, compute, *(b.part(operand, start, half) for operand in operands))
        for start in (0, half)
    )
    return b.shuffled(low, high, [*range(lanes)])


def masks_narrow_elements(target: Target) -> bool:
    """Whether a target has loads and stores of bytes and words of 16 bits under a mask."""
    return "+avx512bw" in target.features.split(",")
