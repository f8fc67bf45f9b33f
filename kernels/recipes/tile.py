"""The register tile: the one recipe by which reductions and elementwise kernels become fast.

In: a schedule whose output nest follows the axes of the output, innermost last, and a `Tiling`.
Out: the schedule of the finished kernel.  The innermost axis of the nest becomes lanes, the one
before it pixels; pixels × vectors are held in registers while the reduction loops run outside them.
Where lanes run along a row of an image, "pixels" are its channels.  Borders are cut off the loop
over pixels, or over groups of lanes, so that its middle has no conditions.  Nothing here knows
which operator the kernel came from: loops are told apart by the indices they occur in.
"""

from __future__ import annotations

from collections.abc import Container

from graphflow.arith import Predicate, Var, conjuncts, predicate_variables, terms_of, variables
from graphflow.cost import Panel, Tiling
from graphflow.errors import ScheduleError
from graphflow.schedule import (
    Schedule,
    cut_loop,
    divide_loop,
    fission,
    interior,
    lift_conditions,
    mult_loops,
    parallelize_loop,
    remove_branching_through_overcompute,
    reorder_loops,
    restrict_loop,
    simplify_kernel,
    stage_mem,
    unroll_loop,
    vectorize_loop,
)
from graphflow.tir import (
    Allocate,
    Block,
    Body,
    Buffer,
    For,
    If,
    LoopKind,
    PrimFunc,
    Reduce,
    Stmt,
    Store,
    accesses,
    is_predicate,
    loops_of,
    sub_bodies,
    walk,
)

UNROLL_BUDGET = 8192
"""The most stores and updates of a kernel whose border taps are unrolled.

Each is about 10 lines of LLVM IR, of which LLVM takes some 25,000 a second.  The kernels of known
networks have at most 700.
"""

Tile = tuple[str, tuple[str, ...]]
"""The loop around a tile, and the reduction loops inside it."""


def register_tile(
    s: Schedule,
    axes: tuple[str, ...],
    tiling: Tiling,
    reduction: tuple[str, ...],
    lanes_meet_borders: bool,
) -> Schedule:
    """Tiles the nest over the output `axes`, with the `reduction` loops in that order.

    Axes of extent one may be missing from the kernel.  Borders are cut off the loops over pixels,
    or off those over groups of lanes where these are what borders are about.
    """
    present = [name for name in axes if find_loop(s.func, name) is not None]
    if not present:
        return s.apply(simplify_kernel)
    outer, lane = present[:-1], present[-1]
    pixel = outer.pop() if outer else None
    first = tiling.panels[0]
    if tiling.panel_outermost and first.count > 1:
        s = s.apply(divide_loop, lane, first.width, ("panel", "channel"), "guard")
        s = _reordered(s, ["panel", *outer, *_some(pixel), "channel"])
        s, outermost = _plane(s, pixel, "channel", first, reduction, tiling)
        return _in_parallel(_borders_cut(s, outermost), ["panel", *outer], pixel)
    s = _reordered(s, [*outer, lane, *_some(pixel)])
    tiles = []
    for number, panel in enumerate(tiling.panels):
        here = lane + "_p" * number
        inner = _some(pixel + "_p" * number if pixel else None)
        loops = tuple(name + "_p" * number for name in reduction)
        extent = panel.count * panel.width
        if number + 1 < len(tiling.panels):
            s = s.apply(cut_loop, here, _start(s.func, here) + extent, "_p")
        s = s.apply(divide_loop, here, panel.width, (here + "g", here + "t"), "guard")
        s = _reordered(s, [here + "g", *inner, here + "t"])
        s, found = _plane(s, inner[0] if inner else None, here + "t", panel, loops, tiling)
        inside = tuple(r for _, reductions in found for r in reductions)
        tiles += [(here + "g", inside)] if lanes_meet_borders else found
    return _in_parallel(_borders_cut(s, tiles), outer, pixel)


def find_loop(func: PrimFunc, name: str) -> For | None:
    """The loop called `name`, or None where it was simplified away."""
    return next((s for s in loops_of(func.body) if s.var.name == name), None)


def _some(name: str | None) -> list[str]:
    return [] if name is None else [name]


