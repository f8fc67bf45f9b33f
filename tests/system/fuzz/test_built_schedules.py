"""Random schedules build: what the primitives accept is compiled and computes the same.

support/schedules/built_schedules.py draws and runs them.
"""

from collections import Counter
from collections.abc import Sequence

from support.schedules.built_schedules import MOST_NOT_BUILDING, not_building, run_built, text_of
from support.schedules.schedule_cases import Outcome

SEEDS = range(60)


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


def report(found: Sequence[Outcome]) -> str:
    """How many schedules were built, with how many steps, and why others were not."""
    refused = not_building(found)
    steps = sum(len(one.steps) for one in found)
    reasons = Counter(f"  {one.wrong.splitlines()[0]} ({one.step})" for one in refused)
    counts = (f"{n} x{text}" for text, n in reasons.most_common())
    head = f"{len(found)} schedules of {steps / len(found):.1f} steps, {len(refused)} do not build"
    return "\n".join((head, *counts))


def test_random_schedules_build() -> None:
    check(SEEDS)
