"""The native thread pools of the process: one for each thread count, started when first needed.

A pool of N threads is N - 1 sleeping native workers; the caller is the Nth.  Concurrent runs on one
pool take turns inside native code.  What always holds: a pool that was handed out lives as long as
the process.  The workers of a pool do not exist in a forked child, so a child starts without pools
and with free locks, and a run that was about to use one of the parent's is told so.  A handler of a
signal may fork, or run a program, while its thread starts a pool.
"""

from __future__ import annotations

import os
import threading

from graphflow.base.errors import GraphflowError
from graphflow.runtime.cpus import default_threads
from graphflow.runtime.driver import driver

# Several times what waking a thread takes, 50 to 150 µs on virtual machines: if others give up
# before a late waker arrives, it finds them asleep, and every barrier of a run waits for a wake-up.
_BARRIER_MICROSECONDS = 300.0
# What Python does between two runs of a loop; to wake a worker makes a run some 20 µs longer.
_IDLE_MICROSECONDS = 250.0
_CROWDED_MICROSECONDS = 1.0

_STARTING_SECONDS = 1.0
"""How long a thread waits for another one that is starting a pool: many times what that takes."""


class Pools:
    """The addresses of the native pools, by number of threads."""

    def __init__(self) -> None:
        self._addresses: dict[int, int] = {}
        # So that threads do not start the same pool at once; a pool too many would only sleep.
        # Reentrant: a handler of a signal may run a program while this thread starts a pool.
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._forget)

    def address(self, threads: int) -> int:
        """The address of the pool of that many threads; starts it if there is none yet.

        Raises GraphflowError if the system refuses to start its threads.
        """
        while (known := self._addresses.get(threads)) is None:
            self._start(threads)
        return known

    def _start(self, threads: int) -> None:
        """Start a pool, unless another thread does, for the table of the process that begins this.

        A handler of a signal may fork between any two instructions.  The child's table is another
        one then, and what the parent was starting is not found there.
        """
        addresses, lock = self._addresses, self._lock
        # Bounded: a handler may fork in here, and who has the lock does not exist in the child.
        held = lock.acquire(timeout=_STARTING_SECONDS)
        try:
            if threads not in addresses:
                # A handler may run a program in here, which starts a pool first.
                addresses.setdefault(threads, _started(threads))
        finally:
            if held:
                lock.release()

    def _forget(self) -> None:
        for address in self._addresses.values():
            driver().orphan(address)
        self._addresses = {}
        self._lock = threading.RLock()


def _started(threads: int) -> int:
    native = driver()
    # More threads than processors: whoever spins keeps the one it waits for from running.
    crowded = threads > default_threads()
    barrier, idle = (
        native.spins(_CROWDED_MICROSECONDS if crowded else microseconds)
        for microseconds in (_BARRIER_MICROSECONDS, _IDLE_MICROSECONDS)
    )
    address = native.start_pool(threads, barrier, idle)
    if address is None:
        raise GraphflowError(
            f"the system refused to start {threads - 1} worker threads (limit of processes or of "
            "memory); ask for fewer threads"
        )
    return address


POOLS = Pools()
