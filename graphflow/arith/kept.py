"""Caches the results of analyses on the immutable object that was analysed.

In: a function of one immutable object.  Out: the same function, which computes its result once per
object and stores it in the object, so that it is freed together with it.  A kernel of many stages
is rewritten one stage at a time; results about the other stages stay valid, so that a rewrite costs
as much as what it changes and not as much as the kernel is large.

What always holds: objects are told apart by identity, not by equality.  A rewrite must therefore
return the same object for what it does not change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Finding = TypeVar("Finding")
Place = TypeVar("Place")


class Kept:
    """A slot for cached analysis results in a frozen class with slots.

    The slot is not a field, so it is neither compared, nor pickled, nor copied by `replace`.
    """

    __slots__ = ("_findings",)
    _findings: dict[Callable[..., Any], Any]


Subject = TypeVar("Subject", bound=Kept)


def kept_by_node(find: Callable[[Subject], Finding]) -> Callable[[Subject], Finding]:
    """Decorates a function that depends on one immutable object alone: it runs once per object."""

    def found(subject: Subject) -> Finding:
        # Wide kernels have millions of calls, and most subjects have findings: no test for these.
        try:
            findings = subject._findings
        except AttributeError:
            findings = _begun(subject)
        known: Finding
        if find in findings:
            known = findings[find]
        else:
            known = findings[find] = find(subject)
        return known

    return found


def kept_at_place(
    find: Callable[[Subject, Place], Finding],
) -> Callable[[Subject, Place], Finding]:
    """Decorates a function of one immutable object and of where it is, which equality compares: the
    result for the last place is kept with the object."""

    def found(subject: Subject, place: Place) -> Finding:
        try:
            findings = subject._findings
        except AttributeError:
            findings = _begun(subject)
        known: tuple[Place, Finding] | None = findings.get(find)
        if known is None or (known[0] is not place and known[0] != place):
            known = findings[find] = place, find(subject, place)
        return known[1]

    return found


def _begun(subject: Kept) -> dict[Callable[..., Any], Any]:
    findings: dict[Callable[..., Any], Any] = {}
    object.__setattr__(subject, "_findings", findings)
    return findings
