"""The floor of a model: the least time that direct computation takes on this machine.

In: a compiled model and the peaks of the machine.  Out: seconds.  For each kernel the larger of two
times counts: its multiply-adds at the peak, or its weights, inputs and outputs at the bandwidth;
the floor is their sum.  Weights are read from memory if all of them together exceed the last cache.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphflow.bench.machine_limits import Machine
from graphflow.graph import Node
from graphflow.pipeline.compiler import Compiled
from graphflow.tir import DTYPES


def gflop(compiled: Compiled) -> float:
    """Logical work of a run in 10⁹ operations, a multiply-add counted as two."""
    return sum(_flops(compiled, node) for node in _executed(compiled)) / 1e9


def floor_seconds(compiled: Compiled, machine: Machine) -> float:
    """The sum over kernels, as the module's docstring defines it."""
    nodes = _executed(compiled)
    weights = {name for node in nodes for name in node.inputs if compiled.graph.is_constant(name)}
    resident = _bytes(compiled, sorted(weights)) <= compiled.target.l3_bytes
    weight_rate = 1e9 * (machine.cache_gbps if resident else machine.memory_gbps)
    seconds = 0.0
    for node in nodes:
        names = dict.fromkeys((*node.inputs, *node.outputs))
        constant = _bytes(compiled, (name for name in names if name in weights))
        moving = _bytes(compiled, (name for name in names if name not in weights))
        traffic = constant / weight_rate + moving / (1e9 * machine.cache_gbps)
        seconds += max(_flops(compiled, node) / (1e9 * machine.gflops), traffic)
    return seconds


def _executed(compiled: Compiled) -> list[Node]:
    """The groups that each run computes: neither those made once nor views."""
    choices = compiled.plan.choices
    return [
        node
        for node in compiled.graph.nodes
        if node.name in choices and choices[node.name].variant.work.written
    ]


def _flops(compiled: Compiled, node: Node) -> float:
    return compiled.plan.choices[node.name].variant.work.flops


def _bytes(compiled: Compiled, names: Iterable[str]) -> int:
    values = (compiled.graph.values[name] for name in names)
    return sum(value.size * DTYPES[value.dtype].itemsize for value in values)
