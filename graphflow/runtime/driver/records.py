"""The structs of the driver: the pool of threads, and the job that describes one run.

A pool is native memory that only native code touches, apart from its address.  A job and its tables
of steps and patches are written by `graphflow.runtime.step_table` and read by native code.
"""

from __future__ import annotations

from graphflow.runtime.driver.structs import (
    INT8,
    INT32,
    INT64,
    POINTER,
    ArrayType,
    StructField,
    StructType,
)

CONTENDED_BYTES = 128
"""Two cache lines of 64 bytes: x86 prefetches the neighbour of a line along with it, so what one
thread writes and another one polls is kept this far from anything else."""

MUTEX_BYTES = 128
"""Room for a `pthread_mutex_t`, which has 40 bytes in glibc."""

ASLEEP = -1
"""The processor of a thread that sleeps, is being moved, or has not begun yet."""

BARRIER = StructType(
    "Barrier",
    (
        (StructField("arrived", INT32),),  # threads that have reached the current meeting
        (
            StructField("generation", INT32),  # the number of meetings so far
            StructField("sleepers", INT32),  # threads asleep in the current one
        ),
    ),
    CONTENDED_BYTES,
)
"""Where threads meet: each waits until as many as are to meet have arrived."""

WORKER = StructType(
    "Worker",
    (
        (
            # First: a kernel in phases is given the address of its worker, and calls this function
            # with it.
            StructField("meeting", POINTER),
            StructField("team", INT64),  # how many threads share the current step
            StructField("pool", POINTER),
            StructField("index", INT64),  # the caller of a run is thread 0
            StructField("processor", INT32),  # where the thread was last seen, or ASLEEP
            StructField("thread_id", INT32),  # the kernel's; of the caller unknown, hence 0
        ),
        # Which step the thread's share belongs to, and how many chunks of the share are taken.
        (StructField("claim", INT64),),
    ),
    CONTENDED_BYTES,
)
"""One thread of a pool."""

POOL = StructType(
    "Pool",
    (
        (
            StructField("epoch", INT32),  # runs begun so far; idle workers wait for a change
            StructField("idle_sleepers", INT32),  # workers asleep until then
            StructField("job", POINTER),  # of the current run
            StructField("control_word", INT32),  # the floating-point control word of its caller
        ),
        (StructField("behind_steps", BARRIER),),  # of all threads
        (StructField("within_steps", BARRIER),),  # of those that share a step in phases
        (
            StructField("threads", INT64),  # with the caller; 0 if they are of the parent process
            StructField("barrier_spins", INT32),  # pauses before a thread sleeps in a barrier
            StructField("idle_spins", INT32),  # pauses before a worker sleeps between runs
            StructField("moved_at", INT64),  # when a worker was last moved to another processor, ns
            StructField("moving", INT32),  # 1 while one is being moved
        ),
        (StructField("mutex", ArrayType(INT8, MUTEX_BYTES)),),  # held during a run: one at a time
        (StructField("workers", ArrayType(WORKER, 0)),),  # `threads` of them
    ),
    CONTENDED_BYTES,
)
"""The threads that execute runs together, and the words at which they wait for each other."""

JOB = StructType(
    "Job",
    (
        (
            StructField("state", INT32),  # JOB_FREE, JOB_RUNNING or JOB_PAUSED
            StructField("parallel", INT32),  # whether any step has more than one thread
            StructField("pool", POINTER),  # whose threads share steps; null: not known yet
            StructField("steps", POINTER),
            StructField("step_count", INT64),
            StructField("pointers", POINTER),  # the parameters of all steps, one step after another
            StructField("patches", POINTER),
            StructField("patch_count", INT64),
            StructField("addresses", POINTER),  # of the graph's inputs, then of its outputs
            StructField("control_bits", INT32),  # to be set in the floating-point control word
            StructField("levels", POINTER),  # of all steps, one step after another
            StructField("level_count", INT64),  # 0: no step depends on a size
            StructField("has_late", INT64),  # 1 if sizes of some steps are written by others
            StructField("meeting", INT64),  # nanoseconds of a meeting behind a step, by estimate
            StructField("waking", INT64),  # by which a run is longer that wakes the workers
            StructField("first", INT64),  # the step that a call begins with
            StructField("stop", INT64),  # the step before which a call pauses; 0: none
            StructField("patience_ns", INT64),  # how long a call may take before it pauses
            StructField("deadline", INT64),  # when that time is over
            # What `sharing_trials.py` knows of runs in which the plan shares steps; times in ns.
            StructField("saving", INT64),  # what threads save of this run; 0 without sizes
            StructField("kind", INT64),  # of the runs that are compared
            StructField("strange", INT32),  # runs of another kind in a row
            StructField("is_alone", INT32),  # 1 if the caller alone was faster
            StructField("trial", INT32),  # runs of the other way that are left
            StructField("settled", INT32),  # runs since the last trial, as far as they are counted
            StructField("last", INT64),  # the time of the last run
            StructField("second_last", INT64),
            StructField("fastest", INT64),  # of those that threads shared; 0: none
            StructField("tried", INT64),  # the least of the trial
            StructField("credit", INT64),  # what trials may take by now
            StructField("price", INT64),  # what the next one takes, by the last one
            StructField("stamps", POINTER),  # a STAMP for each step and thread; null: none is taken
            StructField("stamped_threads", INT64),  # the threads that each step has stamps for
        ),
    ),
)
"""What one run executes."""

