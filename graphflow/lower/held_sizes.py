"""Sizes that are known when a run reaches a call.

In: a physical graph.  Out: for each call, where the sizes of its axes lie in memory.  What always
holds: nothing writes that memory from the beginning of the call to its end.  It is that of an input
of the program, which holds a size before the first call, or of a count that one earlier call
writes, such as the number of elements that NonZero finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from graphflow.layout import row_major
from graphflow.physical import PhysicalCall, PhysicalGraph, Placement

HeldSizes: TypeAlias = "Mapping[str, Placement]"
"""The places of sizes, by the values that hold them."""

NO_SIZES: HeldSizes = MappingProxyType({})


def held_sizes(physical: PhysicalGraph) -> tuple[HeldSizes, ...]:
    """For each call the sizes of its axes that are known before it, with their places."""
    given = {name: Placement(name, row_major(())) for name in physical.inputs}
    counts = _counts_by_writer(physical)
    known: dict[str, Placement] = dict(given)
    found: list[HeldSizes] = []
    for number, call in enumerate(physical.calls):
        names = dict.fromkeys(_sizes_of(call))
        found.append({name: known[name] for name in names if name in known} or NO_SIZES)
        known.update(counts.get(number, {}))
    return tuple(found)


def _sizes_of(call: PhysicalCall) -> Iterator[str]:
    """The values that count elements along axes of a call; what is prepared ends at none."""
    if call.prepare:
        return
    for counted in call.counted.values():
        yield from counted.values()
    for filled in call.filled.values():
        yield from (size for size, _ in filled.values())


def _counts_by_writer(physical: PhysicalGraph) -> dict[int, dict[str, Placement]]:
    """The counts that are integers in storages of their own, by the numbers of the calls that write
    them; without those that several calls write."""
    sizes = dict.fromkeys(size for call in physical.calls for size in _sizes_of(call))
    held: dict[str, dict[str, Placement]] = {}
    for name in sizes:
        place = physical.values.get(name)
        if place is not None and _is_count(physical, place):
            held.setdefault(place.storage, {})[name] = place
    written = [
        (number, call.placements[buffer.name].storage)
        for number, call in enumerate(physical.calls)
        for buffer in call.definition.outputs
    ]
    writers = Counter(storage for _, storage in written)
    found: dict[int, dict[str, Placement]] = {}
    for number, storage in written:
        if storage in held and writers[storage] == 1:
            found.setdefault(number, {}).update(held[storage])
    return found


def _is_count(physical: PhysicalGraph, place: Placement) -> bool:
    """Whether a place is a storage of one integer that a run writes."""
    spec = physical.storages[place.storage]
    is_one = (spec.dtype, spec.elements, place.offset) == ("int64", 1, 0)
    return is_one and spec.kind in ("arena", "output")
