"""Variants made by the register tile, in one layout of the output and one of the data.

In: the roles of a definition and the two layouts.  Out: the variant with its tiling and its work in
cycles of one core, which flow turns into seconds; None where the operands have no such layouts.

For example, a 3×3 convolution of 64 to 64 channels over an image of 56 × 56, channels last: the
problem has 64 columns (output channels, in the lanes), 56 rows (the positions of an image row), 56
planes (the image's rows) and 576 steps (3 · 3 taps of 64 channels).  Rows share the vectors of
weights, so the kind of its tiles is `BroadcastTile`, and the weights are packed in panels as wide
as the tile that is cheapest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from graphflow import cost
from graphflow.base.dtypes import BYTES, FLOATING
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.cost import TileProblem, Tiling, in_blocks
from graphflow.kernels.recipes.analysis.narrow_sums import multiplies_in_lanes
from graphflow.kernels.recipes.analysis.operand_layouts import (
    OfferedLayouts,
    SameAxisOrder,
    UserLayout,
)
from graphflow.kernels.recipes.analysis.positions import touched
from graphflow.kernels.recipes.analysis.roles import Roles
from graphflow.kernels.recipes.analysis.variant import KernelVariant, Padding, Tiled
from graphflow.kernels.recipes.variants.operands import (
    OutputDecisions,
    axes_outside,
    may_transpose_first,
    place_operands,
)
from graphflow.kernels.recipes.variants.packing import packed_layout
from graphflow.kernels.recipes.variants.tile_geometry import (
    ImageTile,
    PlacedTile,
    ends_in_block,
    fills_vectors,
)
from graphflow.kernels.recipes.variants.tiling import choose_tiling, with_epilogue
from graphflow.layout import Family, Layout


def tiled_variant(
    roles: Roles,
    constants: frozenset[str],
    out: Family | SameAxisOrder | UserLayout,
    data: Family | UserLayout | OfferedLayouts,
    target: Target,
    kinds: Sequence[type[ImageTile]],
    packed: frozenset[str] = frozenset(),
    cuts_rows: bool = False,
    halo: frozenset[str] = frozenset(),
) -> KernelVariant | None:
    """The variant that writes `out` and reads `data`; None where the operands have no layouts.

    Its tiles have the first of the `kinds` that applies.
    Weights in `constants` are packed for the variant alone.  Those in `packed`, which are given at
    run time, are read in a packed layout too, and a conversion has to make it in each run.
    With `cuts_rows`, few panels share their rows in blocks, and rows of an image may be joined.
    The layouts of the operands in `halo` have neutral elements around them, as far as windows
    reach.
    """
    operands = place_operands(roles, constants | packed, out, data, target)
    if operands is None:
        return None
    decided = operands.decided
    tile = PlacedTile(roles, decided, operands.layouts, target, halo)
    transposed = _transposed(tile, constants | packed)
    kind, problem = _cheapest_kind(kinds, tile, bool(transposed))
    tiling, tile_cycles = choose_tiling(problem, target)
    tiling, transposed = _planes_apart(tiling, transposed, problem, decided)
    joined = 0
    if cuts_rows and kind.shares_loads and tiling.panel_outermost and not transposed:
        joined = _axes_joined(tile, kind, problem, tiling, tile_cycles)
    if joined:
        problem = _in_longer_rows(tile, problem, joined)
        tiling, tile_cycles = choose_tiling(problem, target)
    own_matrices = bool(roles.factors) and not kind.shares_loads
    blocks = near = 0
    if cuts_rows and not transposed and _rows_may_be_cut(tile, kind, problem):
        number = _own_row_blocks if own_matrices else _row_blocks
        near = 0 if own_matrices else _near_blocks(problem, tiling, tile_cycles, target)
        blocks = near or number(problem, tiling, tile_cycles, target)
    if near:
        tiling, tile_cycles = _of_near_blocks(problem, near, target)
        problem = in_blocks(problem, near)
    elif blocks:
        problem = in_blocks(problem, blocks)
        tiling, tile_cycles = choose_tiling(problem, target)
        if own_matrices:
            tiling = replace(tiling, panel_outermost=False)
    layouts = {**operands.layouts, **_packed_layouts(tile, tiling, kind.terms)}
    cycles = _all_cycles(tile._replace(layouts=layouts), kind, problem, tile_cycles, transposed)
    rows = _group_rows(decided, problem, tile_cycles, target)
    fetched = _fetched(tiling, problem, decided, target)
    padding = Padding.KEPT if decided.group else Padding.NONE
    if decided.output.is_padded and not decided.group:
        tiling = replace(tiling, write_padding=True)
        padding = Padding.UNDEF if roles.reduction else Padding.EVALUATED
    made = kind(decided.group, rows, transposed, fetched)
    return KernelVariant(
        name=_name(layouts, operands.like_data, decided.output),
        layouts=layouts,
        private=frozenset(b.name for b in decided.packed) & constants,
        demands=kind.demands(tile),
        padding=padding,
        recipe=Tiled(made.with_rows(blocks, joined, near > 0), tiling),
        work=cost.Work(
            2.0 * roles.multiply_adds,
            cycles,
            tiling.pieces(problem.planes),
            *touched(roles.params, layouts, constants),
            streams=not kind.shares_loads and not tiling.panel_outermost,
            short_runs=not roles.reduction and sum(p.count for p in tiling.panels) > 1,
            first_share=1 / cost.panel_tiles(problem, tiling),
            exchanged=problem.unpacked_bytes if tiling.shares_panels and not near else 0,
        ),
        vectorized=len(roles.output.shape) <= 2
        or decided.lane == 1
        or bool(roles.factors and kind.shares_loads),
    )


def _axes_joined(
    tile: PlacedTile, kind: type[ImageTile], problem: TileProblem, tiling: Tiling, cycles: float
) -> int:
    """How many axes around that of the rows are joined with it, where panels run outermost: the
    fewest of the cheapest, 0 where rows of one axis take about as long or more threads share them.

    7 × 7 positions are tiles of 14 rows then, not of 7, each of which reads all weights of a panel.
    """
    if not kind.cuts_rows or tile.decided.group:
        return 0
    found = [(cycles, 0)]
    least = min(tiling.pieces(1), cost.FEW_ROWS // 2)
    for count in range(1, tile.joinable + 1):
        longer, joined = choose_tiling(_in_longer_rows(tile, problem, count), tile.target)
        if longer.panel_outermost and longer.pieces(1) >= least:
            found.append((joined * cost.ROWS_JOINED, count))
    return cost.first_of_cheapest(found)


def _in_longer_rows(tile: PlacedTile, problem: TileProblem, count: int) -> TileProblem:
    """A problem with so many axes around that of the rows joined with it."""
    axes = axes_outside(tile.decided)[-1 - count : -1]
    times = prod(tile.roles.output.shape[axis] for axis in axes)
    return replace(problem, rows=problem.rows * times, planes=problem.planes // times)


def _rows_may_be_cut(tile: PlacedTile, kind: type[ImageTile], problem: TileProblem) -> bool:
    """Whether the rows of the tiles may be cut into blocks that threads share: those of a product
    of two matrices, of a vector and a matrix for each row, or of a sum along an axis between rows
    and lanes, whose rows meet no border."""
    roles, decided = tile.roles, tile.decided
    alone = problem.planes == 1 and len(axes_outside(decided)) == 1
    product = bool(roles.factors) and roles.multiply_adds > 0
    one_sum = len(roles.reduction) == 1 and (product or not roles.factors)
    plain = kind.cuts_rows and not decided.group
    return alone and one_sum and plain and not tile.ends_at_borders()


def _near_blocks(problem: TileProblem, tiling: Tiling, cycles: float, target: Target) -> int:
    """The blocks of rows that the second-level cache holds, inside of which panels run outermost; 0
    where panels do not wait for rows, and where such blocks are no cheaper or too low.

    By `cost.awaited_row_cycles`: tiles of whole rows wait, and in blocks panels.  Where that cache
    holds all weights, panels run inside of any blocks.
    """
    near_weights = cost.near_weights(problem.weight_bytes, target)
    if near_weights or not cost.awaits_rows(problem, tiling, target):
        return 0
    most = problem.rows // (4 * cost.MOST_ROWS)
    filled = (n for n in range(2, most + 1) if -(-problem.rows // -(-problem.rows // n)) == n)
    near = [n for n in filled if cost.near_rows(in_blocks(problem, n), target)]
    found = [(cycles + cost.awaited_row_cycles(problem, tiling, target), 0)]
    for blocks in near[: len(near) // 2 + 1]:  # of more blocks, panels wait more often
        cut, tiles = _of_near_blocks(problem, blocks, target)
        if cut.shares_panels:
            awaited = cost.awaited_row_cycles(in_blocks(problem, blocks), cut, target)
            found.append((tiles + awaited, blocks))
    return cost.first_of_cheapest(found)


def _of_near_blocks(problem: TileProblem, blocks: int, target: Target) -> tuple[Tiling, float]:
    """The tiling of so many blocks of rows, each by itself, and the cycles of all of them.

    Threads share the blocks, so none reads rows that others wrote.
    """
    block = replace(in_blocks(problem, blocks), planes=1, unpacked_bytes=0)
    tiling, cycles = choose_tiling(block, target)
    return tiling, blocks * cycles


def _row_blocks(problem: TileProblem, tiling: Tiling, cycles: float, target: Target) -> int:
    """The blocks of rows with which threads of any number share the tiles about evenly; 0 where
    they do without, and where no such blocks are about as cheap.

    First blocks that suffice by themselves, if each has rows for several tiles: then a block is
    read once for all panels, and the weights once for each block.
    """
    pieces = tiling.pieces(problem.planes)
    if pieces >= cost.FEW_ROWS:
        return 0
    enough = cost.FEW_ROWS // 2
    for fewest in (cost.FEW_ROWS, -(-enough // pieces), enough):
        numbers = range(max(fewest, 2), min(2 * fewest, problem.rows - 1) + 1)
        even = (n for n in numbers if problem.rows % n == 0)
        blocks = next(even, None) or _uneven_blocks(problem, numbers, target)
        tall = problem.rows >= 2 * cost.MOST_ROWS * blocks or fewest < cost.FEW_ROWS
        if blocks and tall:
            cut_tiling, cut = choose_tiling(in_blocks(problem, blocks), target)
            shared = cut_tiling.pieces(blocks) >= enough  # its panels may run inside of blocks
            if shared and cut <= cycles * cost.EVENLY_SHARED:
                return blocks
    return 0


def _uneven_blocks(problem: TileProblem, numbers: Sequence[int], target: Target) -> int:
    """The cheapest of so many blocks of which the last lacks rows; 0 where there is none.

    Tiles that some block lacks rows of test them, so whole tiles of few blocks are best.
    """
    filled = [n for n in numbers if -(-problem.rows // -(-problem.rows // n)) == n]
    return min(filled, key=lambda n: choose_tiling(in_blocks(problem, n), target)[1], default=0)


def _own_row_blocks(problem: TileProblem, tiling: Tiling, cycles: float, target: Target) -> int:
    """The blocks of rows that read operands of their own, which threads share in place of panels; 0
    where that is not about as cheap, or gives work to fewer threads.

    The kernel before mostly has its threads share the rows as they lie in memory.  A thread that
    takes a panel of all rows reads what other cores have written: 17.9 µs in place of 6.2 for a
    token of 8 heads behind 511 of 64 columns, and the next copy into that memory 33 for 12.
    """
    pieces = tiling.pieces(problem.planes)
    if pieces >= cost.FEW_ROWS:
        return 0
    most = cycles * cost.EVENLY_SHARED
    numbers = range(min(cost.FEW_ROWS, problem.rows // 2), max(pieces, 2) - 1, -1)
    divisors = (n for n in numbers if problem.rows % n == 0)
    cut = (n for n in divisors if choose_tiling(in_blocks(problem, n), target)[1] <= most)
    return next(cut, 0)


def _packed_layouts(tile: PlacedTile, tiling: Tiling, terms: int) -> dict[str, Layout]:
    """The layouts of the packed operands, in panels as wide as the widest tile, with so many
    neighbouring terms in each lane."""
    roles, decided, layouts, *_ = tile
    width = max(panel.nr_vectors * panel.lanes for panel in tiling.panels)
    return {
        buffer.name: packed_layout(
            roles, buffer, decided.lane, width, layouts, decided.group, decided.channels, terms
        )
        for buffer in decided.packed
    }


def _all_cycles(
    tile: PlacedTile,
    kind: type[ImageTile],
    problem: TileProblem,
    cycles: float,
    transposed: tuple[str, ...],
) -> float:
    """The cycles of the kernel: those of its tiles, and what else its operands and output take."""
    roles, decided, _, target, _ = tile
    elements = prod(roles.output.shape)
    if kind.gathers_lanes:
        # An instruction takes the lanes of packed weights, with their terms, in one vector.
        together = (b.name for b in decided.packed if kind.terms > 1)
        cycles *= _lane_penalty(tile, kind.shares_loads, (*transposed, *together))
    if (phases := roles.phases[decided.lane]) > 1:
        cycles = max(cycles, cost.tested_lane_cycles(elements * roles.steps * phases))
    alone = not kind.shares_loads and multiplies_in_lanes(roles, target)
    if roles.sums_integers and kind.terms == 1 and not alone:
        cycles *= cost.INTEGER_PRODUCTS
    cycles += sum(_transposing_cycles(roles, name, decided, problem) for name in transposed)
    if not roles.reduction:
        # Each vector of such an operand is put together from single elements.
        gathered = sum(map(tile.is_gathered, roles.reads))
        cycles += gathered * cost.gathering_cycles(elements)
        if _rounds(roles):
            physical = prod(decided.output.physical_shape)
            cycles += cost.rounding_cycles(physical, roles.output.dtype, target)
    cycles = with_epilogue(cycles, roles, target)
    if tile.is_scattered:
        cycles += cost.scattering_cycles(elements)
    if ends_in_block(decided.output):
        cycles = cost.plain_first(cycles)
        # Groups of another size than a vector begin anywhere in a block.
        if decided.group % target.computed_lanes(roles.output.dtype):
            cycles += cost.operation_cycles(elements)
    return cycles


def _rounds(roles: Roles) -> bool:
    """Whether an elementwise kernel makes narrow integers of floats, each of which is rounded; all
    that make bytes count as such."""
    floats = (b for b in roles.inputs if b.dtype in FLOATING and b.shape == roles.output.shape)
    return roles.output.dtype in BYTES or (roles.output.dtype == "int16" and any(floats))


def _cheapest_kind(
    kinds: Sequence[type[ImageTile]], tile: PlacedTile, transposes: bool
) -> tuple[type[ImageTile], TileProblem]:
    """The first kind that applies, or of those that are made by their price the cheapest, with the
    problem of its tiles.  The last kind always applies."""
    found: list[tuple[type[ImageTile], TileProblem]] = []
    for kind in kinds:
        loads = kind.claimed(tile, transposes)
        if loads is None:
            continue
        problem = _problem(tile.roles, tile.decided, loads, tile.broadcast_misses())
        if kind.by_price and not any(loads.tilings(problem, tile.target)):
            continue
        found.append((kind, problem))
        if not kind.by_price:
            break
    if len(found) == 1:
        return found[0]
    return min(found, key=lambda each: choose_tiling(each[1], tile.target)[1])


@lru_cache(maxsize=10_000)
def _problem(
    roles: Roles,
    decided: OutputDecisions,
    loads: cost.StepLoads,
    misses: cost.BroadcastMisses | None,
) -> TileProblem:
    """The problem of tiling: columns are the channels of one group, rows the axis before them."""
    shape, group = roles.output.shape, decided.group
    outside = axes_outside(decided)
    rows, phases = (shape[outside[-1]], roles.phases[outside[-1]]) if outside else (1, 1)
    masked = roles.phases[decided.lane]  # the lanes of a vector meet different taps
    if rows % phases == 0:
        rows //= phases
    else:
        masked *= phases
    planes = max(1, prod(n for k, n in enumerate(shape) if k != decided.lane) // rows)
    channels = shape[decided.lane]
    return TileProblem(
        columns=group or channels,
        rows=rows,
        planes=planes * (channels // group) if group else planes,
        steps=max(1, loads.steps(roles.steps * masked)),
        nests=max(1, len(roles.nests)),
        weight_bytes=sum(b.bytes for b in decided.packed),
        unpacked_bytes=sum(b.bytes for b in roles.inputs if b not in decided.packed),
        loads=loads,
        whole_vectors=not group and fills_vectors(decided.output),
        dtype=roles.output.dtype,
        sum_dtype=roles.sum_dtype,
        misses=misses,
        inside=roles.share_inside(roles.axes[decided.lane]),
    )


def _transposed(tile: PlacedTile, packed: frozenset[str]) -> tuple[str, ...]:
    """The operands to be transposed before the tiles read them; without those in `packed`."""
    roles, decided, layouts, target, _ = tile
    names = (b.name for b in roles.inputs if b.name not in packed)
    return tuple(n for n in names if may_transpose_first(roles, decided, n, layouts[n], target))


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
    ahead = cost.fetches_ahead(problem, tiling, target)
    return tuple(b.name for b in decided.packed) if ahead else ()


def _transposing_cycles(
    roles: Roles, name: str, decided: OutputDecisions, problem: TileProblem
) -> float:
    """Cycles to transpose what each plane reads of an operand."""
    access = roles.reads[name][0]
    depth = prod(extent for _, extent in roles.nest_of(access))
    columns = roles.output.shape[decided.lane]
    return cost.transposing_cycles(problem.planes * depth * columns)


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
    near = cost.near_weights(problem.weight_bytes, target)
    wanted = cost.rows_worth_weights(weights, near, cycles / problem.planes, target)
    rows = next(n for n in range(1, extent + 1) if extent % n == 0 and n >= min(wanted, extent))
    return rows if rows < extent else 0


def _lane_penalty(tile: PlacedTile, shares: bool, contiguous: tuple[str, ...]) -> float:
    """The factor on a step of a reduction for what its lanes load: 1 where that is contiguous.

    `shares` says whether the rows of a tile share what a step loads, `contiguous` are the operands
    whose lanes are loaded as one vector in any layout.
    """
    roles, lane = tile.roles, tile.decided.lane
    if roles.reduction and any(tile.is_gathered(n) for n in roles.reads if n not in contiguous):
        return cost.GATHERED
    apart = roles.multiply_adds and lane != 1 and len(roles.axes) > 2 and not shares
    return cost.UNPACKED if apart else 1.0


def _name(layouts: dict[str, Layout], free: tuple[str, ...], output: Layout) -> str:
    """`NHWC`, or `NCHW → NHWC` where a data operand has another layout than the output."""
    rank = len(output.logical_shape)
    given = [layouts[n].describe() for n in free if len(layouts[n].logical_shape) >= rank]
    own = output.describe()
    return own if not given or given[0] == own else f"{given[0]} → {own}"
