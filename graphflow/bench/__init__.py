"""Measuring compiled models beside their peers; importing this imports onnxruntime."""

from graphflow.bench.blocks import Protocol, Run, Timing, measure
from graphflow.bench.errors import hardly_varies, largest_error, relative_error
from graphflow.bench.floor import floor_seconds, gflop
from graphflow.bench.machine import Machine, measure_machine, peak_kernel
from graphflow.bench.peers import PEERS, load_peer
from graphflow.bench.samples import random_inputs
from graphflow.bench.table import bench_table

__all__ = [
    "PEERS",
    "Machine",
    "Protocol",
    "Run",
    "Timing",
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