def _reordered(s: Schedule, order: list[str]) -> Schedule:
    return s.apply(reorder_loops, tuple(order)) if len(order) > 1 else s


def _loop(func: PrimFunc, name: str) -> For:
    stmt = find_loop(func, name)
    if stmt is None:
        raise ScheduleError(f"the recipe lost the loop {name}")
    return stmt


def _extent(func: PrimFunc, name: str) -> int:
    extent = _loop(func, name).extent
    if extent is None:
        raise ScheduleError(f"the loop {name} has no constant extent")
    return extent


def _start(func: PrimFunc, name: str) -> int:
    return int(str(_loop(func, name).start))


def _plane(
    s: Schedule,
    pixel: str | None,
    lane: str,
    panel: Panel,
    reduction: tuple[str, ...],
    tiling: Tiling,
) -> tuple[Schedule, list[Tile]]:
    """Tiles one group of channels over all pixels; what `pixels` leaves is a tile of its own."""
    s = s.apply(divide_loop, lane, panel.lanes, (lane + "j", lane + "v"), "guard")
    lanes = (lane + "j", lane + "v")
    if pixel is None:
        return _tile(s, None, (), lanes, reduction, tiling), []
    extent, pixels = _extent(s.func, pixel), panel.pixels
    rest = extent % pixels
    parts = [(pixel, "", min(pixels, extent))]
    if rest and extent > pixels:
        s = s.apply(cut_loop, pixel, _start(s.func, pixel) + extent - rest, "_rest")
        parts.append((pixel + "_rest", "_rest", rest))
    tiles: list[Tile] = []
    for name, suffix, width in parts:
        s = s.apply(divide_loop, name, width, (name + "o", name + "i"), "perfect")
        loops = tuple(r + suffix for r in reduction)
        inner = (lanes[0] + suffix, lanes[1] + suffix)
        s = _tile(s, name + "o", (name + "i",), inner, loops, tiling)
        tiles.append((name + "o", loops))
    return s, tiles


def _borders_cut(s: Schedule, tiles: list[Tile]) -> Schedule:
    """Borders last: simplifying drops loops that run once, and other tiles are made of them."""
    for around, reduction in tiles:
        s = _without_borders(s, around, reduction)
    return s


def _tile(
    s: Schedule,
    around: str | None,
    pixels: tuple[str, ...],
    lanes: tuple[str, str],
    reduction: tuple[str, ...],
    tiling: Tiling,
) -> Schedule:
    """Registers for one tile: the nests that fill, update and store it, unrolled and vectorized."""
    nest = (*pixels, *lanes)
    scope = around or _loop_around(s.func, nest[0])
    nests: list[tuple[str, ...]] = [nest]
    for buffer in _private(s.func, scope, nest):
        s = s.apply(stage_mem, scope, buffer.name, f"{buffer.name}_{nest[-1]}", nest)
        out = tuple(name + "_out" for name in nest)
        if find_loop(s.func, out[-1]) is not None:
            nests.append(out)
    present = tuple(r for r in reduction if find_loop(s.func, r) is not None)
    if present:
        s, nests, updates = _parted(s, nest, nests)
        for update in updates:
            inside = {loop.var.name for loop in loops_of((_loop(s.func, update[0]),))}
            s = _update_nest(s, update, tuple(r for r in present if r in inside))
    for number, names in enumerate(nests):
        s = _vectorized(s, names, masked=present != () and number == len(nests) - 1, tiling=tiling)
    return s


def _loop_around(func: PrimFunc, name: str) -> str:
    for stmt in loops_of(func.body):
        if any(isinstance(s, For) and s.var.name == name for s in stmt.body):
            return stmt.var.name
    raise ScheduleError(f"the recipe needs a loop around {name}")


def _private(func: PrimFunc, scope: str, nest: tuple[str, ...]) -> list[Buffer]:
    """Buffers that one tile keeps to itself: allocated ones, and outputs that are reduced into."""
    inside = _loop(func, scope).body
    touched = dict.fromkeys(a.buffer for a in accesses(inside))
    reduced = {s.buffer for s in walk(inside) if isinstance(s, Reduce)}
    allocated = {s.buffer for s in walk(func.body) if isinstance(s, Allocate)}
    return [b for b in touched if b.scope == "global" and (b in allocated or b in reduced)]


