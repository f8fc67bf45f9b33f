"""How threads of a pool wait for each other: they spin, spread over the processors, and sleep.

A thread that waits for a word to change pauses a bounded number of times, then sleeps in the
operating system (a futex).  What always holds: no wake-up is lost.  A sleeper first counts itself
and then looks at the word once more; whoever changes the word looks at the count afterwards; both
accesses of both sides are sequentially consistent, so one of the two sees what the other did.

Spinning does harm where the awaited thread needs the very processor of the one that spins, which
happens whenever another process occupies the rest, or the scheduler wakes a thread where its waker
runs.  So threads publish the processor they run on: when a run starts and when they wake; -1 while
they sleep.  A waiter that finds another thread of the pool on its own processor has a worker moved
to a processor where none of them runs, at most once a tick of the clock, and sleeps at once where
the system refuses.  Otherwise both would go on waking each other on one processor beside an idle
one, at tens of microseconds each time.  To yield instead would not do: a thread that yields to a
foreign process is gone for milliseconds.
"""

from __future__ import annotations

import graphflow.runtime.driver.system as system
from graphflow.runtime.driver.function_builder import NativeBody, function
from graphflow.runtime.driver.instructions import AddressOf, NativePlace, NativeValue
from graphflow.runtime.driver.records import ASLEEP, BARRIER, POOL, WORKER
from graphflow.runtime.driver.structs import BOOL, INT8, INT32, INT64

_SPINS_PER_LOOK = 64
"""Pauses between two looks for a crowded processor: one or two microseconds.  A power of two."""


@function(INT32, pool=AddressOf(POOL), me=INT64)
def publish(f: NativeBody, pool: NativePlace, me: NativeValue) -> None:
    """Store and return the processor that thread `me` runs on.

    Other threads read the word, so it is written only when it changes.
    """
    at = pool.at("workers", me, "processor")
    here = f.call(system.sched_getcpu)
    with f.when(at.load("monotonic").differs(here)):
        at.store(here, "monotonic")
    f.give(here)


@function(BOOL, pool=AddressOf(POOL), index=INT64)
def move_apart(f: NativeBody, pool: NativePlace, index: NativeValue) -> None:
    """Move worker `index` to a processor that it may use and that no thread of the pool was seen
    on; whether it was moved.

    It is not if there is no such processor: the system refuses an empty mask.  The worker gets its
    mask back at once, so that the scheduler remains free and a limit that the user has set remains
    in force.
    """
    allowed, free = f.local(system.CPU_MASK, alignment=16), f.local(system.CPU_MASK, alignment=16)
    worker = pool.at("workers", index)
    thread = worker.at("thread_id").load("monotonic")
    with f.when(f.call(system.sched_getaffinity, thread, system.MASK_BYTES, allowed).differs(0)):
        f.give(0)
    f.run(system.copy, free, allowed, system.MASK_BYTES, 0)
    with f.counted(0, pool.at("threads").load()) as i:
        taken = pool.at("workers", i, "processor").load("monotonic")
        with f.when(taken.below(8 * system.MASK_BYTES)):  # no mask has room for -1
            _clear_bit(free, taken)
    with f.when(f.call(system.sched_setaffinity, thread, system.MASK_BYTES, free).differs(0)):
        f.give(0)
    f.run(system.sched_setaffinity, thread, system.MASK_BYTES, allowed)
    worker.at("processor").store(ASLEEP, "monotonic")
    f.give(1)


@function(BOOL, pool=AddressOf(POOL), index=INT64)
def spread_apart(f: NativeBody, pool: NativePlace, index: NativeValue) -> None:
    """`move_apart`, unless a worker was moved in this tick of the clock or is being moved.

    Of two threads that moved one worker, the second could take the mask that the first had set for
    a moment for the one to give back.
    """
    moved_at, moving = pool.at("moved_at"), pool.at("moving")
    now = f.call(system.nanoseconds)
    with f.when(moved_at.load("monotonic").equals(now)):
        f.give(0)
    _, alone = moving.compare_exchange(0, 1, "acquire", "monotonic")
    with f.when(~alone):
        f.give(0)
    moved_at.store(now, "monotonic")
    moved = f.call(move_apart, pool, index)
    moving.store(0, "release")
    f.give(moved)


def _clear_bit(mask: NativePlace, number: NativeValue) -> None:
    """Instructions that clear one bit of a mask; the lowest bit of a byte comes first."""
    byte = mask.at(number >> 3)
    bit = (number & 7).truncated(INT8)
    byte.store(byte.load() & ~(1 << bit))


