"""What the driver calls of Linux, glibc and the x86 processor, with the numbers that they expect.

The numbers are those of Linux on x86-64: `driver()` refuses any other system.
"""

from __future__ import annotations

from graphflow.runtime.driver.function_builder import NativeBody, NativeFunction, function
from graphflow.runtime.driver.instructions import AddressOf
from graphflow.runtime.driver.records import TIME
from graphflow.runtime.driver.structs import BOOL, INT8, INT32, INT64, POINTER, ArrayType

# The processor.

TRIPLE = "x86_64-unknown-linux-gnu"
MACHINES = ("x86_64", "AMD64")
"""What the system calls processors of that triple."""

pause = NativeFunction("llvm.x86.sse2.pause")
store_control_word = NativeFunction("llvm.x86.sse.stmxcsr", {"to": POINTER})
load_control_word = NativeFunction("llvm.x86.sse.ldmxcsr", {"from": POINTER})
fill = NativeFunction(
    "llvm.memset.p0.i64", {"to": POINTER, "byte": INT8, "size": INT64, "volatile": BOOL}
)
copy = NativeFunction(
    "llvm.memcpy.p0.p0.i64", {"to": POINTER, "from": POINTER, "size": INT64, "volatile": BOOL}
)

STICKY_FLAGS = 0x3F
"""Bits of the floating-point control word (MXCSR) that say which exceptions have occurred."""
FLUSH_DENORMALS = 0x8040
"""Bits of the control word: denormal results and operands count as zero."""

# Processors that a thread may use: a mask of `cpu_set_t`'s size, one bit a processor.

MASK_BYTES = 128
CPU_MASK = ArrayType(INT8, MASK_BYTES)

sched_getcpu = NativeFunction("sched_getcpu", {}, INT32)
sched_getaffinity = NativeFunction(
    "sched_getaffinity", {"thread": INT32, "size": INT64, "mask": POINTER}, INT32
)
sched_setaffinity = NativeFunction(
    "sched_setaffinity", {"thread": INT32, "size": INT64, "mask": POINTER}, INT32
)

# System calls without a function of their own in glibc.

syscall = NativeFunction("syscall", {"number": INT64}, INT64, variadic=True)
GETTID = 186
FUTEX = 202
FUTEX_WAIT = 128  # FUTEX_WAIT | FUTEX_PRIVATE_FLAG
FUTEX_WAKE = 129  # FUTEX_WAKE | FUTEX_PRIVATE_FLAG
EVERYONE = 2**31 - 1

# Memory and threads.

aligned_alloc = NativeFunction("aligned_alloc", {"alignment": INT64, "size": INT64}, POINTER)

OPAQUE = ArrayType(INT8, 128)
"""Room for a `sigset_t` (128 bytes) or a `pthread_attr_t` (56 bytes)."""

DETACHED = 1

pthread_mutex_lock = NativeFunction("pthread_mutex_lock", {"mutex": POINTER}, INT32)
pthread_mutex_unlock = NativeFunction("pthread_mutex_unlock", {"mutex": POINTER}, INT32)
pthread_attr_init = NativeFunction("pthread_attr_init", {"attributes": POINTER}, INT32)
pthread_attr_destroy = NativeFunction("pthread_attr_destroy", {"attributes": POINTER}, INT32)
pthread_attr_setstacksize = NativeFunction(
    "pthread_attr_setstacksize", {"attributes": POINTER, "size": INT64}, INT32
)
pthread_attr_setdetachstate = NativeFunction(
    "pthread_attr_setdetachstate", {"attributes": POINTER, "state": INT32}, INT32
)
pthread_create = NativeFunction(
    "pthread_create",
    {"thread": POINTER, "attributes": POINTER, "start": POINTER, "argument": POINTER},
    INT32,
)

# Signals.

SIG_SETMASK = 2
SIGNALS_OF_A_CRASH = (4, 5, 6, 7, 8, 11)  # SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV

pthread_sigmask = NativeFunction(
    "pthread_sigmask", {"how": INT32, "mask": POINTER, "old": POINTER}, INT32
)
sigfillset = NativeFunction("sigfillset", {"mask": POINTER}, INT32)
sigdelset = NativeFunction("sigdelset", {"mask": POINTER, "signal": INT32}, INT32)

# Time.

CLOCK_MONOTONIC = 1
CLOCK_MONOTONIC_COARSE = 6
clock_gettime = NativeFunction("clock_gettime", {"clock": INT32, "time": AddressOf(TIME)}, INT32)


@function(INT64)
def nanoseconds(f: NativeBody) -> None:
    """The time of a clock that ticks every few milliseconds and is read in a few nanoseconds."""
    time = f.local(TIME)
    f.run(clock_gettime, CLOCK_MONOTONIC_COARSE, time)
    f.give(time.at("seconds").load() * 1_000_000_000 + time.at("nanoseconds").load())


@function(INT64)
def exact_nanoseconds(f: NativeBody) -> None:
    """The time of the clock of Python's `time.monotonic_ns`, which is read in 20 to 50 ns."""
    time = f.local(TIME)
    f.run(clock_gettime, CLOCK_MONOTONIC, time)
    f.give(time.at("seconds").load() * 1_000_000_000 + time.at("nanoseconds").load())
