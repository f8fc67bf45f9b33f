"""Fuzzing of schedules: random schedules of random kernels, and random graphs of them, are correct.

schedule_cases.py and schedule_graphs.py of support/schedules make and run a case.  By default 200
kernels and 15 graphs run.  A case that is wrong is shrunk before it is shown.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from graphflow.arith import Domain, Proof, Var, Verdict, images, isl_text, negation, sets
from graphflow.effects import access_conflicts, questions
from graphflow.layout import Constant, Demand, Equal, Fact, reduction_demand, serves
from graphflow.schedule.buffers import memory
from graphflow.schedule.facts import padding
from graphflow.schedule.padding import neutral, overcompute
from graphflow.schedule.stages import private
from graphflow.tir import Literal, ReduceOp
from support.mutated import Patches, mutated, seen_as
from support.schedules.schedule_cases import ANY, Focus, Outcome, complaint, report, run_case
from support.schedules.schedule_graphs import (
    GraphOutcome,
    graph_complaint,
    graph_report,
    make_graph,
    run_graph,
)
from support.schedules.schedule_trial import OVERCOMPUTE

KERNELS, KERNEL_SLICE = range(200), 50
GRAPHS, GRAPH_SLICE = range(15), 5


def slices(low: int, high: int, size: int) -> list[range]:
    return [range(k, min(k + size, high)) for k in range(low, high, size)]


@cache
def kernel_outcomes(seeds: range) -> tuple[Outcome, ...]:
    return tuple(run_case(seed) for seed in seeds)


@cache
def graph_outcomes(seeds: range) -> tuple[GraphOutcome, ...]:
    return tuple(run_graph(make_graph(seed)) for seed in seeds)


def fail_on_kernels(seeds: range, outcomes: Sequence[Outcome]) -> None:
    wrong = {s: o for s, o in zip(seeds, outcomes, strict=True) if o.wrong}
    if wrong:
        lines = [f"seed {s}, {o.kind}: {o.wrong.splitlines()[0]}" for s, o in wrong.items()]
        pytest.fail("\n".join([*lines, "", complaint(*next(iter(wrong.items())))]))


def fail_on_graphs(seeds: range, outcomes: Sequence[GraphOutcome]) -> None:
    wrong = {s: o for s, o in zip(seeds, outcomes, strict=True) if o.wrong}
    if wrong:
        lines = [f"seed {s}, {o.kind}: {o.wrong.splitlines()[0]}" for s, o in wrong.items()]
        seed, outcome = next(iter(wrong.items()))
        pytest.fail("\n".join([*lines, "", graph_complaint(seed, make_graph(seed), outcome)]))


def enough_run_over(outcomes: Sequence[Outcome]) -> bool:
    """A tenth of the kernels, and a tenth of those where it was tried, run over padding."""
    tried = sum(o.tried[OVERCOMPUTE] > 0 for o in outcomes)
    taken = sum(o.taken[OVERCOMPUTE] > 0 for o in outcomes)
    return 10 * taken >= len(outcomes) >= tried and 10 * taken >= tried > 0


def enough_meet(outcomes: Sequence[GraphOutcome]) -> bool:
    """A tenth of the graphs have a cancelled pair, and a tenth run over padding."""
    cancelled = sum(o.cancelled > 0 for o in outcomes)
    return 10 * min(cancelled, sum(o.ran_over for o in outcomes)) >= len(outcomes)


@pytest.mark.parametrize(
    "seeds", slices(KERNELS.start, KERNELS.stop, KERNEL_SLICE), ids=lambda s: f"{s.start}:{s.stop}"
)
def test_random_schedules(seeds: range) -> None:
    fail_on_kernels(seeds, kernel_outcomes(seeds))


def test_the_schedules_reach_what_they_should() -> None:
    outcomes = [
        o for s in slices(KERNELS.start, KERNELS.stop, KERNEL_SLICE) for o in kernel_outcomes(s)
    ]
    assert enough_run_over(outcomes), report(outcomes)
    assert sum(o.native for o in outcomes) >= len(outcomes) // 30, report(outcomes)
    # Rare ones need the slow run; all the others are taken some of the time.
    rare = {"stride_loop"}
    never = [n for o in outcomes for n in o.tried if not any(p.taken[n] for p in outcomes)]
    assert set(never) <= rare, report(outcomes)


@pytest.mark.parametrize(
    "seeds", slices(GRAPHS.start, GRAPHS.stop, GRAPH_SLICE), ids=lambda s: f"{s.start}:{s.stop}"
)
def test_random_graphs_of_scheduled_kernels(seeds: range) -> None:
    fail_on_graphs(seeds, graph_outcomes(seeds))


def test_the_graphs_reach_what_they_should() -> None:
    outcomes = [
        o for s in slices(GRAPHS.start, GRAPHS.stop, GRAPH_SLICE) for o in graph_outcomes(s)
    ]
    assert enough_meet(outcomes), graph_report(outcomes)


UPDATES = Focus("updates")


@pytest.mark.parametrize("seeds", slices(0, 50, 25), ids=lambda s: f"{s.start}:{s.stop}")
def test_random_schedules_of_inout_parameters(seeds: range) -> None:
    fail_on_kernels(seeds, [run_case(seed, UPDATES) for seed in seeds])


ROWS = Focus("rows", "private_rows")
ROW_SEEDS = range(60)


@cache
def row_outcomes() -> tuple[Outcome, ...]:
    return tuple(run_case(seed, ROWS) for seed in ROW_SEEDS)


def test_random_schedules_of_stages_that_meet_at_rows() -> None:
    wrong = {s: o for s, o in zip(ROW_SEEDS, row_outcomes(), strict=True) if o.wrong}
    assert not wrong, "\n\n".join(f"seed {seed}: {o.wrong}" for seed, o in wrong.items())


def test_private_buffers_and_accumulators_are_taken_and_refused() -> None:
    """In a fair share of the kernels each; what stands against them is drawn as often."""
    for name in ("sink_alloc", "rfactor"):
        tried = sum(o.tried[name] for o in row_outcomes())
        taken = sum(o.taken[name] for o in row_outcomes())
        assert len(ROW_SEEDS) <= tried
        assert 0.2 * tried < taken < 0.9 * tried, report(row_outcomes())


DEFINITIONS = range(200)
REACHED = (
    *("divide_loop", "mult_loops", "reorder_loops", "fission", "cut_loop", "shift_loop"),
    *("mark_unrolled", "vectorize_loop", "parallelize_loop", "stage_mem", "bind_expr"),
    *("cache_read", "cache_write", "transform_layout", "sequential_buffer_access"),
    *("simplify", "eliminate_dead_code", "fuse", "restrict_loop"),
)


def test_random_schedules_of_whatever_a_definition_may_be() -> None:
    """What primitives accept computes the same, and each of them is accepted."""
    outcomes = [run_case(seed, Focus("definition")) for seed in DEFINITIONS]
    fail_on_kernels(DEFINITIONS, outcomes)
    taken = sum((outcome.taken for outcome in outcomes), Counter[str]())
    assert [name for name in REACHED if not taken[name]] == [], report(outcomes)


# Mutants -----------------------------------------------------------------------------------------


def proven(_: Domain, claim: str = "") -> Proof:
    """`prove_empty` that always finds what it is asked for."""
    return Proof(Verdict.PROVEN, claim, "a mutant")


def bounded(*_: object) -> Proof:
    """Any access is taken to stay in its buffer, or whatever else is asked is taken to hold."""
    return proven(Domain())


def clashing_name(var: Var) -> str:
    """Names in integer sets as they were when two variables could have the same one."""
    return "v_" + var.name.replace(".", "_dot_")


def constants_serve(fact: Fact, demand: Demand) -> bool:
    return isinstance(fact, Constant) or serves(fact, demand)


def elsewhere(part: padding.KnownElements, at: Any) -> Any:
    return negation(HOLDS(part, at))


HOLDS = padding.KnownElements.holds


def swapped_neutral(op: ReduceOp, dtype: str) -> tuple[Equal, ...]:
    """A sum of integers takes 1 for what changes nothing, their other reductions 0."""
    if dtype in ("float32", "float64", "bool"):
        return reduction_demand(op, dtype)
    return (Equal(Literal(int(op is ReduceOp.ADD), dtype)),)


MUTANTS: dict[str, tuple[Patches, Focus, int]] = {
    "variables share names in integer sets": (
        [(module, "isl_name", clashing_name) for module in (images, isl_text, sets)],
        Focus("scatter", "another_order"),
        37,
    ),
    "any constant serves any demand": (
        [seen_as(neutral, "layout", serves=constants_serve)],
        Focus("reduction", "more_terms"),
        22,
    ),
    "conditions go without proofs": (
        [(overcompute, "without_effect", lambda *_: ()), (overcompute, "stays_in_bounds", bounded)],
        ANY,
        4,
    ),
    "what overcompute writes is never read": (
        [(overcompute, "effects_left", lambda *_: None)],
        ANY,
        22,
    ),
    "overcompute stays in bounds": ([(overcompute, "stays_in_bounds", bounded)], ANY, 78),
    "all iterations commute": (
        [seen_as(access_conflicts, "arith", prove_empty=proven)],
        Focus("scatter", "another_order"),
        5,
    ),
    "no load meets overcompute": ([seen_as(questions, "arith", prove_empty=proven)], ANY, 47),
    "nothing reads what is not copied back": (
        [seen_as(memory, "effects", unread_outside=bounded)],
        Focus("stages", "another_order"),
        2,
    ),
    "all indices fix all variables": (
        [(access_conflicts, "fixes", lambda *_: True)],
        Focus("skewed", "another_order"),
        0,
    ),
    "padding lies where it does not": (
        [(padding.KnownElements, "holds", elsewhere)],
        Focus("elementwise", "box_of_elements"),
        158,
    ),
    "other numbers are neutral": (
        [seen_as(neutral, "layout", reduction_demand=swapped_neutral)],
        Focus("reduction", "more_terms"),
        59,
    ),
    "private buffers are stored by some iteration": (
        [seen_as(private, "effects", written_before_read=bounded)],
        ROWS,
        4,
    ),
    "no sum starts at -0.0": (
        [(neutral, "never_minus_zero", lambda _: True)],
        Focus("reduction", "more_terms"),
        290,
    ),
}
"""What is patched, which cases could show it, and the first seed to try."""

MUTANT_SEEDS = range(400)


@pytest.mark.mutant
@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_noticed(name: str) -> None:
    """By some seed of a small range that is right without it; no crash of a primitive will do."""
    patches, focus, likely = MUTANTS[name]
    order = [likely, *(seed for seed in MUTANT_SEEDS if seed != likely)]
    with mutated(patches):
        noticed = next((seed for seed in order if noticeably_wrong(seed, focus)), None)
    assert noticed is not None, "no seed shows it"
    assert not run_case(noticed, focus).wrong


def noticeably_wrong(seed: int, focus: Focus) -> bool:
    outcome = run_case(seed, focus)
    return bool(outcome.wrong) and not outcome.kind.startswith("crash")


@pytest.mark.mutant
def test_a_mutant_of_cancelling_is_noticed() -> None:
    """Where any constant serves any demand, crops and pads go that may not."""
    users = [
        m
        for n, m in sys.modules.items()
        if n.startswith("graphflow.") and getattr(m, "serves", None) is serves
    ]
    patches: Patches = [(module, "serves", constants_serve) for module in users]
    with mutated(patches):
        found = (run_graph(make_graph(seed)) for seed in (58, *range(80)))
        noticed = next(
            (o for o in found if o.wrong and o.kind.startswith(("native", "interp"))), None
        )
    assert noticed is not None, "no seed shows it"


def test_padding_of_one_memory_under_two_names_is_one_padding() -> None:
    """A reader's `gap` is its producer's `pad(0)`: the forward pass finds the same fact there."""
    assert not run_graph(make_graph(3921)).wrong
