"""The register tile: the recipe that makes reductions and elementwise kernels fast.

In: a schedule whose output nest has one loop for each axis of the output, innermost last, and a
`Tiled` recipe.  Out: the schedule of the finished kernel.  The innermost loop gives the columns of
the tile, which become lanes; the loop around it gives the rows.  A tile of mr rows × nr vectors
stays in registers while the reduction loops run around its unrolled update.  Mostly the columns are
channels and the rows positions in a row of an image; where the lanes run along that row, it is the
other way round.

For example, 14 rows and 40 columns with 8 lanes, in panels of two vectors and tiles of 6 rows:

    columns   0 … 15   16 … 31   32 … 39        for panel in (0, 2):        columns 0 to 31
    rows 0–5    tile      tile     half             for tile in (0, 2):     rows 0 to 11
    rows 6–11   tile      tile     half                 fill 6 × 2 registers
    rows 12–13  small     small    small                for k: update them  12 multiply-adds
                                                        store them
    one nest for each panel width and tile          the same for rows 12 and 13, with 2 × 2
    height, all inside the loops over planes    the same for columns 32 to 39, one vector wide

What always holds: where a border makes conditions necessary, the iterations that meet it are cut
off the loop over tiles, so that those in the middle run without conditions.  Loops are recognized
by the indices that use them; nothing here knows which operator the kernel came from.
"""

from __future__ import annotations

from collections.abc import Container

from graphflow import schedule, tir
from graphflow.arith import (
    TRUE,
    Var,
    at_most,
    conjunction,
    const,
    less_than,
    predicate_variables,
    terms_of,
    variables,
)
from graphflow.cost import Panels, register_rows
from graphflow.kernels.recipes.analysis.variant import Axes, Tiled
from graphflow.kernels.recipes.schedules.register_nests import (
    Nest,
    TileSteps,
    conditions_in,
    in_vectors,
    is_tested,
    start_of,
    tile_in_registers,
    whole_and_ragged,
)
from graphflow.kernels.recipes.schedules.tail_vectors import tile_with_tail_vectors
from graphflow.schedule import Handle, Schedule

UNROLL_BUDGET = 8192
"""The most stores and updates of a kernel, as the emitter writes them, for which loops that decide
conditions are unrolled."""

Tile = tuple[Handle, tuple[Handle, ...]]
"""The loop around a tile, and the reduction loops inside that loop."""


def register_tile(s: Schedule, axes: Axes, reduction: Axes, recipe: Tiled) -> Schedule:
    """The schedule with the nest over the output `axes` tiled and shared by threads.

    The `reduction` loops run around each tile in the order given.  Borders are cut off the loops
    over tiles of rows, or off those over panels where the kind says that lanes meet them.
    ScheduleError where a step of the recipe is refused.
    """
    present = s.present(axes)
    if not present:
        return s.apply(schedule.simplify)
    *outer, lane = present
    row = outer.pop() if outer and recipe.kind.has_rows else None
    if recipe.tiling.panel_outermost and recipe.tiling.panels[0].count > 1:
        s, tiles, shared = _panels_outermost(s, outer, row, lane, reduction, recipe)
    else:
        s, tiles = _panels_inside(s, outer, row, lane, reduction, recipe)
        shared = outer
    return _in_parallel(_borders_cut(s, tiles), shared)


