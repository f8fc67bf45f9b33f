"""Timing plans as whole programs, those that are compared in turns.

In: the plan whose parts take least, and its rivals.  Out: a timing of each.  Runs of two plans that
follow each other meet the same machine, so that how much longer a rival takes is the median over
such pairs; by it, from what the plan itself took, comes the time that is filed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from graphflow.baselines import rivals, whole_keys
from graphflow.bench import Protocol, measure, random_inputs
from graphflow.cost import CostModel, Timing
from graphflow.flow import Planning, cheapest
from graphflow.graph import OperatorGraph
from graphflow.program import ProgramSpec
from graphflow.runtime import Program
from graphflow.tuning.harness import Harness

PROTOCOL = Protocol(blocks=15, idle=0.0, discarded=0.01, measured=0.05)
"""Blocks of several runs of a network."""

REFERENCE = ""
OWN = "the plan whose parts take least"


def compared(graph: OperatorGraph, cost: CostModel) -> dict[str, tuple[str, Planning]]:
    """By key, what to call them and the plans to compare: the one whose parts take least first."""
    found = cheapest(graph, cost)
    own, others = whole_keys(found)
    plans = {own: (OWN, found)}
    for family, planned in rivals(found, graph):
        plans[others[family]] = (f"the plan with {family.name} wherever it can be had", planned)
    return plans


def time_wholes(
    programs: Mapping[str, ProgramSpec], stand: Harness, protocol: Protocol
) -> Iterator[dict[str, tuple[float, ...]]]:
    """Milliseconds of each block of each program, by its key, and of the reference, without end.

    Programs are made anew each time, for it matters where in memory they lie.
    """
    while True:
        runs: dict[str, Callable[[], object]] = {
            key: Program(spec, stand.threads).bind(random_inputs(spec.inputs)).run
            for key, spec in programs.items()
        }
        runs[REFERENCE] = stand.reference()
        yield {key: timing.blocks for key, timing in measure(runs, protocol).items()}


def whole_timings(
    named: Mapping[str, str], looks: Sequence[Mapping[str, tuple[float, ...]]]
) -> tuple[Timing, ...]:
    """What is filed about the programs of these keys; others are compared with the first."""
    took = {key: [ms for look in looks for ms in look[key]] for key in (*named, REFERENCE)}
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
