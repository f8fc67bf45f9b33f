"""The price of sums of blocks in register tiles, and the tile that takes the fewest cycles.

In: the work, as data, and the target.  Out: cycles of one core.

A step takes a vector of bytes for all rows of a tile: it is loaded once, and for each place in a
byte shifted and masked once; then each row multiplies it by four of its bytes, which it broadcasts.
At the end of a block each sum is converted, scaled and added.

Multiplications are done as often in a cycle as multiply-adds, and beside them shifts, masks and
additions, as long as there are instructions enough for a cycle.  On a Zen 4, 8 rows of 2048 × 2048
weights of 4 bits take 197 to 199 µs in tiles of 8 × 16, 4 × 32 and 2 × 64, by this price 197.  With
AVX2 they take 411 in tiles of 2 × 16, 428 in 5 × 8 and 481 in 1 × 16, by this price 413, 424 and
479.
"""

from __future__ import annotations

from itertools import product

from msgspec import Struct

from graphflow.base.processors import NARROW_BYTES
from graphflow.base.target import Target
from graphflow.cost.near import first_of_cheapest

MOST_ROWS, WIDTHS = 8, (4, 2, 1)
"""The most rows of a tile, and its vectors: of tiles that cost the same, one with few rows is best
for runs of few rows."""

HELD = 2
"""Registers of an accumulator: a sum of integers, and one of floats."""

SCALING, SCALED = 3, 4
"""Multiplications, or what is done as seldom, and all instructions that begin, convert, scale and
add the sum of a block."""

INSTRUCTIONS = {False: 2.0, True: 3.3}
"""Vector instructions of a cycle, broadcasts included, by whether vectors are narrow: processors
have half as many units for wide ones, or two of three ports.  Measured on a Zen 4."""

DOT_LATENCY = 4
"""Cycles until a sum of dot products may be added to."""

IN_FLIGHT = 160
"""Instructions of which a core executes some before others that are written earlier: so many blocks
as these hold are computed at once."""


class BlockSumWork(Struct, frozen=True):
    """Sums of `terms` products in each of the `blocks` of `planes` × `rows` × `columns` elements.

    `group` terms are summed at once, by so many `operations`, of which the last adds and the others
    multiply, if there are several; a byte holds as many weights as it has `places`.
    """

    columns: int
    rows: int
    planes: int
    blocks: int
    terms: int
    group: int
    places: int
    operations: int


def cheapest_block_tile(work: BlockSumWork, lanes: int, target: Target) -> tuple[int, int]:
    """The rows and the vectors of the tile in which the work takes the fewest cycles."""
    fitting = [
        (rows, vectors)
        for vectors, rows in product(WIDTHS, range(min(work.rows, MOST_ROWS), 0, -1))
        if HELD * rows * vectors + 2 * vectors + 2 <= target.vector_registers
    ]
    return first_of_cheapest(
        (block_sum_cycles(work, *tile, lanes, target), tile) for tile in fitting
    )


def block_sum_cycles(
    work: BlockSumWork, rows: int, vectors: int, lanes: int, target: Target
) -> float:
    """The cycles of all sums in tiles of so many rows and vectors."""
    whole, rest = divmod(work.rows, rows)
    panels = -(-work.columns // (vectors * lanes)) * work.planes
    tiles = whole * _tile_cycles(work, rows, vectors, target)
    if rest:
        tiles += _tile_cycles(work, rest, vectors, target)
    return panels * tiles


def _tile_cycles(work: BlockSumWork, rows: int, vectors: int, target: Target) -> float:
    sums, groups = rows * vectors, work.terms // work.group
    dots = groups * sums
    # All places but the first are shifted; weights that fill their bytes are not even masked.
    unpacked = groups * vectors * (2 - 1 / work.places) if work.places > 1 else 0.0
    products = dots * max(work.operations - 1, 1) + SCALING * sums
    broadcast = groups * rows
    instructions = dots * work.operations + broadcast + unpacked + SCALED * sums
    is_narrow = target.vector_bytes == NARROW_BYTES
    busy = max(products / target.fmas_per_cycle, instructions / INSTRUCTIONS[is_narrow])
    blocks_at_once = max(1.0, IN_FLIGHT / instructions)
    return work.blocks * max(busy, DOT_LATENCY * groups / blocks_at_once)
