"""The rows of docs/rfc77.md: each a behaviour that is asked for, and what shows it."""

import re
from dataclasses import dataclass

from support.paths import ROOT

PAGE = (ROOT / "docs" / "rfc77.md").read_text(encoding="utf-8")

ALWAYS_SAFE = ("inline", "simplify")
"""Primitives without a condition."""


@dataclass(frozen=True)
class Row:
    """A behaviour, the functions that have it, and the tests that show it.

    `functions` are dotted names below `graphflow`, `tests` are pairs of a path below tests/ and the
    names of tests in it.  `missing` is what the state says behind a colon.
    """

    name: str
    asks: str
    functions: tuple[str, ...] = ()
    tests: tuple[tuple[str, tuple[str, ...]], ...] = ()
    state: str = "built"
    missing: str = ""


def row_of(line: str) -> Row:
    """The row that is written as this line of a table."""
    name, asks, functions, tests, state = line.strip("| ").split(" | ")
    state, _, missing = state.partition(": ")
    files = (entry.split(": ") for entry in tests.split("; ") if entry != "–")
    return Row(
        name,
        asks,
        coded(functions),
        tuple((coded(path)[0], coded(names)) for path, names in files),
        state,
        missing,
    )


def coded(text: str) -> tuple[str, ...]:
    """What stands in backquotes, in order."""
    return tuple(re.findall(r"`([^`]+)`", text))


def sections(page: str) -> dict[str, tuple[Row, ...]]:
    """By the heading of each section, the rows of its table."""
    parts = (part.splitlines() for part in page.split("\n## ")[1:])
    return {
        head: tuple(
            row_of(line)
            for line in lines
            if line.startswith("| ") and not line.startswith("| row |")
        )
        for head, *lines in parts
    }


SECTIONS = sections(PAGE)
ROWS = tuple(row for rows in SECTIONS.values() for row in rows)
PRIMITIVES = SECTIONS["E. Scheduling primitives"]