def _panels_outermost(
    s: Schedule,
    outer: list[Handle],
    row: Handle | None,
    lane: Handle,
    reduction: tuple[Handle, ...],
    recipe: Tiled,
) -> tuple[Schedule, list[Tile], list[Handle]]:
    """`for outer: for row: for lane: S` → `for panel: for outer: tiles of S`.

    Where no other plane reads what the lanes load, or planes are blocks of rows that the
    second-level cache holds, → `for outer: for panel: tiles of S`: then the caches still have the
    rows of a plane when its next panel reads them.  The panels are of one width, and the last may
    be ragged.  With the tiles, and the loops that threads share.
    """
    kind, panels = recipe.kind, recipe.tiling.panels[0]
    own = bool(reduction) and kind.shares_loads and _is_of_one_plane(s, outer, lane)
    by_plane = own or kind.blocks_outermost
    parts = (s.fresh("panel"), s.fresh("channel"))
    s = s.apply(schedule.divide_loop, s[lane], panels.width, parts, "guard")
    panel, column = s.made["parts"]
    shared = [*outer, panel] if by_plane else [panel, *outer]
    s = _reordered(s, [*shared, *_some(row), column])
    s = kind.operands_ready(s, shared[-1], (*reduction, column), panels.lanes)
    if recipe.tiling.whole_apart and row is not None and not outer:
        s, tiles = _panels_apart(s, panel, (row, column), reduction, recipe)
    else:  # threads share the outer loops too, so these stay one nest
        s, tiles = _plane(s, row, column, panels, reduction, recipe)
        if tiles:
            within = () if by_plane else outer
            s = kind.fetched_ahead(s, panel, s.present((*within, tiles[0][0])))
    return s, tiles, shared


def _is_of_one_plane(s: Schedule, outer: list[Handle], lane: Handle) -> bool:
    """Whether all that depends on the loop of the lanes depends on each of the outer loops too."""
    loop, around = s.loop(lane), {s.loop(place).var for place in outer}
    met = (
        {v for index in access.indices for v in variables(index)}
        for access in tir.accesses(loop.body)
    )
    return all(around <= found for found in met if loop.var in found)


def _panels_inside(
    s: Schedule,
    outer: list[Handle],
    row: Handle | None,
    lane: Handle,
    reduction: tuple[Handle, ...],
    recipe: Tiled,
) -> tuple[Schedule, list[Tile]]:
    """`for outer: for row: for lane: S` → `for outer: {for panel: tiles of S; …}`.

    With a loop over panels for each width, and the tiles.
    """
    kind, all_panels = recipe.kind, recipe.tiling.panels
    s = _reordered(s, [*outer, lane, *_some(row)])
    # Panel by panel, what is made ready stays in the first-level cache, whose sets the lines of a
    # whole operand may share; a last panel that is not filled reads none behind its columns.
    columns = sum(panels.count * panels.width for panels in all_panels)
    by_panel = columns == schedule.constant_extent(s.loop(lane))
    if outer and not by_panel:
        s = kind.operands_ready(s, outer[-1], (*reduction, lane), all_panels[0].lanes)
    tiles: list[Tile] = []
    rest = lane
    for number, panels in enumerate(all_panels):
        here = rest
        if number + 1 < len(all_panels):
            width = panels.count * panels.width
            s = s.apply(schedule.cut_loop, s[here], start_of(s.loop(here)) + width, "_p")
            here, rest = s.made["pieces"]
        # The cut made a copy of the row and reduction loops for the rest; take this piece's own.
        rows, loops = s.inside(here, _some(row)), s.inside(here, reduction)
        parts = (s.fresh("{}g", here), s.fresh("{}t", here))
        s = s.apply(schedule.divide_loop, s[here], panels.width, parts, "guard")
        panel, column = s.made["parts"]
        s = _reordered(s, [panel, *rows, column])
        if outer and by_panel:
            s = kind.operands_ready(s, panel, (*loops, column), panels.lanes)
        s, made = _plane(s, rows[0] if rows else None, column, panels, loops, recipe)
        reductions = tuple(loop for _, inside in made for loop in inside)
        tiles += [(panel, reductions)] if kind.masks_panels else made
    return s, tiles


