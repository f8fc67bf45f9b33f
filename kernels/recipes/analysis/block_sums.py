"""Sums of blocks: sums of integers that are scaled and added up as floats, found by structure.

In: a definition.  Out: its `BlockSums`, None where it is no such kernel: one nest over the output,
when its stages are merged, in which a loop over blocks sums products of bytes in int32, groups of
neighbouring terms innermost, and adds what it makes of each sum to a float.

    for m: for n: {y = 0; for q: {t = …; for g: for e in (0, 4): t += a[m, q, g, e] * b[n, q, g, e]
                                  y += t * …}
                   z = … y …}
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from graphflow import tir
from graphflow.arith import Var, variables
from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes.analysis.byte_sums import BYTE_TERMS
from graphflow.kernels.recipes.analysis.roles import merge_stages
from graphflow.schedule import Schedule

Loops = tuple[tuple[Var, int], ...]
"""Loop variables with their extents."""


class BlockSums(Struct, frozen=True):
    """The loops and buffers of such a kernel.

    `rows` are the loops over rows, `lane` is that over columns, which weights depend on; `blocks`
    is that over the blocks, and `terms` are those over the terms of a block, innermost last.
    """

    schedule: Schedule
    """The kernel with its stages merged."""
    rows: Loops
    lane: tuple[Var, int]
    blocks: tuple[Var, int]
    terms: Loops
    total: tir.Buffer
    """The sum of a block."""
    held: tuple[tir.Buffer, ...]
    """The other buffers of which an element belongs to each element of the output: first the sum
    of all blocks."""
    weights: tir.Buffer
    """The bytes that each column has for itself."""
    by_column: tuple[tir.Buffer, ...]
    """The other inputs with an element for each block of a column."""
    places: int
    """How many weights a byte holds."""


@lru_cache(maxsize=4096)
def block_sums(definition: tir.PrimFunc) -> BlockSums | None:
    """The loops and buffers of sums of blocks; None for other definitions."""
    if len(definition.outputs) != 1 or not _may_have_block_sums(definition):
        return None
    try:
        schedule = merge_stages(Schedule.of(definition))
    except ScheduleError:
        return None
    stages = [stmt for stmt in schedule.func.body if isinstance(stmt, tir.Block)]
    return _block_sums_of(schedule, stages[0]) if len(stages) == 1 else None


def _may_have_block_sums(definition: tir.PrimFunc) -> bool:
    """Whether some loop sums integers and floats, as merging stages takes time."""
    loops = (loop for loop in tir.loops_of(definition.body) if len(loop.body) == 3)
    return any(isinstance(loop.body[2], tir.Reduce) for loop in loops)


def _block_sums_of(schedule: Schedule, stage: tir.Block) -> BlockSums | None:
    (output,) = schedule.func.outputs
    loops, body = tir.nest_of(stage.body)
    if not loops or [loop.extent for loop in loops] != [*output.shape] or len(body) < 2:
        return None
    first, over, *tail = body
    if not isinstance(first, tir.Store) or not isinstance(over, tir.For) or len(over.body) != 3:
        return None
    begin, sums, end = over.body
    terms, inner = tir.nest_of((sums,))
    update = inner[0] if len(inner) == 1 else None
    if not isinstance(begin, tir.Store) or not isinstance(update, tir.Reduce) or not terms:
        return None
    if not isinstance(end, tir.Reduce) or end.op is not tir.ReduceOp.ADD:
        return None
    lane, reads = loops[-1].var, {load.buffer: load for load in tir.loads_in((update,))}
    weights = [b for b, load in reads.items() if lane in load.indices and b.dtype == "uint8"]
    if update.buffer.dtype != "int32" or len(reads) != 2 or len(weights) != 1:
        return None
    axes = tuple(loop.var for loop in loops)
    writes = (begin, first, end, update)
    if len({stmt.buffer for stmt in writes}) != 2 or any(stmt.indices != axes for stmt in writes):
        return None
    if terms[-1].extent != BYTE_TERMS or not all(isinstance(stmt, tir.Store) for stmt in tail):
        return None
    own = (stmt.buffer for stmt in tail if isinstance(stmt, tir.Store) and stmt.buffer != output)
    return BlockSums(
        schedule=schedule,
        rows=tuple((loop.var, loop.extent or 1) for loop in loops[:-1]),
        lane=(lane, output.shape[-1]),
        blocks=(over.var, over.extent or 1),
        terms=tuple((loop.var, loop.extent or 1) for loop in terms),
        total=update.buffer,
        held=tuple(dict.fromkeys((end.buffer, *own))),
        weights=weights[0],
        by_column=tuple(
            dict.fromkeys(
                load.buffer
                for load in tir.loads_in((begin, end))
                if load.indices == (lane, over.var) and load.buffer in schedule.func.inputs
            )
        ),
        places=_places(update, terms),
    )


def _places(update: tir.Reduce, terms: Sequence[tir.For]) -> int:
    """The iterations of the loop over the places in a byte: that which no index of bytes uses."""
    loads = [load for load in tir.loads_in((update,)) if load.dtype == "uint8"]
    used = {var for load in loads for index in load.indices for var in variables(index)}
    return next((loop.extent or 1 for loop in terms if loop.var not in used), 1)
