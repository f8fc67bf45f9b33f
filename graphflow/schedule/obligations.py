"""What a rewrite must prove before it may happen: proofs demanded, and proofs by structure."""

from __future__ import annotations

from graphflow.arith import Proof, Verdict
from graphflow.base.errors import ScheduleError


class Unproven(ScheduleError):
    """A condition of a rewrite is refuted or not decided; `proof` says by what, and where."""

    def __init__(self, reason: str, proof: Proof) -> None:
        super().__init__(reason, proof)
        self.reason, self.proof = reason, proof

    def __str__(self) -> str:
        return f"{self.reason}: {self.proof.claim} ({self.proof.method}: {self.proof.reason})"


def require(proof: Proof, condition: str) -> Proof:
    """`proof` if it is proven; else an `Unproven` that names the condition and the reason."""
    if proof.verdict is Verdict.PROVEN:
        return proof
    word = "does not hold" if proof.verdict is Verdict.REFUTED else "is not proven"
    raise Unproven(f"{condition} {word}", proof)


def structural(claim: str) -> Proof:
    """A proof that follows from the form of the kernel alone."""
    return Proof(Verdict.PROVEN, claim, "structure")
