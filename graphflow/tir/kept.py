"""Findings about an immutable object, kept with it and gone with it.

A kernel of many stages is changed one stage at a time.  What was found out about a stage stays
true as long as the stage is the same object, so that a step costs what it changes, not what the
kernel holds.  Identity decides, not equality: what a rewrite returns unchanged must stay the same
object, and no table has to be bounded or cleared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Finding = TypeVar("Finding")


class Kept:
    """Room for findings, for a frozen class with slots.

    It is no field, so it is neither compared nor pickled nor copied by `replace`.
    """

    __slots__ = ("_findings",)
    _findings: dict[Callable[..., Any], Any]


Subject = TypeVar("Subject", bound=Kept)


def kept(find: Callable[[Subject], Finding]) -> Callable[[Subject], Finding]:
    """`find`, a function of nothing but an immutable object, called once for each object."""

    def found(subject: Subject) -> Finding:
        # Most calls find something, and wide kernels have millions of them: one `try`, no test.
        try:
            known: Finding = subject._findings[find]
        except (AttributeError, KeyError):
            known = find(subject)
            if not hasattr(subject, "_findings"):
                object.__setattr__(subject, "_findings", {})
            subject._findings[find] = known
        return known

    return found
