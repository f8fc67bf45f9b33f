"""Filling the timing table with what the choice of a model's plan hangs on.

In: a model, a table.  Out: the table with more timings.  Not every variant of every kernel is
timed.  In rounds, a plan is made in which what was not measured is thought to be faster than it is
estimated to be (`OPTIMISM`); what that plan rests on without being measured `LOOKS` times is timed,
and what comes near to it and never was.  When the plan rests on measured prices alone, no other can
be cheaper, unless an estimate is too high by more than that.  In the first round and when it would
be done it looks at the plans with one family of layouts as well: each kernel has then been timed in
several kinds of variants, and these plans as often as the one that is better by its times.  Where
planning would change the graph and make a plan of that one too, both are tuned.  In the end the
cheapest plan is timed as a whole, beside those with one family of layouts
(`tuning/end_to_end_timing.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from numpy.typing import ArrayLike

from graphflow.base.arguments import Shapes
from graphflow.base.errors import SHAPES, InvalidModel, LayoutConflict
from graphflow.base.options import Options, default_timings
from graphflow.base.target import Target
from graphflow.base.trace import Trace
from graphflow.baselines import compared_families, plan_groups, uniform_pins
from graphflow.bench import Protocol
from graphflow.codegen import host_target
from graphflow.cost import CostModel, Timings, TimingTable
from graphflow.flow import Planning, regrouped
from graphflow.frontends import import_model, read_model, symbolic_inputs
from graphflow.graph import OperatorGraph, canonicalize, fuse
from graphflow.pipeline.compiler import WORKER_MODULES, Model, program_of, worker_count
from graphflow.processes.workers import Workers
from graphflow.program import ProgramSpec
from graphflow.runtime import check_host, default_threads, processor_of
from graphflow.tuning.end_to_end_timing import PROTOCOL as WHOLES_PROTOCOL
from graphflow.tuning.end_to_end_timing import compared, time_wholes, whole_timings
from graphflow.tuning.harness import PROTOCOL, Harness
from graphflow.tuning.measurement_candidates import ToTime, measurement_candidates
from graphflow.tuning.subjects import Subject, subjects

OPTIMISM = 1.5
"""By how much an estimate may be too high without misleading the choice."""

LOOKS = 3
"""How often what a plan rests on is timed, each time in another round: of many variants that take
about as long, the one with the luckiest time would win."""

MOST_ROUNDS = 48
MOST_A_ROUND = 128
"""Timings of one round; the rest waits for the next, which knows more."""


@dataclass(frozen=True)
class Tuned:
    """What tuning did: `timed` subjects in `rounds` rounds, besides the `known` ones of the table.

    `seconds` is what a run of the plan takes by these timings; it is `settled` if nothing that was
    not timed would have changed it.
    """

    path: Path
    timed: int
    known: int
    rounds: int
    seconds: float
    settled: bool

    def __str__(self) -> str:
        """One line for people."""
        end = "" if self.settled else "; not everything that matters was timed, tune again"
        return (
            f"{self.timed} timings in {self.rounds} rounds, {self.known} were known; by them the "
            f"best plan takes {1e3 * self.seconds:.3f} ms; they are in {self.path}{end}"
        )


def tune(
    model: Model,
    *,
    input_shapes: Shapes | None = None,
    input_values: Mapping[str, ArrayLike] | None = None,
    target: Target | None = None,
    threads: int | None = None,
    timings: str | None = None,
    options: Options | None = None,
    protocol: Protocol | None = None,
    progress: Callable[[str], None] = lambda text: None,
    counting: Callable[[int, int], None] = lambda done, total: None,
) -> Tuned:
    """Time what decides about the plan of `model`, and add it to the table `timings`.

    The table is by default that of the user.  It grows after every few timings, so that whatever
    ends this function loses little, and what it has is not timed again.  `input_shapes` and
    `input_values` are those of `compile`.  `progress` is called with
    what is being done, `counting` with how many of how many kernels that is done.  Raises
    CodegenError where this processor cannot run code for `target`.
    """
    chosen = Options.from_environment() if options is None else options
    aim = host_target() if target is None else target
    count = threads or chosen.threads or default_threads()
    check_host(processor_of(aim.cpu, aim.features), "what is to be timed")
    table = TimingTable(timings or chosen.timings or default_timings(), aim, count)
    graph = _graph(model, input_shapes or {}, input_values or {})
    trace = Trace(chosen, counting=counting)
    with Workers(*WORKER_MODULES) as workers:
        stand = Harness(aim, count, PROTOCOL if protocol is None else protocol)
        wholes = WHOLES_PROTOCOL if protocol is None else protocol
        return _Tuner(graph, table, stand, wholes, trace, workers, chosen, progress).run()


def _graph(model: Model, shapes: Shapes, values: Mapping[str, ArrayLike]) -> OperatorGraph:
    proto = read_model(model)
    missing = [name for name in symbolic_inputs(proto) if name not in shapes and name not in values]
    if missing:
        raise InvalidModel(
            f"the shapes of {', '.join(missing)} are symbolic; kernels are timed for given ones",
            remedies=(SHAPES,),
        )
    return fuse(canonicalize(import_model(proto, shapes, values)))


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Of the rounds for one graph."""

    rounds: int
    settled: bool


