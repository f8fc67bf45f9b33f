"""Variants made by the register tile, in one layout of the output and one of the data.

In: the roles of a definition and the two layouts.  Out: the variant with its tiling and its work in
cycles of one core, which flow turns into seconds; None where the operands have no such layouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod

from graphflow.arith import FloorDiv, FloorMod, IndexExpr, Var, evaluate, terms_of, variables
from graphflow.base.target import Target
from graphflow.cost import (
    GATHERED,
    MOST_ROWS,
    MOST_STRIDE,
    SHUFFLED,
    UNPACKED,
    BroadcastApart,
    SlidingRows,
    TileProblem,
    Tiling,
    Work,
    broadcast_apart,
    fetches_ahead,
    fits_sets,
    gathering_cycles,
    near_weights,
    operation_cycles,
    plain_first,
    rows_worth_weights,
    transposing_cycles,
)
from graphflow.kernels.recipes.analysis.operand_layouts import (
    OfferedLayouts,
    SameAxisOrder,
    UserLayout,
)
from graphflow.kernels.recipes.analysis.positions import flat_offset, touched
from graphflow.kernels.recipes.analysis.roles import Roles
from graphflow.kernels.recipes.analysis.variant import KernelVariant, Padding, Tiled
from graphflow.kernels.recipes.variants.halo import overhang
from graphflow.kernels.recipes.variants.operands import (
    OutputDecisions,
    axes_outside,
    may_transpose_first,
    place_operands,
)
from graphflow.kernels.recipes.variants.packing import packed_layout
from graphflow.kernels.recipes.variants.tiling import choose_tiling, epilogue_cycles, has_few_pieces
from graphflow.layout import Family, Layout
from graphflow.tir import DTYPES, Access


def tiled_variant(
    roles: Roles,
    constants: frozenset[str],
    out: Family | SameAxisOrder | UserLayout,
    data: Family | UserLayout | OfferedLayouts,
    target: Target,
    packed: frozenset[str] = frozenset(),
) -> KernelVariant | None:
    """The variant that writes `out` and reads `data`; None where the operands have no layouts.

    Weights in `constants` are packed for the variant alone.  Those in `packed`, which are given at
    run time, are read in a packed layout too, and a conversion has to make it in each run.
    """
    operands = place_operands(roles, constants | packed, out, data, target)
    if operands is None:
        return None
    decided, layouts = operands.decided, dict(operands.layouts)
    output, lane, group = decided.output, decided.lane, decided.group
    problem = _problem(roles, decided)
    apart = _broadcast_stride(roles, decided, layouts)
    if not fits_sets(apart, MOST_ROWS, target):
        problem = replace(problem, broadcast_stride=apart)
    problem = replace(problem, apart=_broadcast_apart(roles, decided, layouts, target))
    problem = _with_loads(problem, roles, decided, layouts, target)
    transposed = _transposed(roles, constants | packed, decided, layouts, target)
    if not transposed and _rows_may_share(problem, roles, decided):
        problem = replace(problem, shared_ends=_ends_at_borders(roles, decided))
    tiling, cycles = choose_tiling(problem, target)
    tiling, transposed = _planes_apart(tiling, transposed, problem, decided)
    rows = _group_rows(decided, problem, cycles, target)
    width = max(panel.nr_vectors * panel.lanes for panel in tiling.panels)
    for buffer in decided.packed:
        layouts[buffer.name] = packed_layout(
            roles, buffer, lane, width, operands.layouts, group, decided.channels
        )
    tiling = replace(tiling, sliding=problem.sliding is not None)
    shares = not problem.own_vectors or tiling.sliding
    if not problem.own_loads:
        cycles *= _lane_penalty(roles, layouts, decided, shares, transposed)
    cycles += sum(_transposing_cycles(roles, name, decided, problem) for name in transposed)
    if not roles.reduction:
        # Each vector of such an operand is put together from single elements.
        gathered = sum(
            _is_gathered(roles, n, layouts[n], lane, decided.second_channel) for n in roles.reads
        )
        cycles += gathered * gathering_cycles(prod(roles.output.shape))
    cycles += epilogue_cycles(roles, target)
    if _ends_in_block(output):
        cycles = plain_first(cycles)
        if group % target.computed_lanes(roles.output.dtype):  # groups begin anywhere in a block
            cycles += operation_cycles(prod(roles.output.shape))
    padding = Padding.KEPT if group else Padding.NONE
    if output.is_padded and not group:
        tiling = replace(tiling, write_padding=True)
        padding = Padding.UNDEF if roles.reduction else Padding.EVALUATED
    return KernelVariant(
        name=_name(layouts, operands.free, output),
        layouts=layouts,
        private=frozenset(b.name for b in decided.packed) & constants,
        demands={},
        padding=padding,
        recipe=Tiled(
            tiling,
            group=group,
            group_rows=rows,
            transposed=transposed,
            fetched=_fetched(tiling, problem, decided, target),
        ),
        work=Work(
            2.0 * roles.multiply_adds,
            cycles,
            tiling.pieces(problem.planes),
            *touched(roles.params, layouts),
        ),
        vectorized=len(roles.output.shape) <= 2 or lane == 1 or bool(roles.factors and shares),
    )


def _ends_in_block(layout: Layout) -> bool:
    """Whether the innermost physical axis runs within blocks of a logical one."""
    return any(isinstance(e, FloorMod) for e in layout.index_map.outputs[-1:])


@lru_cache(maxsize=10_000)
def _problem(roles: Roles, decided: OutputDecisions) -> TileProblem:
    """The problem of tiling: columns are the channels of one group, rows the axis before them.

    Its `broadcast_stride` is left 0: it depends on the layout of the data, and seldom matters.
    """
    shape, group = roles.output.shape, decided.group
    outside = axes_outside(decided)
    rows, phases = (shape[outside[-1]], roles.phases[outside[-1]]) if outside else (1, 1)
    if rows % phases == 0:
        rows //= phases
    planes = max(1, prod(n for k, n in enumerate(shape) if k != decided.lane) // rows)
    channels = shape[decided.lane]
    return TileProblem(
        columns=group or channels,
        rows=rows,
        planes=planes * (channels // group) if group else planes,
        steps=max(1, roles.steps),
        nests=max(1, len(roles.nests)),
        weight_bytes=sum(b.bytes for b in decided.packed),
        broadcast_stride=0,
        whole_vectors=not group and (_ends_in_block(decided.output) or decided.output.is_padded),
        dtype=roles.output.dtype,
        sum_dtype=roles.sum_dtype,
    )


def _rows_may_share(problem: TileProblem, roles: Roles, decided: OutputDecisions) -> bool:
    """Whether several rows of a tile may have their last columns in one vector.

    The instructions for that add to float32 sums the products of a vector of columns, which the
    rows share, and an element for each row.
    """
    own = problem.own_loads or problem.own_vectors or problem.along or problem.sliding
    floats = {problem.dtype, problem.sum_dtype or problem.dtype} == {"float32"}
    products = bool(roles.factors) and roles.multiply_adds > 0
    return floats and products and not (own or decided.group or problem.whole_vectors)


def _ends_at_borders(roles: Roles, decided: OutputDecisions) -> int:
    """The ends of a run of rows, 0 to 2, at which windows reach beyond the data."""
    outside = axes_outside(decided)
    if not outside:
        return 0
    row = roles.axes[outside[-1]]
    reached = [
        reach
        for name, reads in roles.reads.items()
        for access in reads[:1]
        for index, reach in zip(access.indices, overhang(roles, name), strict=True)
        if row in variables(index)
    ]
    return max((sum(side > 0 for side in reach) for reach in reached), default=0)


def _transposed(
    roles: Roles,
    packed: frozenset[str],
    decided: OutputDecisions,
    layouts: Mapping[str, Layout],
    target: Target,
) -> tuple[str, ...]:
    """The operands to be transposed before the tiles read them; without those in `packed`."""
    return tuple(
        b.name
        for b in roles.inputs
        if b.name not in packed
        and may_transpose_first(roles, decided, b.name, layouts[b.name], target)
    )


def _planes_apart(
    tiling: Tiling, transposed: tuple[str, ...], problem: TileProblem, decided: OutputDecisions
) -> tuple[Tiling, tuple[str, ...]]:
    """The tiling in which the operands in `transposed` can be transposed, and those that can be.

    That is done once for each plane, so panels run inside planes.  Where there is a single plane,
    it is done for each panel, if no panel reaches past the columns.
    """
    if not transposed:
        return tiling, ()
    if len(axes_outside(decided)) > 1:
        return replace(tiling, panel_outermost=False), transposed
    whole = problem.columns % tiling.panels[0].width == 0
    return tiling, transposed if tiling.panel_outermost and whole else ()


def _fetched(
    tiling: Tiling, problem: TileProblem, decided: OutputDecisions, target: Target
) -> tuple[str, ...]:
    """The packed operands of which a panel's tiles fetch what the next panel reads."""
    ahead = fetches_ahead(problem, tiling, target)
    return tuple(b.name for b in decided.packed) if ahead else ()


