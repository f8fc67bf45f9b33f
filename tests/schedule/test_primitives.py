"""Every primitive on random kernels: applied or refused, never a changed meaning."""

import pytest

from graphflow.base.fields import replace
from support.primitives.all_cases import ALL_CASES
from support.primitives.config_cases import with_state
from support.primitives.primitive_cases import Outcome, PrimitiveCase, outcomes, share

SEEDS = 8
STATE_SEEDS = 3


def report(case: PrimitiveCase, seeds: range) -> float:
    """The share of what is not unsafe that was applied; printed, with the counts behind it."""
    found = outcomes(case, seeds)
    counts = ", ".join(f"{outcome}: {found[outcome]}" for outcome in Outcome)
    print(f"{case.name:24} {share(found):6.1%} of what is not unsafe ({counts})")
    assert found[Outcome.APPLIED], f"{case.name} never applied"
    return share(found)


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_primitive_on_random_kernels(case: PrimitiveCase) -> None:
    report(case, range(SEEDS))


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_primitive_on_random_kernels_with_state(case: PrimitiveCase) -> None:
    stateful = replace(case, kernel=lambda number: with_state(case.kernel(number), number))
    outcomes(stateful, range(STATE_SEEDS))
