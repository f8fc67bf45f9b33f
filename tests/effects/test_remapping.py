"""Tests of the question whether reads see the same writes after elements moved."""

from random import Random

import pytest

from graphflow.arith import Verdict
from graphflow.effects import same_sources
from graphflow.tir import Allocate, walk
from support.primitives.buffer_cases import buffer_kernel
from support.primitives.folding import folded, sources
from support.schedule_checks import kernel

LAG = """
t = alloc(i32[8])
for i in serial(0, 8):
    t[i] = x[i]
    if i >= 2:
        y[i] = t[i - 2]
"""


@pytest.mark.parametrize(("size", "verdict"), [(3, Verdict.PROVEN), (2, Verdict.REFUTED)])
def test_a_circular_buffer(size: int, verdict: Verdict) -> None:
    func = kernel(LAG)
    after, old, new = folded(func, size)
    proof = same_sources(func, after, (old,), (new,))
    assert proof.verdict is verdict
    if verdict is Verdict.REFUTED:
        point = dict(proof.witness)
        assert point["i"] == point["i'"], "the store of this iteration takes the element"


def test_where_data_decide_nothing_is_proven() -> None:
    func = kernel(
        LAG.replace("    t[i] = x[i]", "    if data(x[i] < i32(3)):\n        t[i] = x[i]")
    )
    after, old, new = folded(func, 2)
    assert same_sources(func, after, (old,), (new,)).verdict is Verdict.UNKNOWN
    after, old, new = folded(func, 3)
    # An element that was not stored is undefined before, and after holds what was there earlier.
    assert same_sources(func, after, (old,), (new,)).verdict is Verdict.UNKNOWN


def test_kernels_with_other_accesses_are_an_error() -> None:
    func = kernel(LAG)
    with pytest.raises(ValueError, match="do not make the same accesses"):
        same_sources(func, kernel("y[0] = x[0]"), (), ())


def test_answers_agree_with_runs_of_random_kernels() -> None:
    """Proven means equal sources in every run, refuted other ones in some run."""
    decided = 0
    for seed in range(60):
        random = Random(seed)
        func = buffer_kernel(random.randint)
        if not any(isinstance(stmt, Allocate) for stmt in walk(func.body)):
            continue
        after, old, new = folded(func, random.randint(1, 5))
        proof = same_sources(func, after, (old,), (new,))
        runs = [
            sources(func, old, Random(run)) == sources(after, new, Random(run)) for run in range(6)
        ]
        if proof.verdict is Verdict.PROVEN:
            assert all(runs), seed
        if proof.verdict is Verdict.REFUTED:
            assert not all(runs), seed
        decided += proof.verdict is not Verdict.UNKNOWN
    assert decided > 30
