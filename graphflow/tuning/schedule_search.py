"""Search schedules: points of sketches, built and timed for the kernels of a graph.

In: a fused graph, sketches, and the number of schedules to time for each kernel.  Out: their
timings in the timing table, and a `Searched` for each sketch and distinct kernel, with the points
that were refused and why.  What always holds: which points are tried follows from the space, the
seed and the number alone, so a second search finds all of them in the table; the default point is
the first of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from graphflow.base.errors import CodegenError, ScheduleError, VerifyError
from graphflow.base.trace import Trace
from graphflow.cost import TimingTable
from graphflow.graph import Node, OperatorGraph, searchable_nodes
from graphflow.kernels.lowering import LoweredKernel
from graphflow.kernels.recipes import point_key, search_key, timed_searches
from graphflow.processes.workers import Workers
from graphflow.schedule import Point, Refusal, Sketch, choices_text
from graphflow.tuning.harness import Harness, Kernels
from graphflow.tuning.subjects import Subject, schedule_subject
from graphflow.tuning.timing_site import TimingSite, time_into

MOST_REFUSED = 8
"""Points that may be refused for each schedule to time, before a search ends with fewer."""

FASTEST = 3
"""The fastest schedules of a search, which are timed again."""

REPETITIONS = 2
"""How often: of many noisy times the shortest is too short."""


class Searched(Struct, frozen=True):
    """What a search did for one kernel: the sketch, the points tried, and the fastest of them.

    `kernel` is the operator of the first node that runs the kernel; `space` the number of points of
    the space without its constraints.  `refused` are the points without a schedule, with reasons.
    `best` is None where no point has a schedule.
    """

    kernel: str
    sketch: str
    space: int
    timed: int
    known: int
    refused: tuple[tuple[Point, Refusal], ...]
    best: Point | None
    seconds: float
    default_seconds: float | None

    def reasons(self) -> dict[str, int]:
        """How many points were refused for each reason, the most frequent first."""
        return dict(Counter(str(refusal) for _, refusal in self.refused).most_common())

    def __str__(self) -> str:
        """A line for people, and one for each reason."""
        tried = (
            f"{self.kernel}, sketch {self.sketch}: {self.timed} schedules timed, {self.known} "
            f"known, {len(self.refused)} refused, of {self.space} points"
        )
        if self.best is not None:
            tried += f"; {1e6 * self.seconds:.1f} µs with {choices_text(self.best)}"
        if self.default_seconds is not None:
            tried += f", {1e6 * self.default_seconds:.1f} µs with the default choices"
        return "\n".join((tried, *(f"  {n} × {why}" for why, n in self.reasons().items())))


@dataclass
class _Trial:
    """The points of one sketch that are tried for one kernel."""

    node: Node
    sketch: Sketch
    search: str
    space: int
    points: list[Point]
    default: Point
    refused: list[tuple[Point, Refusal]]
    subjects: list[tuple[Point, Subject]]


class ScheduleSearch(Struct, frozen=True):
    """A search of schedules with a harness, which are timed at a site, into a timing table.

    `schedules` are timed for each sketch and distinct kernel; `compiler` is the digest under which
    results are filed.
    """

    harness: Harness
    site: TimingSite
    table: TimingTable
    schedules: int
    seed: int
    compiler: str

    def run(
        self,
        graph: OperatorGraph,
        sketches: Sequence[Sketch],
        trace: Trace,
        workers: Workers,
        progress: Callable[[str], None],
    ) -> tuple[Searched, ...]:
        """Search all kernels of a graph, and file the timings."""
        progress("searching schedules")
        trials = [*self._trials(graph, sketches)]
        missing = [(trial, *pair) for trial in trials for pair in trial.subjects]
        progress("searching schedules, compiling")
        kernels = self._compiled(missing, trace, workers)
        found = [subject for _, _, subject in missing if (subject.key, 0) in kernels]
        progress("searching schedules, timing")
        time_into(self.table, self.site, found, kernels, trace)
        for _ in range(REPETITIONS):
            time_into(self.table, self.site, self._fastest(trials), kernels, trace)
        timed = timed_searches(self.table.known)
        return tuple(_searched(trial, timed.get(trial.search, {})) for trial in trials)

    def _fastest(self, trials: Sequence[_Trial]) -> list[Subject]:
        """The fastest points of each trial that were compiled now, to be timed again."""
        known = self.table.known
        found: list[Subject] = []
        for trial in trials:
            ranked = sorted((subject for _, subject in trial.subjects), key=lambda s: known[s.key])
            found += ranked[:FASTEST]
        return found

    def _trials(self, graph: OperatorGraph, sketches: Sequence[Sketch]) -> Iterator[_Trial]:
        known, seen = self.table.known, set[str]()
        for node in searchable_nodes(graph):
            for sketch in sketches:
                search = search_key(sketch, node.func, self.compiler)
                space = None if search in seen else sketch.space(node.func, self.harness.target)
                if space is None:
                    continue
                seen.add(search)
                points = space.sample(self.schedules * (1 + MOST_REFUSED), self.seed)
                trial = _Trial(node, sketch, search, space.size, [], space.default(), [], [])
                for point in points:
                    if len(trial.points) == self.schedules:
                        break
                    self._try(graph, trial, point, known)
                yield trial

    def _try(
        self, graph: OperatorGraph, trial: _Trial, point: Point, known: Mapping[str, float]
    ) -> None:
        """Adds a point to the points of a trial, or to those that were refused."""
        node, target = trial.node, self.harness.target
        key = point_key(trial.search, point)
        if key in known:
            trial.points.append(point)
            return
        made = trial.sketch.schedule(node.func, target, point)
        if isinstance(made, Refusal):
            trial.refused.append((point, made))
            return
        what = f"sketch {trial.sketch.name} with {choices_text(point)}"
        try:
            subject = schedule_subject(graph, node, made.func, target, key, what)
        except (ScheduleError, VerifyError) as error:
            trial.refused.append((point, _refusal(error)))
            return
        trial.points.append(point)
        trial.subjects.append((point, subject))

    def _compiled(
        self, missing: Sequence[tuple[_Trial, Point, Subject]], trace: Trace, workers: Workers
    ) -> Kernels:
        """The kernels of the subjects; what cannot be compiled is refused, one by one."""
        try:
            return self.harness.compiled([subject for *_, subject in missing], trace, workers)
        except (ScheduleError, VerifyError, CodegenError):
            pass
        kernels: dict[tuple[str, int], tuple[LoweredKernel, bytes]] = {}
        for trial, point, subject in missing:
            try:
                kernels |= self.harness.compiled([subject], trace, workers)
            except (ScheduleError, VerifyError, CodegenError) as error:
                trial.refused.append((point, _refusal(error)))
                trial.points.remove(point)
                trial.subjects.remove((point, subject))
        return kernels


def _refusal(error: Exception) -> Refusal:
    return Refusal.of(error) if isinstance(error, ScheduleError) else Refusal("", str(error))


def _searched(trial: _Trial, timed: Mapping[str, float]) -> Searched:
    seconds = {point: timed[choices_text(point)] for point in trial.points}
    best = min(seconds, key=lambda point: seconds[point], default=None)
    return Searched(
        trial.node.op,
        trial.sketch.name,
        trial.space,
        len(trial.subjects),
        len(trial.points) - len(trial.subjects),
        tuple(trial.refused),
        best,
        0.0 if best is None else seconds[best],
        seconds.get(trial.default),
    )
