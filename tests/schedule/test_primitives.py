"""Every primitive on random kernels: applied or refused, never a changed meaning."""

from __future__ import annotations

import pytest

from support.buffer_cases import BUFFER_CASES
from support.expression_cases import EXPRESSION_CASES
from support.loop_cases import LOOP_CASES
from support.primitive_cases import Outcome, PrimitiveCase, outcomes, share

CASES = (*BUFFER_CASES, *EXPRESSION_CASES, *LOOP_CASES)

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
