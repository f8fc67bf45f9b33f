"""The native driver, compiled once per process, and the measured duration of a pause instruction.

Out: `driver()`, the native entry points as Python callables; calls release the interpreter lock.
What always holds: the machine code is never unloaded, because detached workers sleep inside it
until the process ends.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import binding as llvm

from graphflow.base.errors import CodegenError
from graphflow.runtime.driver.function_builder import module_text
from graphflow.runtime.driver.records import STRUCTS
from graphflow.runtime.driver.runs import graphflow_run
from graphflow.runtime.driver.system import MACHINES, TRIPLE
from graphflow.runtime.driver.threads import graphflow_orphan, graphflow_pool, graphflow_spin

_CALIBRATION_PAUSES = 1000
"""Pauses in one measurement: some microseconds, which is long for the clock."""

_LOADED: list[Any] = []


@dataclass(frozen=True, slots=True)
class Driver:
    """The native entry points.

    start_pool: (threads, barrier spins, idle spins) → the address of a new pool, or None if the
    system refuses its threads or memory.
    orphan: (address of a pool) → nothing; for a forked child, where the pool has no workers.
    run: (address of the pool or 0, address of the job, first step) → 0 if the job is done, `BUSY`
    if another caller executes it, `ORPHANED` if the pool has no workers in this process, else the
    step before which the job has paused.
    pause_ns: how long one pause instruction takes.
    """

    start_pool: Callable[[int, int, int], int | None]
    orphan: Callable[[int], None]
    run: Callable[[int, int, int], int]
    pause_ns: float

    def spins(self, microseconds: float) -> int:
        """The number of pauses that take so many microseconds."""
        return max(1, round(microseconds * 1000 / self.pause_ns))


@functools.cache
def driver() -> Driver:
    """Compile the driver on first use (some milliseconds).

    Raises CodegenError on anything but x86-64 Linux, whose futexes and control word it uses.
    """
    if not sys.platform.startswith("linux") or platform.machine() not in MACHINES:
        raise CodegenError(
            f"the runtime's driver is built for x86-64 Linux only, this is {platform.machine()} "
            f"{sys.platform}; compile for inspection only, or run on such a machine"
        )
    engine = new_engine(driver_text())
    _LOADED.append(engine)  # also where two threads compile at once: both may have started workers

    def entry(name: str, result: Any, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(result, *arguments)(engine.get_function_address(name))

    int32, int64, pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
    return Driver(
        start_pool=entry("graphflow_pool", pointer, int64, int32, int32),
        orphan=entry("graphflow_orphan", None, pointer),
        run=entry("graphflow_run", int64, pointer, pointer, int64),
        pause_ns=_pause_ns(entry("graphflow_spin", None, int64)),
    )


def driver_text() -> str:
    """The driver in LLVM IR, before any pass."""
    return module_text(
        (graphflow_run, graphflow_pool, graphflow_orphan, graphflow_spin), STRUCTS, TRIPLE
    )


def new_engine(text: str = "") -> Any:
    """A JIT engine of this process that holds the given LLVM IR, with its stack slots promoted to
    registers."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        opt=2, codemodel="jitdefault", jit=True
    )
    if text:
        _promote_slots(module, machine)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def _promote_slots(module: Any, machine: Any) -> None:
    """Local variables → SSA values; nothing else is changed."""
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.run(module, builder)


def _pause_ns(spin: Callable[[int], None]) -> float:
    """Nanoseconds of one pause: 10 to 140 cycles, depending on the processor's family."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter_ns()
        spin(_CALIBRATION_PAUSES)
        best = min(best, time.perf_counter_ns() - start)
    return max(best / _CALIBRATION_PAUSES, 0.1)
