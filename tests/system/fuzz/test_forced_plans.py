"""Random models planned as no cost model would plan them: whatever kind of variant is preferred,
results agree.

In support/fuzz, forced_plans.py makes such plans, forced_fuzz.py runs the families of models, and
fuzz_registry.py has more seeds.
"""

import pytest

from graphflow.codegen import host_target
from support.fuzz.forced_fuzz import FAMILIES, run_forced
from support.fuzz.forced_plans import drawn_target
from support.seeds import seeds

ORDINARY = 2 * len(FAMILIES)


@pytest.mark.parametrize("seed", seeds(ORDINARY, ORDINARY))
def test_a_forced_plan(seed: int) -> None:
    failure = run_forced(seed, exact=1).failure
    assert failure is None, failure.text


def test_targets_are_drawn_too() -> None:
    drawn = [drawn_target(host_target(), seed) for seed in range(12)]
    assert 2 < sum(target == host_target() for target in drawn) < 8
