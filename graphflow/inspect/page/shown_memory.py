"""The arena of a run as the page shows it: what lies where, during which steps.

In: a `Compiled` model.  Out: a `ShownMemory`.  What always holds: parts whose steps overlap do not
overlap in memory; offsets are those of the program that runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow.inspect.page.page_data import ShownMemory, ShownPart
from graphflow.lower import ArenaPart, arena_parts
from graphflow.pipeline.compiler import Compiled


def shown_memory(compiled: Compiled) -> ShownMemory:
    """The arena over the steps of a run."""
    lowered = compiled.lowered
    parts = sorted(arena_parts(lowered), key=lambda part: (part.first, part.offset, part.storage))
    inside: dict[str, list[str]] = {}
    for value, place in lowered.physical.values.items():
        inside.setdefault(place.storage, []).append(value)
    steps = tuple(call.name for call, _ in lowered.calls if not call.prepare)
    return ShownMemory(
        bytes=lowered.arena_bytes,
        steps=steps,
        live=tuple(_live_bytes(parts, step) for step in range(len(steps))),
        parts=tuple(
            ShownPart(
                storage=part.storage,
                tensors=tuple(inside.get(part.storage, ())),
                offset=part.offset,
                bytes=part.bytes,
                first=part.first,
                last=part.last,
                reuses=_reused(part, parts[:number]),
            )
            for number, part in enumerate(parts)
        ),
    )


def _live_bytes(parts: Sequence[ArenaPart], step: int) -> int:
    return sum(part.bytes for part in parts if part.first <= step <= part.last)


def _reused(part: ArenaPart, earlier: Sequence[ArenaPart]) -> tuple[int, ...]:
    """The positions of the parts that had its memory last, the first byte's first.

    Of each byte only the last earlier part counts.
    """
    free = [(part.offset, part.offset + part.bytes)]
    found: dict[int, int] = {}
    latest = sorted(range(len(earlier)), key=lambda k: (-earlier[k].last, k))
    for place in latest:
        other = earlier[place]
        begin, end = other.offset, other.offset + other.bytes
        left: list[tuple[int, int]] = []
        for start, stop in free:
            if begin < stop and start < end:
                found.setdefault(place, max(start, begin))
                left += [(start, begin)] if start < begin else []
                left += [(end, stop)] if end < stop else []
            else:
                left.append((start, stop))
        free = left
    return tuple(sorted(found, key=lambda place: (found[place], place)))
