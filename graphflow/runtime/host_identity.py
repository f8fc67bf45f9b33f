"""What tells this processor from others, as far as a compilation may depend on it.

In: what Linux shows of the processor, its caches, and the instructions that this process may use.
Out: plain values.  What always holds: clocks, loads and other values that differ from run to run on
one machine are not among them; LLVM is not needed.
"""

from __future__ import annotations

from pathlib import Path

from graphflow.llvm import host_features

SHOWN = Path("/proc/cpuinfo")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

_FIELDS = ("vendor_id", "cpu family", "model", "model name", "stepping")
_OF_CACHES = ("level", "type", "size", "ways_of_associativity", "coherency_line_size")


def host_identity(shown: Path = SHOWN, caches: Path = CACHES) -> tuple[str, ...]:
    """The name and model of the processor, its features and its caches.

    CodegenError where the system does not show the features.
    """
    described = [
        _text(index / name) for index in sorted(caches.glob("index*")) for name in _OF_CACHES
    ]
    first = _text(shown).partition("\n\n")[0].splitlines()
    named = [line for line in first if line.partition(":")[0].strip() in _FIELDS]
    return (*named, *described, *sorted(host_features()))


def _text(file: Path) -> str:
    """The contents of a file; empty if it cannot be read."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