JOB_FREE, JOB_RUNNING, JOB_PAUSED = 0, 1, 2

STEP = StructType(
    "Step",
    (
        (
            StructField("kernel", POINTER),
            StructField("first_pointer", INT64),  # where its parameters begin in the job's pointers
            StructField("extent", INT64),  # iterations of the kernel's parallel loop to execute
            StructField("row", INT64),  # as many of them are neighbours in the loop
            StructField("first_level", INT64),  # where its levels begin in the job's
            StructField("level_count", INT64),  # 0: each run executes all iterations
            StructField("late", INT64),  # 1 if steps before it write the sizes of its levels
            StructField("rounds", INT64),  # how often the iterations of all levels are executed
            StructField("threads", INT64),  # threads that share them in this run
            StructField("team", INT64),  # threads that share them if all are executed
            StructField("whole", INT64),  # iterations of the kernel's parallel loop
            StructField("saved", INT64),  # nanoseconds that the team saves if all are executed
            StructField("within", INT64),  # levels behind those, of sizes within each iteration
            StructField("chunks", INT64),  # the most chunks of a share, at most 255
            StructField("meets", INT64),  # 1 if the kernel is in phases, behind which these meet
            StructField("barrier", INT64),  # 1 if all threads of the pool meet behind the step
            StructField("concurrent", INT64),  # 1 if threads that share steps do not meet behind it
            StructField("jump", INT64),  # 1: jump if the flag is 0, 2: if it is 1; 0: never
            StructField("flag", INT64),  # which of the job's pointers is the address of the flag
            StructField("target", INT64),  # the step that is jumped to; not the first one
        ),
    ),
)
"""One kernel call."""

STAMP = StructType(
    "Stamp",
    ((StructField("begin", INT64), StructField("end", INT64)),),
)
"""When a thread began and ended its part of a step, in nanoseconds; 0 if it had none."""

LEVEL = StructType(
    "Level",
    (
        (
            StructField("source", INT64),  # the graph's input that holds a size n; of a late step
            # which of the job's pointers is its address
            StructField("most", INT64),  # the greatest n
            StructField("count", INT64),  # values of the digit, of which ceil(count * n / most) run
            StructField("unit", INT64),  # values of the digits between this and the level before
            StructField("stride", INT64),  # iterations of the loop for each value of the digit
            StructField("length", INT64),  # values that run, times `unit`
            StructField("left_out", INT64),  # values that do not, times `stride`
        ),
    ),
)
"""A digit of the numbers of a step's iterations of which a run executes the first values alone.

The levels of a step begin with the least significant digit.  The iterations that are executed are
numbered apart, without gaps; `apply_step_sizes` writes what leads from these numbers to those of
the kernel's loop (`execution.py`).
"""

PATCH = StructType(
    "Patch",
    (
        (
            StructField("slot", INT64),  # pointers[slot] becomes addresses[source] + offset
            StructField("source", INT64),
            StructField("offset", INT64),
        ),
    ),
)
"""A parameter that is a graph input or output, whose address each run brings along."""

TIME = StructType("Time", ((StructField("seconds", INT64), StructField("nanoseconds", INT64)),))
"""`struct timespec` of the operating system."""

STRUCTS = (BARRIER, WORKER, POOL, JOB, STEP, STAMP, LEVEL, PATCH, TIME)
