"""The memory plan: where each storage lies in the arena or in the constant block.

In: the storages and, for each call in order, which it touches.  Out: byte offsets.  A storage lives
from the first call that touches it to the last; two that live at the same time never overlap.
Memory that is shared over time is written before it is read, by the order of the calls, so no fact
about its regions outlives its tenant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from graphflow.program import ALIGNMENT


def align(size: int) -> int:
    """`size` rounded up to the alignment of buffers."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def plan_arena(
    sizes: dict[str, int], touched: Sequence[Iterable[str]]
) -> tuple[dict[str, int], int]:
    """Offsets for the storages in `sizes`, and the bytes of the arena.

    Largest first, each at the lowest offset that is free during its whole life.
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
    """Offsets one behind the other, and the bytes in all."""
    offsets: dict[str, int] = {}
    total = 0
    for name, size in sizes.items():
        offsets[name] = total
        total += align(size)
    return offsets, total