@function(BOOL, pool=AddressOf(POOL), me=INT64)
def crowded(f: NativeBody, pool: NativePlace, me: NativeValue) -> None:
    """Whether another thread of the pool was last seen on the processor of thread `me`, and no
    worker could be moved away from it."""
    here = f.call(publish, pool, me)
    with f.counted(0, pool.at("threads").load()) as i:
        there = pool.at("workers", i, "processor").load("monotonic")
        with f.when(there.equals(here) & i.differs(me)):
            # Not the caller, which is thread 0: its thread is the user's.
            worker = f.select(me.above(i), me, i, INT64)
            f.give(~f.call(spread_apart, pool, worker))
    f.give(0)


@function(
    pool=AddressOf(POOL),
    me=INT64,
    word=AddressOf(INT32),
    seen=INT32,
    sleepers=AddressOf(INT32),
    spins=INT32,
)
def wait_for_change(
    f: NativeBody,
    pool: NativePlace,
    me: NativeValue,
    word: NativePlace,
    seen: NativeValue,
    sleepers: NativePlace,
    spins: NativeValue,
) -> None:
    """Return when the word differs from `seen`; sleep if it does not within `spins` pauses.

    While it sleeps, the thread is counted in `sleepers`.
    """
    left = f.local(INT32, spins)
    with f.loop() as spinning:
        with f.when(word.load("acquire").differs(seen)):
            f.give()
        with f.when(left.load().signed_at_most(0)):
            spinning.leave()
        f.run(system.pause)
        left.store(left.load() - 1)
        with f.when((left.load() & (_SPINS_PER_LOOK - 1)).differs(0)):
            spinning.again()
        with f.when(f.call(crowded, pool, me)):  # whoever sleeps is in nobody's way
            spinning.leave()
    pool.at("workers", me, "processor").store(ASLEEP, "monotonic")
    sleepers.fetch_add(1, "seq_cst")
    with f.loop() as sleeping:
        # The system itself compares the word with `seen` before it lets the thread sleep.
        f.run(system.syscall, system.FUTEX, word, system.FUTEX_WAIT, seen.widened(INT64), None)
        with f.when(word.load("acquire").differs(seen)):
            sleeping.leave()
    sleepers.fetch_subtract(1, "seq_cst")
    f.run(publish, pool, me)


@function(word=AddressOf(INT32), value=INT32, sleepers=AddressOf(INT32))
def change(f: NativeBody, word: NativePlace, value: NativeValue, sleepers: NativePlace) -> None:
    """Store `value` in the word and wake all threads that sleep until it changes."""
    word.store(value, "seq_cst")
    with f.when(sleepers.load("seq_cst").differs(0)):
        f.run(system.syscall, system.FUTEX, word, system.FUTEX_WAKE, system.EVERYONE)


@function(pool=AddressOf(POOL), barrier=AddressOf(BARRIER), threads=INT64, me=INT64, wait=BOOL)
def meet(
    f: NativeBody,
    pool: NativePlace,
    barrier: NativePlace,
    threads: NativeValue,
    me: NativeValue,
    wait: NativeValue,
) -> None:
    """A barrier of so many threads of the pool: the last one to arrive lets the others go on.

    A worker at the end of a run does not wait: what it waits for next is the next epoch, which
    comes after the generation.
    """
    arrived, generation = barrier.at("arrived"), barrier.at("generation")
    sleepers = barrier.at("sleepers")
    # Before arriving: the last thread to arrive changes it.
    mine = generation.load("monotonic")
    number = arrived.fetch_add(1, "acq_rel") + 1
    with f.when(number.equals(threads.truncated(INT32))):
        # Before the change that lets the others go on to the next barrier.
        arrived.store(0, "monotonic")
        f.run(change, generation, mine + 1, sleepers)
        f.give()
    with f.when(wait):
        spins = pool.at("barrier_spins").load()
        f.run(wait_for_change, pool, me, generation, mine, sleepers, spins)


@function(pool=AddressOf(POOL), me=INT64, wait=BOOL)
def meet_behind_step(f: NativeBody, pool: NativePlace, me: NativeValue, wait: NativeValue) -> None:
    """`meet` of all threads of the pool."""
    f.run(meet, pool, pool.at("behind_steps"), pool.at("threads").load(), me, wait)


@function(worker=AddressOf(WORKER))
def meet_within_step(f: NativeBody, worker: NativePlace) -> None:
    """`meet` of the threads that share the step of a worker; kernels in phases call it."""
    pool = f.place(worker.at("pool").load(), POOL)
    team, me = worker.at("team").load(), worker.at("index").load()
    f.run(meet, pool, pool.at("within_steps"), team, me, 1)
