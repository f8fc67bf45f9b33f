"""Measurement of compiled models beside other runtimes; importing this package imports
onnxruntime."""

from graphflow.bench.accuracy import hardly_varies, largest_error, relative_error
from graphflow.bench.core_rates import measured_rates
from graphflow.bench.floor import floor_seconds, gflop
from graphflow.bench.machine_limits import (
    Machine,
    kernel_run,
    measure_machine,
    peak_kernel,
    read_kernel,
)
from graphflow.bench.peers import PeerFailure, load_peer, peer_outputs
from graphflow.bench.results_table import bench_table, mean_speeds, speeds_beside, speeds_table
from graphflow.bench.step_times import (
    chrome_trace,
    peer_profile,
    planned_steps,
    profile_run,
    step_seconds,
)
from graphflow.bench.timed_blocks import BlockTimes, Protocol, Run, measure

__all__ = [
    "BlockTimes",
    "Machine",
    "PeerFailure",
    "Protocol",
    "Run",
    "bench_table",
    "chrome_trace",
    "floor_seconds",
    "gflop",
    "hardly_varies",
    "kernel_run",
    "largest_error",
    "load_peer",
    "mean_speeds",
    "measure",
    "measure_machine",
    "measured_rates",
    "peak_kernel",
    "peer_outputs",
    "peer_profile",
    "planned_steps",
    "profile_run",
    "read_kernel",
    "relative_error",
    "speeds_beside",
    "speeds_table",
    "step_seconds",
]
