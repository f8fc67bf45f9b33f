"""Fuzzing of graphs and layouts: results agree with onnxruntime's, whatever undefined padding
holds.

support/fuzz_cases.py makes and runs a case, support/fuzz_reference.py gives the expected results.
Thirty seeds run by default.  `-m slow` runs all of `--fuzz-seeds LOW:HIGH`, 0:5000 unless told
otherwise; seeds are independent, so that processes can share the work and a run can be resumed.  A
case that is wrong is shrunk before it is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import lru_cache
from math import inf
from typing import Any

import pytest

from graphflow.kernels.recipes import halo, kernel_variants
from graphflow.layout import Demand, Equal, Fact, Undefined, evaluator, reduction_demand
from graphflow.layout.spans import Span
from graphflow.schedule.padding import neutral
from graphflow.tir import FLOATS, Literal, ReduceOp, Select
from support.fuzz_cases import Case, Outcome, is_special, make_case, run_case, shrink
from support.mutated import Patches, mutated, seen_as

ORDINARY = (*range(28), 167, 1230)
"""The last ones are here for the mutants."""

ALL = (0, 5000)
SLICE = 100


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        text = metafunc.config.getoption("--fuzz-seeds")
        low, high = map(int, text.split(":")) if text else ALL
        slices = [range(k, min(k + SLICE, high)) for k in range(low, high, SLICE)]
        metafunc.parametrize("seeds", slices, ids=lambda s: f"{s.start}:{s.stop}")


@lru_cache(maxsize=len(ORDINARY))
def case_of(seed: int) -> Case:
    return make_case(seed)


@lru_cache(maxsize=len(ORDINARY))
def outcome_of(seed: int) -> Outcome:
    return run_case(case_of(seed))


def complaint(seed: int, case: Case, wrong: str) -> str:
    small = shrink(case)
    return f"seed {seed}: {wrong}\n\nshrunk: {run_case(small).wrong}\n{small}"


def enough_have_both(outcomes: Iterable[Outcome]) -> bool:
    both = [outcome.padded and outcome.cancelled for outcome in outcomes]
    return 3 * sum(both) >= len(both)


@pytest.mark.parametrize("seed", ORDINARY)
def test_a_random_graph(seed: int) -> None:
    wrong = outcome_of(seed).wrong
    assert not wrong, complaint(seed, case_of(seed), wrong)


def test_a_third_have_padding_and_a_cancelled_pair() -> None:
    assert enough_have_both(map(outcome_of, ORDINARY))


def test_a_tenth_of_the_inputs_is_special() -> None:
    assert any(case_of(seed).special for seed in ORDINARY)
    assert 0.09 < sum(map(is_special, range(*ALL))) / (ALL[1] - ALL[0]) < 0.11


@pytest.mark.slow
def test_many_random_graphs(seeds: range) -> None:
    """Every seed is run, so that one that fails hides no other; the first that does is shrunk."""
    outcomes = {seed: run_case(make_case(seed)) for seed in seeds}
    wrong = {seed: outcome.wrong for seed, outcome in outcomes.items() if outcome.wrong}
    if wrong:
        lines = "\n".join(f"seed {seed}: {text}" for seed, text in wrong.items())
        seed, text = next(iter(wrong.items()))
        pytest.fail(f"{lines}\n\n{complaint(seed, make_case(seed), text)}")
    assert enough_have_both(outcomes.values())


# Mutants -----------------------------------------------------------------------------------------
#
# What is wrong in all places alike is no contradiction that a check could find: only numbers tell.
# (Kernels without the select that writes padding: tests/system/test_traps.py.)


def neutral_is(op: ReduceOp, value: float) -> Patches:
    """Reductions by `op` take `value` for what changes nothing."""

    def demand(reduced: ReduceOp, dtype: str) -> tuple[Demand, ...]:
        if reduced is op and dtype in FLOATS:
            return (Equal(Literal(value, dtype)),)
        return reduction_demand(reduced, dtype)

    users = (sys.modules[kernel_variants.__module__], halo)
    in_recipes = [(module, "reduction_demand", demand) for module in users]
    return [*in_recipes, seen_as(neutral, "layout", reduction_demand=demand)]


def last_side(self: Any, expr: Select) -> Any:
    """The evaluator without its select: as if the condition never held."""
    return self.value(expr.if_false)


def a_number(fact: Fact, dtype: str) -> Any:
    """Ranges as wide as undefined: whatever is there counts as finite and not negative."""
    if isinstance(fact, Undefined) and dtype in FLOATS:
        return evaluator.AbstractValue(Span(0.0, 3e38))
    return OF_FACT(fact, dtype)


OF_FACT = evaluator.value_of_fact

MUTANTS: dict[str, tuple[Patches, int]] = {
    "a sum's neutral element is 1": (neutral_is(ReduceOp.ADD, 1.0), 167),
    "a maximum's neutral element is inf": (neutral_is(ReduceOp.MAX, inf), 14),
    "a select is dropped in the evaluator": (
        [(evaluator.KernelEvaluator, "select", last_side)],
        1230,
    ),
    "a range is as wide as undefined": ([(evaluator, "value_of_fact", a_number)], 167),
}
"""What is patched, and the first seed to try."""


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_gives_wrong_numbers(name: str) -> None:
    """For some seed of the ordinary ones, and no refusal or crash of it will do."""
    patches, likely = MUTANTS[name]
    assert likely in ORDINARY
    with mutated(patches):
        for seed in sorted(ORDINARY, key=lambda seed: seed != likely):
            outcome = run_case(case_of(seed))
            if outcome.wrong and not outcome.crashed:
                return
    pytest.fail("no seed shows it")