def _panels_apart(
    s: Schedule,
    panel: Handle,
    nest: Nest,
    reduction: tuple[Handle, ...],
    recipe: Tiled,
) -> tuple[Schedule, list[Tile]]:
    """`for panel: S` → `for panel: if low <= panel < high: S else: S`, both S in tiles.

    The panels from `low` to `high` have no conditions on them: columns fill them, and their lanes
    meet no border.  `nest` are the loops of S over rows and columns.  A branch, not several loops
    over panels, because threads share a single loop.
    """
    loop = s.loop(panel)
    low, high = schedule.interior(s.func, s[panel])
    first, end = start_of(loop), start_of(loop) + schedule.constant_extent(loop)
    after = TRUE if low == first else at_most(const(low), loop.var)
    before = TRUE if high == end else less_than(loop.var, const(high))
    is_whole = conjunction((after, before))
    row, lane = nest
    s = s.apply(schedule.specialize, s[row], (is_whole,))
    tiles: list[Tile] = []
    for copy in s.forward(row):
        (column,), loops = s.inside(copy, (lane,)), s.inside(copy, reduction)
        s, made = _plane(s, copy, column, recipe.tiling.panels[0], loops, recipe)
        tiles += made
    return s, tiles


def _some(place: Handle | None) -> list[Handle]:
    return [] if place is None else [place]


def _reordered(s: Schedule, order: list[Handle]) -> Schedule:
    return s.apply(schedule.reorder_loops, s.names(order)) if len(order) > 1 else s


def _plane(
    s: Schedule,
    row: Handle | None,
    lane: Handle,
    panels: Panels,
    reduction: tuple[Handle, ...],
    recipe: Tiled,
) -> tuple[Schedule, list[Tile]]:
    """One panel in tiles of mr rows; the rows that are left over make a smaller tile.

    With the tiles, none where the kernel has no loop over rows.
    """
    kind = recipe.kind
    rows_of_matrix = register_rows(panels.mr) if kind.in_matrices else 0
    steps = TileSteps(
        recipe.tiling.write_padding, kind.unrolled_taps, kind.terms, rows_of_matrix, kind.turns
    )
    if row is None:
        s, lanes = in_vectors(s, lane, panels.lanes)
        return tile_in_registers(s, None, (), lanes, reduction, steps), []
    s, pieces = whole_and_ragged(s, row, panels.mr)
    tiles: list[Tile] = []
    for piece, width in pieces:
        parts = (s.fresh("{}o", piece), s.fresh("{}i", piece))
        s = s.apply(schedule.divide_loop, s[piece], width, parts, "perfect")
        around, inner = s.made["parts"]
        loops, (column,) = s.inside(around, reduction), s.inside(around, (lane,))
        if panels.tail and width * panels.tail % panels.lanes == 0:
            s, loops = tile_with_tail_vectors(s, inner, column, loops, panels, steps)
        else:
            s, lanes = in_vectors(s, column, panels.lanes)
            s = tile_in_registers(s, around, (inner,), lanes, loops, steps)
            loops = tuple(part for loop in loops for part in s.forward(loop))
        tiles.append((around, loops))
    return s, tiles


def _borders_cut(s: Schedule, tiles: list[Tile]) -> Schedule:
    """The borders of all tiles cut off.

    After all tiles are made: this simplifies the kernel, which drops loops that run once, and the
    recipe of a tile needs them.
    """
    for around, reduction in tiles:
        s = _without_borders(s, around, reduction)
    return s


