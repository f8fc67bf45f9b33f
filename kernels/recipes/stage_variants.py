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

from graphflow.arith import IndexExpr, Var, variables
from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.cost import PER_ROW, Work, number_cycles, vector_cycles
from graphflow.kernels.recipes.contiguity import (
    Place,
    as_it_is,
    is_contiguous,
    perfect_nest,
)
from graphflow.kernels.recipes.roles import iterations
from graphflow.kernels.recipes.shared_loops import own_nests, rows_of_stages
from graphflow.kernels.recipes.tiled import touched
from graphflow.kernels.recipes.variant import KernelVariant, Padding, RefusedVariant, SharedLoops
from graphflow.kernels.recipes.views import flat_offset
from graphflow.layout import Layout, families, row_major
from graphflow.schedule import Refusal
from graphflow.tir import (
    Access,
    Allocate,
    Binary,
    Expr,
    For,
    Load,
    PrimFunc,
    Reduce,
    Site,
    Store,
    Unary,
    accesses,
    moves_of,
    sites,
    walk,
    walk_expr,
)

NAME = "stages at shared loops"

ROWS = 4
"""Rows that an iteration handles: as many as hide the time in which one is added up."""

SHORT_ROW = 64
"""Vectors of a row from which on adding up its accumulators does not show."""

MOST_VECTORS = 4
"""Vectors of a block across rows: accumulators that do not wait for each other."""


def stage_variants(
    definition: PrimFunc, target: Target
) -> Iterator[KernelVariant | RefusedVariant]:
    """The variants of a definition of several stages, or of a reduction; nothing for others.

    Stages that only move elements have no intermediate at which they could meet.
    """
    if moves_of(definition):
        return
    stages = sum(not isinstance(stmt, Allocate) for stmt in definition.body)
    reduces = any(isinstance(stmt, Reduce) for stmt in walk(definition.body))
    if (stages < 2 and not reduces) or any(p.buffer.size == 0 for p in definition.params):
        return
    try:
        s, shared = rows_of_stages(definition)
    except ScheduleError as error:
        yield RefusedVariant(NAME, Refusal.of(error))
        return
    lanes = min(target.computed_lanes(p.buffer.dtype) for p in definition.params)
    loops, own = [s.loop(place) for place in shared], own_nests(s, shared)
    rank = max(len(p.buffer.shape) for p in definition.params)
    choices = families(rank, lanes)
    # What the padding of an output holds is known of the first one alone.
    for family in choices if len(definition.outputs) == 1 else choices[:1]:
        layouts = {
            b.name: family.instantiate(b.shape) or row_major(b.shape)
            for b in (p.buffer for p in definition.params)
        }
        recipe = _recipe(s.func, loops, own, layouts, lanes)
        if recipe is None:
            continue
        padded = any(layouts[b.name].is_padded for b in definition.outputs)
        output = layouts[definition.outputs[0].name]
        yield KernelVariant(
            f"{output.describe()}, {NAME}",
            layouts,
            frozenset(),
            {},
            Padding.KEPT if padded else Padding.NONE,
            recipe,
            _work(s.func, loops, layouts, recipe),
            False,
        )


def _recipe(
    func: PrimFunc, shared: list[For], own: list[For], layouts: dict[str, Layout], lanes: int
) -> SharedLoops | None:
    """Where lanes run: inside the shared loops if each stage has a contiguous loop there, else
    along a contiguous shared loop; None without."""

    def place(access: Access) -> IndexExpr:
        layout = layouts.get(access.buffer.name)
        return as_it_is(access) if layout is None else flat_offset(layout, access.indices)

    inside = accesses(func.body)
    nests = [perfect_nest(loop) for loop in own]
    if nests and all(_is_some_contiguous(nest, inside, lanes, place) for nest in nests):
        longest = max(prod(loop.extent or 1 for loop in nest) for nest in nests)
        rows = (shared[-1].extent or 1) if shared else 1
        several = longest <= SHORT_ROW * lanes and rows >= 2 * ROWS
        return SharedLoops(lanes, ROWS if several else 1)
    outside = [a for a in inside if a.buffer.name in layouts]
    for number, loop in reversed([*enumerate(shared)]):
        if (loop.extent or 1) >= lanes // 2 and is_contiguous(loop, outside, lanes, place):
            rest = prod(x.extent or 1 for x in shared) // (loop.extent or 1)
            vectors = min(MOST_VECTORS, rest * (loop.extent or 1) // (4 * lanes) or 1)
            return SharedLoops(lanes, 1, number, 1 << (vectors.bit_length() - 1))
    return None


def _is_some_contiguous(
    nest: list[For], touched: tuple[Access, ...], lanes: int, place: Place
) -> bool:
    own = [a for a in touched if nest[0].var in {axis.var for axis in a.domain.axes}]
    return any(is_contiguous(loop, own, lanes, place) for loop in nest)


def _work(
    func: PrimFunc, shared: list[For], layouts: dict[str, Layout], recipe: SharedLoops
) -> Work:
    """What one run does: passes of vectors over rows, and numbers between them."""
    rows = prod(loop.extent or 1 for loop in shared)
    cycles = sum(_statement_cycles(site, len(shared), recipe) for site in sites(func.body))
    if recipe.across is not None:
        rows = -(-rows // (recipe.lanes * recipe.vectors))
    flops = 2.0 * sum(iterations(x.domain.axes) for x in sites(func.body) if _writes(x))
    return Work(flops, cycles, rows, *touched(func.params, layouts))


def _writes(site: Site) -> bool:
    return isinstance(site.stmt, Store | Reduce)


def _statement_cycles(site: Site, shared: int, recipe: SharedLoops) -> float:
    """The cycles of all runs of a store or a reduction; 0 for other statements."""
    stmt = site.stmt
    if not isinstance(stmt, Store | Reduce):
        return 0.0
    own_loops = {axis.var for axis in site.domain.axes[shared:]}
    moving = {e: None for e in walk_expr(stmt.value) if not _stays(e, own_loops)}
    names = [_operation(e) for e in moving]  # equal terms are computed once
    reduces = isinstance(stmt, Reduce)
    names.append(stmt.op.value if isinstance(stmt, Reduce) else "store")
    rows = iterations(site.domain.axes[:shared])
    own = iterations(site.domain.axes[shared:])
    if recipe.across is not None:
        return rows * own / recipe.lanes * vector_cycles(names)
    if len(site.domain.axes) == shared:
        return rows * number_cycles(names)
    vectors = -(-own // recipe.lanes)
    return rows * (vectors * vector_cycles(names) + PER_ROW * reduces)


def _stays(expr: Expr, loops: set[Var]) -> bool:
    """Whether no loop of a stage's own changes an expression, so that it is computed before."""
    loads = (e for e in walk_expr(expr) if isinstance(e, Load))
    return not any(var in loops for e in loads for i in e.indices for var in variables(i))


def _operation(expr: object) -> str:
    if isinstance(expr, Unary | Binary):
        return expr.op
    return "load" if isinstance(expr, Load) else "other"
