"""Every primitive on random kernels: applied or refused, never a changed meaning."""

from __future__ import annotations

from random import Random

import pytest

from graphflow.tir import PrimFunc, parse
from support.buffer_cases import BUFFER_CASES
from support.call_cases import CALL_CASES
from support.expression_cases import EXPRESSION_CASES
from support.loop_cases import LOOP_CASES
from support.primitive_cases import (
    Outcome,
    PrimitiveCase,
    apply_sequence,
    effect_kernel,
    outcomes,
    share,
)

SEQUENCE_CASES = (*BUFFER_CASES, *EXPRESSION_CASES, *LOOP_CASES)
CASES = (*CALL_CASES, *SEQUENCE_CASES)

SEEDS = 24
SLOW_SEEDS = 600


def report(case: PrimitiveCase, seeds: range) -> float:
    """The share of safe cases that were applied; printed, with the counts behind it."""
    found = outcomes(case, seeds)
    counts = ", ".join(f"{outcome}: {found[outcome]}" for outcome in Outcome)
    print(f"{case.name:24} {share(found):6.1%} of the safe cases ({counts})")
    assert found[Outcome.APPLIED], f"{case.name} never applied"
    return share(found)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_primitive_on_random_kernels(case: PrimitiveCase) -> None:
    assert report(case, range(SEEDS)) >= 1 / 3


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_primitive_on_many_random_kernels(case: PrimitiveCase) -> None:
    assert report(case, range(SLOW_SEEDS)) >= 1 / 3


# Sequences ----------------------------------------------------------------------------------------

KERNELS = {
    "matmul": parse("""
@primfunc
def matmul(a: i64[4, 3], b: i64[3, 5], c: out[i64[4, 5]]):
    for i in serial(0, 4):
        for j in serial(0, 5):
            c[i, j] = i64(0)
            for k in serial(0, 3):
                c[i, j] += a[i, k] * b[k, j]
"""),
    "blur": parse("""
@primfunc
def blur(x: i64[14], y: out[i64[10]]):
    t = alloc(i64[12])
    for i in serial(0, 12):
        t[i] = x[i] + x[i + 1] + x[i + 2]
    for j in serial(0, 10):
        y[j] = t[j] + t[j + 1] + t[j + 2]
"""),
    "pool": parse("""
@primfunc
def pool(x: i64[6, 6], y: out[i64[3, 3]]):
    for i in serial(0, 3):
        for j in serial(0, 3):
            y[i, j] = x[2*i, 2*j]
            for r in serial(0, 2):
                for s in serial(0, 3):
                    if 2*j + s < 6:
                        reduce_max(y[i, j], x[2*i + r, 2*j + s])
"""),
}
STEPS = 12


def run_sequences(kernel: str, seeds: range) -> float:
    """The mean number of primitives that apply, printed too."""
    found = []
    for seed in seeds:
        func: PrimFunc = KERNELS.get(kernel) or effect_kernel(Random(seed).randint)
        found.append(apply_sequence(func, SEQUENCE_CASES, seed, STEPS))
    mean = sum(found) / len(found)
    print(f"{kernel}: {mean:.1f} of {STEPS} primitives apply")
    return mean


@pytest.mark.parametrize("kernel", [*KERNELS, "random"])
def test_sequences_of_primitives(kernel: str) -> None:
    assert run_sequences(kernel, range(8)) > 3


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [*KERNELS, "random"])
def test_many_sequences_of_primitives(kernel: str) -> None:
    assert run_sequences(kernel, range(8, 300)) > 3
