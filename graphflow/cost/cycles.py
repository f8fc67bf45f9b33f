"""Prices, in cycles of one core, of what kernels do besides the updates of register tiles.

In: counts of operations, elements and bytes, and the target.  Out: cycles.

The figures of passes over rows of data that stay in a cache were fitted to softmax and norms of
rows of 96 to 4096 floats, in vectors of 16: their prices are between 0.7 and 1.6 of the measured
times.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from graphflow.base.dtypes import BYTES
from graphflow.base.target import Target, element_bytes
from graphflow.cost.work import ConversionWork
from graphflow.tir import ELEMENTARY

SIMPLE = 0.4
"""Cycles of an addition, a multiplication or a load of a vector."""

PER_VECTOR = MappingProxyType(
    {
        **{name: f.cycles for name, f in ELEMENTARY.items() if f.cycles is not None},
        "sqrt": 4.0,
        "div": 4.0,
        "max": 1.5,
        "min": 1.5,
        "pow": 30.0,
    }
)
"""Cycles of those operations on a vector that take longer, where the target has no others."""

LONG = frozenset({"sqrt", "div", "pow", *ELEMENTARY})
"""Operations that nothing hides, wherever they are computed."""

DIVIDING = frozenset({"sqrt", "div"})
"""Those of a unit that does nothing else: measured on average pools, whose division takes no time
beside the sums of nine elements."""

PER_ROW = 6.0
"""Cycles in which the accumulators of a reduction become one number, beside other rows."""

AT_ONCE = 0.5
"""Cycles of a simple operation on single numbers, which runs beside those of other rows."""


def vector_cycles(operations: Iterable[str], target: Target) -> float:
    """Cycles of a statement on one vector; loads and stores count as operations too.

    Where a target computes quotients and roots beside the others (`divides_beside`), the longer of
    both counts."""
    known = PER_VECTOR | dict(target.slow_operations)
    divided = other = 0.0
    for name in operations:
        if target.divides_beside and name in DIVIDING:
            divided += known.get(name, SIMPLE)
        else:
            other += known.get(name, SIMPLE)
    return max(divided, other)


def number_cycles(operations: Iterable[str]) -> float:
    """Cycles of a statement on single numbers, between passes over a row."""
    return sum(PER_VECTOR.get(name, AT_ONCE) for name in operations)


SCALAR_CYCLES = 4.0
"""Cycles of one scalar operation, its loads and stores included."""

MOVE_CYCLES = 2.0
"""Cycles to load and store one element with scalar instructions."""

MASKED_REDUCTION = 1.05
"""The factor on a reduction over a padded axis that masks the padding out."""

GATHERED = 8.0
"""The factor on a step of a reduction whose lanes gather elements that are not adjacent."""

TESTED_LANE = 2.0
"""Cycles of a lane that loads an element by itself under a condition of its own, as neighbouring
positions of a transposed convolution do, which meet different taps: 1.6 to 2.6 for one channel,
strides of 2 and 8 and one or two axes on a Zen 4.  Where a row is one panel and its taps are
written out, the compiler knows the conditions, and it is a tenth of that."""

MOST_STRIDE = 4
"""The largest distance of lanes for which vectors of all elements between them are loaded and
shuffled: for a larger one that takes as many instructions as loading the lanes one by one."""

COPYING, GATHERING, SCALAR = 0.3, 0.75, 2.4
"""Cycles in which a conversion moves an element: in vectors that are contiguous on both sides; in
vectors gathered from the source; and by itself, at the end of a run that is no whole vector."""

BYTES_APART = 0.8
"""Cycles in which a conversion moves a byte by itself: LLVM puts vectors of bytes together with one
instruction for each, 0.6 cycles for three channels of an image, 1.0 for rows of 56."""

BY_TURNS = {1: 0.075, 2: 0.22}
"""Cycles to store an element, or its padding, of one or two bytes where those of few channels are
shuffled into whole vectors.  Of one byte 0.07 for 3 and 5 channels of 160×160 and for 3 in places
of 4; of two bytes 0.17 to 0.28 with AVX2, and 0.12 to 0.17 with AVX-512 on a Zen 4."""

TESTED_MASK = 2.0
"""Cycles to test a mask, with a branch that is foreseen, and to store a vector."""

ROUNDING = 12.0
"""Cycles to divide a vector of floats by a scale, to round it and to narrow it to bytes."""

CHAINED_ROUNDING = 8.0
"""The same without the division, of each of several roundings that follow one another, as where a
quantized network computes on single elements: their vectors are rounded one by one.  With the
division 10 to 12 cycles with AVX2 and 12 to 15 with AVX-512, in chains of two and three."""

SCATTERING = 0.5
"""Cycles in which an element of a vector is stored by itself, between tiles that are computed: 0.4
to 0.6 for depthwise convolutions whose channels a shuffle orders otherwise."""

TRANSPOSING, IN_PART = 0.35, 0.7
"""The same where blocks are transposed in registers: in a block of whole vectors, and in a smaller
block, whose loads or stores are partial vectors.  Of elements of four bytes and more."""

TRANSPOSING_NARROW = {1: 0.35, 2: 0.55}
"""The share of that for narrower elements, by their bytes: 64 channels of 56×56 take 24 µs in
float32, 12 in two bytes and 7.5 in one on a Zen 4."""

TRANSPOSING_NEAR = 0.15
"""The same where a kernel transposes what it reads next into a buffer of the thread, which the
first-level cache holds, or what it wrote there: 0.14 to 0.16 for 16 to 64 rows of 64 before a
product (0.29 for rows of 256), and 0.05 to 0.12 around a normalization."""

LOOK = 5.0
"""Cycles of a vector that a kernel looks at to find out whether it may leave out work.  On a Zen 4
a band of 32 rows takes 28 for a key that its mask excludes: two vectors of a mask of booleans, of
which a maximum is taken, and the four of a value, which zeros multiply."""

UNPACKED = 2.6
"""The factor on a kernel whose lanes run along rows of an image without packed weights: each loaded
vector serves a single multiply-add."""

INTEGER_PRODUCTS = 2.5
"""The factor on multiply-adds of integers of 32 bits over those of floats, which are one
instruction: a product of 32 bits takes two on Intel's processors and twice the time on AMD's, then
the sum follows, and bytes are widened first."""

WIDENING = 1.0
"""Cycles to widen a vector of 16-bit floats that is loaded: two operations."""

ROUNDING_FLOATS = 2.0
"""Cycles to round a vector of floats to 16 bits."""

INSTRUCTIONS = 2.5
"""Instructions that a core executes in the time of a vector's multiply-add: measured on tiles of
products of 16-bit integers with AVX2 on a Zen 4, which does two multiply-adds a cycle."""

LOOP_INSTRUCTIONS = 4
"""Instructions of a loop around a step of a register tile."""

FETCHING_SHARE = 0.1
"""The largest share of a group's time that may go into fetching its weights again."""


