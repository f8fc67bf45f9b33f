"""The native driver, loaded once per process, and the measured duration of a pause instruction.

Out: `driver()`, the native entry points as Python callables; calls release the interpreter lock.
What always holds: the machine code is never unloaded, because detached workers sleep inside it
until the process ends.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from msgspec import Struct

from graphflow.base.errors import CodegenError
from graphflow.runtime.driver.function_builder import module_text
from graphflow.runtime.driver.records import STRUCTS
from graphflow.runtime.driver.runs import graphflow_run
from graphflow.runtime.driver.system import MACHINES, TRIPLE
from graphflow.runtime.driver.threads import graphflow_orphan, graphflow_pool, graphflow_spin
from graphflow.runtime.linking import link

_CALIBRATION_PAUSES = 1000
"""Pauses in one measurement: some microseconds, which is long for the clock."""

_LOADED: list[Any] = []

_BROUGHT: dict[str, bytes] = {}
"""Objects of the driver that saved programs have brought, by what they are made of."""

_COMPILING = "graphflow.runtime.driver.driver_code"
"""Imported where an object has to be made, as it takes LLVM."""


class Driver(Struct, frozen=True):
    """The native entry points.

    start_pool: (threads, barrier spins, idle spins) → the address of a new pool, or None if the
    system refuses its threads or memory.
    orphan: (address of a pool) → nothing; for a forked child, where the pool has no workers.
    run: (address of the job) → 0 if the job is done, `BUSY` if another caller executes it,
    `ORPHANED` if the job has no pool with workers in this process, else the step before which the
    job has paused.  One argument, as each takes a tenth of a microsecond.
    pause_ns: how long one pause instruction takes.
    """

    start_pool: Callable[[int, int, int], int | None]
    orphan: Callable[[int], None]
    run: Callable[[int], int]
    pause_ns: float

    def spins(self, microseconds: float) -> int:
        """The number of pauses that take so many microseconds."""
        return max(1, round(microseconds * 1000 / self.pause_ns))


@functools.cache
def driver() -> Driver:
    """Load the driver on first use.

    Raises CodegenError on anything but x86-64 Linux, whose futexes and control word it uses.
    """
    if not sys.platform.startswith("linux") or platform.machine() not in MACHINES:
        raise CodegenError(
            f"the runtime's driver is built for x86-64 Linux only, this is {platform.machine()} "
            f"{sys.platform}; compile for inspection only, or run on such a machine"
        )
    code = link((("graphflow_run", driver_object().code),))
    _LOADED.append(code)  # also where two threads load at once: both may have started workers

    def entry(name: str, result: Any, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(result, *arguments)(code.addresses[name])

    int32, int64, pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
    return Driver(
        start_pool=entry("graphflow_pool", pointer, int64, int32, int32),
        orphan=entry("graphflow_orphan", None, pointer),
        run=entry("graphflow_run", int64, pointer),
        pause_ns=_pause_ns(entry("graphflow_spin", None, int64)),
    )


class DriverObject(Struct, frozen=True):
    """The driver's object code, and the SHA-256 of the LLVM IR that it was made of."""

    made_of: str
    code: bytes


@functools.cache
def driver_object() -> DriverObject:
    """The object that a saved program has brought, or a new one, which takes LLVM."""
    text = driver_text()
    made_of = hashlib.sha256(text.encode()).hexdigest()
    code = _BROUGHT.get(made_of) or import_module(_COMPILING).compiled_driver(text)
    return DriverObject(made_of, code)


def bring_driver(brought: DriverObject) -> None:
    """Use an object that a saved program has where it is made of this version's driver."""
    _BROUGHT[brought.made_of] = brought.code


def driver_text() -> str:
    """The driver in LLVM IR, before any pass."""
    return module_text(
        (graphflow_run, graphflow_pool, graphflow_orphan, graphflow_spin), STRUCTS, TRIPLE
    )


def _pause_ns(spin: Callable[[int], None]) -> float:
    """Nanoseconds of one pause: 10 to 140 cycles, depending on the processor's family."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter_ns()
        spin(_CALIBRATION_PAUSES)
        best = min(best, time.perf_counter_ns() - start)
    return max(best / _CALIBRATION_PAUSES, 0.1)
