"""Transposes a square tile of vectors with two-operand shuffles.

In: the rows of the tile, and the number of a column.  Out: that column as a vector.  What always
holds: all columns of a tile are computed from the same intermediate vectors, written with the same
text, so that LLVM's common subexpression elimination keeps one of each: `n log n` shuffles for all
columns of `n` rows.

Vectors are merged in pairs, until one is left.  Of four rows a, b, c and d, which have the elements
a0 to a3 and so on, column 1 is made of three shuffles:

    a0 a1 a2 a3 ┐ interleave   ┌ a0 b0 a1 b1 ┐ upper pairs
    b0 b1 b2 b3 ┘ lower halves └             ├────────────► a1 b1 c1 d1
    c0 c1 c2 c3 ┐ interleave   ┌ c0 d0 c1 d1 ┘
    d0 d1 d2 d3 ┘ lower halves └

Column 0 takes the lower pairs of the same vectors; columns 2 and 3 interleave the upper halves.
"""

from __future__ import annotations

from graphflow.llvm import IrBuilder, IrValue

CHUNK_BYTES = 16
"""One instruction (vpunpck) interleaves two vectors within chunks of 16 bytes, not across them."""


def column_of(builder: IrBuilder, rows: list[IrValue], column: int, itemsize: int) -> IrValue:
    """The vector of element `column` of each row; lanes beyond the rows are poison."""
    element, width = rows[0].element, rows[0].lanes
    size = max(width, 1 << (len(rows) - 1).bit_length())
    level = [builder.widened(row, size) for row in rows]
    chunk = min(CHUNK_BYTES // itemsize, size)
    step = 1
    while step < size:
        if len(level) % 2:
            level.append(IrValue("poison", element, size))
        sources = [_source_lane(lane, step, chunk, column) for lane in range(size)]
        # Lanes from `size` on are those of the second vector.
        lanes = [source + size * bool(lane & step) for lane, source in enumerate(sources)]
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [builder.shuffled(low, high, lanes) for low, high in pairs]
        step *= 2
    return level[0]


def _source_lane(lane: int, step: int, chunk: int, column: int) -> int:
    """The lane, in either vector of a pair, of what the merged vector has at `lane`.

    Each vector of a pair is made of `step` rows: the lowest bits of a lane number these rows, the
    others columns.  In the merged vector, bit `step` says from which of both an element comes, so
    there is one bit less for columns: elements in the half without `column` are dropped.  With
    `chunk` 4, and bits of rows r and of columns c:

        step      1        2        4        8
        before   cccc     cccr     ccrr     crrr
        merged   cccr     ccrr     crrr     rrrr

    Below `chunk` the bits of columns inside a chunk move up by one and the highest of them is
    dropped, which interleaves a half of each chunk.  From `chunk` on the bit of `step` is dropped,
    which takes every second group of `step` lanes.
    """
    if step >= chunk:
        return lane & ~step | column & step
    outside = lane & ~(chunk - 1)
    row = lane & (step - 1)
    moved = (lane & (chunk - 1) & ~(2 * step - 1)) >> 1
    upper_half = chunk // 2 if column & (chunk // 2 // step) else 0
    return outside | row | moved | upper_half
