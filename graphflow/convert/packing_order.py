"""The order in which a program packs its constants, so that it takes the least memory.

In: the calls that prepare constants, in an order in which each reads what calls before it wrote;
and the calls of a run.  Out: the first ones in the order in which they are executed.  What always
holds: calls of which one reads what another writes keep their order.

A constant that no run reads is let go of when it is packed.  Until then both are in memory.  With
two constants of 1 and 8 MB, of which the first takes 4 MB when it is packed:

    the first one first    9 + 4, then 12 + 8: 20 MB at the peak
    the second one first   9 + 8, then 9 + 4: 17 MB

The least peak has what frees memory, or takes no more than before, ahead of what takes more: the
former by its own peak, the least first, the latter by what it lets go of from its peak to its end,
the most first.  What is made on the way from a constant to its packed one is part of that.
"""

from __future__ import annotations

from collections import Counter
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
    # Nobody knows which of several parts is the last to read a constant: it stays for all of them.
    listed = [[prepare[k] for k in group] for group in groups]
    readers = Counter(name for calls in listed for name in set().union(*map(_touched, calls)))
    kept |= {name for name, count in readers.items() if count > 1}
    parts = [_PackedTogether.of(calls, kept, storages) for calls in listed]
    return [call for part in sorted(parts, key=_PackedTogether.rank) for call in part.calls]


class _PackedTogether(NamedTuple):
    """Calls that only read what they wrote and what was there before, in order: the most bytes in
    memory while they are executed, and those behind them, both beyond what was there before."""

    calls: Sequence[PhysicalCall]
    most: int
    left: int

    @classmethod
    def of(
        cls, calls: Sequence[PhysicalCall], kept: set[str], storages: Mapping[str, StorageSpec]
    ) -> _PackedTogether:
        """The part of these calls, which let go of no storage that is `kept`."""
        last = {name: number for number, call in enumerate(calls) for name in _touched(call)}
        held = {name for name in last if storages[name].contents is not None}
        most, left = 0, 0
        for number, call in enumerate(calls):
            left += sum(_bytes(storages[name]) for name in _touched(call) - held)
            held |= _touched(call)
            most = max(most, left)
            let_go = (n for n in _touched(call) - kept if last[n] == number)
            left -= sum(_bytes(storages[name]) for name in let_go)
        return cls(calls, most, left)

    def rank(self) -> tuple[bool, int]:
        """Parts of lower ranks come first."""
        grows = self.left > 0
        return grows, self.left - self.most if grows else self.most


def _bytes(storage: StorageSpec) -> int:
    return storage.elements * DTYPES[storage.dtype].itemsize


def _touched(call: PhysicalCall) -> set[str]:
    """The storages of a call."""
    return {place.storage for place in call.placements.values()}
