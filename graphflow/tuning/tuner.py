"""Fill the timing table with the prices on which the choice of a model's plan depends.

In: a model and a table.  Out: the table with more timings.  Not every variant of every kernel is
timed.  In each round a plan is made in which unmeasured prices are estimates divided by `OPTIMISM`;
the prices of that plan with fewer than `REQUIRED_TIMINGS` timings are timed, and of plans that come
close those without any.  When the plan consists of measured prices alone, no other plan can be
cheaper, unless an estimate is too high by more than `OPTIMISM`.

Before the first round, schedules may be searched (`tuning/schedule_search.py`): the fastest point
of a sketch is offered to its kernel like a user's schedule, and timed in the rounds beside a
recipe's variant, with which it competes in every plan.

In the first round, and when the rounds would end, the plans with one family of layouts are treated
likewise, so that each kernel is timed in several kinds of variants.  In the end the cheapest plan
is timed end to end, beside the baseline plans (`tuning/end_to_end_timing.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct
from numpy.typing import ArrayLike

from graphflow.base.arguments import Shapes, chosen_options
from graphflow.base.errors import InvalidModel, LayoutConflict, shapes_remedy
from graphflow.base.fields import replace
from graphflow.base.options import Options, default_timings
from graphflow.base.target import Target
from graphflow.base.trace import Trace
from graphflow.baselines import compared_families, plan_groups, uniform_pins
from graphflow.bench import Protocol
from graphflow.codegen import chosen_target
from graphflow.cost import CostModel, Timings, TimingTable
from graphflow.flow import Planning
from graphflow.frontends import (
    OnnxModel,
    OwnOperators,
    import_model,
    open_model,
    signature,
    symbolic_inputs,
)
from graphflow.graph import OperatorGraph, graph_of, take_assumptions
from graphflow.pipeline.compiler import WORKER_MODULES, program_of
from graphflow.pipeline.compiler_stages import SKETCHES, compiler_digest, with_found_schedules
from graphflow.pipeline.grouping import canonical, fusion_groups
from graphflow.pipeline.request import CompileRequest
from graphflow.pipeline.services import worker_count
from graphflow.processes.workers import Workers
from graphflow.program import ProgramSpec
from graphflow.schedule import Sketch
from graphflow.tir import PrimFunc
from graphflow.tuning.end_to_end_timing import (
    END_TO_END_PROTOCOL,
    compared_plans,
    end_to_end_timings,
)
from graphflow.tuning.harness import PROTOCOL, Harness
from graphflow.tuning.measurement_candidates import (
    ToTime,
    found_and_recipes,
    measurement_candidates,
)
from graphflow.tuning.schedule_search import ScheduleSearch, Searched
from graphflow.tuning.subjects import Subject, subjects
from graphflow.tuning.timing_site import SiteOf, ThisMachine, TimingSite, time_into

Tunable: TypeAlias = "OnnxModel | PrimFunc | OperatorGraph"

OPTIMISM = 1.5
"""The factor by which an estimate may be too high without misleading the choice."""

REQUIRED_TIMINGS = 3
"""The timings, each of another round, that a price of the plan needs before it is trusted.

