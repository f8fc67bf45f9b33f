"""Fuzzing of softmaxes, norms and reductions in any layout: results agree with onnxruntime's,
whatever undefined padding holds.

support/models/stage_models.py draws the models; layouts, prices, poison and the comparison are
those of support/fuzz/fuzz_cases.py.  Two of five cases have infinities, NaN, signed zeros or huge
numbers in their inputs.
"""

from functools import lru_cache

import pytest

from graphflow.kernels.recipes import SharedLoops
from support.fuzz.fuzz_cases import Case, compile_case, complaint, make_case, run_case
from support.models.stage_models import STAGE_SPECIALS, random_stage_model

ORDINARY = range(16)


@lru_cache(maxsize=len(ORDINARY))
def case_of(seed: int) -> Case:
    return make_case(seed, random_stage_model, STAGE_SPECIALS)


@pytest.mark.parametrize("seed", ORDINARY)
def test_random_stages(seed: int) -> None:
    assert not run_case(case_of(seed)).wrong, complaint(seed, case_of(seed))


def test_the_cases_reach_what_they_should() -> None:
    """Stages at shared loops, lanes along and across rows, padding, batches, special numbers."""
    cases = [case_of(seed) for seed in ORDINARY]
    assert sum(case.special for case in cases) >= len(cases) // 4
    assert sum(any(pin.is_padded for pin in c.pins.values()) for c in cases) >= len(cases) // 8
    across: set[bool] = set()
    for case in cases[:8]:
        made = compile_case(case).compiled.plan
        recipes = [choice.variant.recipe for choice in made.choices.values()]
        across |= {r.lane_loop is not None for r in recipes if isinstance(r, SharedLoops)}
    assert across == {False, True}