def _transposing_cycles(
    roles: Roles, name: str, decided: OutputDecisions, problem: TileProblem
) -> float:
    """Cycles to transpose what each plane reads of an operand."""
    access = roles.reads[name][0]
    depth = prod(extent for _, extent in roles.nest_of(access))
    columns = roles.output.shape[decided.lane]
    return transposing_cycles(problem.planes * depth * columns)


def _group_rows(
    decided: OutputDecisions, problem: TileProblem, cycles: float, target: Target
) -> int:
    """How many rows of an image one group computes before the next one does; 0 where that is all.

    The fewest that make up for fetching the group's weights again each time.  Few, because threads
    share the outermost loop: with rows outermost, a thread reads and writes the rows that it has in
    the kernels before and after.
    """
    outside = axes_outside(decided)
    if not decided.group or len(outside) < 2:
        return 0
    extent = decided.output.logical_shape[outside[-2]]
    weights = problem.weight_bytes * decided.group / decided.output.logical_shape[decided.lane]
    near = near_weights(problem.weight_bytes, target)
    wanted = rows_worth_weights(weights, near, cycles / problem.planes, target)
    rows = next(n for n in range(1, extent + 1) if extent % n == 0 and n >= min(wanted, extent))
    return rows if rows < extent else 0


def _broadcast_stride(roles: Roles, decided: OutputDecisions, layouts: Mapping[str, Layout]) -> int:
    """Bytes between the elements that neighbouring rows of a tile broadcast; 0 where none are."""
    outside = axes_outside(decided)
    name = next((name for name in _reduced(roles) if name in layouts), None)
    if not outside or name is None:
        return 0
    access = roles.reads[name][0]
    terms, _ = terms_of(flat_offset(layouts[name], access.indices))
    step = next((abs(k) for atom, k in terms if atom is roles.axes[outside[-1]]), 0)
    return step * DTYPES[access.buffer.dtype].itemsize


