"""The beginning of a pool: its memory and its threads; and the measure of a pause.

`graphflow_pool`, `graphflow_orphan` and `graphflow_spin` are what Python calls.  What always holds:
a pool is never freed, and its workers end with the process; they block every signal that is not
their own fault.
"""

from __future__ import annotations

import graphflow.runtime.driver.system as system
from graphflow.runtime.driver.function_builder import NativeBody, function
from graphflow.runtime.driver.instructions import AddressOf, NativePlace, NativeValue
from graphflow.runtime.driver.records import ASLEEP, CONTENDED_BYTES, POOL, WORKER
from graphflow.runtime.driver.runs import work
from graphflow.runtime.driver.structs import BOOL, INT32, INT64, POINTER
from graphflow.runtime.driver.waiting import meet_within_step

_STACK_BYTES = 16 << 20
"""Kernels keep their scratch memory on the stack; only touched pages cost anything."""


@function(old=POINTER)
def block_signals(f: NativeBody, old: NativeValue) -> None:
    """Block all signals of the calling thread but those of a crash; `old` is to restore them.

    Python's handlers belong to its threads, while a crash in a kernel must still be reported where
    it happens.  Threads inherit the mask of the one that starts them.
    """
    mask = f.local(system.OPAQUE, alignment=16)
    f.run(system.sigfillset, mask)
    for signal in system.SIGNALS_OF_A_CRASH:
        f.run(system.sigdelset, mask, signal)
    f.run(system.pthread_sigmask, system.SIG_SETMASK, mask, old)


@function(BOOL, pool=AddressOf(POOL), threads=INT64)
def start_workers(f: NativeBody, pool: NativePlace, threads: NativeValue) -> None:
    """Start the workers 1, 2, … of a pool; false if the system refuses one.

    Workers that were started before a refusal go on waiting for a run that never comes.
    """
    old, attributes = f.local(system.OPAQUE, alignment=16), f.local(system.OPAQUE, alignment=16)
    thread = f.local(INT64)
    succeeded = f.local(BOOL, 1)
    f.run(block_signals, old)
    f.run(system.pthread_attr_init, attributes)
    f.run(system.pthread_attr_setstacksize, attributes, _STACK_BYTES)
    f.run(system.pthread_attr_setdetachstate, attributes, system.DETACHED)
    number = f.local(INT64, 1)
    with f.loop() as starting:
        with f.when(number.load().at_least(threads)):
            starting.leave()
        worker = pool.at("workers", number.load())
        worker.at("processor").store(ASLEEP)
        error = f.call(system.pthread_create, thread, attributes, f.address_of(work), worker)
        with f.when(error.differs(0)):
            succeeded.store(0)
            starting.leave()
        number.store(number.load() + 1)
    f.run(system.pthread_attr_destroy, attributes)
    f.run(system.pthread_sigmask, system.SIG_SETMASK, old, None)
    f.give(succeeded.load())


@function(POINTER, exported=True, threads=INT64, barrier_spins=INT32, idle_spins=INT32)
def graphflow_pool(
    f: NativeBody, threads: NativeValue, barrier_spins: NativeValue, idle_spins: NativeValue
) -> None:
    """A pool of the caller and `threads - 1` new detached workers; null if the system refuses a
    thread or memory."""
    size = threads * WORKER.size + POOL.size  # a multiple of the alignment, as both sizes are
    pool = f.place(f.call(system.aligned_alloc, CONTENDED_BYTES, size), POOL)
    with f.when(pool.address.equals(None)):
        f.give(None)
    f.run(system.fill, pool, 0, size, 0)
    pool.at("threads").store(threads)
    pool.at("barrier_spins").store(barrier_spins)
    pool.at("idle_spins").store(idle_spins)
    with f.counted(0, threads) as number:
        worker = pool.at("workers", number)
        worker.at("meeting").store(f.address_of(meet_within_step))
        worker.at("pool").store(pool)
        worker.at("index").store(number)
    with f.when(~f.call(start_workers, pool, threads)):
        f.give(None)
    f.give(pool)


@function(exported=True, pool=AddressOf(POOL))
def graphflow_orphan(f: NativeBody, pool: NativePlace) -> None:
    """Have runs refuse a pool whose workers do not exist in this process, a forked child."""
    pool.at("threads").store(0)


@function(exported=True, count=INT64)
def graphflow_spin(f: NativeBody, count: NativeValue) -> None:
    """Pause `count` times, to find out how long a pause takes."""
    with f.counted(0, count):
        f.run(system.pause)
