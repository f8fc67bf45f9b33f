"""One thread's way through the steps of a job: its share of each, barriers, and pauses.

All threads of a pool walk the same table of steps.  What always holds: every iteration of a step is
executed by exactly one thread; a thread that has passed the barrier behind a step, or one within a
step in phases, sees all that any thread wrote before it; and all threads pause before the same
step.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphflow.runtime.driver.function_builder import NativeBody, function
from graphflow.runtime.driver.instructions import AddressOf, NativePlace, NativeValue
from graphflow.runtime.driver.records import JOB, LEVEL, POOL, STAMP, STEP
from graphflow.runtime.driver.structs import INT8, INT64, POINTER
from graphflow.runtime.driver.system import exact_nanoseconds, nanoseconds
from graphflow.runtime.driver.waiting import meet_behind_step

_CHUNKS = 16
"""Parts of a share that are taken one by one, so that others can take from the rest of it."""

_CLAIM_BITS = 8
"""Bits of a claim for the number of chunks taken, which is at most `_CHUNKS`."""


@function(job=AddressOf(JOB), me=INT64, following=INT64)
def consider_pause(
    f: NativeBody, job: NativePlace, me: NativeValue, following: NativeValue
) -> None:
    """Have the job pause before step `following` if its time is over.

    Only the caller decides, ahead of the barrier that all threads pass; behind it they all see the
    decision.
    """
    with f.when(me.equals(0)):
        now = f.call(nanoseconds)
        with f.when(now.signed_at_least(job.at("deadline").load())):
            job.at("stop").store(following, "monotonic")


@function(job=AddressOf(JOB), number=INT64, me=INT64, ended=INT64)
def stamp(
    f: NativeBody, job: NativePlace, number: NativeValue, me: NativeValue, ended: NativeValue
) -> None:
    """Note when thread `me` began step `number`, or ended it, if the job takes stamps."""
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
    """Take part in the steps of a job as thread `me`, from its first step on, until it pauses.

    Behind a step that jumps, all go on where its flag says.

    Without a pool (null) the caller is alone, and any step may be followed by a pause; otherwise
    only steps that all threads finish.
    """
    steps = f.array(job.at("steps").load(), STEP)
    count = job.at("step_count").load()
    pointers = f.array(job.at("pointers").load(), POINTER)
    levels = f.array(job.at("levels").load(), LEVEL)
    number = f.local(INT64, job.at("first").load())
    # How many steps this call has executed; by a jump back a step is executed several times.
    moment = f.local(INT64, 0)
    stop = job.at("stop")
    lonely = pool.address.equals(None)
    with f.loop() as walk:
        with f.when(number.load().at_least(count)):
            walk.leave()
        step = steps.at(number.load())
        threads = step.at("threads").load()
        with f.when(me.below(threads)):
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
            )
            f.run(stamp, job, number.load(), me, 0)
            with f.either(threads.equals(1)) as otherwise:
                call.run(f, 0, call.extent)
                otherwise()
                with f.either(step.at("meets").load().differs(0)) as otherwise_chunks:
                    _meeting_share(f, pool, call, me)
                    otherwise_chunks()
                    _share(f, pool, call, moment.load(), me)
            f.run(stamp, job, number.load(), me, 1)
        number.store(number.load() + 1)
        moment.store(moment.load() + 1)
        together = step.at("barrier").load().differs(0)
        jump = step.at("jump").load()
        with f.when(jump.differs(0)):
            # Two barriers: all have seen the flag before anyone writes it again.
            with f.when(together):
                f.run(meet_behind_step, pool, me, 1)
            flag = f.array(pointers.at(step.at("flag").load()).load(), INT8).at(0).load()
            taken = flag.differs(0).equals(jump.equals(2))
            target = step.at("target").load()
            number.store(f.select(taken, target, number.load(), INT64))
        with f.when(~(together | lonely)):
            walk.again()
        f.run(consider_pause, job, me, number.load())
        with f.when(together):
            f.run(meet_behind_step, pool, me, 1)
        with f.when(stop.load("monotonic").equals(number.load())):
            walk.leave()


@dataclass(frozen=True, slots=True)
class _KernelCall:
    """What a step calls, as values of the function that walks the steps.

    A run executes `extent` iterations, of which each `row` ones are neighbours in the kernel's
    parallel loop; its `levels` say where the rows lie.
    """

    kernel: NativeValue
    parameters: NativePlace
    extent: NativeValue
    row: NativeValue
    levels: NativePlace
    level_count: NativeValue
    threads: NativeValue

    def run(self, f: NativeBody, begin: NativeValue | int, end: NativeValue) -> None:
        """The calls for the iterations from `begin` to `end`, of those that are executed."""
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
        """The iterations before the one with number `at` that are left out.

        Each time that a level has run through its values, the loop is ahead by what it leaves out.
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
        """One call for neighbouring iterations, of a thread that meets others if it is a worker."""
        arguments = (POINTER, self.parameters), (INT64, begin), (INT64, end), (POINTER, worker)
        f.run_pointer(self.kernel, *arguments)


def _meeting_share(f: NativeBody, pool: NativePlace, call: _KernelCall, me: NativeValue) -> None:
    """Instructions that execute the share of thread `me` of a step in phases.

    It is one call, which meets the other threads behind each phase, so nobody can take from a
    share: all of them are equal but for one iteration.
    """
    extent, threads = call.extent, call.threads
    worker = pool.at("workers", me)
    worker.at("team").store(threads)
    call.call(f, extent * me // threads, extent * (me + 1) // threads, worker)


def _share(
    f: NativeBody, pool: NativePlace, call: _KernelCall, moment: NativeValue, me: NativeValue
) -> None:
    """Instructions that execute the share of thread `me` of a step, then what others left.

    Thread t of n has the iterations [extent * t / n, extent * (t + 1) / n).  It takes them in up to
    16 chunks, and then chunks of the others' shares that nobody has taken yet: a processor may be
    slower than another one, or away for a while.

    The step is number `moment` of those that this run of the table executes, counted from 0.  A
    claim is 256 times that number plus one, plus the number of chunks taken.  A smaller one is of
    an earlier step; a larger one there cannot be, for all threads meet behind a step that they
    share.
    """
    extent, threads = call.extent, call.threads
    none_taken = (moment + 1) << _CLAIM_BITS
    with f.counted(0, threads) as k:
        turn = me + k
        owner = f.select(turn.at_least(threads), turn - threads, turn, INT64)
        begin = extent * owner // threads
        length = extent * (owner + 1) // threads - begin
        chunks = f.select(length.below(_CHUNKS), length, _CHUNKS, INT64)
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
