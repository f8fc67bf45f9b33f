"""What is known of the contents of a kernel's inputs, as far as some form can use it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """Names of inputs by what holds for each of their elements.

    `finite`: neither NaN nor infinite.  `reciprocal`: `1/x` is above −∞, so x is not −0.0 (nor one
    of the numbers so close to it that the quotient overflows).
    """

    finite: frozenset[str] = frozenset()
    reciprocal: frozenset[str] = frozenset()


NOTHING = Known()


@dataclass(frozen=True, slots=True)
class Asked:
    """Of which inputs the forms of a kernel could use which part of a `Known`."""

    finite: frozenset[str] = frozenset()
    reciprocal: frozenset[str] = frozenset()