def _broadcast_apart(
    roles: Roles, decided: OutputDecisions, layouts: Mapping[str, Layout], target: Target
) -> BroadcastApart | None:
    """The operand whose elements are broadcast from other cache lines in each step; None where
    there is none."""
    outside = axes_outside(decided)
    for name in _reduced(roles) if outside else ():
        if name not in layouts or roles.depends_on(name, decided.lane):
            continue
        access = roles.reads[name][0]
        size = DTYPES[access.buffer.dtype].itemsize
        terms, _ = terms_of(flat_offset(layouts[name], access.indices))
        strides = {atom: abs(k) * size for atom, k in terms}
        rows = strides.get(roles.axes[outside[-1]], 0)
        nest = [(strides.get(v, 0), n) for v, n in roles.nest_of(access) if n > 1]
        found = broadcast_apart(rows, nest, layouts[name].bytes(access.buffer.dtype), target)
        if found is not None:
            return found
    return None


def _with_loads(
    problem: TileProblem,
    roles: Roles,
    decided: OutputDecisions,
    layouts: Mapping[str, Layout],
    target: Target,
) -> TileProblem:
    """The problem with which loads the accumulators of a tile share."""
    own_loads = _own_loads(roles, decided, layouts, target)
    if own_loads:
        return replace(problem, own_loads=own_loads)
    taps, step, sliding = _taps_shared(roles, decided, layouts)
    own_vectors = not _rows_share_vectors(roles, decided)
    return replace(problem, taps=taps, tap_step=step, own_vectors=own_vectors, sliding=sliding)


