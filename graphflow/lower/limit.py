"""The memory limit: what a model needs, compared with what it may use.

In: a graph or a lowered program, and the limit in bytes.  Out: nothing, or `MemoryLimitExceeded`
with the name and the size of the largest tensor.  What always holds: the check precedes every
allocation, because Linux may grant memory that it does not have and later kill the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from graphflow.base.available_memory import available_memory
from graphflow.base.decisions import byte_count
from graphflow.base.errors import MemoryLimitExceeded
from graphflow.graph import OperatorGraph
from graphflow.lower.lowered import Lowered
from graphflow.tir import DTYPES


def check_values(graph: OperatorGraph, limit: int | None) -> None:
    """Raise MemoryLimitExceeded where a single tensor of the graph takes more than `limit` bytes.

    None stands for `available_memory`.
    """
    sizes = {
        name: prod(value.shape) * DTYPES[value.dtype].itemsize
        for name, value in graph.values.items()
    }
    shapes = {name: f"{value.dtype}{list(value.shape)}" for name, value in graph.values.items()}
    _check(max(sizes.values(), default=0), sizes, shapes, limit)


def check_program(lowered: Lowered, limit: int | None) -> None:
    """Raise MemoryLimitExceeded where a program with its inputs and outputs takes more than `limit`
    bytes.

    None stands for `available_memory`.
    """
    storages = lowered.physical.storages
    sizes = {name: s.elements * DTYPES[s.dtype].itemsize for name, s in storages.items()}
    shapes = {name: f"{s.elements} elements of {s.dtype}" for name, s in storages.items()}
    outside = sum(size for n, size in sizes.items() if storages[n].kind in ("input", "output"))
    total = outside + lowered.arena_bytes + lowered.constant_bytes
    _check(total, sizes, shapes, limit)


def _check(
    needed: int, sizes: Mapping[str, int], shapes: Mapping[str, str], limit: int | None
) -> None:
    allowed = available_memory() if limit is None else limit
    if needed <= allowed:
        return
    largest = max(sizes, key=lambda name: sizes[name])
    source = "this process may use" if limit is None else "Options.memory_limit allows"
    raise MemoryLimitExceeded(
        f"the model needs {byte_count(needed)}, {source} {byte_count(allowed)}; its largest tensor "
        f"is {largest}, {shapes[largest]}, {byte_count(sizes[largest])}: make it smaller, or raise "
        "the limit"
    )
