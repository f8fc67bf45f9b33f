"""Instructions of AVX-512 that LLVM has no portable form for.

In: a builder and float32 or index values of any number of lanes.  Out: values with as many lanes.
What always holds: a value that does not fill a register is widened by undefined lanes, and a longer
one is computed a register at a time; no lane depends on other lanes of its operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphflow.codegen.emit_builder import IrBuilder, IrValue, integer, literal

RANGE_SMALLER, RANGE_LARGER = 0b0100, 0b0101
"""vrangeps: the smaller, the larger, with the sign that comparing gives."""
RANGE_NEARER_ZERO = 0b0010
"""vrangeps: the smaller absolute value, with the sign of the first operand; one that is NaN is
passed over."""

_ROUND_AS_SET = integer(4, "i32")
_MASKED: dict[int, tuple[int, IrValue, tuple[IrValue, ...]]] = {
    4: (128, integer(-1, "i8"), ()),
    8: (256, integer(-1, "i8"), ()),
    16: (512, integer(-1, "i16"), (_ROUND_AS_SET,)),
}
"""By lanes of a register: its bits, the mask of all lanes, and the rounding argument if any."""

_MOST = max(_MASKED)

TABLE_ENTRIES = 16
"""Entries of a table that one register holds."""


def vrange(b: IrBuilder, choice: int, x: IrValue, y: IrValue) -> IrValue:
    """One of `x` and `y` in each lane, by the immediate operand `choice` of vrangeps."""
    return _masked(b, "range", x, y, integer(choice, "i32"))


def scaled(b: IrBuilder, x: IrValue, exponent: IrValue) -> IrValue:
    """`x · 2ⁿ`, rounded once, where n is `exponent` rounded down.

    Infinite exponents give zero and infinity, whatever `x` is, and NaN gives NaN.
    """
    return _masked(b, "scalef", x, exponent)


def looked_up(b: IrBuilder, table: Sequence[float], indices: IrValue) -> IrValue:
    """The entries of a table of `TABLE_ENTRIES` float32 numbers, by the low bits of i32 indices."""
    if len(table) != TABLE_ENTRIES:
        raise ValueError(f"a table has {TABLE_ENTRIES} entries, not {len(table)}")
    entries = ", ".join(f"float {literal(entry, 'float32').text}" for entry in table)
    constant = IrValue(f"<{entries}>", "float", TABLE_ENTRIES)

    def of_register(places: IrValue) -> IrValue:
        whole = _in_lanes(b, places, TABLE_ENTRIES)
        found = b.call("llvm.x86.avx512.permvar.sf.512", constant.type, constant, whole)
        return b.part(IrValue(found.text, "float", TABLE_ENTRIES), 0, places.lanes)

    return _by_registers(b, of_register, indices)


def _masked(b: IrBuilder, name: str, x: IrValue, y: IrValue, *more: IrValue) -> IrValue:
    """A masked intrinsic of two operands with all lanes."""

    def of_register(x: IrValue, y: IrValue) -> IrValue:
        lanes = next(count for count in _MASKED if count >= x.lanes)
        bits, mask, rounding = _MASKED[lanes]
        left, right = (_in_lanes(b, operand, lanes) for operand in (x, y))
        full = f"llvm.x86.avx512.mask.{name}.ps.{bits}"
        found = b.call(full, left.type, left, right, *more, left, mask, *rounding)
        return b.part(IrValue(found.text, x.element, lanes), 0, x.lanes)

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


def _in_lanes(b: IrBuilder, value: IrValue, lanes: int) -> IrValue:
    """`value` with undefined lanes behind its own."""
    if value.lanes == lanes:
        return value
    return b.gathered([value], lanes) if value.lanes == 1 else b.widened(value, lanes)
