"""Find blocks of nodes that repeat, such as the layers of a network.

In: a key for each node, in the order of the run.  Out: `ShownBlock`s that do not overlap, in that
order.  What always holds: the repetitions of a block follow each other without a gap and have equal
keys.  As nodes stand behind those that they depend on, no path leaves a block and comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from graphflow.inspect.page.page_data import ShownBlock

LEAST_PERIOD = 2
"""One operator that repeats is shown as it is."""

LEAST_FOLDED = 6
"""The fewest nodes, of all repetitions together, that are worth a fold."""


def repeated_blocks(keys: Sequence[str]) -> tuple[ShownBlock, ...]:
    """The blocks: first the one of the greatest use, then those of what is left on both sides.

    A fold replaces `period * count` nodes by one.  Its use is the number of nodes saved, `period *
    (count - 1)`, times the share of them that is saved, so that seven repetitions of a layer
    are preferred to two of half the network.  Of equal uses the shorter period is taken, then the
    first place.
    """
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    codes = np.array([numbers[key] for key in keys], dtype=np.int64)
    return tuple(_blocks(codes))


def _blocks(codes: NDArray[np.int64]) -> Iterator[ShownBlock]:
    """The blocks in order; the parts on both sides of one are searched when their turn comes."""
    waiting: list[tuple[int, int] | ShownBlock] = [(0, len(codes))]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ShownBlock):
            yield part
            continue
        first, after = part
        block = _most_useful(codes[first:after], first)
        if block is not None:
            end = block.first + block.period * block.count
            waiting += [(end, after), block, (first, block.first)]


def _most_useful(codes: NDArray[np.int64], offset: int) -> ShownBlock | None:
    """The block of the greatest use in a part that begins at node `offset`; None if there is none.

    Where keys equal those `period` places before for a run of n places, n // period + 1
    repetitions begin with that run.
    """
    best, greatest = None, 0.0
    for period in range(LEAST_PERIOD, len(codes) // 2 + 1):
        starts, lengths = _runs(codes[period:] == codes[:-period])
        if not lengths.size:
            continue
        place = int(lengths.argmax())
        count = int(lengths[place]) // period + 1
        use = period * (count - 1) ** 2 / count
        if period * count >= LEAST_FOLDED and use > greatest:
            best, greatest = ShownBlock(offset + int(starts[place]), period, count), use
    return best


def _runs(flags: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The beginnings and the lengths of the runs of true flags."""
    edges = np.diff(np.concatenate(([False], flags, [False])).astype(np.int8))
    starts = np.flatnonzero(edges == 1)
    return starts, np.flatnonzero(edges == -1) - starts