def narrow_saves(elements: int, loads: int, target: Target, rounds: bool = False) -> bool:
    """Whether a tensor of numbers of 16 bits is better stored in these than in float32, if its
    readers load so many elements of it and widen each, and if each is rounded only then, if
    `rounds`.

    That saves moving half of it, once to where it is stored and once back, unless the second-level
    cache holds it between: then moving is hidden behind computing.
    """
    wide, narrow = (element_bytes(dtype) * elements for dtype in ("float32", "float16"))
    if 2 * wide <= target.l2_bytes:
        return False
    rate = target.l3_gbps if 2 * wide <= target.l3_bytes else target.dram_gbps
    saved = 2 * (wide - narrow) * target.clock_ghz / rate
    spent = loads * WIDENING + rounds * elements * ROUNDING_FLOATS
    return spent / target.computed_lanes("float32") < saved


def widening_seconds(loads: int, target: Target) -> float:
    """Seconds of one core to widen so many elements of 16 bits that are loaded."""
    return loads * WIDENING / target.computed_lanes("float32") / (target.clock_ghz * 1e9)


def operation_cycles(operations: float) -> float:
    """Cycles of operations done one after the other, each on a scalar or on a whole vector."""
    return operations * SCALAR_CYCLES


def move_cycles(elements: int, adjacent: bool, dtype: str, target: Target) -> float:
    """Cycles to copy elements; in vectors, where they are `adjacent` in source and target."""
    one = MOVE_CYCLES / target.computed_lanes(dtype) if adjacent else MOVE_CYCLES
    return elements * one


def gathering_cycles(elements: int) -> float:
    """Cycles to gather elements into vectors one by one, with what comes on top of storing them."""
    return elements * GATHERING


def tested_lane_cycles(steps: int) -> float:
    """Cycles of so many steps of single lanes, each with a condition and an element of its own."""
    return steps * TESTED_LANE


