"""How one thread executes the steps of a job: its share of each step, barriers, and pauses.

In: a job and the number of the thread.  Out: LLVM IR of the functions that execute its steps.  All
threads of a pool walk the same table of steps.  What always holds: every iteration of a step is
executed by exactly one thread; a thread that has passed the barrier behind a step, or one within a
step in phases, sees all that any thread wrote before it; and all threads pause before the same
step.
"""

from __future__ import annotations

from msgspec import Struct

from graphflow.runtime.driver.function_builder import NativeBody, function
from graphflow.runtime.driver.instructions import AddressOf, NativePlace, NativeValue
from graphflow.runtime.driver.records import JOB, LEVEL, POOL, STAMP, STEP
from graphflow.runtime.driver.step_extents import apply_step_sizes
from graphflow.runtime.driver.structs import INT8, INT64, POINTER
from graphflow.runtime.driver.system import exact_nanoseconds, nanoseconds
from graphflow.runtime.driver.waiting import meet_behind_step

_CLAIM_BITS = 8
"""The bits of a claim that hold the number of chunks taken, at most the `chunks` of a step."""


@function(job=AddressOf(JOB), me=INT64, following=INT64)
def consider_pause(
    f: NativeBody, job: NativePlace, me: NativeValue, following: NativeValue
) -> None:
    """Make the job pause before step `following` if its deadline has passed.

    Only the caller, thread 0, decides, before a barrier that all threads pass; after the barrier
    all threads see the decision.
    """
    with f.when(me.equals(0)):
        now = f.call(nanoseconds)
        with f.when(now.signed_at_least(job.at("deadline").load())):
            job.at("stop").store(following, "monotonic")


@function(job=AddressOf(JOB), number=INT64, me=INT64, ended=INT64)
def stamp(
    f: NativeBody, job: NativePlace, number: NativeValue, me: NativeValue, ended: NativeValue
) -> None:
    """Record when thread `me` began step `number`, or when it ended it if `ended` is not 0; nothing
    if the job takes no stamps."""
    with f.when(job.at("stamps").load().differs(None)):
        stamps = f.array(job.at("stamps").load(), STAMP)
        place = stamps.at(number * job.at("stamped_threads").load() + me)
        now = f.call(exact_nanoseconds)
        with f.either(ended.equals(0)) as otherwise:
            place.at("begin").store(now)
            otherwise()
            place.at("end").store(now)


@function(pool=AddressOf(POOL), job=AddressOf(JOB), me=INT64)
def execute(f: NativeBody, pool: NativePlace, job: NativePlace, me: NativeValue) -> None:
    """Execute the share of thread `me` of each step of a job, from its first step until it pauses.

    What is executed of a late step follows from sizes that earlier steps wrote.
    After a step that jumps, all threads go on at the step that its flag selects.  Without a pool
    (null) the caller is the only thread, whatever steps say, and may pause after any step;
    otherwise a job pauses only after steps that end with a barrier.
    """
    steps = f.array(job.at("steps").load(), STEP)
    count = job.at("step_count").load()
    pointers = f.array(job.at("pointers").load(), POINTER)
    levels = f.array(job.at("levels").load(), LEVEL)
    number = f.local(INT64, job.at("first").load())
    # How many steps this call has executed; by a jump back a step is executed several times.
    executed = f.local(INT64, 0)
    stop = job.at("stop")
    alone = pool.address.equals(None)
    with f.loop() as walk:
        with f.when(number.load().at_least(count)):
            walk.leave()
        step = steps.at(number.load())
        threads = f.select(alone, 1, step.at("threads").load(), INT64)
        with f.when(me.below(threads)):
            with f.when(step.at("late").load().differs(0)):
                f.run(apply_step_sizes, job, number.load(), pointers.address)
            kernel = step.at("kernel").load()
            parameters = pointers.at(step.at("first_pointer").load())
            call = _KernelCall(
                kernel,
                parameters,
                step.at("extent").load(),
                step.at("row").load(),
                f.array(levels.at(step.at("first_level").load()).address, LEVEL),
                step.at("level_count").load(),
                threads,
                step.at("chunks").load(),
            )
            f.run(stamp, job, number.load(), me, 0)
            with f.either(threads.equals(1)) as otherwise:
                call.run(f, 0, call.extent)
                otherwise()
                with f.either(step.at("meets").load().differs(0)) as otherwise_chunks:
                    _meeting_share(f, pool, call, me)
                    otherwise_chunks()
                    _share(f, pool, call, executed.load(), me)
            f.run(stamp, job, number.load(), me, 1)
        number.store(number.load() + 1)
        executed.store(executed.load() + 1)
        together = step.at("barrier").load().differs(0) & ~alone
        jump = step.at("jump").load()
        with f.when(jump.differs(0)):
            # Two barriers: all have seen the flag before anyone writes it again.
            with f.when(together):
                f.run(meet_behind_step, pool, me, 1)
            flag = f.array(pointers.at(step.at("flag").load()).load(), INT8).at(0).load()
            taken = flag.differs(0).equals(jump.equals(2))
            target = step.at("target").load()
            number.store(f.select(taken, target, number.load(), INT64))
        with f.when(~(together | alone)):
            walk.again()
        f.run(consider_pause, job, me, number.load())
        with f.when(together):
            f.run(meet_behind_step, pool, me, 1)
        with f.when(stop.load("monotonic").equals(number.load())):
            walk.leave()


