"""What a rewrite must prove before it may happen: proofs demanded, and proofs by structure."""

from __future__ import annotations

from graphflow.arith import Proof, Verdict
from graphflow.base.errors import ScheduleError


def require(proof: Proof, condition: str) -> Proof:
    """`proof` if it is proven; else a `ScheduleError` that names the condition and the reason."""
    if proof.verdict is Verdict.PROVEN:
        return proof
    word = "does not hold" if proof.verdict is Verdict.REFUTED else "is not proven"
    raise ScheduleError(f"{condition} {word}: {proof.claim} ({proof.method}: {proof.reason})")


def structural(claim: str) -> Proof:
    """A proof that follows from the form of the kernel alone."""
    return Proof(Verdict.PROVEN, claim, "structure")
