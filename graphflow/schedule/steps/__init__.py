"""Steps: what a primitive gives back or refuses, and the schedule that keeps the proofs."""
