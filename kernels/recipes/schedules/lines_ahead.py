"""The lines of data that the next panel of a row reads, fetched into a cache meanwhile.

In: a schedule of tiles whose lanes run along rows of the data, and whose panels are shared by
threads.  Out: the schedule in which each iteration over those rows also fetches the lines of its
row with which the next panel goes on.  What always holds: the lines that are fetched lie inside the
inputs, and nothing else changes.

A panel of 32 positions of a sequence reads two lines of each channel c and goes on with the next
channel, whose row begins thousands of bytes later.  No prefetcher of the processor follows so many
rows, so each line would be awaited from the third-level cache.  With taps t from 0 to T - 1:

    for panel: for c:
        for t: … x[c, 32*panel + t + lane] …
        prefetch x[c, 32*(panel + 1) + T + 30], the last element that the next panel reads of c
        prefetch x[c, 32*(panel + 1) + T + 14], which is one line before
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from graphflow import tir
from graphflow.arith import (
    IndexExpr,
    Ranges,
    bounds,
    constant_value,
    maximum,
    minimum,
    terms_of,
    variables,
)
from graphflow.base.target import Target
from graphflow.cost import awaits_lines
from graphflow.kernels.recipes.schedules.weights_ahead import LINE
from graphflow.schedule import Schedule, prefetch


class _LinesAhead(NamedTuple):
    """A loop over `rows` of data, each of which the access `read` reads in lanes: each panel begins
    `step` elements behind the one before, and the next one ends with the element `last`."""

    rows: tir.For
    read: tir.Access
    step: int
    last: IndexExpr


def lines_ahead(s: Schedule, target: Target) -> Schedule:
    """`for panel: for c: … x[c, n·panel + lane]` → the same, and each c fetches the lines of
    `x[c, n·(panel + 1) + n - 1]` and of every 16th element before it, as many as n elements fill.

    Unchanged where no input of the kernel `awaits_lines`, and where rows of data are not read in
    lanes by panels that go on along them.
    """
    parallel = (x for x in tir.loops_of(s.func.body) if x.kind is tir.LoopKind.PARALLEL)
    panel = next(parallel, None)
    if panel is None:
        return s
    given = (p.buffer for p in s.func.params if p.role is tir.Role.INPUT)
    inputs = frozenset(b.name for b in given if awaits_lines(b.bytes, target))
    found = [*_lines_of(panel, inputs)]
    for place, lines in zip(s.handles(each.rows for each in found), found, strict=True):
        *row, _ = lines.read.indices
        end = lines.read.buffer.shape[-1] - LINE
        for k in range(-(-lines.step // LINE)):
            start = minimum(maximum(lines.last - k * LINE, 0), end)
            s = s.attempt(prefetch, s[place], lines.read.buffer.name, (*row, (start, LINE)))
    return s


def _lines_of(panel: tir.For, inputs: frozenset[str]) -> Iterator[_LinesAhead]:
    """What each loop over rows of the `inputs` goes on to read in the next panel."""
    seen: set[tuple[tir.For, str]] = set()
    for around, read in _reads(panel.body, inputs):
        lines = _lines(panel, around, read)
        if lines is not None and (lines.rows, read.buffer.name) not in seen:
            seen.add((lines.rows, read.buffer.name))
            yield lines


def _reads(
    body: tir.Body, inputs: frozenset[str], around: tuple[tir.For, ...] = ()
) -> Iterator[tuple[tuple[tir.For, ...], tir.Access]]:
    """The reads of `inputs` in a body, each with the loops around it, the outermost first."""
    for stmt in body:
        inside = (*around, stmt) if isinstance(stmt, tir.For) else around
        if below := tir.sub_bodies(stmt):
            for each in below:
                yield from _reads(each, inputs, inside)
            continue
        for read in tir.accesses((stmt,)):
            if read.kind is tir.AccessKind.READ and read.buffer.name in inputs:
                yield inside, read


def _lines(panel: tir.For, around: tuple[tir.For, ...], read: tir.Access) -> _LinesAhead | None:
    """The lines of a read inside the loops `around` it; None where its lanes or its panels do not
    go on along rows, and where the rows are not those of one serial loop."""
    if not around or not read.indices or read.buffer.shape[-1] < LINE:
        return None
    *row, along = read.indices
    rows = [x for x in around if any(x.var in variables(index) for index in row)]
    serial = [x for x in rows if x.kind is tir.LoopKind.SERIAL]
    terms, constant = terms_of(along)
    steps, lanes = dict(terms), around[-1]
    step = steps.get(panel.var, 0)
    in_lanes = lanes.kind is tir.LoopKind.VECTORIZED and steps.get(lanes.var) == 1
    if step <= 0 or not in_lanes or len(rows) != 1 or rows != serial:
        return None
    ranges: Ranges = {x.var: _range(x) for x in around}
    ends = (bounds(atom * k, ranges)[1] for atom, k in terms if atom is not panel.var)
    most = [end for end in ends if end is not None]
    if len(most) < len(terms) - 1:
        return None
    last = minimum(panel.var + 1, panel.stop - 1) * step + (constant + sum(most))
    return _LinesAhead(rows[0], read, step, last)


def _range(loop: tir.For) -> tuple[int | None, int | None]:
    """The first and the last value of a loop's variable."""
    stop = constant_value(loop.stop)
    return constant_value(loop.start), None if stop is None else stop - 1
