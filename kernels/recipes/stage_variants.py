"""The variants of kernels whose stages meet at shared loops, with their prices.

In: a definition of several stages, and the target.  Out: a variant for each family of layouts in
which some loop is contiguous in memory for all accesses of a stage; where a step is refused, the
refusal.

What always holds: the steps that do not depend on layouts were done, so only the layouts and the
marks on loops are left to the recipe.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from graphflow.arith import constant_value
from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.cost import PER_ROW, Work, number_cycles, vector_cycles
from graphflow.kernels.recipes.roles import iterations
from graphflow.kernels.recipes.stage_lanes import rows_of_stages
from graphflow.kernels.recipes.tiled import touched
from graphflow.kernels.recipes.variant import KernelVariant, Padding, RefusedVariant, SharedLoops
from graphflow.layout import Layout, row_major
from graphflow.schedule import Refusal
from graphflow.tir import (
    Allocate,
    Binary,
    For,
    Load,
    PrimFunc,
    Reduce,
    Site,
    Store,
    Unary,
    loops_of,
    sites,
    walk,
    walk_expr,
)

NAME = "stages at shared loops"


def stage_variants(
    definition: PrimFunc, target: Target
) -> Iterator[KernelVariant | RefusedVariant]:
    """The variants of a definition of several stages; nothing for others."""
    stages = sum(not isinstance(stmt, Allocate) for stmt in definition.body)
    if stages < 2 or any(p.buffer.size == 0 for p in definition.params):
        return
    try:
        s, shared = rows_of_stages(definition)
    except ScheduleError as error:
        yield RefusedVariant(NAME, Refusal.of(error))
        return
    lanes = min(target.computed_lanes(p.buffer.dtype) for p in definition.params)
    layouts = {p.buffer.name: row_major(p.buffer.shape) for p in definition.params}
    loops = [s.loop(place) for place in shared]
    yield KernelVariant(
        f"row-major, {NAME}",
        layouts,
        frozenset(),
        {},
        Padding.NONE,
        SharedLoops(lanes),
        _work(s.func, loops, layouts, lanes),
        False,
    )


def _work(func: PrimFunc, shared: list[For], layouts: dict[str, Layout], lanes: int) -> Work:
    """What one run does: passes of vectors over rows, and numbers between them."""
    rows = prod(loop.extent or 1 for loop in shared)
    cycles = sum(_statement_cycles(site, len(shared), lanes) for site in sites(func.body))
    flops = 2.0 * sum(iterations(x.domain.axes) for x in sites(func.body) if _writes(x))
    return Work(flops, cycles, rows, *touched(func.params, layouts))


def _writes(site: Site) -> bool:
    return isinstance(site.stmt, Store | Reduce)


def _statement_cycles(site: Site, shared: int, lanes: int) -> float:
    """The cycles of all runs of a store or a reduction; 0 for other statements."""
    stmt = site.stmt
    if not isinstance(stmt, Store | Reduce):
        return 0.0
    names = [_operation(e) for e in walk_expr(stmt.value)]
    reduces = isinstance(stmt, Reduce)
    names.append(stmt.op.value if isinstance(stmt, Reduce) else "store")
    rows = iterations(site.domain.axes[:shared])
    own = iterations(site.domain.axes[shared:])
    if len(site.domain.axes) == shared:
        return rows * number_cycles(names)
    vectors = -(-own // lanes)
    return rows * (vectors * vector_cycles(names) + PER_ROW * reduces)


def _operation(expr: object) -> str:
    if isinstance(expr, Unary | Binary):
        return expr.op
    return "load" if isinstance(expr, Load) else "other"
