"""Elementwise kernels that walk memory in long runs, several vectors a step.

In: a tiled variant without a reduction, and its roles.  Out: the same variant with a tiling into
runs, where all operands lie along the lanes.

A register tile walks down the rows of a narrow panel, so that rows share what a step loads.  Where
nothing is shared, that only costs: each row begins in another page, and hardware prefetches lines
that the next panel reads.  A run goes straight through memory.  Axes that follow each other in all
operands alike, or are broadcast alike, are one axis to it, so a row of 56 elements is no reason for
a vector that is half empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import ClassVar

from graphflow import tir
from graphflow.arith import IndexExpr, Var, terms_of, variables
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.cost import choose_run, run_tiling
from graphflow.kernels.recipes.analysis.positions import flat_offset
from graphflow.kernels.recipes.analysis.roles import Roles
from graphflow.kernels.recipes.analysis.variant import Axes, KernelVariant, Tiled, TileKind
from graphflow.kernels.recipes.variants.tiling import with_epilogue
from graphflow.layout import Layout
from graphflow.schedule import Schedule, divide_loop, mult_loops, simplify


@dataclass(frozen=True)
class MemoryRun(TileKind):
    """Runs of that many elements, without rows."""

    elements: int

    has_rows: ClassVar[bool] = False

    def loops(self, s: Schedule, axes: Axes, output: Layout) -> tuple[Schedule, Axes, Axes]:
        """The nest whose innermost loop is one run."""
        s, axes = in_runs(s, axes, self.elements)
        return s, axes, ()


def as_runs(
    variant: KernelVariant,
    roles: Roles,
    definition: tir.PrimFunc,
    target: Target,
    sized: frozenset[int] = frozenset(),
) -> KernelVariant:
    """The variant in runs, where all operands allow it and it is estimated to be faster.

    A run that went on behind one of the `sized` axes, of which the model's runs give the first
    elements, would have all elements ahead of the next: so it ends there.

    As it is where the output is padded, where anything is reduced, where the definition asks for
    the index of an element, and where an operand is read in another order than the output is
    written.
    """
    recipe = variant.recipe
    output = variant.layouts[roles.output.name]
    if not isinstance(recipe, Tiled) or recipe.kind.group or roles.reduction or output.is_padded:
        return variant
    if asks_for_indices(definition):
        return variant
    joint = _joint_extent(roles, variant.layouts, sized)
    if joint is None:
        return variant
    row, extent = joint
    total = prod(roles.output.shape)
    run, cycles = choose_run(extent, total, roles.output.dtype, target, row)
    cycles = with_epilogue(cycles, roles, target)
    if not run or cycles >= variant.work.cycles:
        return variant
    tiling = run_tiling(run, roles.output.dtype, target)
    work = replace(variant.work, cycles=cycles, rows=total // run, short_runs=False)
    return replace(variant, recipe=replace(recipe, kind=MemoryRun(run), tiling=tiling), work=work)


def asks_for_indices(definition: tir.PrimFunc) -> bool:
    """Whether a condition or a value depends on the index of an element."""
    statements = any(
        isinstance(stmt, tir.If) and tir.is_predicate(stmt.condition)
        for stmt in tir.walk(definition.body)
    )
    return statements or any(
        isinstance(node, tir.IndexValue)
        or (isinstance(node, tir.Select) and tir.is_predicate(node.condition))
        for stmt in tir.walk(definition.body)
        for expr in tir.expressions_of(stmt)
        for node in tir.walk_expr(expr)
    )


def _joint_extent(
    roles: Roles, layouts: Mapping[str, Layout], sized: frozenset[int]
) -> tuple[int, int] | None:
    """The elements along the innermost axis, and along the innermost axes that are one axis to all
    operands, up to the first one that is `sized`; None where the innermost axis of the output is
    not contiguous, or broadcast, in some operand."""
    shape = dict(zip(roles.axes, roles.output.shape, strict=True))
    strides = [*_strides(roles, layouts, shape)]
    if not strides or any(s is None for s in strides):
        return None
    known = [s for s in strides if s is not None]
    written = known[0]
    order = sorted((v for v, n in shape.items() if n > 1), key=lambda v: written.get(v, 0))
    if not order or any(s.get(order[0], 0) not in (0, 1) for s in known) or written[order[0]] != 1:
        return None
    row = extent = shape[order[0]]
    ends = {roles.axes[axis] for axis in sized}
    for inner, var in pairwise(order):
        if inner in ends or any(s.get(var, 0) != s.get(order[0], 0) * extent for s in known):
            break
        extent *= shape[var]
    return row, extent


def _strides(
    roles: Roles, layouts: Mapping[str, Layout], shape: Mapping[Var, int]
) -> Iterator[dict[IndexExpr, int] | None]:
    """Elements between neighbours along each axis, of the output first, then of each access; None
    for an access that is not linear in the axes."""
    flats = [flat_offset(layouts[roles.output.name], roles.axes)]
    flats += [
        flat_offset(layouts[name], access.indices)
        for name, reads in roles.reads.items()
        for access in reads
    ]
    for flat in flats:
        terms, _ = terms_of(flat)
        linear = all(isinstance(atom, Var) for atom, _ in terms) and variables(flat) <= set(shape)
        yield dict(terms) if linear else None


def in_runs(s: Schedule, axes: Axes, run: int) -> tuple[Schedule, Axes]:
    """`for i: for j in (0, n): S` → `for p: for k in (0, run): S[i, j → …]`: the same elements in
    the same order, the innermost loop as long as a run.

    It joins as few of the innermost loops as have a multiple of `run` iterations together.
    """
    present = list(s.present(axes))
    while (s.loop(present[-1]).extent or 0) % run and len(present) > 1:
        inner, outer = present.pop(), present.pop()
        s = s.apply(mult_loops, s[outer], s[inner], s.fresh("{}_{}", outer, inner))
        present += s.made["loop"]
    if s.loop(present[-1]).extent != run:
        lane = present.pop()
        parts = (s.fresh("{}p", lane), s.fresh("{}r", lane))
        s = s.apply(divide_loop, s[lane], run, parts, "perfect")
        present += s.made["parts"]
    return s.apply(simplify), tuple(present)
