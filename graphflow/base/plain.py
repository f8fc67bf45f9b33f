"""Type checks of values that were read from JSON.

In: any JSON value.  Out: the same value, with its type known, or a TypeError or ValueError that
names what it is instead; readers of files turn that into their own error.
"""

from __future__ import annotations

from typing import Any


def integer(value: Any, low: int = 0) -> int:
    """An integer of at least `low` that fits 63 bits; bools and floats are refused."""
    if type(value) is not int:
        raise TypeError(f"{value!r:.60} is not an integer")
    if not low <= value < 1 << 63:
        raise ValueError(f"{value} is not from {low} to 2**63")
    return value


def text(value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is not a string")
    return value


def boolean(value: Any) -> bool:
    """A bool."""
    if not isinstance(value, bool):
        raise TypeError(f"{value!r:.60} is neither true nor false")
    return value


def listed(value: Any, length: int | None = None) -> list[Any]:
    """A list, of this length if one is given."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.60} is not a list")
    if length is not None and len(value) != length:
        raise ValueError(f"{len(value)} values are given instead of {length}")
    return value


def texts(value: Any) -> tuple[str, ...]:
    """A list of strings."""
    return tuple(map(text, listed(value)))


def mapping(value: Any) -> dict[str, Any]:
    """An object; its names are strings in JSON."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r:.60} is not an object")
    return value
