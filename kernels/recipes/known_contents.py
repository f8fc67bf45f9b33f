"""What is known of the contents of a kernel's inputs, as far as some variant can use it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KnownContents:
    """Names of inputs by what holds for each of their elements.

    `finite`: neither NaN nor infinite.  `reciprocal`: `1/x` is above −∞, so x is not −0.0 (nor one
    of the numbers so close to it that the quotient overflows).
    """

    finite: frozenset[str] = frozenset()
    reciprocal: frozenset[str] = frozenset()


NOTHING = KnownContents()


@dataclass(frozen=True, slots=True)
class ContentsQuery:
    """Of which inputs the forms of a kernel could use which part of a `KnownContents`."""

    finite: frozenset[str] = frozenset()
    reciprocal: frozenset[str] = frozenset()
