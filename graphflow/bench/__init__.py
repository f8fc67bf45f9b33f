"""Measurement of compiled models beside other runtimes; importing this package imports
onnxruntime."""

from graphflow.bench.accuracy import hardly_varies, largest_error, relative_error
from graphflow.bench.floor import floor_seconds, gflop
from graphflow.bench.machine_limits import Machine, measure_machine, peak_kernel
from graphflow.bench.peers import PEERS, load_peer
from graphflow.bench.results_table import bench_table
from graphflow.bench.samples import random_inputs
from graphflow.bench.timed_blocks import BlockTimes, Protocol, Run, measure

__all__ = [
    "PEERS",
    "BlockTimes",
    "Machine",
    "Protocol",
    "Run",
    "bench_table",
    "floor_seconds",
    "gflop",
    "hardly_varies",
    "largest_error",
    "load_peer",
    "measure",
    "measure_machine",
    "peak_kernel",
    "random_inputs",
    "relative_error",
]
