"""The memory plan: the byte offset of each storage in the arena or the constant block.

In: the size of each storage and, for each call in order, the storages that it touches.  Out:
offsets and totals, in bytes.  A storage is live from the first call that touches it to the last;
what always holds: storages that are live at the same time do not overlap.  Memory is reused over
time and written before it is read, so no fact about a region outlives its storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphflow.program import ALIGNMENT


def align(size: int) -> int:
    """`size` bytes, rounded up to `ALIGNMENT`; one unit for no bytes, so that a storage that is
    empty has an offset of its own, by which it is known in runs."""
    return max(-(-size // ALIGNMENT), 1) * ALIGNMENT


def plan_arena(
    sizes: dict[str, int], touched: Sequence[Iterable[str]]
) -> tuple[dict[str, int], int]:
    """The offset of each storage in `sizes`, and the size of the arena, in bytes.

    Greedy by size: the largest first, each at the lowest offset that is free while it is live.
    Ties break by the first call that touches the storage, then by name.  `touched` has the storages
    of each call.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for moment, names in enumerate(touched):
        for name in names:
            if name in sizes:
                first.setdefault(name, moment)
                last[name] = moment
    offsets: dict[str, int] = {}
    total = 0
    for name in sorted(first, key=lambda n: (-sizes[n], first[n], n)):
        taken = sorted(
            (offsets[other], offsets[other] + align(sizes[other]))
            for other in offsets
            if first[other] <= last[name] and first[name] <= last[other]
        )
        place = 0
        for start, stop in taken:
            if place + align(sizes[name]) <= start:
                break
            place = max(place, stop)
        offsets[name] = place
        total = max(total, place + align(sizes[name]))
    return offsets, total


def pack(sizes: dict[str, int]) -> tuple[dict[str, int], int]:
    """Offsets of storages placed one behind the other, and their total, in bytes."""
    offsets: dict[str, int] = {}
    total = 0
    for name, size in sizes.items():
        offsets[name] = total
        total += align(size)
    return offsets, total
