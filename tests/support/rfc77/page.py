"""docs/rfc77.md: what RFC 0077 and the documents beside it ask for, and what shows it.

To write the page anew: `PYTHONPATH=tests python -m support.rfc77.page > docs/rfc77.md`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from support.rfc77.primitives import PRIMITIVES
from support.rfc77.row import Row
from support.rfc77.rows import ANALYSES, BOUNDS, GRAPH, IR, PADDING

SECTIONS = (
    ("A. Kernel IR and layouts", IR),
    ("B. Analyses and simplifications", ANALYSES),
    ("C. Seven ways to treat padding, and functions that are split in two", PADDING),
    ("D. The graph", GRAPH),
    ("E. Scheduling primitives", PRIMITIVES),
    ("F. Bound inference", BOUNDS),
)
"""The headings of the page, each with its rows."""

ROWS = tuple(row for _, rows in SECTIONS for row in rows)

STATES = ("built", "in part", "not built")

HEAD = """# What RFC 0077 asks for, and what shows it

Made from the rows in `tests/support/rfc77/rows.py` and `tests/support/rfc77/primitives.py`;
`tests/system/pages/test_rfc77.py` compares this file with them, and checks that each function and
each test that is named exists. To write it anew:
`PYTHONPATH=tests python -m support.rfc77.page > docs/rfc77.md`.

Four public documents describe scheduling kernels under layouts with padding: TVM's RFC 0077
(layout transformations and padding) with its discussion, TVM's RFC 0039 (physical layouts of
buffers), TVM's InferBound document, and a catalogue of 45 scheduling primitives with their safety
conditions. Rows A to D are what the first two ask for, E has a row for each primitive under the
name of the catalogue, and F is the third.

A row is *built* if its tests show all of what it asks; *in part* if they show less, and the table
says what is missing; *not built* if no test shows any of it.
"""


def document() -> str:
    """The text of docs/rfc77.md."""
    return "\n".join((HEAD, *totals(), *(line for s in SECTIONS for line in section(*s))))


def totals() -> Iterator[str]:
    """A table of how many rows of each section are in each state."""
    yield f"| rows | {' | '.join(STATES)} |"
    yield "|---|---|---|---|"
    for title, rows in (*SECTIONS, ("all", ROWS)):
        counts = Counter(row.state for row in rows)
        yield f"| {title} | {' | '.join(str(counts[state]) for state in STATES)} |"
    yield ""


def section(title: str, rows: tuple[Row, ...]) -> Iterator[str]:
    """A heading and the table of its rows."""
    yield f"## {title}"
    yield ""
    yield "| row | what it asks | functions | tests | state |"
    yield "|---|---|---|---|---|"
    yield from (line_of(row) for row in rows)
    yield ""


def line_of(row: Row) -> str:
    """The row as a line of its table."""
    functions = ", ".join(f"`{name}`" for name in row.functions)
    tests = "; ".join(
        f"`{path}`: {', '.join(f'`{name}`' for name in names)}" for path, names in row.found_tests()
    )
    state = row.state + (f": {row.missing.rstrip('.')}" if row.missing else "")
    return f"| {row.name} | {row.asks} | {functions or '–'} | {tests or '–'} | {state} |"


if __name__ == "__main__":
    print(document(), end="")
