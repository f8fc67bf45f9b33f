"""A run: its beginning, the workers' part in it, and its end.

`graphflow_run` is what Python calls.  What always holds: a job is executed by one caller at a time;
a worker touches neither a job nor a kernel after it has arrived at the barrier that ends the run,
so whoever called may free both; every thread runs kernels under the caller's floating-point control
word, hence rounds as the caller would.
"""

from __future__ import annotations

import graphflow.runtime.driver.system as system
from graphflow.runtime.driver.execution import execute
from graphflow.runtime.driver.function_builder import NativeBody, function
from graphflow.runtime.driver.instructions import AddressOf, NativePlace, NativeValue
from graphflow.runtime.driver.records import (
    JOB,
    JOB_FREE,
    JOB_PAUSED,
    JOB_RUNNING,
    PATCH,
    POOL,
    WORKER,
)
from graphflow.runtime.driver.sharing_trials import is_run_together, note_run
from graphflow.runtime.driver.step_extents import apply_sizes, estimate_saving, share_steps
from graphflow.runtime.driver.structs import INT32, INT64, POINTER
from graphflow.runtime.driver.waiting import change, meet_behind_step, publish, wait_for_change

BUSY = -1
"""What `graphflow_run` gives if the job is being executed by another caller."""

ORPHANED = -2
"""What `graphflow_run` gives if the job has no pool yet, or the pool's workers are threads of the
parent process."""


@function(POINTER, worker=AddressOf(WORKER))
def work(f: NativeBody, worker: NativePlace) -> None:
    """The life of a worker: wait for a run, take part in it, again; it never returns."""
    word = f.local(INT32)
    pool = f.place(worker.at("pool").load(), POOL)
    me = worker.at("index").load()
    spins = pool.at("idle_spins").load()
    thread = f.call(system.syscall, system.GETTID).truncated(INT32)
    worker.at("thread_id").store(thread, "monotonic")
    seen = f.local(INT32, 0)
    with f.loop():
        f.run(
            wait_for_change,
            pool,
            me,
            pool.at("epoch"),
            seen.load(),
            pool.at("idle_sleepers"),
            spins,
        )
        # A run starts only after every worker has finished the last one, so the epoch has moved by
        # one, and what follows is not written while it is read.
        seen.store(seen.load() + 1)
        job = f.place(pool.at("job").load(), JOB)
        word.store(pool.at("control_word").load())
        f.run(system.load_control_word, word)
        f.run(publish, pool, me)
        f.run(execute, pool, job, me)
        f.run(meet_behind_step, pool, me, 0)


@function(pool=AddressOf(POOL))
def forget_claims(f: NativeBody, pool: NativePlace) -> None:
    """Clear the claims of the last run, whose steps had the same numbers.

    To be called while all workers wait for the next one.
    """
    with f.counted(0, pool.at("threads").load()) as i:
        pool.at("workers", i, "claim").store(0, "monotonic")


@function(pool=AddressOf(POOL), job=AddressOf(JOB), word=INT32)
def execute_together(f: NativeBody, pool: NativePlace, job: NativePlace, word: NativeValue) -> None:
    """Execute a job with all threads of the pool, under the control word `word`."""
    mutex, epoch = pool.at("mutex"), pool.at("epoch")
    f.run(system.pthread_mutex_lock, mutex)
    f.run(publish, pool, 0)
    pool.at("job").store(job)
    pool.at("control_word").store(word)
    f.run(forget_claims, pool)
    # Sequentially consistent, so workers that see the epoch see all of the above.
    f.run(change, epoch, epoch.load("monotonic") + 1, pool.at("idle_sleepers"))
    f.run(execute, pool, job, 0)
    f.run(meet_behind_step, pool, 0, 1)
    f.run(system.pthread_mutex_unlock, mutex)


@function(job=AddressOf(JOB))
def apply_patches(f: NativeBody, job: NativePlace) -> None:
    """Write the addresses of this run's inputs and outputs where steps read their parameters."""
    pointers = f.array(job.at("pointers").load(), INT64)  # addresses are added to, hence integers
    patches = f.array(job.at("patches").load(), PATCH)
    addresses = f.array(job.at("addresses").load(), INT64)
    with f.counted(0, job.at("patch_count").load()) as i:
        patch = patches.at(i)
        address = addresses.at(patch.at("source").load()).load() + patch.at("offset").load()
        pointers.at(patch.at("slot").load()).store(address)


@function(INT64, exported=True, job=AddressOf(JOB))
def graphflow_run(f: NativeBody, job: NativePlace) -> None:
    """Execute a job from where it has paused, or from its first step, with the threads of its pool
    and the caller.

    Gives 0 when the job is done, BUSY if another caller executes it, ORPHANED if the job is to have
    another pool; otherwise the job has paused before the step that is given, and is to be called
    again.  Where the plan shares steps, the caller may nevertheless execute a run alone, as
    `sharing_trials.py` decides.  It pauses between steps when a call has taken `patience_ns`:
    Python handles no signals while in native code.  A job without parallel steps needs no pool.
    """
    word, old_word = f.local(INT32), f.local(INT32)
    state, stop = job.at("state"), job.at("stop")
    pool = f.place(job.at("pool").load(), POOL)
    parallel = job.at("parallel").load().differs(0)
    with f.when(parallel):
        with f.when(pool.address.equals(None)):
            f.give(ORPHANED)
        with f.when(pool.at("threads").load().equals(0)):
            f.give(ORPHANED)
    found = state.load("monotonic")
    with f.when(found.equals(JOB_RUNNING)):
        f.give(BUSY)
    _, claimed = state.compare_exchange(found, JOB_RUNNING, "acquire", "monotonic")
    with f.when(~claimed):
        f.give(BUSY)
    first = f.select(found.equals(JOB_PAUSED), stop.load(), 0, INT64)
    f.run(apply_patches, job)
    together = f.local(INT32, job.at("parallel").load())
    with f.when(job.at("level_count").load().differs(0)):
        f.run(apply_sizes, job)
        with f.when(parallel):
            together.store(f.call(share_steps, job))
    tries = together.load().differs(0)
    is_late = job.at("has_late").load().differs(0)
    with f.when(tries & is_late):
        f.run(estimate_saving, job)
    with f.when(tries):
        together.store(f.call(is_run_together, job))
    job.at("first").store(first)
    stop.store(0)
    patience = job.at("patience_ns").load()
    job.at("deadline").store(f.call(system.nanoseconds) + patience)
    f.run(system.store_control_word, old_word)
    wanted = (old_word.load() | job.at("control_bits").load()) & ~system.STICKY_FLAGS
    word.store(wanted)
    f.run(system.load_control_word, word)
    begin = f.local(INT64, 0)
    with f.when(tries):
        begin.store(f.call(system.exact_nanoseconds))
    with f.either(together.load().differs(0)) as otherwise:
        f.run(execute_together, pool, job, wanted)
        otherwise()
        f.run(execute, None, job, 0)
    f.run(system.load_control_word, old_word)
    following = stop.load()
    is_noted = tries & (first | following).equals(0)
    with f.when(is_noted & is_late):
        f.run(estimate_saving, job)
    with f.when(is_noted):
        f.run(note_run, job, f.call(system.exact_nanoseconds) - begin.load())
    state.store(f.select(following.equals(0), JOB_FREE, JOB_PAUSED, INT32), "release")
    f.give(following)
