"""Random schedules build: what the primitives accept is compiled and computes the same.

support/built_schedules.py draws and runs them.  `-m slow` runs 20,000, in slices of 2,500, or the
seeds of `--fuzz-seeds LOW:HIGH`: `0:10000` and `10000:20000` are the halves for two processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from support.built_schedules import Built, not_building, run_built, text_of

SEEDS = range(60)
ALL_SEEDS, SLICE = (0, 20_000), 2500
MOST_NOT_BUILDING = 0.005
"""The share of schedules that may be refused when they are built, each naming the step."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "built_seeds" in metafunc.fixturenames:
        text = metafunc.config.getoption("--fuzz-seeds")
        low, high = map(int, text.split(":")) if text else ALL_SEEDS
        slices = [range(k, min(k + SLICE, high)) for k in range(low, high, SLICE)]
        metafunc.parametrize("built_seeds", slices, ids=lambda s: f"{s.start}:{s.stop}")


def check(seeds: Sequence[int]) -> None:
    """No step leaves an unsound kernel, all numbers are right, and nearly every schedule builds."""
    found = {seed: run_built(seed) for seed in seeds}
    refused = not_building(list(found.values()))
    print(report(list(found.values())))
    wrong = [text_of(s, one) for s, one in found.items() if one.kind and one not in refused]
    wrong += [text_of(s, one) for s, one in found.items() if one in refused and not one.step]
    assert not wrong, "\n\n".join(wrong)
    texts = [text_of(s, one) for s, one in found.items() if one in refused]
    assert len(refused) <= max(1, MOST_NOT_BUILDING * len(seeds)), "\n\n".join(texts)


def report(found: Sequence[Built]) -> str:
    """How many schedules were built, with how many steps, and why others were not."""
    refused = not_building(found)
    steps = sum(len(one.steps) for one in found)
    reasons = Counter(f"  {one.wrong.splitlines()[0]} ({one.step})" for one in refused)
    counts = (f"{n} x{text}" for text, n in reasons.most_common())
    head = f"{len(found)} schedules of {steps / len(found):.1f} steps, {len(refused)} do not build"
    return "\n".join((head, *counts))


def test_random_schedules_build() -> None:
    check(SEEDS)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_random_schedules_build(built_seeds: range) -> None:
    check(built_seeds)
