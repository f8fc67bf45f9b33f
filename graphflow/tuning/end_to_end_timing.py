"""Measure whole programs end to end, alternating between the plans that are compared.

In: the plan with the least sum of prices, and the baseline plans.  Out: a timing of each.  Runs
that follow each other see the same state of the machine, so the ratio of a baseline to the first
plan is the median of the ratios of such pairs of blocks; that ratio times the first plan's own
median is the time that is filed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from graphflow.baselines import baseline_plans, end_to_end_keys
from graphflow.bench import Protocol, measure
from graphflow.cost import CostModel, Timing
from graphflow.flow import Planning, find_plan
from graphflow.graph import OperatorGraph
from graphflow.program import ProgramSpec, random_inputs
from graphflow.runtime import Program
from graphflow.tuning.harness import Harness

END_TO_END_PROTOCOL = Protocol(blocks=15, idle=0.0, discarded=0.01, measured=0.05)
"""Blocks of 50 ms: several runs of a network each, after 10 ms of discarded runs."""

REFERENCE = ""
OWN = "the plan with the least sum of prices"


def compared_plans(
    graph: OperatorGraph, cost: CostModel, winograd: bool = True
) -> dict[str, tuple[str, Planning]]:
    """The plans to compare, by timing-table key, each with a description; the cheapest by prices
    first.  `winograd` as of `find_plan`.
    """
    found = find_plan(graph, cost, winograd=winograd)
    own, others = end_to_end_keys(found)
    plans = {own: (OWN, found)}
    for family, planned in baseline_plans(found, graph):
        plans[others[family]] = (f"the plan with {family.name} wherever possible", planned)
    return plans


def end_to_end_blocks(
    programs: Mapping[str, ProgramSpec], harness: Harness, protocol: Protocol
) -> Iterator[dict[str, tuple[float, ...]]]:
    """The milliseconds of each block of each program and of the reference, by key; again and again.

    Programs are linked anew for each repetition, because their time depends on where in memory they
    are.
    """
    while True:
        runs: dict[str, Callable[[], object]] = {
            key: Program(spec, harness.threads).bind(random_inputs(spec.inputs)).run
            for key, spec in programs.items()
        }
        runs[REFERENCE] = harness.reference()
        yield {key: timing.blocks for key, timing in measure(runs, protocol).items()}


def end_to_end_timings(
    named: Mapping[str, str], repetitions: Sequence[Mapping[str, tuple[float, ...]]]
) -> tuple[Timing, ...]:
    """The timings to file: for each key of `named` (key to description) a `Timing` in seconds.

    The first key is the plan that the others are compared with.
    """
    took = {
        key: [ms for repetition in repetitions for ms in repetition[key]]
        for key in (*named, REFERENCE)
    }
    own = took[next(iter(named))]
    seconds = 1e-3 * statistics.median(own)
    reference = 1e-3 * statistics.median(took[REFERENCE])
    return tuple(
        Timing(
            key,
            seconds * statistics.median(b / a for a, b in zip(own, took[key], strict=True)),
            reference,
            what,
        )
        for key, what in named.items()
    )