@dataclass
class _Tuner:
    graph: OperatorGraph
    table: TimingTable
    stand: Harness
    wholes: Protocol
    trace: Trace
    workers: Workers
    options: Options
    progress: Callable[[str], None]
    timed: int = 0

    def run(self) -> Tuned:
        known = len(self.table.known)
        outcomes = [self._settle(self.graph)]
        other = regrouped(self.graph, self._cost)
        if other is not None:
            outcomes.append(self._settle(other))
        settled = all(outcome.settled for outcome in outcomes)
        if settled:
            self._compare_wholes()
        _, plan = plan_groups(
            self.graph, self.stand.target, self.stand.threads, timings=Timings(self.table.known)
        )
        return Tuned(
            path=self.table.path,
            timed=self.timed,
            known=known,
            rounds=sum(outcome.rounds for outcome in outcomes),
            seconds=plan.seconds,
            settled=settled,
        )

    @property
    def _cost(self) -> CostModel:
        """The cost model with what was timed so far."""
        return CostModel(self.stand.target, self.stand.threads, Timings(self.table.known))

    def _settle(self, graph: OperatorGraph) -> _Outcome:
        """Rounds, until nothing is left that matters."""
        for number in range(MOST_ROUNDS):
            self.progress(f"round {number + 1}, planning")
            wanted = self._wanted(graph, first=number == 0)
            if not wanted:
                break
            self._time(wanted, f"round {number + 1}")
        return _Outcome(number + bool(wanted), settled=not wanted)

    def _wanted(self, graph: OperatorGraph, first: bool) -> list[Subject]:
        """What has to be timed to trust the cheapest plan."""
        timings = Timings(self.table.known, OPTIMISM, self.table.timed_less(LOOKS))
        hopeful = replace(self._cost, timings=timings)
        best = measurement_candidates(graph, hopeful)
        decisive: list[ToTime] = [*best.decisive]
        if first or not decisive:
            decisive += self._uniform(graph, hopeful)
        near = subjects(graph, best.near)
        new = {key: subject for key, subject in near.items() if key not in timings.known}
        wanted = [*(subjects(graph, decisive) | new).values()]
        return wanted[:MOST_A_ROUND]

    def _uniform(self, graph: OperatorGraph, cost: CostModel) -> Iterator[ToTime]:
        for family in compared_families(cost.target):
            pins = uniform_pins(graph, cost.target, family)
            try:
                yield from measurement_candidates(graph, cost, pins).decisive
            except LayoutConflict:
                continue  # not all of them can be had together

    def _compare_wholes(self) -> None:
        """Time the cheapest plan beside its rivals, if that was not done."""
        self.progress("whole plans, planning")
        plans = compared(self.graph, self._cost)
        if len(plans) == 1 or plans.keys() <= self.table.known.keys():
            return
        self.progress("whole plans, compiling")
        programs = {key: self._program(found) for key, (_, found) in plans.items()}
        self.progress("whole plans, timing")
        looks = []
        for look in islice(time_wholes(programs, self.stand, self.wholes), LOOKS):
            looks.append(look)
            self.trace.count(len(looks), LOOKS)
        named = {key: what for key, (what, _) in plans.items()}
        self.table.add(whole_timings(named, looks))
        self.timed += len(named)

    def _program(self, found: Planning) -> ProgramSpec:
        return program_of(
            found.graph, found.plan(), self.stand.target, self.options, self.trace, self.workers
        )

    def _time(self, wanted: list[Subject], where: str) -> None:
        if not self.workers.started:
            self.workers.start(worker_count(len(wanted), self.options), self.trace)
        self.progress(f"{where}, compiling")
        kernels = self.stand.compiled(wanted, self.trace, self.workers)
        self.progress(f"{where}, timing")
        done = 0
        for batch in self.stand.times(wanted, kernels):
            self.table.add(batch)
            done += len(batch)
            self.timed += len(batch)
            self.trace.count(done, len(wanted))
