"""The price of sums of blocks in register tiles, and the tile that takes the fewest cycles.

In: the work, as data, and the target.  Out: cycles of one core.

A step takes a vector of bytes for all rows of a tile: it is loaded once, and for each place in a
byte shifted and masked once; then each row multiplies it by four of its bytes, which it broadcasts.
At the end of a block each sum is converted, scaled and added.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from graphflow.base.target import Target
from graphflow.cost.near import first_of_cheapest

MOST_ROWS, WIDTHS = 8, (1, 2, 4)
"""The most rows of a tile, and its vectors."""

HELD = 2
"""Registers of an accumulator: a sum of integers, and one of floats."""

UNPACKING = 0.5
"""Cycles of a shift or a mask of a vector."""

SCALING = 2.5
"""Cycles to begin the sum of a block, to convert it, and to scale and add it."""

STEP = 1.0
"""Cycles of a loop around the steps of a block, or around blocks."""

DOT_LATENCY = 4.0
"""Cycles until a sum of dot products may be added to."""

IN_FLIGHT = 160.0
"""Instructions of which a core executes some before others that are written earlier: so many blocks
as these hold are computed at once."""


@dataclass(frozen=True, slots=True)
class BlockSumWork:
    """Sums of `terms` products in each of the `blocks` of `planes` × `rows` × `columns` elements.

    An instruction sums `group` terms; a byte holds as many weights as it has `places`.
    """

    columns: int
    rows: int
    planes: int
    blocks: int
    terms: int
    group: int
    places: int


def cheapest_block_tile(work: BlockSumWork, lanes: int, target: Target) -> tuple[int, int]:
    """The rows and the vectors of the tile in which the work takes the fewest cycles."""
    fitting = [
        (rows, vectors)
        for vectors, rows in product(WIDTHS, range(1, min(work.rows, MOST_ROWS) + 1))
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
    groups = work.terms // work.group
    dots = groups * rows * vectors
    unpacked = groups * vectors * (1 + (work.places - 1) / work.places) * (work.places > 1)
    scaled = rows * vectors
    busy = dots + UNPACKING * unpacked + SCALING * scaled + STEP * groups / work.places
    at_once = max(1.0, IN_FLIGHT / (1.5 * dots + unpacked + 4 * scaled))
    return work.blocks * max(busy, DOT_LATENCY * groups / at_once)
