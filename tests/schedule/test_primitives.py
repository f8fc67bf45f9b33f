"""Every primitive on random kernels: applied or refused, never a changed meaning."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from support.kernels.sequence_kernels import SEQUENCE_KERNELS
from support.primitives.all_cases import ALL_CASES, SEQUENCE_CASES
from support.primitives.config_cases import with_state
from support.primitives.primitive_cases import (
    Outcome,
    PrimitiveCase,
    apply_sequence,
    outcomes,
    share,
)

SEEDS = 12
STATE_SEEDS = 4


def report(case: PrimitiveCase, seeds: range) -> float:
    """The share of safe cases that were applied; printed, with the counts behind it."""
    found = outcomes(case, seeds)
    counts = ", ".join(f"{outcome}: {found[outcome]}" for outcome in Outcome)
    print(f"{case.name:24} {share(found):6.1%} of the safe cases ({counts})")
    assert found[Outcome.APPLIED], f"{case.name} never applied"
    return share(found)


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_primitive_on_random_kernels(case: PrimitiveCase) -> None:
    report(case, range(SEEDS))


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_primitive_on_random_kernels_with_state(case: PrimitiveCase) -> None:
    stateful = replace(case, kernel=lambda number: with_state(case.kernel(number), number))
    outcomes(stateful, range(STATE_SEEDS))


# Sequences ----------------------------------------------------------------------------------------

STEPS = 12


def run_sequences(kernel: str, seeds: range) -> float:
    """The mean number of primitives that apply, printed too."""
    found = []
    for seed in seeds:
        func = SEQUENCE_KERNELS[kernel](Random(seed).randint)
        found.append(apply_sequence(func, SEQUENCE_CASES, seed, STEPS))
    mean = sum(found) / len(found)
    print(f"{kernel}: {mean:.1f} of {STEPS} primitives apply")
    return mean


@pytest.mark.parametrize("kernel", SEQUENCE_KERNELS)
def test_sequences_of_primitives(kernel: str) -> None:
    assert run_sequences(kernel, range(8)) > 3
