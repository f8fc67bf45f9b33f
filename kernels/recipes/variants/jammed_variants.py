"""The variants of a kernel whose rows run serial loops of their own, with their prices.

In: a definition, and the target.  Out: its variants in blocks of rows; see `jammed_rows`.  A kernel
of one row has one variant, by the same price.

What always holds: a block of more rows takes clearly less time for each, as there are fewer blocks
for threads to share.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from graphflow import cost, tir
from graphflow.arith import Axis, Var, constant_value, variables
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.kernels.recipes.analysis.jammable_rows import (
    fit_registers,
    is_one_row,
    jammable_rows,
    loops_around_sums,
    shared_by_rows,
    sum_problem,
    sums_in,
)
from graphflow.kernels.recipes.analysis.positions import touched
from graphflow.kernels.recipes.analysis.variant import (
    KernelVariant,
    Padding,
    SharedLoops,
    Staged,
)
from graphflow.kernels.recipes.variants.stage_variants import lanes_of_elements, statement_cycles
from graphflow.layout import row_major

MOST_ROWS = 8
"""The most rows of a block: with twice as many, sums of four gates took as long or longer."""

FEWEST_THREADS = 2
"""Threads that share a kernel in phases at least: each has its part of the weights in its caches.
More of them have smaller parts, and the price is too high where only these fit."""


def jammed_variants(
    definition: tir.PrimFunc, target: Target, constants: frozenset[str]
) -> Iterator[KernelVariant]:
    """The variants of a definition with rows that can be jammed, or of a single one; nothing for
    others."""
    loop = jammable_rows(definition)
    if loop is None and not is_one_row(definition):
        return
    count = 1 if loop is None else loop.extent or 1
    layouts = {p.buffer.name: row_major(p.buffer.shape) for p in definition.params}
    moved = touched(definition.params, layouts, constants)
    flops = 2.0 * tir.multiply_add_count(definition)
    least = inf
    for rows in range(1, min(count, MOST_ROWS) + 1):
        cycles = inf if count % rows else _cycles(definition, loop, rows, target)
        if not cost.clearly_less(cycles, least):
            continue
        least = cycles
        work = cost.Work(flops, cycles, count // rows, *moved)
        name = f"row-major, {rows} of {count} rows at once" if loop else "row-major, stage by stage"
        yield KernelVariant(name, layouts, frozenset(), {}, Padding.NONE, Staged(rows), work, True)
    if loop is None and (phases := _phases(definition)) is not None:
        shared, meetings = phases
        cycles = _cycles(definition, loop, 1, target, FEWEST_THREADS)
        repeated = _repeated_cycles(definition, shared, target)
        work = replace(work, cycles=cycles, rows=shared, meetings=meetings, repeated=repeated)
        name = f"row-major, in phases of {shared} iterations"
        recipe = Staged(in_phases=True)
        yield KernelVariant(name, layouts, frozenset(), {}, Padding.NONE, recipe, work, True)


def _phases(definition: tir.PrimFunc) -> tuple[int, int] | None:
    """The iterations of each phase of a kernel of one row, and how often threads meet in a run;
    None where they have nothing to share."""
    loops = loops_around_sums(definition)
    extents = {loop.extent for loop in loops}
    shared = next(iter(extents), None) or 1
    if len(extents) != 1 or shared == 1:
        return None
    around = (site.domain.axes for site in tir.sites(definition.body) if site.stmt in loops)
    return shared, round(sum(map(tir.iteration_count, around)))


def _repeated_cycles(definition: tir.PrimFunc, shared: int, target: Target) -> float:
    """The cycles of what all threads execute: of statements that write none of the elements that
    belong to an iteration of a phase."""
    lanes = SharedLoops(lanes_of_elements(definition, target))
    total = 0.0
    for site in tir.sites(definition.body):
        if isinstance(site.stmt, tir.Store | tir.Reduce):
            loops = (x.var for x in site.domain.axes if constant_value(x.stop - x.start) == shared)
            if not any(var in variables(i) for var in loops for i in site.stmt.indices):
                total += statement_cycles(site, 0, lanes, target)
    return total


def _cycles(
    definition: tir.PrimFunc, loop: tir.For | None, rows: int, target: Target, cores: int = 1
) -> float:
    """The cycles of one core for all rows, those of `loop` or one, in blocks of `rows`; of each sum
    so many `cores` compute a part."""
    lanes = lanes_of_elements(definition, target)
    outermost = (loop,) if loop else tuple(tir.loops_of(definition.body))
    nests = {nest.var: nest for each in outermost for nest in sums_in(each)}
    count = loop.extent or 1 if loop else 1
    around: dict[Var, tuple[Axis, ...]] = {}
    total = 0.0
    for site in tir.sites(definition.body):
        axes = site.domain.axes
        inside = next((number for number, axis in enumerate(axes) if axis.var in nests), None)
        if inside is None:
            total += statement_cycles(site, 0, SharedLoops(lanes), target)
        else:
            others = (x for x in axes[:inside] if loop is None or x.var is not loop.var)
            around[axes[inside].var] = tuple(others)
    for var, axes in around.items():
        blocks = tir.iteration_count(axes) * count / rows
        total += blocks * _sum_cycles(nests[var], loop, rows, target, cores)
    return total


def _sum_cycles(
    nest: tir.For, loop: tir.For | None, rows: int, target: Target, cores: int
) -> float:
    """The cycles of the sums of one block of rows: computing, or loading what the rows share, of
    which each core has its part in its own caches."""
    problem, vectors = sum_problem(nest, rows, target)
    together = rows if fit_registers(nest, rows, target) else 1
    panels = cost.Panels(1, vectors, problem.columns // vectors, together)
    whole = sum(buffer.bytes for buffer in shared_by_rows(nest, loop))
    loading = cost.repeated_cycles(problem.weight_bytes, whole // cores, target)
    return max(cost.panel_cycles(problem.plane, panels, target), loading)