def _own_loads(
    roles: Roles, decided: OutputDecisions, layouts: Mapping[str, Layout], target: Target
) -> float:
    """The vectors that each accumulator loads in a step where the lanes run along windows.

    0 where they do not, where other operands than elements of the windows are reduced, and for rows
    that are too long for `_in_pieces`.  The lanes of a window are at most `MOST_STRIDE` apart.
    """
    lane, dtype = decided.lane, roles.output.dtype
    columns = roles.output.shape[lane]
    if roles.factors or decided.group or not has_few_pieces(columns, dtype, target):
        return 0.0
    var, read = roles.axes[lane], _windows_along(roles, lane)
    steps = [_coefficient(flat_offset(layouts[a.buffer.name], a.indices), var) for a in read]
    if not steps or not all(1 <= step <= MOST_STRIDE for step in steps):
        return 0.0
    return SHUFFLED if max(steps) > 1 else 1.0


@lru_cache(maxsize=10_000)
def _windows_along(roles: Roles, lane: int) -> tuple[Access, ...]:
    """The reads in reductions, where each is of a window that slides along the axis `lane`.

    Empty where some are not.
    """
    var, loops = roles.axes[lane], {v for v, _ in roles.reduction}
    read = tuple(a for reads in roles.reads.values() for a in reads if roles.nest_of(a))
    slides = (any({var} < {*variables(e)} & {var, *loops} for e in a.indices) for a in read)
    return read if all(slides) else ()


def _coefficient(flat: IndexExpr, var: Var) -> int:
    """The coefficient of a variable in an expression that is linear in it; else 0."""
    terms = [(atom, k) for atom, k in terms_of(flat)[0] if var in variables(atom)]
    return terms[0][1] if len(terms) == 1 and terms[0][0] is var else 0


def _taps_shared(
    roles: Roles, decided: OutputDecisions, layouts: Mapping[str, Layout]
) -> tuple[int, int, SlidingRows | None]:
    """How many steps of a reduction meet the same data in neighbouring rows of a tile.

    And how many steps later a row meets what the next one meets now, and the other steps, where it
    is not the innermost loop that makes these.

    In an image with channels innermost these are the taps along a row, where the tile has several
    positions of that row; so they are where the lanes are channels.  Where the lanes run along the
    row and the tile has several rows, they are the taps across rows.  (1, 1, None) if none are.
    """
    outside = axes_outside(decided)
    name = next((name for name in _reduced(roles) if name in layouts), None)
    if not outside or name is None:
        return 1, 1, None
    if _is_gathered(roles, name, layouts[name], decided.lane, decided.second_channel):
        return 1, 1, None  # each lane is loaded by itself
    access = roles.reads[name][0]
    terms, _ = terms_of(flat_offset(layouts[name], access.indices))
    strides = {atom: abs(k) for atom, k in terms}
    axis = roles.axes[outside[-1]]
    row = strides.get(axis, 0)
    nest = [(v, n) for v, n in roles.nest_of(access) if n > 1]
    loops = [(strides.get(v, 0), n) for v, n in nest]
    step, extent = min(loops, default=(0, 1))
    if row and step and row % step == 0 and step * extent > row:
        return extent, row // step, None
    # The window slides along the rows: equal strides along two axes of the data are a coincidence,
    # which a halo ends.
    together = {v for e in access.indices if axis in variables(e) for v in variables(e)}
    across = [n for v, n in nest if strides.get(v, 0) == row and v in together]
    if across and row and not _rows_share_vectors(roles, decided):
        along = prod(n for stride, n in loops if stride < row)
        runs = prod(n for stride, n in loops if stride > row)
        borders = any(
            reach != (0, 0) and roles.axes[decided.lane] in variables(index)
            for index, reach in zip(access.indices, overhang(roles, name), strict=True)
        )
        return across[0], 1, SlidingRows(along, runs, borders)
    return 1, 1, None


