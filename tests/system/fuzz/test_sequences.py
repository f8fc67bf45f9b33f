"""Sequences of up to twelve primitives compute what the kernel computed, also as native code."""

import pytest

from support.schedules.schedule_cases import complaint, report
from support.schedules.sequence_cases import FAMILIES, KINDS, MOST_STEPS, mean_length, run_sequence

SEEDS = range(11)


def check(kind: str, seeds: range) -> None:
    outcomes = [run_sequence(kind, seed) for seed in seeds]
    mean = mean_length(outcomes)
    ran = sum(outcome.native > 0 for outcome in outcomes)
    print(
        f"{kind}: {mean:.2f} of {MOST_STEPS} primitives apply, {ran} of {len(seeds)} ran natively"
    )
    wrong = {seed: o for seed, o in zip(seeds, outcomes, strict=True) if o.wrong}
    if wrong:
        lines = [f"seed {seed}, {o.kind}: {o.wrong.splitlines()[0]}" for seed, o in wrong.items()]
        pytest.fail("\n".join([*lines, "", complaint(*next(iter(wrong.items())))]))
    assert mean >= 5, report(outcomes)
    if kind in FAMILIES:
        assert 10 * ran >= 9 * len(outcomes), report(outcomes)  # some parameters have dots in names


@pytest.mark.parametrize("kind", KINDS)
def test_sequences(kind: str) -> None:
    check(kind, SEEDS)


def test_bools_that_are_not_stored_are_not_compared() -> None:
    """The first and the last element: a register that nothing stored is copied to them."""
    assert not run_sequence("stencil", 418).wrong
