"""The structs of the driver: the pool of threads, and the job that describes one run.

A pool is native memory that only native code touches, apart from its address.  A job and its tables
of steps and patches are written by `graphflow.runtime.table` and read by native code.
"""

from __future__ import annotations

from graphflow.runtime.driver.structs import INT8, INT32, INT64, POINTER, Array, Field, Struct

CONTENDED_BYTES = 128
"""Two cache lines of 64 bytes: x86 prefetches the neighbour of a line along with it, so what one
thread writes and another one polls is kept this far from anything else."""

MUTEX_BYTES = 128
"""Room for a `pthread_mutex_t`, which has 40 bytes in glibc."""

WORKER = Struct(
    "Worker",
    (
        (
            Field("pool", POINTER),
            Field("index", INT64),  # the caller of a run is thread 0
            Field("processor", INT32),  # where the thread was last seen, -1 while it sleeps
            Field("thread_id", INT32),  # the kernel's; of the caller unknown, hence 0
        ),
        # Which step the thread's share belongs to, and how many chunks of the share are taken.
        (Field("claim", INT64),),
    ),
    CONTENDED_BYTES,
)
"""One thread of a pool."""

POOL = Struct(
    "Pool",
    (
        (
            Field("epoch", INT32),  # the number of runs begun; idle workers wait for it to change
            Field("idle_sleepers", INT32),  # workers asleep until then
            Field("job", POINTER),  # of the current run
            Field("control_word", INT32),  # the floating-point control word of its caller
        ),
        (Field("arrived", INT32),),  # threads that have reached the current barrier
        (
            Field("generation", INT32),  # the number of barriers passed
            Field("barrier_sleepers", INT32),  # threads asleep in the current one
        ),
        (
            Field("threads", INT64),  # with the caller
            Field("barrier_spins", INT32),  # pauses before a thread sleeps in a barrier
            Field("idle_spins", INT32),  # pauses before a worker sleeps between runs
            Field("moved_at", INT64),  # when a worker was last moved to another processor, ns
        ),
        (Field("mutex", Array(INT8, MUTEX_BYTES)),),  # held during a run: one at a time
        (Field("workers", Array(WORKER, 0)),),  # `threads` of them
    ),
    CONTENDED_BYTES,
)
"""The threads that execute runs together, and the words at which they wait for each other."""

JOB = Struct(
    "Job",
    (
        (
            Field("state", INT32),  # JOB_FREE, JOB_RUNNING or JOB_PAUSED
            Field("parallel", INT32),  # whether any step has more than one thread
            Field("steps", POINTER),
            Field("step_count", INT64),
            Field("pointers", POINTER),  # the parameters of all steps, one step after another
            Field("patches", POINTER),
            Field("patch_count", INT64),
            Field("addresses", POINTER),  # of the graph's inputs, then of its outputs
            Field("control_bits", INT32),  # to be set in the floating-point control word
            Field("first", INT64),  # the step that this call begins with
            Field("stop", INT64),  # the step before which this call pauses; 0: none
            Field("patience_ns", INT64),  # how long a call may take before it pauses
            Field("deadline", INT64),  # when that time is over
        ),
    ),
)
"""What one run executes."""

JOB_FREE, JOB_RUNNING, JOB_PAUSED = 0, 1, 2

STEP = Struct(
    "Step",
    (
        (
            Field("kernel", POINTER),
            Field("first_pointer", INT64),  # index of the first parameter in the job's pointers
            Field("extent", INT64),  # iterations of the kernel's parallel loop
            Field("threads", INT64),  # threads that share them
            Field("barrier", INT64),  # 1 if all threads of the pool meet behind the step
        ),
    ),
)
"""One kernel call."""

PATCH = Struct(
    "Patch",
    (
        (
            Field("slot", INT64),  # pointers[slot] becomes addresses[source] + offset
            Field("source", INT64),
            Field("offset", INT64),
        ),
    ),
)
"""A parameter that is a graph input or output, whose address each run brings along."""

TIME = Struct("Time", ((Field("seconds", INT64), Field("nanoseconds", INT64)),))
"""`struct timespec` of the operating system."""

STRUCTS = (WORKER, POOL, JOB, STEP, PATCH, TIME)
