"""The rates of one core of this machine, for the prices of plans.

In: a target.  Out: its clock and its bandwidths, as fields of a `Target`.  What always holds: rates
are measured with graphflow's own kernels, the clock as that at which the multiply-adds that the
target states a cycle take their time; the best of several runs counts, because other load can only
slow a run down.
"""

from __future__ import annotations

from graphflow.base.processors import Rates
from graphflow.base.target import Target
from graphflow.bench.machine_limits import (
    IN_MEMORY_BYTES,
    peak_gflops,
    read_bandwidth,
    repeated_bandwidth,
)

MOST_BYTES = 1 << 30
"""The most memory that is read, where a third-level cache is larger."""


def measured_rates(target: Target, threads: int) -> Rates:
    """The clock and the bandwidths of one core, and the most bandwidth of memory that up to
    `threads` of them reach, in those of one core.

    It takes about two seconds, and a second more for each doubling of threads, in which nothing
    else should run.
    """
    operations = 2 * target.lanes("float32") * target.fmas_per_cycle * target.peak_factor
    in_l3 = min(4 * target.l2_bytes, (target.l2_bytes + target.l3_bytes) // 2)
    in_memory = min(max(IN_MEMORY_BYTES, 2 * target.l3_bytes), MOST_BYTES)
    by_threads = {n: read_bandwidth(in_memory, target, n) for n in _doubled(threads)}
    return Rates(
        clock_ghz=peak_gflops(target, 1) / operations,
        l2_gbps=repeated_bandwidth(target.l2_bytes // 2, target),
        l3_gbps=repeated_bandwidth(in_l3, target),
        dram_gbps=by_threads[1],
        dram_cores=max(by_threads.values()) / by_threads[1],
    )


def _doubled(most: int) -> list[int]:
    """1, 2, 4, …, and `most`."""
    return sorted({min(1 << k, most) for k in range(most.bit_length() + 1)})
