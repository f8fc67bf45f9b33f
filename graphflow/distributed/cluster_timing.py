"""Timing on the machines of a Dask cluster, for `graphflow tune --dask`.

In: kernels or programs that a tuner made, and a client of the cluster.  Out: their timings.  What
always holds: a machine times one thing at a time, however many workers it has and whoever else
tunes on it; machines of different processors, or numbers of threads, are kinds of their own, whose
timings are never mixed; what a machine that is lost had in work is timed on another one of its
kind.
"""

from __future__ import annotations

import fcntl
import os
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import distributed
from msgspec import Struct

from graphflow.base.errors import GraphflowError
from graphflow.base.target import Target
from graphflow.bench import Protocol
from graphflow.codegen import named_target
from graphflow.cost import Timing
from graphflow.distributed.clusters import submit_large
from graphflow.distributed.portable_model import own_folder
from graphflow.program import ProgramSpec
from graphflow.runtime import default_threads
from graphflow.tuning import BATCH, Harness, Kernels, Subject, ThisMachine

LOOK_INTERVAL = 10.0
"""How often a client looks whether the machines are still there."""

MOST_TRIES = 4
"""How often something is timed whose machine is lost each time."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class MachineKind(Struct, frozen=True):
    """What the timings of a machine depend on besides the kernel."""

    target: Target
    threads: int

    def __str__(self) -> str:
        return f"{self.target.name} with {self.threads} threads"


def machine_kinds(
    client: Any, target_name: str, threads: int | None
) -> dict[MachineKind, dict[str, list[str]]]:
    """The kinds of machines of a cluster, and of each the addresses of the workers by machine.

    `target_name` is that of `--target`, for each machine its own.  Raises GraphflowError if there
    is no worker.
    """
    found: defaultdict[MachineKind, dict[str, list[str]]] = defaultdict(dict)
    described = client.run(describe_machine, target_name, threads)
    for address, (machine, kind) in sorted(described.items()):
        found[kind].setdefault(machine, []).append(address)
    if not found:
        raise GraphflowError("the cluster has no workers; start some, and tune again")
    return dict(found)


def describe_machine(target_name: str, threads: int | None) -> tuple[str, MachineKind]:
    """Which machine a worker is on, and of which kind; containers of one machine are one."""
    boot = _BOOT_ID.read_text(encoding="ascii").strip()
    count = default_threads() if threads is None else threads
    return boot, MachineKind(named_target(target_name), count)


class Job(Struct, frozen=True):
    """Something to be timed on one machine: a function and its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    tries: int = 0


@dataclass
class ClusterSite:
    """The machines of one kind as a `TimingSite`: `machines` has the workers of each."""

    harness: Harness
    protocol: Protocol
    client: Any
    machines: Mapping[str, Sequence[str]]
    _lost: set[str] = field(default_factory=set)

    def times(self, found: Sequence[Subject], kernels: Kernels) -> Iterator[tuple[Timing, ...]]:
        """The timings of subjects, in batches that go to whichever machine is free."""
        jobs = []
        for begin in range(0, len(found), BATCH):
            share = found[begin : begin + BATCH]
            own = {(s.key, k): kernels[s.key, k] for s in share for k in range(len(s.calls))}
            jobs.append(Job(times_of_share, (self.harness, self.protocol, share, own)))
        for batches in self.results(jobs):
            yield from batches

    def end_to_end(
        self, programs: Mapping[str, ProgramSpec]
    ) -> Iterator[Mapping[str, tuple[float, ...]]]:
        """The blocks of each program, each time side by side on one machine."""
        while True:
            arguments = (self.harness, self.protocol, programs)
            yield from self.results([Job(blocks_of_programs, arguments)])

    def results(self, jobs: Sequence[Job]) -> Iterator[Any]:
        """The results of jobs as they are done, one at a time on each machine."""
        waiting, running = deque(jobs), dict[Any, tuple[Job, str]]()
        try:
            while waiting or running:
                busy = {machine for _, machine in running.values()}
                for machine in self._idle(busy, bool(running)):
                    if waiting:
                        job = waiting.popleft()
                        running[self._submitted(job, machine)] = (job, machine)
                for future in self._ended(running):
                    job, machine = running.pop(future)
                    try:
                        yield future.result()
                    except (distributed.KilledWorker, distributed.CancelledError) as error:
                        waiting.append(_again(job, error))
        finally:
            self.client.cancel(list(running))

    def _idle(self, busy: set[str], is_running: bool) -> list[str]:
        """The machines that are there and time nothing; GraphflowError if all are lost."""
        left = [machine for machine in self.machines if machine not in self._lost]
        if not left and not is_running:
            raise GraphflowError("all machines of this kind are lost; tune again to go on")
        return [machine for machine in left if machine not in busy]

    def _submitted(self, job: Job, machine: str) -> Any:
        return submit_large(
            self.client,
            job.function,
            *job.arguments,
            workers=list(self.machines[machine]),
            allow_other_workers=False,
            priority=1,
        )

    def _ended(self, running: Mapping[Any, tuple[Job, str]]) -> list[Any]:
        """The futures that are done, of which there is one at least if no machine is lost; those
        of machines that are lost are cancelled."""
        try:
            done = distributed.wait(
                list(running), timeout=LOOK_INTERVAL, return_when="FIRST_COMPLETED"
            ).done
        except TimeoutError:
            done = set()
        known = self.client.nthreads()
        gone = {m for m, workers in self.machines.items() if not known.keys() & set(workers)}
        self._lost |= gone
        cut_off = [f for f, (_, machine) in running.items() if machine in gone and not f.done()]
        self.client.cancel(cut_off)
        return [future for future in running if future in done or future in cut_off]


def _again(job: Job, error: BaseException) -> Job:
    if job.tries + 1 == MOST_TRIES:
        raise GraphflowError(
            f"workers were lost {MOST_TRIES} times while they timed the same kernels: {error}"
        ) from error
    return Job(job.function, job.arguments, job.tries + 1)


# On a worker --------------------------------------------------------------------------------------


def times_of_share(
    harness: Harness, protocol: Protocol, found: Sequence[Subject], kernels: Kernels
) -> list[tuple[Timing, ...]]:
    """The timings of some subjects."""
    with alone_on_machine():
        return list(ThisMachine(harness, protocol).times(found, kernels))


def blocks_of_programs(
    harness: Harness, protocol: Protocol, programs: Mapping[str, ProgramSpec]
) -> Mapping[str, tuple[float, ...]]:
    """The blocks of programs, measured side by side once."""
    with alone_on_machine():
        return next(ThisMachine(harness, protocol).end_to_end(programs))


@contextmanager
def alone_on_machine() -> Iterator[None]:
    """Wait until no other worker of this user times on this machine, also for another client."""
    lock = os.open(own_folder("timing") / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)  # and the lock with it
