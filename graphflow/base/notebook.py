"""What notebooks show: HTML that needs nothing else, and the text of an explanation.

In: texts of any characters.  Out: HTML without scripts.  What always holds: texts are escaped, and
colours are those of the page around, so that light and dark themes both fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

MOST_ROWS = 200
"""The most rows of a table; a notebook keeps its outputs in its file."""

_STYLE = (
    "<style>"
    ".graphflow table{border-collapse:collapse;margin:.3em 0}"
    ".graphflow th,.graphflow td{text-align:left;vertical-align:top;padding:.15em .6em;"
    "color:inherit;background:transparent;border-bottom:1px solid rgba(128,128,128,.35)}"
    ".graphflow pre{color:inherit;background:transparent;white-space:pre-wrap;margin:.3em 0}"
    ".graphflow summary{cursor:pointer}"
    "</style>"
)


class Explanation(str):
    """The text that explains the decision about a tensor: a string that notebooks show line by
    line."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        first, _, rest = self.partition("\n")
        return shown(first, f"<pre>{escape(rest)}</pre>" if rest else "")


def shown(title: str, *parts: str) -> str:
    """The HTML of one output of a notebook: a title, which is a text, and parts, which are HTML."""
    return f'{_STYLE}<div class="graphflow"><b>{escape(title)}</b>{"".join(parts)}</div>'


def line(text: str) -> str:
    """A text as a line of its own."""
    return f"<div>{escape(text)}</div>"


def folded(title: str, part: str) -> str:
    """A part that is shown when its title is clicked."""
    return f"<details><summary>{escape(title)}</summary>{part}</details>"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of texts; rows beyond `MOST_ROWS` are counted instead of shown."""
    rest = iter(rows)
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row in islice(rest, MOST_ROWS)
    )
    left = sum(1 for _ in rest)
    more = line(f"… and {left} more") if left else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
