"""Transposes a square tile of vectors with two-operand shuffles.

In: the rows of the tile, and the number of a column.  Out: that column as a vector.  What always
holds: all columns of a tile are computed from the same intermediate vectors, written with the same
text, so that LLVM's common subexpression elimination keeps one of each: `n log n` shuffles for all
columns of `n` rows.
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
        # Where a position bit names a column bit, the next row bit takes its place.
        if len(level) % 2:
            level.append(IrValue("poison", element, size))
        taken = [_taken(p, step, chunk, column) for p in range(size)]
        places = [p + size * bool(at & step) for at, p in enumerate(taken)]
        pairs = zip(level[::2], level[1::2], strict=True)
        level = [builder.shuffled(low, high, places) for low, high in pairs]
        step *= 2
    return level[0]


def _taken(position: int, step: int, chunk: int, column: int) -> int:
    """The position, in one of two vectors, of what comes to stand at `position`.

    The lowest bits, below `step`, number rows already.  Within a chunk the bits of columns move up
    by one and the highest is given up, so that the lower or higher halves are interleaved; above it
    the bit of `step` itself is given up.
    """
    if step >= chunk:
        return position & ~step | column & step
    kept = position & ~(chunk - 1) | position & (step - 1)
    moved = (position & (chunk - 1) & ~(2 * step - 1)) >> 1
    given_up = chunk // 2 if column & (chunk // 2 // step) else 0
    return kept | moved | given_up