@lru_cache(maxsize=4096)
def _reduced(roles: Roles) -> tuple[str, ...]:
    """The inputs that are read along the loops of a reduction."""
    loops = {v for v, _ in roles.reduction}
    return tuple(
        name
        for name, reads in roles.reads.items()
        if reads and any(variables(e) & loops for e in reads[0].indices)
    )


@lru_cache(maxsize=10_000)
def _rows_share_vectors(roles: Roles, decided: OutputDecisions) -> bool:
    """Whether the rows of a tile share the vectors that its lanes load in a step of a reduction.

    That is where no operand depends on both, as in a matrix product: each vector serves as many
    multiply-adds as the tile has rows.  False for the image of a convolution whose lanes run along
    a row of the image and whose tiles hold several of these rows.  The image of a convolution in
    groups depends on the group of a lane, which is the same for all lanes of a tile.
    """
    outside = axes_outside(decided)
    if not outside:
        return True
    row, lane = roles.axes[outside[-1]], roles.axes[decided.lane]
    last = decided.group - 1 if decided.group else roles.output.shape[decided.lane] - 1
    return not any(
        any(row in variables(e) for e in access.indices)
        and any(lane in variables(e) and not _is_same(e, lane, last) for e in access.indices)
        for reads in roles.reads.values()
        for access in reads
        if roles.nest_of(access)
    )


def _is_same(index: IndexExpr, lane: Var, last: int) -> bool:
    """Whether an index is the same for the lanes 0 to `last`, as `lane // (last + 1)` is."""
    return all(
        isinstance(atom, FloorDiv) and atom.numerator is lane and atom.divisor > last
        for atom, _ in terms_of(index)[0]
        if lane in variables(atom)
    )


def _lane_penalty(
    roles: Roles,
    layouts: Mapping[str, Layout],
    decided: OutputDecisions,
    shares: bool,
    transposed: tuple[str, ...],
) -> float:
    """The factor on a step of a reduction for what its lanes load: 1 where that is contiguous.

    `shares` says whether the rows of a tile share the vectors loaded, `transposed` are the operands
    that are transposed before.
    """
    lane, second = decided.lane, decided.second_channel
    if roles.reduction and any(
        _is_gathered(roles, name, layouts[name], lane, second)
        for name in roles.reads
        if name not in transposed
    ):
        return GATHERED
    apart = roles.multiply_adds and lane != 1 and len(roles.axes) > 2 and not shares
    return UNPACKED if apart else 1.0


@lru_cache(maxsize=10_000)
def _is_gathered(roles: Roles, name: str, layout: Layout, lane: int, second: int) -> bool:
    """Whether the first two lanes load elements of an operand that are neither equal nor adjacent.

    The first two tell for all, because lanes never begin inside a block.
    """
    var = roles.axes[lane]
    flats = {flat_offset(layout, access.indices) for access in roles.reads[name]}
    return any(_step(flat, var, second) not in (0, 1) for flat in flats)


def _step(flat: IndexExpr, var: Var, count: int) -> int:
    """The growth of an expression from the origin to `count` along one variable."""
    grown = 0
    for atom, k in terms_of(flat)[0]:
        used = variables(atom)
        if var in used:
            origin = dict.fromkeys(used, 0)
            grown += k * (evaluate(atom, {**origin, var: count}) - evaluate(atom, origin))
    return grown


def _name(layouts: dict[str, Layout], free: tuple[str, ...], output: Layout) -> str:
    """`NHWC`, or `NCHW → NHWC` where a data operand has another layout than the output."""
    rank = len(output.logical_shape)
    given = [layouts[n].describe() for n in free if len(layouts[n].logical_shape) >= rank]
    own = output.describe()
    return own if not given or given[0] == own else f"{given[0]} → {own}"
