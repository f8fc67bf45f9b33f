"""The text of a kernel with marks at the lines in which it differs from another one.

In: a kernel before and after some steps.  Out: every line of the second, and the lines of the first
that are gone, each marked; in colour for a terminal.
"""

from __future__ import annotations

from difflib import SequenceMatcher

from graphflow import tir

GREEN, RED, PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"
"""What turns a terminal's text green, red, and back."""


def changed_listing(before: tir.PrimFunc, after: tir.PrimFunc, colour: bool) -> str:
    """The text of `after`: new lines begin with `+`, lines of `before` that are gone with `-`.

    With `colour`, the new lines are green and the others red.
    """
    old, new = (tir.to_text(func).splitlines() for func in (before, after))
    lines: list[str] = []
    # A line that stands in a kernel often, such as a loop, counts like any other.
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            lines += [f"  {line}".rstrip() for line in new[k:m]]
            continue
        lines += [_marked("-", line, RED if colour else None) for line in old[i:j]]
        lines += [_marked("+", line, GREEN if colour else None) for line in new[k:m]]
    return "\n".join(lines)


def _marked(mark: str, line: str, shade: str | None) -> str:
    text = f"{mark} {line}"
    return text if shade is None else f"{shade}{text}{PLAIN}"
