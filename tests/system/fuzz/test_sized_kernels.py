"""Fuzzing of kernels of which a run gives a part: schedules compute the same for every extent.

support/schedules/sized_schedules.py makes and runs a case.  By default 36 kernels run; a case that
is wrong is shrunk before it is shown.
"""

from functools import cache

import pytest

from graphflow import arith, tir
from graphflow.arith import Proof, Verdict
from graphflow.kernels.lowering import size_conditions
from graphflow.lower import run_portions
from graphflow.schedule.padding import overcompute
from support.fuzz.fuzz_registry import FUZZ_TESTS
from support.fuzz.fuzz_test import shrunk
from support.kernels.schedule_kernels import Dice, random_kernel
from support.kernels.sized_extents import Extent, value_of
from support.mutated import Patches, mutated, seen_as
from support.schedules.schedule_cases import Outcome, case_of, report
from support.schedules.schedule_inputs import scalars_of
from support.schedules.schedule_trial import OVERCOMPUTE
from support.schedules.sized_schedules import check_sized_case, run_sized_case

SEEDS = range(36)


@cache
def outcome_of(seed: int) -> Outcome:
    return run_sized_case(seed)


def complaint(seed: int, outcome: Outcome) -> str:
    def fails(case: object) -> bool:
        found = check_sized_case(case)  # type: ignore[arg-type]
        return found is not None and found.kind == outcome.kind

    case = shrunk(case_of(seed, outcome), FUZZ_TESTS["sized_kernels"].smaller, fails)
    return f"seed {seed}, {outcome.kind}: {outcome.wrong}\n\n{case}"


def test_random_schedules_of_kernels_with_sizes() -> None:
    wrong = {seed: outcome_of(seed) for seed in SEEDS if outcome_of(seed).wrong}
    if wrong:
        pytest.fail(complaint(*next(iter(wrong.items()))))


def test_the_schedules_reach_what_they_should() -> None:
    outcomes = [outcome_of(seed) for seed in SEEDS]
    assert sum(o.taken[OVERCOMPUTE] > 0 for o in outcomes) >= 3, report(outcomes)
    sized = [o for o in outcomes if o.kernel is not None and o.kernel.sizes]
    assert len(sized) >= len(SEEDS) // 2
    assert any(o.native for o in sized)


def test_scalars_are_least_greatest_and_at_borders_of_tiles() -> None:
    seen: set[int] = set()
    for seed in range(60):
        outcome = outcome_of(seed % len(SEEDS))
        kernel = outcome.kernel
        if kernel is None or not kernel.sizes:
            continue
        for scalars in scalars_of(kernel, outcome.steps, Dice(seed, 3)):
            for name, value in scalars.items():
                least, most = kernel.sizes[name]
                assert least <= value <= most
                seen.add(value)
    assert {0, 1, 2, 3, 4, 5} <= seen


def test_an_extent_is_its_most_and_is_written_as_its_expression() -> None:
    n = Extent(7, "n")
    made = (2 * (n - 1) + 3) // 2 + (n - n // 2)
    assert int(made) == (2 * 6 + 3) // 2 + 4
    for value in range(8):
        assert value_of(str(made), {"n": value}) == (2 * (value - 1) + 3) // 2 + value - value // 2
    assert f"{5 - n}" == "(5-n)" and int(5 - n) == -2


def test_kernels_without_sizes_are_what_they_were() -> None:
    """The seeds of the schedule fuzzer do not depend on what sizes add."""
    for seed in range(20):
        kernel = random_kernel(seed)
        assert not kernel.sizes and not kernel.extents and not kernel.func.scalars


# Mutants -----------------------------------------------------------------------------------------


def proven(*_: object) -> Proof:
    return Proof(Verdict.PROVEN, "", "a mutant")


def a_row_late(row: arith.IndexExpr, count: tir.Buffer) -> tir.Comparison:
    return tir.below_count(row + 1, count)


MUTANTS: dict[str, tuple[Patches, int]] = {
    "overcompute stays in bounds": ([(overcompute, "stays_in_bounds", proven)], 57),
    "conditions go without proofs": (
        [(overcompute, "without_effect", lambda *_: ()), (overcompute, "stays_in_bounds", proven)],
        0,
    ),
    "what overcompute writes is never read": ([(overcompute, "effects_left", lambda *_: None)], 0),
    "conditions ask for a row too many": (
        [seen_as(size_conditions, "tir", below_count=a_row_late)],
        5,
    ),
    "iterations are left out without proof": ([seen_as(run_portions, "arith", prove=proven)], 5198),
    "the first row is any": ([seen_as(size_conditions, "arith", prove=proven)], 107),
}
"""What is patched, and the first seed to try."""


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str) -> None:
    patches, likely = MUTANTS[name]
    with mutated(patches):
        for seed in (likely, *range(600)):
            outcome = run_sized_case(seed)
            if outcome.wrong and not outcome.kind.startswith("crash"):
                break
        else:
            pytest.fail("no seed shows it")
    assert not run_sized_case(seed).wrong
