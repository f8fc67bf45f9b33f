"""The order in which a program packs its constants, so that it takes the least memory.

In: the calls that prepare constants, in an order in which each reads what calls before it wrote;
and the calls of a run.  Out: the first ones in the order in which they are executed.  What always
holds: calls of which one reads what another writes keep their order.

A constant that no run reads is let go of when it is packed.  Until then both are in memory.  With
two constants of 1 and 8 MB, of which the first takes 4 MB when it is packed:

    the first one first    9 + 4, then 12 + 8: 20 MB at the peak
    the second one first   9 + 8, then 9 + 4: 17 MB

The least peak has what frees memory, or takes no more than before, ahead of what takes more: the
former by what is made, the least first, the latter by what is let go of, the most first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import networkx as nx

from graphflow.physical import PhysicalCall, StorageSpec
from graphflow.tir import DTYPES


def packing_order(
    prepare: Sequence[PhysicalCall],
    runs: Sequence[PhysicalCall],
    storages: Mapping[str, StorageSpec],
) -> list[PhysicalCall]:
    """The calls of `prepare` in the order of the least memory, as the module's text says."""
    kept = {name for call in runs for name in _touched(call)}
    made = [[n for n in _touched(call) if storages[n].contents is None] for call in prepare]
    # Numbers of calls beside names of storages; constants that are given connect nothing.
    graph = nx.Graph((number, name) for number, names in enumerate(made) for name in names)
    groups = (
        sorted(n for n in group if isinstance(n, int)) for group in nx.connected_components(graph)
    )
    parts = [_PackedTogether.of([prepare[k] for k in group], kept, storages) for group in groups]
    return [call for part in sorted(parts, key=_PackedTogether.rank) for call in part.calls]


class _PackedTogether(NamedTuple):
    """Calls that only read what they wrote and what was there before, in order: the bytes that they
    let go of, and those that they leave for runs."""

    calls: Sequence[PhysicalCall]
    freed: int
    made: int

    @classmethod
    def of(
        cls, calls: Sequence[PhysicalCall], kept: set[str], storages: Mapping[str, StorageSpec]
    ) -> _PackedTogether:
        """The part of these calls, where runs read the storages that are `kept`."""
        touched = {name: storages[name] for call in calls for name in _touched(call)}
        freed, made = 0, 0
        for name, storage in touched.items():
            size = storage.elements * DTYPES[storage.dtype].itemsize
            if storage.contents is None:
                made += size if name in kept else 0
            else:
                freed += 0 if name in kept else size
        return cls(calls, freed, made)

    def rank(self) -> tuple[bool, int]:
        """Parts of lower ranks come first."""
        grows = self.made > self.freed
        return grows, -self.freed if grows else self.made


def _touched(call: PhysicalCall) -> set[str]:
    """The storages of a call."""
    return {place.storage for place in call.placements.values()}