def _parted(
    s: Schedule, nest: tuple[str, ...], nests: list[tuple[str, ...]]
) -> tuple[Schedule, list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Splits `init; reductions; tail` into a nest each; the last result are those that reduce."""
    parts = _loop(s.func, nest[-1]).body
    while len(parts) == 1 and isinstance(only := parts[0], If):
        parts = only.then
    kinds = [any(isinstance(x, For | Reduce) for x in walk((stmt,))) for stmt in parts]
    first, last = kinds.index(True), len(kinds) - 1 - kinds[::-1].index(True)
    levels = len(nest)
    s = s.apply(fission, nest[-1], first, "_u", levels)
    updates = [tuple(name + "_u" for name in nest)]
    tail = []
    if last + 1 < len(kinds):
        s = s.apply(fission, updates[0][-1], last + 1 - first, "_t", levels)
        tail = [tuple(name + "_t" for name in updates[0])]
    for _ in range(last - first):
        s = s.apply(fission, updates[-1][-1], 1, "_u", levels)
        updates.append(tuple(name + "_u" for name in updates[-1]))
    return s, [nest, *updates, *tail, *nests[1:]], updates


def _update_nest(s: Schedule, nest: tuple[str, ...], reduction: tuple[str, ...]) -> Schedule:
    s = _over_halo(s, nest, reduction)
    s = _overcomputed(s, nest)
    s = s.apply(reorder_loops, (*reduction, *nest))
    if reduction and any(isinstance(stmt, If) for stmt in walk(_loop(s.func, reduction[0]).body)):
        s = s.apply(lift_conditions, reduction[0])
    for name in reduction:
        if restrictable(s.func, name):
            s = _over_padding(s, name)
        if restrictable(s.func, name):
            s = s.apply(restrict_loop, name)
    return s


def _overcomputed(s: Schedule, nest: tuple[str, ...]) -> Schedule:
    """The nest without conditions on its lanes, where what the lanes do then is proven harmless.

    Elsewhere the conditions stay, and become masks.
    """
    if not _guards(s.func, nest[0], nest[-1]):
        return s
    try:
        return s.apply(remove_branching_through_overcompute, nest[0], nest[-1])
    except ScheduleError:
        return s


def _over_halo(s: Schedule, nest: tuple[str, ...], reduction: tuple[str, ...]) -> Schedule:
    """The update without border conditions, where a halo is assumed that changes nothing."""
    assumed = any(
        isinstance(stmt, Block) and ("padding", "value") in stmt.annotations for stmt in s.func.body
    )
    for name in reduction if assumed else ():
        if _guards(s.func, nest[0], name):
            try:
                s = s.apply(remove_branching_through_overcompute, nest[0], name)
            except ScheduleError:
                continue
    return s


def _over_padding(s: Schedule, name: str) -> Schedule:
    """The reduction without its condition, where padding is assumed to hold a neutral element."""
    try:
        return s.apply(remove_branching_through_overcompute, name, name)
    except ScheduleError:
        return s


def _guards(func: PrimFunc, place: str, about: str) -> bool:
    return any(Var(about) in predicate_variables(p) for p in _conditions(func, place))


def _conditions(func: PrimFunc, place: str) -> list[Predicate]:
    found: list[Predicate] = []
    for stmt in walk((_loop(func, place),)):
        if isinstance(stmt, If) and is_predicate(stmt.condition):
            found.append(stmt.condition)  # type: ignore[arg-type]
    return found


def restrictable(func: PrimFunc, name: str) -> bool:
    """Whether the body of a loop is one condition on it."""
    body = _loop(func, name).body
    only = body[0] if len(body) == 1 else None
    if not isinstance(only, If) or not is_predicate(only.condition) or only.orelse:
        return False
    members = conjuncts(only.condition)  # type: ignore[arg-type]
    return any(Var(name) in predicate_variables(m) for m in members)


def _vectorized(s: Schedule, nest: tuple[str, ...], masked: bool, tiling: Tiling) -> Schedule:
    if not masked or tiling.write_padding:
        s = _overcomputed(s, nest)
    for name in nest[:-1]:
        s = s.apply(unroll_loop, name)
    return s.apply(vectorize_loop, nest[-1])


def _without_borders(s: Schedule, around: str, reduction: tuple[str, ...]) -> Schedule:
    """Cuts the tiles that meet a border off `around`, so that the middle has no conditions.

    Reduction loops that a condition still mentions are unrolled, so that the emitter drops each tap
    that falls outside or meets no element.
    """
    if find_loop(s.func, around) is None:
        return _decided(s, reduction, around)
    extent = _extent(s.func, around)
    if not any(Var(around) in predicate_variables(p) for p in _conditions(s.func, around)):
        return _decided(s, reduction, around)
    low, high = interior(s.func, around)
    if low == high:
        return _decided(s, reduction, around)
    border = [around] if low > 0 else []
    if low > 0:
        s = s.apply(cut_loop, around, low, "_m")
        around, high = around + "_m", high
    if high < extent:
        s = s.apply(cut_loop, around, high, "_e")
        border.append(around + "_e")
    s = s.apply(simplify_kernel)
    for name in border:
        s = _decided(s, _copies(reduction, around, name), name)
    return _decided(s, _copies(reduction, around, around))


def _copies(reduction: tuple[str, ...], middle: str, name: str) -> tuple[str, ...]:
    """The reduction loops inside `name`, which is cut off the `middle` loop or that loop itself."""
    suffix = "_m" * (middle.endswith("_m") and name.startswith(middle))
    return tuple(r + suffix + "_e" * name.endswith("_e") for r in reduction)


def _decided(s: Schedule, reduction: tuple[str, ...], *around: str) -> Schedule:
    """Unrolls the loops that the remaining conditions mention, so that the emitter decides them.

    Loops that would be copied more than `UNROLL_BUDGET` times stay loops, and their conditions are
    tested while they run.
    """
    mentioned = {
        v.name
        for place in reduction
        if find_loop(s.func, place) is not None
        for p in _conditions(s.func, place)
        for v in predicate_variables(p)
    }
    found = [find_loop(s.func, name) for name in (*around, *reduction) if name in mentioned]
    loops = [loop for loop in found if loop is not None and loop.extent is not None]
    if emitted_statements(s.func.body, {loop.var for loop in loops}) > UNROLL_BUDGET:
        return s
    for loop in loops:
        s = s.apply(unroll_loop, loop.var.name)
    return s


def emitted_statements(
    body: Body, unrolled: Container[Var] = frozenset(), lane: For | None = None
) -> int:
    """How many stores and updates the emitter writes: one for each copy in an unrolled loop.

    One whose lanes lie apart counts once for each lane of the loop `lane` around it.  The loops
    over `unrolled` count as if they were marked already.
    """
    total = 0
    for stmt in body:
        if isinstance(stmt, Store | Reduce):
            total += _lanes_apart(stmt, lane)
            continue
        vectorized = isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZED
        around = stmt if isinstance(stmt, For) and vectorized else lane
        inside = sum(emitted_statements(below, unrolled, around) for below in sub_bodies(stmt))
        if isinstance(stmt, For) and (stmt.kind is LoopKind.UNROLLED or stmt.var in unrolled):
            inside *= stmt.extent or 1
        total += inside
    return total


def _lanes_apart(stmt: Stmt, lane: For | None) -> int:
    """How many elements a statement handles one by one: each lane's, unless these are adjacent."""
    if lane is None:
        return 1
    for access in accesses((stmt,)):
        for atom, k in terms_of(access.buffer.flat_index(access.indices))[0]:
            if (atom is lane.var and k != 1) or (
                atom is not lane.var and lane.var in variables(atom)
            ):
                return lane.extent or 1
    return 1


def _in_parallel(s: Schedule, outer: list[str], pixel: str | None) -> Schedule:
    s = s.apply(simplify_kernel)
    present = [name for name in outer if find_loop(s.func, name) is not None]
    if not present:
        return s
    while len(present) > 1:
        inner, name = present.pop(), f"{present[-1]}_{len(present)}"
        s = s.apply(mult_loops, present.pop(), inner, name)
        present.append(name)
    s = s.apply(simplify_kernel)
    return s.apply(parallelize_loop, present[0])
