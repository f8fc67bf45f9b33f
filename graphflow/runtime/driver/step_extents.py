"""What the sizes of a run decide about its steps: how many iterations of each are executed, and
whether threads share them.

In: a job whose inputs hold sizes, or whose steps write sizes that later ones have.  Out: LLVM IR of
the functions that write both into its steps.  What always holds: where a run executes all
iterations of all steps, threads share those that the plan says.
"""

from __future__ import annotations

from graphflow.runtime.driver.function_builder import NativeBody, function
from graphflow.runtime.driver.instructions import AddressOf, NativePlace, NativeValue
from graphflow.runtime.driver.records import JOB, LEVEL, STEP
from graphflow.runtime.driver.structs import INT32, INT64, POINTER


@function(job=AddressOf(JOB))
def apply_sizes(f: NativeBody, job: NativePlace) -> None:
    """Have each step execute the iterations that the sizes among this run's inputs ask for.

    A late step has those of the run before, until this one reaches it.
    """
    steps = f.array(job.at("steps").load(), STEP)
    with f.counted(0, job.at("step_count").load()) as i:
        step = steps.at(i)
        is_late = step.at("late").load().differs(0)
        with f.when(step.at("level_count").load().differs(0) & ~is_late):
            f.run(apply_step_sizes, job, i, job.at("addresses").load())


@function(job=AddressOf(JOB), number=INT64, holders=POINTER)
def apply_step_sizes(
    f: NativeBody, job: NativePlace, number: NativeValue, holders: NativeValue
) -> None:
    """Have a step execute the iterations that its sizes ask for; among the addresses at `holders`
    are theirs.

    Of a late step all threads that share it write this, and the same: no size of it changes before
    they have met behind it.
    """
    step = f.array(job.at("steps").load(), STEP).at(number)
    levels, addresses = f.array(job.at("levels").load(), LEVEL), f.array(holders, POINTER)
    extent, row = f.local(INT64, 1), f.local(INT64, 0)
    with f.counted(0, step.at("level_count").load()) as k:
        level = levels.at(step.at("first_level").load() + k)
        most, values = level.at("most").load(), level.at("count").load()
        held = f.array(addresses.at(level.at("source").load()).load(), INT64).at(0).load()
        size = f.select(held.below(most), held, most, INT64)
        executed = (values * size + most - 1) // most
        level.at("length").store(executed * level.at("unit").load())
        level.at("left_out").store((values - executed) * level.at("stride").load())
        extent.store(extent.load() * level.at("length").load())
        # Rows end where the first level leaves something out.
        first = row.load().equals(0) & executed.below(values)
        row.store(f.select(first, extent.load(), row.load(), INT64))
    extent.store(extent.load() * step.at("rounds").load())
    whole = row.load().equals(0)
    step.at("row").store(f.select(whole, extent.load(), row.load(), INT64))
    step.at("extent").store(extent.load())


@function(INT32, job=AddressOf(JOB), first=INT64)
def group_is_shared(f: NativeBody, job: NativePlace, first: NativeValue) -> None:
    """Whether threads share step `first`, or one of those that run concurrently with it; not if
    there is no such step."""
    steps = f.array(job.at("steps").load(), STEP)
    number = f.local(INT64, first)
    with f.loop() as walk:
        with f.when(number.load().at_least(job.at("step_count").load())):
            f.give(0)
        step = steps.at(number.load())
        with f.when(step.at("threads").load().above(1)):
            f.give(1)
        with f.when(step.at("concurrent").load().equals(0)):
            walk.leave()
        number.store(number.load() + 1)
    f.give(0)