def _without_borders(s: Schedule, around: Handle, reduction: tuple[Handle, ...]) -> Schedule:
    """Cuts the tiles that meet a border off `around`, so that the middle has no conditions.

    Reduction loops that a condition mentions afterwards are unrolled: then the emitter decides the
    condition of each tap, and drops the taps that fall outside or meet no element.
    """
    if not s.present((around,)):
        return _conditions_unrolled(s, reduction, around)
    loop = s.loop(around)
    extent = schedule.constant_extent(loop)
    low, high = schedule.interior(s.func, s[around]) if is_tested(loop, loop) else (0, 0)
    if low == high:
        return _conditions_unrolled(s, reduction, around)
    borders: list[Handle] = []
    middle = around
    if low > 0:
        s = s.apply(schedule.cut_loop, s[middle], low, "_m")
        border, middle = s.made["pieces"]
        borders.append(border)
    if high < extent:
        s = s.apply(schedule.cut_loop, s[middle], high, "_e")
        middle, border = s.made["pieces"]
        borders.append(border)
    # The reduction loops of each border, before simplification drops a border that runs once.
    tiles = [(border, s.inside(border, reduction)) for border in borders]
    inside = s.inside(middle, reduction)
    s = s.apply(schedule.simplify)
    for border, loops in tiles:
        s = _conditions_unrolled(s, loops, border)
    return _conditions_unrolled(s, inside)


def _conditions_unrolled(s: Schedule, reduction: tuple[Handle, ...], *around: Handle) -> Schedule:
    """Unrolls the loops that the remaining conditions mention, so that the emitter decides them.

    Loops that would be copied more than `UNROLL_BUDGET` times stay loops, and their conditions are
    tested while they run.
    """
    mentioned = {
        var
        for place in s.present(reduction)
        for p in conditions_in(s.loop(place))
        for var in predicate_variables(p)
    }
    places = s.present((*around, *reduction))
    unrolled = {
        place: loop.var
        for place, loop in zip(places, map(s.loop, places), strict=True)
        if loop.var in mentioned
        and loop.extent is not None
        and loop.kind is not tir.LoopKind.UNROLLED
    }
    if emitted_statements(s.func.body, frozenset(unrolled.values())) > UNROLL_BUDGET:
        return s
    for place in unrolled:
        s = s.apply(schedule.mark_unrolled, s[place])
    return s


def emitted_statements(
    body: tir.Body, unrolled: Container[Var] = frozenset(), lane: tir.For | None = None
) -> int:
    """The number of stores and updates that the emitter writes for `body`.

    A statement counts once for each copy that unrolled loops make of it, and where its lanes are
    not adjacent in memory, once for each lane: `lane` is the vectorized loop around `body`, if any.
    The loops over the variables in `unrolled` count as unrolled too.
    """
    total = 0
    for stmt in body:
        if isinstance(stmt, tir.Store | tir.Reduce):
            total += _lanes_apart(stmt, lane)
            continue
        vectorized = isinstance(stmt, tir.For) and stmt.kind is tir.LoopKind.VECTORIZED
        around = stmt if isinstance(stmt, tir.For) and vectorized else lane
        inside = sum(emitted_statements(below, unrolled, around) for below in tir.sub_bodies(stmt))
        if isinstance(stmt, tir.For) and (
            stmt.kind is tir.LoopKind.UNROLLED or stmt.var in unrolled
        ):
            inside *= stmt.extent or 1
        total += inside
    return total


def _lanes_apart(stmt: tir.Stmt, lane: tir.For | None) -> int:
    """Copies that the emitter makes of a statement: 1, or one for each lane if these lie apart."""
    if lane is None:
        return 1
    for access in tir.accesses((stmt,)):
        for atom, k in terms_of(access.buffer.flat_index(access.indices))[0]:
            if (atom is lane.var and k != 1) or (
                atom is not lane.var and lane.var in variables(atom)
            ):
                return lane.extent or 1
    return 1


def _in_parallel(s: Schedule, outer: list[Handle]) -> Schedule:
    """The loops `outer`, which threads share, as one parallel loop."""
    s = s.apply(schedule.simplify)
    present = list(s.present(outer))
    if not present:
        return s
    while len(present) > 1:
        inner, around = present.pop(), present.pop()
        name = s.fresh("{}_{}", around, len(present) + 1)
        s = s.apply(schedule.mult_loops, s[around], s[inner], name)
        present += s.made["loop"]
    s = s.apply(schedule.simplify)
    return s.apply(schedule.parallelize_loop, s[present[0]])
