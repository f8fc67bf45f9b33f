"""The native driver: executes a job, a table of kernel calls, with a pool of threads.

In: a pool (threads and the words at which they wait for each other) and a job (what one run needs),
both plain memory described in `records`.  Out: `driver()`, the native entry points, whose object
code LLVM makes of IR, or a saved program brings; no C compiler is involved.  What always holds is
said where it is made true: no lost wake-up in `waiting`, each iteration executed once in
`execution`, one caller per job in `runs`.
"""

from graphflow.runtime.driver.loading import (
    Driver,
    DriverObject,
    bring_driver,
    driver,
    driver_object,
)
from graphflow.runtime.driver.records import JOB, JOB_FREE, JOB_PAUSED, LEVEL, PATCH, STEP
from graphflow.runtime.driver.runs import ORPHANED
from graphflow.runtime.driver.system import FLUSH_DENORMALS

__all__ = [
    "FLUSH_DENORMALS",
    "JOB",
    "JOB_FREE",
    "JOB_PAUSED",
    "LEVEL",
    "ORPHANED",
    "PATCH",
    "STEP",
    "Driver",
    "DriverObject",
    "bring_driver",
    "driver",
    "driver_object",
]
