"""The native driver, compiled once per process, and the measured duration of a pause instruction.

`driver()` gives the three native entry points of `driver_text`; no C compiler is involved.  Calls
through them release the interpreter lock.  What always holds: the machine code is never unloaded,
because detached workers sleep inside it until the process ends.
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

from graphflow.errors import CodegenError
from graphflow.runtime.driver_text import DRIVER

_CALIBRATION_PAUSES = 1000
_LOADED: list[Any] = []


class Job(ctypes.Structure):
    """The native record of one run; field for field the type %Job of the driver's code."""

    _fields_ = (
        ("in_use", ctypes.c_int32),
        ("parallel", ctypes.c_int32),
        ("steps", ctypes.c_void_p),
        ("step_count", ctypes.c_int64),
        ("pointers", ctypes.c_void_p),
        ("patches", ctypes.c_void_p),
        ("patch_count", ctypes.c_int64),
        ("addresses", ctypes.c_void_p),
        ("control_bits", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("first", ctypes.c_int64),
        ("stop", ctypes.c_int64),
        ("patience_ns", ctypes.c_int64),
        ("deadline", ctypes.c_int64),
    )


@dataclass(frozen=True, slots=True)
class Driver:
    """`start_pool(threads, barrier_spins, idle_spins) -> address or None`,
    `run(pool address, job address, first step) -> next step, 0 or -1`, and how long one pause
    takes."""

    start_pool: Callable[[int, int, int], int | None]
    run: Callable[[int, int, int], int]
    pause_ns: float

    def spins(self, microseconds: float) -> int:
        """How many pauses fill that time."""
        return max(1, round(microseconds * 1000 / self.pause_ns))


@functools.cache
def driver() -> Driver:
    """Compile the driver on first use (some milliseconds).

    Raises CodegenError on anything but x86-64 Linux, whose futexes and control word it uses.
    """
    if not sys.platform.startswith("linux") or platform.machine() not in ("x86_64", "AMD64"):
        raise CodegenError(
            f"the runtime's driver is built for x86-64 Linux only, this is {platform.machine()} "
            f"{sys.platform}; compile for inspection only, or run on such a machine"
        )
    engine = new_engine(DRIVER)
    _LOADED.append(engine)  # also where two threads compile at once: both may have started workers

    def entry(name: str, result: Any, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(result, *arguments)(engine.get_function_address(name))

    int32, int64, pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
    return Driver(
        start_pool=entry("graphflow_pool", pointer, int64, int32, int32),
        run=entry("graphflow_run", int64, pointer, pointer, int64),
        pause_ns=_pause_ns(entry("graphflow_spin", None, int64)),
    )


def new_engine(text: str = "") -> Any:
    """A JIT engine of this process that holds the given LLVM IR."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        opt=2, codemodel="jitdefault", jit=True
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def _pause_ns(spin: Callable[[int], None]) -> float:
    """Nanoseconds of one pause: 10 to 140 cycles, depending on the processor's family."""
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter_ns()
        spin(_CALIBRATION_PAUSES)
        best = min(best, time.perf_counter_ns() - start)
    return max(best / _CALIBRATION_PAUSES, 0.1)
