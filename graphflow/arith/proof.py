"""Three-valued verdicts, and the record that a proof leaves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Three-valued truth: only PROVEN permits a rewrite."""

    PROVEN = "proven"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Proof:
    """A claim, its verdict, the method that decided it, and the reason where it is not proven."""

    verdict: Verdict
    claim: str
    method: str
    reason: str = ""

    @property
    def proven(self) -> bool:
        return self.verdict is Verdict.PROVEN

    def __str__(self) -> str:
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.claim} [{self.verdict.value} by {self.method}{reason}]"