def scattering_cycles(elements: int) -> float:
    """Cycles to store the elements of vectors one by one."""
    return elements * SCATTERING


def turning_cycles(elements: int, turns: int, dtype: str, target: Target) -> float:
    """Cycles to shuffle so many vectors that are stored by turns into the order of memory.

    Each vector goes through as many shuffles of two as `turns` can be halved, and an odd number of
    them is put together one by one."""
    shuffles = 0
    while turns % 2 == 0:
        turns, shuffles = turns // 2, shuffles + 1
    return elements / target.computed_lanes(dtype) * (shuffles + turns - 1)


def conversion_cycles(work: ConversionWork, target: Target) -> float:
    """Cycles of one core for a conversion, or for a kernel that moves elements as one does."""
    lanes = target.computed_lanes(work.dtype) if work.source_run else target.lanes(work.dtype)
    whole = _in_whole_vectors(work.count, lanes)
    if work.source_run:
        whole *= _in_whole_vectors(work.source_run, lanes)
        share = TRANSPOSING_NARROW.get(element_bytes(work.dtype), 1.0)
        one = (TRANSPOSING * whole + IN_PART * (1 - whole)) * share
    elif work.by_turns:
        size = element_bytes(work.dtype)
        return (work.moved_bytes // size - work.elements) * BY_TURNS[size]
    else:
        apart = BYTES_APART if work.dtype in BYTES else SCALAR
        one = (COPYING if work.adjacent else GATHERING) * whole + apart * (1 - whole)
    return work.elements * one


def rounding_cycles(elements: int, dtype: str, target: Target) -> float:
    """Cycles to make integers of 8 or 16 bits of so many floats."""
    return ROUNDING * elements / target.computed_lanes(dtype)


def chained_rounding_cycles(count: int, vectors: float) -> float:
    """Cycles to make bytes of so many vectors, `count` times one after another; none where that is
    done once, of several vectors together."""
    return CHAINED_ROUNDING * count * vectors if count > 1 else 0.0


def look_cycles(vectors: float) -> float:
    """Cycles of a look at so many vectors of a mask, or of numbers that might not be finite."""
    return vectors * LOOK


def transposing_cycles(elements: int) -> float:
    """Cycles in which a kernel transposes elements into a buffer of the thread."""
    return elements * TRANSPOSING_NEAR


def _in_whole_vectors(count: int, lanes: int) -> float:
    """The share of a run of `count` elements that is in whole vectors."""
    return count // lanes * lanes / count


def pair_step_cycles(rows: int, vectors: int, target: Target) -> float:
    """Cycles in which a register tile adds up the products of one pair of 16-bit integers for each
    of its lanes: `rows` pairs are broadcast, `vectors` vectors of weights loaded.

    Each product is multiplied by one instruction and added by another one, so that the number of
    instructions decides, and not the units that multiply.
    """
    instructions = rows * (2 * vectors + 1) + vectors + LOOP_INSTRUCTIONS
    multiplied = rows * vectors / target.fmas_per_cycle
    return max(multiplied, instructions / target.fmas_per_cycle / INSTRUCTIONS)


def tests_masks(target: Target) -> bool:
    """Whether a test of a mask, and a store of all lanes where all run, are cheaper than a store
    under that mask."""
    return target.cycles_per_masked_store > TESTED_MASK


def has_more_units(target: Target) -> bool:
    """Whether vectors are also put together in units beside those that multiply."""
    return target.sums_per_cycle > target.fmas_per_cycle


def in_pieces(target: Target) -> bool:
    """Whether stores of one, two, four … lanes are cheaper than one under a mask known beforehand.

    A mask of n lanes is split into as many stores as n has ones in binary, mostly one or two.
    """
    return target.cycles_per_masked_store > 1


def streaming_cycles(weight_bytes: float, near: bool, target: Target) -> float:
    """Cycles to load weights from the second-level cache if `near`, else from the third."""
    return weight_bytes / (target.l2_bytes_per_cycle if near else target.l3_bytes_per_cycle)


def rows_worth_weights(weight_bytes: float, near: bool, row_cycles: float, target: Target) -> float:
    """How many rows of an image a group must compute for each time that it fetches its weights.

    So many that fetching takes no more than `FETCHING_SHARE` of the time.  `weight_bytes` are those
    of one group, `row_cycles` the cycles for one row; `near` says that the weights of all groups
    stay in the second-level cache.
    """
    return streaming_cycles(weight_bytes, near, target) / (FETCHING_SHARE * row_cycles)