With one, of many variants with about equal times the one whose timing erred lowest would win.
"""

MOST_ROUNDS = 48
"""The most rounds for one graph; then the result is not `settled`."""
MOST_A_ROUND = 128
"""The most subjects of one round; the others wait for the next one, which has more timings."""


class Tuned(Struct, frozen=True):
    """The result of tuning: `timed` subjects in `rounds` rounds, besides the `known` ones of the
    table.

    `seconds` is the price of the plan under these timings.  `settled` says that no price that was
    not timed could change the plan.  `searched` are the searches of schedules.
    """

    path: Path
    timed: int
    known: int
    rounds: int
    seconds: float
    settled: bool
    searched: tuple[Searched, ...] = ()

    def __str__(self) -> str:
        """One line for people, and lines for each searched kernel."""
        end = "" if self.settled else "; not everything that matters was timed, tune again"
        line = (
            f"{self.timed} timings in {self.rounds} rounds, {self.known} were known; with them the "
            f"best plan takes {1e3 * self.seconds:.3f} ms; they are in {self.path}{end}"
        )
        return "\n".join((line, *map(str, self.searched)))


def tune(
    model: Tunable,
    *,
    input_shapes: Shapes | None = None,
    input_values: Mapping[str, ArrayLike] | None = None,
    target: Target | str | None = None,
    operators: OwnOperators | None = None,
    threads: int | None = None,
    timings: str | None = None,
    options: Options | None = None,
    sketches: Sequence[Sketch] = (),
    search: int = 0,
    seed: int = 0,
    protocol: Protocol | None = None,
    site: SiteOf = ThisMachine,
    progress: Callable[[str], None] = lambda text: None,
    counting: Callable[[int, int], None] = lambda done, total: None,
) -> Tuned:
    """Time the prices on which the plan of `model` depends, and add them to the table `timings`.

    The table is by default that of the user.  It is appended to after every batch, so that an
    interrupted run loses little; what it contains is not timed again.  `input_shapes`,
    `input_values` and `operators` are those of `compile`.  `progress` is called with what is being
    done, `counting` with how many kernels, and of how many, that is done for.

    With `search`, so many schedules of each sketch are timed for each kernel first: of the
    compiler's own sketches, and of `sketches`.  The `seed` decides which; see `SearchSpace.sample`.
    `compile` with these timings offers the fastest, those of `sketches` if it is given them, too.
    A kernel that a user wrote, or a graph of them, is tuned like a model.  `site` is where kernels
    are timed, by default this machine.  Raises CodegenError
    where this processor cannot run code for `target`, and InvalidModel where shapes are symbolic.
    """
    request = CompileRequest(
        model=graph_of(model) if isinstance(model, PrimFunc) else model,
        input_shapes={} if input_shapes is None else input_shapes,
        input_values={} if input_values is None else input_values,
        operators=operators,
        target=chosen_target(target),
        sketches=sketches,
        options=chosen_options(options, threads),
        counting=counting,
    )
    aim = request.target
    harness = Harness(aim, request.threads, PROTOCOL if protocol is None else protocol)
    place = site(harness, END_TO_END_PROTOCOL if protocol is None else protocol)
    path = timings or request.options.timings or default_timings()
    table = TimingTable(path, aim, request.threads)
    graph = _graph(request)
    trace = Trace(request.options, counting=counting)
    with Workers(*WORKER_MODULES) as workers:
        searched: tuple[Searched, ...] = ()
        if search > 0:
            every = (*SKETCHES, *sketches)
            schedules = ScheduleSearch(harness, place, table, search, seed, compiler_digest())
            searched = schedules.run(graph, every, trace, workers, progress)
        graph = with_found_schedules(graph, request, Timings(table.known))
        tuner = _Tuner(graph, request, table, harness, place, trace, workers, progress)
        tuned, timed = tuner.run(), sum(found.timed for found in searched)
        known = tuned.known - timed
        return replace(tuned, timed=tuned.timed + timed, known=known, searched=searched)


def _graph(request: CompileRequest) -> OperatorGraph:
    """The fusion groups of a model of known shapes, or of a graph of kernels."""
    if isinstance(request.model, OperatorGraph):
        graph, _ = take_assumptions(request.model)
        return fusion_groups(canonical(graph, request), request)
    proto = open_model(request.model).whole()
    shapes, values = request.input_shapes, request.input_values
    missing = [name for name in symbolic_inputs(proto) if name not in shapes and name not in values]
    if missing:
        inputs, _ = signature(proto)
        raise InvalidModel(
            f"the shapes of {', '.join(missing)} are symbolic; kernels are timed for known shapes",
            remedies=(shapes_remedy({n: shape for n, _, shape in inputs if n in missing}),),
        )
    graph = import_model(proto, shapes, values, operators=request.operators)
    return fusion_groups(canonical(graph, request), request)


class _Outcome(Struct, frozen=True):
    """The number of rounds, and whether they ended because nothing was left to time."""

    rounds: int
    settled: bool


@dataclass
class _Tuner:
    """One run of the tuner: what it tunes, with what, and how many timings it has made."""

    graph: OperatorGraph
    request: CompileRequest
    table: TimingTable
    harness: Harness
    site: TimingSite
    trace: Trace
    workers: Workers
    progress: Callable[[str], None]
    timed: int = 0

    def run(self) -> Tuned:
        known = len(self.table.known)
        outcome = self._settle()
        if outcome.settled:
            self._time_end_to_end()
        _, plan, _ = plan_groups(
            self.graph,
            self.harness.target,
            self.harness.threads,
            timings=Timings(self.table.known),
            winograd=self.request.options.winograd,
        )
        return Tuned(
            path=self.table.path,
            timed=self.timed,
            known=known,
            rounds=outcome.rounds,
            seconds=plan.seconds,
            settled=outcome.settled,
        )

    @property
    def _cost(self) -> CostModel:
        """The cost model with the timings so far."""
        return CostModel(self.harness.target, self.harness.threads, Timings(self.table.known))

    def _settle(self) -> _Outcome:
        """Rounds until nothing is left to time."""
        for number in range(MOST_ROUNDS):
            self.progress(f"round {number + 1}, planning")
            wanted = self._wanted(first=number == 0)
            if not wanted:
                break
            self._time(wanted, f"round {number + 1}")
        return _Outcome(number + bool(wanted), settled=not wanted)

    def _wanted(self, first: bool) -> list[Subject]:
        """The subjects to time next; none if the cheapest plan can be trusted."""
        timings = Timings(self.table.known, OPTIMISM, self.table.timed_less(REQUIRED_TIMINGS))
        hopeful = replace(self._cost, timings=timings)
        winograd = self.request.options.winograd
        best = measurement_candidates(self.graph, hopeful, winograd=winograd)
        decisive: list[ToTime] = [*best.decisive, *found_and_recipes(self.graph, hopeful)]
        if first or not decisive:
            decisive += self._uniform(hopeful)
        near = subjects(best.graph, best.near)
        new = {key: subject for key, subject in near.items() if key not in timings.known}
        wanted = [*(subjects(best.graph, decisive) | new).values()]
        return wanted[:MOST_A_ROUND]

    def _uniform(self, cost: CostModel) -> Iterator[ToTime]:
        for family in compared_families(cost.target):
            pins = uniform_pins(self.graph, cost.target, family)
            try:
                found = measurement_candidates(
                    self.graph, cost, pins, self.request.options.winograd
                )
                yield from found.decisive
            except LayoutConflict:
                continue  # no plan meets all of these pins

    def _time_end_to_end(self) -> None:
        """Time the cheapest plan beside its baselines end to end, unless the table has these
        times.
        """
        self.progress("end-to-end times, planning")
        plans = compared_plans(self.graph, self._cost, self.request.options.winograd)
        if len(plans) == 1 or plans.keys() <= self.table.known.keys():
            return
        self.progress("end-to-end times, compiling")
        programs = {key: self._program(found) for key, (_, found) in plans.items()}
        self.progress("end-to-end times, timing")
        repetitions = []
        for repetition in islice(self.site.end_to_end(programs), REQUIRED_TIMINGS):
            repetitions.append(repetition)
            self.trace.count(len(repetitions), REQUIRED_TIMINGS)
        named = {key: what for key, (what, _) in plans.items()}
        self.table.add(end_to_end_timings(named, repetitions))
        self.timed += len(named)

    def _program(self, found: Planning) -> ProgramSpec:
        return program_of(found.graph, found.plan(), self.request, self.trace, self.workers)

    def _time(self, wanted: list[Subject], where: str) -> None:
        if not self.workers.started:
            self.workers.start(worker_count(len(wanted), self.request.options), self.trace)
        self.progress(f"{where}, compiling")
        kernels = self.harness.compiled(wanted, self.trace, self.workers)
        self.progress(f"{where}, timing")
        time_into(self.table, self.site, wanted, kernels, self.trace)
        self.timed += len(wanted)
