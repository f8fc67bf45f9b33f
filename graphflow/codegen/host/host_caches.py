"""The sizes of the host's caches, as the system tells them.

In: the folder where Linux describes the caches of one core.  Out: fields of a `Target`.  What
always holds: a cache that is not described, or not sensibly, has no entry, so that the target keeps
its documented default.  A host is one core here: caches that cores share count whole.
"""

from __future__ import annotations

from pathlib import Path

from graphflow.base.processors import Caches

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def host_caches(folder: Path = CACHES) -> Caches:
    """Sizes in bytes, and the ways and the line of the first data cache."""
    found = Caches()
    for index in sorted(folder.glob("index*")):
        found |= _described(index)
    return found


def _described(index: Path) -> Caches:
    """What one cache is to a target; nothing for one of instructions."""
    try:
        level, kind = _read(index, "level"), _read(index, "type")
        size = _bytes(_read(index, "size"))
        ways = int(_read(index, "ways_of_associativity"))
        line = int(_read(index, "coherency_line_size"))
    except (OSError, ValueError):
        return Caches()
    if kind not in ("Data", "Unified") or size <= 0:
        return Caches()
    match level:
        case "1" if ways > 2 and line > 0 and size % (ways * line) == 0:
            return Caches(l1_bytes=size, l1_ways=ways, line_bytes=line)
        case "2":
            return Caches(l2_bytes=size)
        case "3":
            return Caches(l3_bytes=size)
    return Caches()


def _read(index: Path, name: str) -> str:
    return (index / name).read_text(encoding="ascii").strip()


def _bytes(size: str) -> int:
    """`48K` → 49152; ValueError for anything else."""
    return int(size[:-1]) * UNITS[size[-1]] if size[-1:] in UNITS else int(size)
