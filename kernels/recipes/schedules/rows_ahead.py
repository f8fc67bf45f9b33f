"""The rows that the next iteration of a parallel loop reads, fetched into a cache meanwhile.

In: a schedule whose stages are in vectors, inside a parallel loop over rows.  Out: the schedule in
which a loop over the vectors of a row also fetches those of the same row of the next iteration.
What always holds: the lines that are fetched lie inside the inputs, and nothing else changes.

A softmax passes over a row several times, and awaits memory in the first pass alone; no prefetcher
of the processor reads ahead from one row to the next while the other passes compute.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphflow import tir
from graphflow.arith import minimum, substitute, terms_of, variables
from graphflow.base.target import Target
from graphflow.cost import near_plane
from graphflow.kernels.recipes.schedules.weights_ahead import LINE
from graphflow.schedule import Schedule, prefetch


def rows_ahead(s: Schedule, target: Target) -> Schedule:
    """`for i: for o: y[i, o, lanes] = … x[i, o, lanes]` → the same, and each o fetches
    `x[i + 1, o, lanes]`, for each input x by the last such loop over whole lines.

    As it is where the second-level cache holds all parameters, and where there is no parallel loop.
    A loop for which the step is refused stays as it is.
    """
    size = sum(p.buffer.bytes for p in s.func.params)
    parallel = (x for x in tir.loops_of(s.func.body) if x.kind is tir.LoopKind.PARALLEL)
    loop = None if near_plane(size, target) else next(parallel, None)
    if loop is None:
        return s
    inputs = {p.buffer.name for p in s.func.params if p.role is tir.Role.INPUT}
    following = {loop.var: minimum(loop.var + 1, loop.stop - 1)}
    loops = [*_over_lines(loop.body)]
    for place, (vectors, lanes) in reversed(
        [*zip(s.handles(v for v, _ in loops), loops, strict=True)]
    ):
        for read in tir.accesses(lanes.body):
            if read.buffer.name in inputs and _walks(read, loop, vectors, lanes):
                at = {**following, lanes.var: lanes.start}
                *row, first = (substitute(index, at) for index in read.indices)
                s = s.attempt(prefetch, s[place], read.buffer.name, (*row, (first, LINE)))
                inputs.discard(read.buffer.name)
    return s


def _over_lines(body: tir.Body) -> Iterator[tuple[tir.For, tir.For]]:
    """The serial loops that contain nothing but a vectorized loop of stores over a line."""
    for loop in tir.loops_of(body):
        only = loop.body[0] if len(loop.body) == 1 else None
        if loop.kind is tir.LoopKind.SERIAL and isinstance(only, tir.For):
            stores = all(isinstance(stmt, tir.Store) for stmt in only.body)
            if only.kind is tir.LoopKind.VECTORIZED and only.extent == LINE and stores:
                yield loop, only


def _walks(read: tir.Access, rows: tir.For, vectors: tir.For, lanes: tir.For) -> bool:
    """Whether lines of a row are read one after the other, and of each row others."""
    if not read.indices or read.kind is not tir.AccessKind.READ:
        return False
    steps = dict(terms_of(read.indices[-1])[0])
    moves = any(rows.var in variables(index) for index in read.indices)
    return moves and steps.get(lanes.var) == 1 and steps.get(vectors.var) == LINE
