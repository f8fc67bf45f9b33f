"""Three-valued verdicts, and the record that a proof leaves."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from msgspec import Struct


class Verdict(Enum):
    """Three-valued truth: only PROVEN permits a rewrite."""

    PROVEN = "proven"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


Witness: TypeAlias = "tuple[tuple[str, int], ...]"
"""A point at which a claim fails: the values of loop variables and axes by name."""


class Proof(Struct, frozen=True):
    """A claim, its verdict, the method that decided it, and the reason where it is not proven.

    A refuted claim may have a `witness`, a point at which it fails; the reason states it as text.
    """

    verdict: Verdict
    claim: str
    method: str
    reason: str = ""
    witness: Witness = ()

    @property
    def proven(self) -> bool:
        return self.verdict is Verdict.PROVEN

    def of(self, claim: str) -> Proof:
        """The same proof of another claim; as `replace`, in a third of its time."""
        return Proof(self.verdict, claim, self.method, self.reason, self.witness)

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.claim} [{self.verdict.value} by {self.method}{reason}]"
