"""Fuzzing of softmaxes, norms and reductions in any layout: results agree with onnxruntime's,
whatever undefined padding holds.

support/stage_models.py draws the models; layouts, prices, poison and the comparison are those of
support/fuzz_cases.py.  Two of five cases have infinities, NaN, signed zeros or huge numbers in
their inputs.  `-m slow` runs all of `--fuzz-seeds LOW:HIGH`, 0:1000 unless told otherwise.
"""

from __future__ import annotations

from functools import lru_cache

import pytest

from graphflow.kernels.recipes import SharedLoops
from support.fuzz_cases import Case, compile_case, make_case, run_case, shrink
from support.stage_models import random_stage_model

ORDINARY = range(16)
ALL = (0, 1000)
SLICE = 100
SPECIAL_SHARE = 0.4


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        text = metafunc.config.getoption("--fuzz-seeds")
        low, high = map(int, text.split(":")) if text else ALL
        slices = [range(k, min(k + SLICE, high)) for k in range(low, high, SLICE)]
        metafunc.parametrize("seeds", slices, ids=lambda s: f"{s.start}:{s.stop}")


@lru_cache(maxsize=len(ORDINARY))
def case_of(seed: int) -> Case:
    return make_case(seed, random_stage_model, SPECIAL_SHARE)


def complaint(seed: int, case: Case) -> str:
    small = shrink(case)
    return f"seed {seed}: {run_case(case).wrong}\n\nshrunk: {run_case(small).wrong}\n{small}"


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


@pytest.mark.slow
def test_many_random_stages(seeds: range) -> None:
    """Every seed is run, so that one that fails hides no other; the first that does is shrunk."""
    cases = {seed: make_case(seed, random_stage_model, SPECIAL_SHARE) for seed in seeds}
    wrong = [seed for seed, case in cases.items() if run_case(case).wrong]
    assert not wrong, f"{wrong}\n\n{complaint(wrong[0], cases[wrong[0]])}"
