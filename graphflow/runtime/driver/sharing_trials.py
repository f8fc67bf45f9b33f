"""Whether sharing steps makes the runs of a job shorter on this machine and now: a few runs try.

In: a job whose plan shares steps, and how long its runs take.  Out: LLVM IR of the functions that
decide who executes the next run and note how long it took.  What always holds: results are the
same whoever executes steps; trials take at most about a `1 / _SHARE` of the time of all runs, if
the slower way takes at most twice as long, but for the first one; runs are compared with runs of
which threads save about as much, by estimate.  What late steps execute is known only behind a run:
until then it is taken to be as much as in the run before.

A plan knows the work and not the machine.  Of two virtual processors the host may make two cores
with a cache in common, two cores without one, or two halves of one core, which compute no faster
than it does alone; another process may have one of them; and a worker is asleep where a program
runs seldom.  All of this changes within seconds.

    plan's runs …  3 by the caller alone  the faster way …  3 of the other way  the faster way …

The first run of a trial is not counted: a worker that slept is awake behind it.
"""

from __future__ import annotations

from graphflow.runtime.driver.function_builder import NativeBody, function
from graphflow.runtime.driver.instructions import AddressOf, NativePlace, NativeValue
from graphflow.runtime.driver.records import JOB
from graphflow.runtime.driver.structs import BOOL, INT32, INT64

_RUNS = 3
"""The runs of a trial."""

_FIRST_RUNS = 64
"""The runs before the first trial, so that programs of a few runs are executed as planned; also
those behind a trial that lost no time, which says nothing of what the next one may lose."""

_REST = 8
"""The least number of runs between other trials; those behind the first few are as later ones."""

_SHARE = 128
"""Trials may take one part in so many of the time that runs take."""

_LONGEST_NS = 4_000_000
"""Runs that take longer try the caller alone only where something disturbs their threads: meetings
are little of them, and a trial would be a delay that somebody notices."""

_UNTRIED = 1 << 62
"""The time of a way before it is tried."""

_ALIKE = 4
"""Runs are compared if what threads save of them differs by less than one part in so many."""

_STRANGE = 16
"""After so many runs in a row of another kind these are the ones that are compared."""

_GAIN = 32
"""The other way is taken if it is faster by one part in so many, so that noise decides seldom."""


@function(BOOL, job=AddressOf(JOB))
def is_compared(f: NativeBody, job: NativePlace) -> None:
    """Whether the present run of a job is of the kind that is compared."""
    saving, kind = job.at("saving").load(), job.at("kind").load()
    off = f.select(saving.signed_at_least(kind), saving - kind, kind - saving, INT64)
    f.give((off * _ALIKE).signed_at_most(kind))


@function(INT32, job=AddressOf(JOB))
def is_run_together(f: NativeBody, job: NativePlace) -> None:
    """Whether threads share steps of a run in which the plan shares some."""
    is_alone = job.at("is_alone").load().differs(job.at("trial").load().above(0).widened(INT32))
    f.give(f.select(f.call(is_compared, job) & is_alone, 0, 1, INT32))


@function(job=AddressOf(JOB))
def compare_ways(f: NativeBody, job: NativePlace) -> None:
    """Behind a trial: take the faster way, and say how much time has to pass until the next one.

    The slower way is taken to take twice as long at the most: what took longer was disturbed, and
    may not be when it is tried again.
    """
    present = f.call(smaller, job.at("last").load(), job.at("second_last").load())
    other = job.at("tried").load()
    with f.when((other + other // _GAIN).below(present)):
        is_alone = job.at("is_alone")
        is_alone.store(f.select(is_alone.load().equals(0), 1, 0, INT32))
    excess = f.select(other.below(present), present - other, other - present, INT64)
    for name in ("credit", "settled"):
        job.at(name).store(0)
    least = f.call(smaller, present, other)
    job.at("price").store(f.call(smaller, excess, least) * _RUNS)


@function(INT64, one=INT64, other=INT64)
def smaller(f: NativeBody, one: NativeValue, other: NativeValue) -> None:
    """The smaller one of two times."""
    f.give(f.select(one.below(other), one, other, INT64))


@function(job=AddressOf(JOB))
def begin_comparing(f: NativeBody, job: NativePlace) -> None:
    """Compare runs like the present one from now on; they begin with what the plan says."""
    job.at("kind").store(job.at("saving").load())
    for name in ("is_alone", "trial", "strange", "settled", "credit", "price", "fastest"):
        job.at(name).store(0)


@function(BOOL, job=AddressOf(JOB), elapsed=INT64)
def may_try(f: NativeBody, job: NativePlace, elapsed: NativeValue) -> None:
    """Whether a run that took so long may be followed by a trial; notes it if it is the fastest.

    Long ones only if the caller runs them alone, or if the last two took half as long again as the
    fastest that threads shared: so much slower is what another process makes of them.
    """
    fastest, alone = job.at("fastest"), job.at("is_alone").load().differs(0)
    least = f.call(smaller, elapsed, job.at("second_last").load())
    is_first = fastest.load().equals(0) | least.below(fastest.load())
    fastest.store(f.select(is_first & ~alone, least, fastest.load(), INT64))
    is_disturbed = least.at_least(fastest.load() + fastest.load() // 2)
    f.give(elapsed.below(_LONGEST_NS) | alone | is_disturbed)


@function(job=AddressOf(JOB), elapsed=INT64)
def note_run(f: NativeBody, job: NativePlace, elapsed: NativeValue) -> None:
    """Note how long a run took in which the plan shares steps, and decide whether a trial begins.

    Before the first trial it counts runs alone, as a single one that something disturbs may take
    more time than all others.
    """
    strange, trial, settled = job.at("strange"), job.at("trial"), job.at("settled")
    with f.when(~f.call(is_compared, job)):
        strange.store(strange.load() + 1)
        with f.when(strange.load().equals(_STRANGE)):
            f.run(begin_comparing, job)
        f.give()
    strange.store(0)
    with f.when(trial.load().differs(0)):
        with f.when(trial.load().differs(_RUNS)):
            tried = job.at("tried")
            tried.store(f.call(smaller, tried.load(), elapsed))
        trial.store(trial.load() - 1)
        with f.when(trial.load().equals(0)):
            f.run(compare_ways, job)
        f.give()
    job.at("second_last").store(job.at("last").load())
    job.at("last").store(elapsed)
    credit, price = job.at("credit"), job.at("price")
    credit.store(credit.load() + elapsed // _SHARE)
    may = f.call(may_try, job, elapsed)
    rest = f.select(price.load().equals(0), _FIRST_RUNS, _REST, INT32)
    with f.when(settled.load().below(rest)):
        settled.store(settled.load() + 1)
        f.give()
    is_paid = credit.load().at_least(price.load())
    with f.when(is_paid & may):
        job.at("tried").store(_UNTRIED)
        trial.store(_RUNS)