def _gain(
    f: NativeBody, job: NativePlace, step: NativePlace, extent: NativeValue
) -> tuple[NativePlace, NativePlace]:
    """Instructions that compute what threads save of `extent` iterations of a step, less the
    meeting behind it; and 1 if that is a part of the step, else 0."""
    levels = f.array(job.at("levels").load(), LEVEL)
    inputs = f.array(job.at("addresses").load(), POINTER)
    whole = step.at("whole").load()
    gain, part = f.local(INT64, step.at("saved").load() * extent // whole), f.local(INT64)
    part.store(f.select(extent.below(whole), 1, 0, INT64))
    with f.counted(0, step.at("within").load()) as k:
        level = levels.at(step.at("first_level").load() + step.at("level_count").load() + k)
        most = level.at("most").load()
        size = f.array(inputs.at(level.at("source").load()).load(), INT64).at(0).load()
        gain.store(gain.load() * size // most)
        part.store(f.select(size.below(most), 1, part.load(), INT64))
    gain.store(gain.load() - job.at("meeting").load())
    return gain, part


@function(job=AddressOf(JOB))
def estimate_saving(f: NativeBody, job: NativePlace) -> None:
    """Note what threads save of a run with late steps: of these, before the run, as in the run
    before."""
    steps = f.array(job.at("steps").load(), STEP)
    saved = f.local(INT64, 0)
    with f.counted(0, job.at("step_count").load()) as i:
        step = steps.at(i)
        with f.when(step.at("threads").load().above(1)):
            gain, _ = _gain(f, job, step, step.at("extent").load())
            saved.store(saved.load() + gain.load())
    job.at("saving").store(f.select(saved.load().signed_at_least(0), saved.load(), 0, INT64))


@function(INT32, job=AddressOf(JOB))
def share_steps(f: NativeBody, job: NativePlace) -> None:
    """Decide which steps threads share in a run, and behind which they meet; whether it is any.

    Threads save in proportion to what a run executes of a step, which of a late one may be all.  If
    this is less than a meeting takes, the caller executes the step alone; and so all steps, if
    together they save less than waking the workers takes.
    """
    steps = f.array(job.at("steps").load(), STEP)
    count = job.at("step_count").load()
    saved, parts = f.local(INT64, 0), f.local(INT64, 0)
    with f.counted(0, count) as i:
        step = steps.at(i)
        whole, team = step.at("whole").load(), step.at("team").load()
        is_late = step.at("late").load().differs(0)
        extent = f.select(is_late, whole, step.at("extent").load(), INT64)
        gain, part = _gain(f, job, step, extent)
        is_part = part.load().differs(0)
        is_divided = extent.above(1) | whole.equals(1)  # whole steps beside each other
        pays = ~is_part | (is_divided & gain.load().signed_at_least(0))
        shared = pays & team.above(1)
        step.at("threads").store(f.select(shared, team, 1, INT64))
        saved.store(saved.load() + f.select(shared, gain.load(), 0, INT64))
        parts.store(f.select(is_part, 1, parts.load(), INT64))
    job.at("saving").store(f.select(saved.load().signed_at_least(0), saved.load(), 0, INT64))
    is_any = f.local(INT32, 0)
    wakes = parts.load().equals(0) | saved.load().signed_at_least(job.at("waking").load())
    with f.counted(0, count) as i:
        threads = steps.at(i).at("threads")
        threads.store(f.select(wakes, threads.load(), 1, INT64))
        is_any.store(f.select(threads.load().above(1), 1, is_any.load(), INT32))
    # Of concurrent steps a run may share some: threads meet around all of them.
    group = f.local(INT32, 0)
    with f.counted(0, count) as i:
        step = steps.at(i)
        is_shared = step.at("threads").load().above(1)
        goes_on = step.at("concurrent").load().differs(0)
        group.store(f.select(is_shared, 1, group.load(), INT32))
        following = f.call(group_is_shared, job, i + 1)
        meets = (i + 1).below(count) & (group.load() | following).differs(0)
        meets = meets | (step.at("jump").load().differs(0) & is_any.load().differs(0))
        meets = meets & ~goes_on
        step.at("barrier").store(f.select(meets, 1, 0, INT64))
        group.store(f.select(goes_on, group.load(), 0, INT32))
    f.give(is_any.load())
