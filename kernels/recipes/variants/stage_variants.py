"""The variants of kernels whose stages meet at shared loops, with their prices.

In: a definition of several stages, and the target.  Out: a variant for each family of layouts in
which some loop is contiguous in memory for all accesses of a stage; where a step is refused, the
refusal.

What always holds: the steps that do not depend on layouts were done, so only the layouts and the
marks on loops are left to the recipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from types import MappingProxyType

from graphflow import cost, tir
from graphflow.arith import IndexExpr, Var, terms_of, variables
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.kernels.recipes.analysis.contiguity import (
    Place,
    as_it_is,
    goes_on,
    is_contiguous,
    lane_step,
    perfect_nest,
)
from graphflow.kernels.recipes.analysis.positions import flat_offset, touched
from graphflow.kernels.recipes.analysis.shared_loops import own_nests, rows_of_stages
from graphflow.kernels.recipes.analysis.variant import (
    KernelVariant,
    Padding,
    RefusedVariant,
    SharedLoops,
)
from graphflow.layout import Family, Layout, families, row_major
from graphflow.schedule import Refusal

NAME = "stages at shared loops"

ROWS = 4
"""Rows that an iteration handles: as many as hide the time in which one is added up."""

SHORT_ROW = 64
"""Vectors of a row from which on adding up its accumulators does not show."""

MOST_VECTORS = 4
"""Vectors of a block across rows: accumulators that do not wait for each other."""


def stage_variants(
    definition: tir.PrimFunc,
    target: Target,
    constants: frozenset[str] = frozenset(),
    given: Mapping[str, Layout] = MappingProxyType({}),
    across: bool = True,
) -> Iterator[KernelVariant | RefusedVariant]:
    """The variants of a definition of several stages, or of a reduction; nothing for others.

    Stages that only move elements have no intermediate at which they could meet.  Inputs in `given`
    are read in these layouts, the others in those of a family.  Without `across`, lanes run inside
    the shared loops only.
    """
    if tir.moves_of(definition):
        return
    stages = sum(not isinstance(stmt, tir.Allocate) for stmt in definition.body)
    reduces = any(isinstance(stmt, tir.Reduce) for stmt in tir.walk(definition.body))
    if (stages < 2 and not reduces) or any(p.buffer.size == 0 for p in definition.params):
        return
    try:
        s, shared = rows_of_stages(definition)
    except ScheduleError as error:
        yield RefusedVariant(NAME, Refusal.of(error))
        return
    lanes = lanes_of_elements(definition, target)
    loops, own = [s.loop(place) for place in shared], own_nests(s, shared)
    found: list[KernelVariant] = []
    # What the padding of an output holds is known of the first one alone.
    choices = families(max(len(p.buffer.shape) for p in definition.params), lanes, target)
    for family in choices if len(definition.outputs) == 1 else choices[:1]:
        layouts = _layouts(definition, family) | dict(given)
        made = _recipe(s.func, loops, own, layouts, lanes)
        if made is not None and (across or made[0].lane_loop is None):
            recipe, run = made
            moved = touched(s.func.params, layouts, constants)
            work = _work(s.func, loops, moved, recipe, target, run)
            found.append(_variant(definition, layouts, recipe, work, given))
    if across and len(definition.outputs) == 1 and not given:
        for family, lines in product(choices, choices):
            for variant in _with_transposed_lines(
                definition, constants, family, lines, lanes, target
            ):
                if isinstance(variant, RefusedVariant):
                    yield variant
                else:
                    found.append(variant)
    cheapest: dict[tuple[Layout, ...], KernelVariant] = {}
    for variant in found:
        placed = tuple(variant.layouts.values())
        other = cheapest.setdefault(placed, variant)
        if cost.clearly_less(variant.work.cycles, other.work.cycles):
            cheapest[placed] = variant
    yield from cheapest.values()


def lanes_of_elements(definition: tir.PrimFunc, target: Target) -> int:
    """The lanes of a vector of the widest element type.

    Integers without axes do not count: elements that a run gives are told from others by comparing
    these with indices.
    """
    buffers = [p.buffer for p in definition.params]
    counted = [b for b in buffers if b.shape or b.dtype != "int64"]
    return min(target.computed_lanes(b.dtype) for b in counted or buffers)


def _layouts(definition: tir.PrimFunc, family: Family) -> dict[str, Layout]:
    """The parameters in a family; those of another rank are row-major."""
    buffers = (p.buffer for p in definition.params)
    return {b.name: family.instantiate(b.shape) or row_major(b.shape) for b in buffers}


def _variant(
    definition: tir.PrimFunc,
    layouts: dict[str, Layout],
    recipe: SharedLoops,
    work: cost.Work,
    given: Iterable[str] = (),
) -> KernelVariant:
    output = layouts[definition.outputs[0].name]
    padded = any(layouts[b.name].is_padded for b in definition.outputs)
    transposed = (n for n in recipe.transposed if n != definition.outputs[0].name)
    read = [layouts[n].describe() for n in (*transposed, *given)]
    name = " → ".join(dict.fromkeys((*read, output.describe())))
    padding = Padding.KEPT if padded else Padding.NONE
    return KernelVariant(f"{name}, {NAME}", layouts, frozenset(), {}, padding, recipe, work, False)


def _with_transposed_lines(
    definition: tir.PrimFunc,
    constants: frozenset[str],
    family: Family,
    lines: Family,
    lanes: int,
    target: Target,
) -> Iterator[KernelVariant | RefusedVariant]:
    """The variant with lanes across the lines of the inputs, which have the layout of `lines`.

    The output is in the layout of `family`.  Inputs and output that lie across the lanes are
    transposed on the way.
    """
    layouts = _layouts(definition, family)
    output = definition.outputs[0]
    for buffer in definition.inputs:
        if buffer.shape == output.shape:
            layouts[buffer.name] = lines.instantiate(buffer.shape) or row_major(buffer.shape)
    if any(layout.is_padded for layout in layouts.values()):
        return
    s, shared = rows_of_stages(definition)
    extents = [s.loop(place).extent for place in shared]
    for number, place in reversed([*enumerate(shared)]):
        recipe = _transposing_recipe(s.func, s.loop(place), layouts, lanes, target)
        if recipe is None:
            continue
        recipe = replace(recipe, lane_loop=number)
        try:
            copying, places = rows_of_stages(definition, recipe.transposed)
        except ScheduleError as error:
            yield RefusedVariant(f"{NAME}, across lines", Refusal.of(error))
            return
        loops = [copying.loop(place) for place in places]
        if [loop.extent for loop in loops] == extents:
            moved = touched(copying.func.params, layouts, constants)
            work = _work(copying.func, loops, moved, recipe, target, recipe.lanes)
            yield _variant(definition, layouts, recipe, work)
        return


def _transposing_recipe(
    func: tir.PrimFunc, loop: tir.For, layouts: dict[str, Layout], lanes: int, target: Target
) -> SharedLoops | None:
    """The recipe in which lanes run along a shared loop, across lines of some parameters.

    None where all parameters are contiguous along the loop, where one of them neither is nor has
    lines of its own across, where the loop does not fill whole vectors, and where the lines of a
    block exceed half of the first-level cache.
    """

    def place(access: tir.Access) -> IndexExpr:
        return flat_offset(layouts[access.buffer.name], access.indices)

    outside = [a for a in tir.accesses(func.body) if a.buffer.name in layouts]
    apart = [a for a in outside if not is_contiguous(loop, (a,), lanes, place)]
    if not apart or (loop.extent or 1) % lanes:
        return None
    line = 0
    for access in apart:
        number = [axis.var for axis in access.domain.axes].index(loop.var)
        own = access.domain.axes[number + 1 :]
        steps = dict(terms_of(place(access))[0])
        if tir.DTYPES[access.buffer.dtype].itemsize < 4 or not any(
            steps.get(x.var) == 1 for x in own
        ):
            return None
        line = max(line, tir.iteration_count(own))
    names = tuple(dict.fromkeys(access.buffer.name for access in apart))
    held = len(names) * line * max(tir.DTYPES[a.buffer.dtype].itemsize for a in apart)
    vectors = next(
        (
            n
            for n in (4, 2, 1)
            if (loop.extent or 1) % (lanes * n) == 0
            and all(lane_step(a, loop, lanes * n, place) is not None for a in apart)
            and cost.near_buffer(held * lanes * n, target)
        ),
        0,
    )
    return SharedLoops(lanes, 1, None, vectors, names) if vectors else None


def _recipe(
    func: tir.PrimFunc,
    shared: list[tir.For],
    own: list[tir.For],
    layouts: dict[str, Layout],
    lanes: int,
) -> tuple[SharedLoops, int] | None:
    """Where lanes run: inside the shared loops if each stage has a contiguous loop there, else
    along a contiguous shared loop; None without.

    Beside the recipe the iterations that a vector or more is made of.  Where they do not fill a
    vector of `lanes`, vectors are shorter: a masked store into memory of the thread becomes one of
    a whole vector, with what was there before behind it, and waits for the store of the row before.
    """

    def place(access: tir.Access) -> IndexExpr:
        layout = layouts.get(access.buffer.name)
        return as_it_is(access) if layout is None else flat_offset(layout, access.indices)

    inside = tir.accesses(func.body)
    nests = [perfect_nest(loop) for loop in own]
    if nests and all(_is_some_contiguous(nest, inside, lanes, place) for nest in nests):
        longest = max(prod(loop.extent or 1 for loop in nest) for nest in nests)
        rows = (shared[-1].extent or 1) if shared else 1
        several = longest <= SHORT_ROW * lanes and rows >= 2 * ROWS
        return SharedLoops(lanes, ROWS if several else 1), lanes
    outside = [a for a in inside if a.buffer.name in layouts]
    for number, loop in reversed([*enumerate(shared)]):
        if (loop.extent or 1) >= lanes // 2 and is_contiguous(loop, outside, lanes, place):
            run = _joint_extent(shared, number, outside, place)
            if run < lanes:
                return SharedLoops(1 << (run - 1).bit_length(), 1, number), run
            vectors = min(MOST_VECTORS, prod(x.extent or 1 for x in shared) // (4 * lanes) or 1)
            return SharedLoops(lanes, 1, number, 1 << (vectors.bit_length() - 1)), run
    return None


def _joint_extent(
    shared: list[tir.For], number: int, outside: Sequence[tir.Access], place: Place
) -> int:
    """The iterations of a shared loop and of those around it that go on in memory where it ends:
    `lanes_along_shared_loop` makes one loop of these."""
    loop = shared[number]
    extent = loop.extent or 1
    for outer in reversed([x for x in shared if x is not loop]):
        if not all(goes_on(place(a), outer.var, loop.var, extent) for a in outside):
            break
        extent *= outer.extent or 1
    return extent


def _is_some_contiguous(
    nest: list[tir.For], touched: tuple[tir.Access, ...], lanes: int, place: Place
) -> bool:
    own = [a for a in touched if nest[0].var in {axis.var for axis in a.domain.axes}]
    return any(is_contiguous(loop, own, lanes, place) for loop in nest)


def _work(
    func: tir.PrimFunc,
    shared: list[tir.For],
    moved: tuple[int, int, int],
    recipe: SharedLoops,
    target: Target,
    run: int,
) -> cost.Work:
    """What one run does: passes of vectors over rows, and numbers between them; it has `moved` what
    `touched` says, and vectors are made of `run` iterations."""
    rows = prod(loop.extent or 1 for loop in shared)
    sites = tir.executed_sites(func)
    cycles = sum(statement_cycles(site, len(shared), recipe, target) for site in sites)
    cycles *= -(-run // recipe.lanes) * recipe.lanes / run
    if recipe.lane_loop is not None:
        rows = -(-rows // (recipe.lanes * recipe.vectors))
    flops = 2.0 * sum(tir.iteration_count(x.domain.axes) for x in sites if _writes(x))
    return cost.Work(flops, cycles, rows, *moved)


def _writes(site: tir.Site) -> bool:
    return isinstance(site.stmt, tir.Store | tir.Reduce)


def statement_cycles(site: tir.Site, shared: int, recipe: SharedLoops, target: Target) -> float:
    """The cycles of all runs of a store or a reduction; 0 for other statements."""
    stmt = site.stmt
    if not isinstance(stmt, tir.Store | tir.Reduce):
        return 0.0
    if stmt.buffer.name in recipe.transposed or _is_of(stmt.value, recipe.transposed):
        return cost.transposing_cycles(tir.iteration_count(site.domain.axes))
    own_loops = {axis.var for axis in site.domain.axes[shared:]}
    moving = {e: None for e in tir.walk_expr(stmt.value) if not _stays(e, own_loops)}
    names = [_operation(e) for e in moving]  # equal terms are computed once
    reduces = isinstance(stmt, tir.Reduce)
    names.append(stmt.op.value if isinstance(stmt, tir.Reduce) else "store")
    rows = tir.iteration_count(site.domain.axes[:shared])
    own = tir.iteration_count(site.domain.axes[shared:])
    if recipe.lane_loop is not None:
        return rows * own / recipe.lanes * cost.vector_cycles(names, target)
    if len(site.domain.axes) == shared:
        return rows * cost.number_cycles(names)
    vectors = -(-own // recipe.lanes)
    return rows * (vectors * cost.vector_cycles(names, target) + cost.PER_ROW * reduces)


def _is_of(value: tir.Expr, names: tuple[str, ...]) -> bool:
    """Whether a value is an element of one of these buffers."""
    return isinstance(value, tir.Load) and value.buffer.name in names


def _stays(expr: tir.Expr, loops: set[Var]) -> bool:
    """Whether no loop of a stage's own changes an expression, so that it is computed before."""
    loads = (e for e in tir.walk_expr(expr) if isinstance(e, tir.Load))
    return not any(var in loops for e in loads for i in e.indices for var in variables(i))


def _operation(expr: object) -> str:
    if isinstance(expr, tir.Unary | tir.Binary):
        return expr.op
    return "load" if isinstance(expr, tir.Load) else "other"
