"""Proof obligations: what a rewrite must prove before it is done.

In: a `Proof` and the condition it is needed for.  Out: the proof; `Unproven` where it fails.
"""

from __future__ import annotations

from graphflow import arith
from graphflow.base.errors import ScheduleError


class Unproven(ScheduleError):
    """A condition of a rewrite is refuted or not decided, as `proof` says and why."""

    def __init__(self, reason: str, proof: arith.Proof) -> None:
        super().__init__(reason, proof)
        self.reason, self.proof = reason, proof

    def __str__(self) -> str:
        return f"{self.reason}: {self.proof.claim} ({self.proof.method}: {self.proof.reason})"


def require(proof: arith.Proof, condition: str) -> arith.Proof:
    """The proof itself; `Unproven`, which names the `condition`, where it is not proven."""
    if proof.verdict is arith.Verdict.PROVEN:
        return proof
    word = "does not hold" if proof.verdict is arith.Verdict.REFUTED else "is not proven"
    raise Unproven(f"{condition} {word}", proof)


def structural(claim: str) -> arith.Proof:
    """A proven proof of a claim that follows from the form of the kernel, without a prover."""
    return arith.Proof(arith.Verdict.PROVEN, claim, "structure")