class _KernelCall(Struct, frozen=True):
    """The kernel that a step calls, as values of the function that walks the steps.

    A run executes `extent` iterations.  Each `row` of them are neighbours in the kernel's parallel
    loop, and `levels` say how many iterations are left out between these rows.
    """

    kernel: NativeValue
    parameters: NativePlace
    extent: NativeValue
    row: NativeValue
    levels: NativePlace
    level_count: NativeValue
    threads: NativeValue
    chunks: NativeValue

    def run(self, f: NativeBody, begin: NativeValue | int, end: NativeValue) -> None:
        """Call the kernel for iterations `begin` to `end`, counted among those that a run executes;
        once for each row, or once if all are neighbours."""
        with f.either(self.row.equals(self.extent)) as otherwise:
            self._call(f, begin, end)
            otherwise()
            at = f.local(INT64, begin)
            with f.loop() as walk:
                with f.when(at.load().at_least(end)):
                    walk.leave()
                row_end = (at.load() // self.row + 1) * self.row
                stop = f.select(row_end.below(end), row_end, end, INT64)
                left_out = self._left_out(f, at.load())
                self._call(f, at.load() + left_out, stop + left_out)
                at.store(stop)

    def _left_out(self, f: NativeBody, at: NativeValue) -> NativeValue:
        """The number of iterations of the parallel loop that are left out before the executed
        iteration `at`.

        Each time that a level has run through its `length` values, it leaves out `left_out` more.
        """
        group, total = f.local(INT64, at), f.local(INT64, 0)
        with f.counted(0, self.level_count) as k:
            level = self.levels.at(k)
            group.store(group.load() // level.at("length").load())
            total.store(total.load() + group.load() * level.at("left_out").load())
        return total.load()

    def _call(self, f: NativeBody, begin: NativeValue | int, end: NativeValue) -> None:
        self.call(f, begin, end, None)

    def call(
        self,
        f: NativeBody,
        begin: NativeValue | int,
        end: NativeValue,
        worker: NativePlace | None,
    ) -> None:
        """One call for neighbouring iterations; a `worker` meets the other threads inside of it."""
        arguments = (POINTER, self.parameters), (INT64, begin), (INT64, end), (POINTER, worker)
        f.run_pointer(self.kernel, *arguments)


def _meeting_share(f: NativeBody, pool: NativePlace, call: _KernelCall, me: NativeValue) -> None:
    """Instructions that execute the share of thread `me` of a step in phases.

    The share is one call, which meets the other threads after each phase, so no other thread can
    take a part of it.  All shares are equal, up to one iteration.
    """
    extent, threads = call.extent, call.threads
    worker = pool.at("workers", me)
    worker.at("team").store(threads)
    call.call(f, extent * me // threads, extent * (me + 1) // threads, worker)


def _share(
    f: NativeBody, pool: NativePlace, call: _KernelCall, executed: NativeValue, me: NativeValue
) -> None:
    """Instructions that execute the share of thread `me` of a step, then chunks of other shares.

    Thread t of n owns the iterations [extent * t / n, extent * (t + 1) / n), in up to as many
    chunks as the step says.  When all of these are taken, it takes chunks of the other shares that
    nobody has begun: a processor may be slower than another one, or away for a while.

    A thread takes a chunk by raising the owner's claim.  `executed` is how many steps this run of
    the table has executed before, and a claim is `(executed + 1) << _CLAIM_BITS` plus the number of
    chunks taken.  A smaller claim is left from an earlier step, so no chunk is taken yet.  A claim
    of a later step cannot be there, because all threads meet after a step that they share.
    """
    extent, threads = call.extent, call.threads
    none_taken = (executed + 1) << _CLAIM_BITS
    with f.counted(0, threads) as k:
        turn = me + k
        owner = f.select(turn.at_least(threads), turn - threads, turn, INT64)
        begin = extent * owner // threads
        length = extent * (owner + 1) // threads - begin
        chunks = f.select(length.below(call.chunks), length, call.chunks, INT64)
        claim = pool.at("workers", owner, "claim")
        seen = f.local(INT64, claim.load("monotonic"))
        with f.loop() as taking:
            begun = seen.load().at_least(none_taken)
            chunk = f.select(begun, seen.load() - none_taken, 0, INT64)
            with f.when(chunk.at_least(chunks)):
                taking.leave()
            following = chunk + 1
            claimed = none_taken + following
            # Release and acquire: see the module's text; monotonic would do for a failure, which
            # only tells that another thread was faster.
            found, won = claim.compare_exchange(seen.load(), claimed, "acq_rel", "monotonic")
            with f.either(won) as otherwise:
                first = begin + length * chunk // chunks
                end = begin + length * following // chunks
                call.run(f, first, end)
                seen.store(claimed)
                otherwise()
                seen.store(found)
