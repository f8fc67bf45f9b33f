"""Fuzzing of graphs and layouts: results agree with onnxruntime's, whatever undefined padding
holds.

In support/fuzz, fuzz_cases.py makes and runs a case, fuzz_reference.py gives the expected results.
Nineteen seeds run by default; fuzz_registry.py has more.  A case that is wrong is shrunk
before it is shown.
"""

from collections.abc import Iterable
from functools import lru_cache
from math import inf
from typing import Any

import numpy as np
import pytest

from graphflow.kernels.recipes import tiled_kernels
from graphflow.kernels.recipes.variants import halo
from graphflow.layout import Demand, Equal, Fact, Undefined, evaluator, reduction_demand
from graphflow.layout.spans import Span
from graphflow.schedule.padding import neutral
from graphflow.tir import FLOATS, Literal, ReduceOp, Select
from support.fuzz.fuzz_cases import Case, Outcome, complaint, is_special, make_case, run_case
from support.fuzz.sized_fuzz import is_well_conditioned
from support.models.sized_runs import parsed_model
from support.mutated import Patches, mutated, seen_as

ORDINARY = (*range(16), 25, 167, 1230)
"""Number 25 has special inputs; the last ones are here for the mutants."""

MANY = 5000


@lru_cache(maxsize=len(ORDINARY))
def case_of(seed: int) -> Case:
    return make_case(seed)


@lru_cache(maxsize=len(ORDINARY))
def outcome_of(seed: int) -> Outcome:
    return run_case(case_of(seed))


def enough_have_both(outcomes: Iterable[Outcome]) -> bool:
    both = [outcome.padded and outcome.cancelled for outcome in outcomes]
    return 3 * sum(both) >= len(both)


@pytest.mark.parametrize("seed", ORDINARY)
def test_a_random_graph(seed: int) -> None:
    assert not outcome_of(seed).wrong, complaint(seed, case_of(seed))


def test_a_third_have_padding_and_a_cancelled_pair() -> None:
    assert enough_have_both(map(outcome_of, ORDINARY))


def test_a_tenth_of_the_inputs_is_special() -> None:
    assert any(case_of(seed).special for seed in ORDINARY)
    assert 0.09 < sum(map(is_special, range(MANY))) / MANY < 0.11


# Mutants -----------------------------------------------------------------------------------------
#
# What is wrong in all places alike is no contradiction that a check could find: only numbers tell.
# (Kernels without the select that writes padding: tests/system/networks/test_traps.py.)


def neutral_is(op: ReduceOp, value: float) -> Patches:
    """Reductions by `op` take `value` for what changes nothing."""

    def demand(reduced: ReduceOp, dtype: str) -> tuple[Demand, ...]:
        if reduced is op and dtype in FLOATS:
            return (Equal(Literal(value, dtype)),)
        return reduction_demand(reduced, dtype)

    return [
        seen_as(neutral, "layout", reduction_demand=demand),
        *((module, "reduction_demand", demand) for module in (tiled_kernels, halo)),
    ]


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
    "a maximum's neutral element is inf": (neutral_is(ReduceOp.MAX, inf), 15),
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


def test_models_of_sizes_that_multiply_rounding_errors_are_not_compared() -> None:
    """The reciprocal of a sum that cancels is any number; that of a sum of at least 1 is not."""
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)}
    head = "g (float[n, 4] x) => (float[n, 4] y) <float o={1000}> {"
    cancels = f"{head} a=Add(x,o) b=Sub(a,o) c=Sub(b,x) y=Reciprocal(c) }}"
    assert not is_well_conditioned(parsed_model(cancels), feeds)
    positive = f"{head} s=Mul(x,x) a=Add(s,o) y=Reciprocal(a) }}"
    assert is_well_conditioned(parsed_model(positive), feeds)
