"""The loops of a nest in the order in which a register tile takes them.

In: the schedule of a nest with one loop for each axis of the output, in the order of its memory.
Out: the schedule with axes of blocks joined, the iterations apart that meet the same taps of a
strided window, and the reduction loops in the order of the data.  Kinds of tiles choose among
these steps.

For example, a transposed convolution of stride 2 along a row of 8 positions p, with 4 taps t:

    for p in (0, 8): for t in (0, 4): if (p + t) % 2 == 0: y[p] += x[(p + t) // 2] * w[t]

    p = 0 2 4 6   meet the taps 0 and 2         they have the phase r = 0
    p = 1 3 5 7   meet the taps 1 and 3         they have the phase r = 1

`phases_apart` makes of p a loop over r and one over q with p = 2·q + r, `taps_met` makes of t a
loop over the two taps that r meets; tiles of four positions q have no condition inside then:

    for r in (0, 2): for q in (0, 4): for t in (0, 2): y[2*q + r] += x[q + r + t] * w[r % 2 + 2*t]
"""

from __future__ import annotations

from graphflow import schedule, tir
from graphflow.arith import FloorMod, Var, bounds, congruences, terms_of, variables
from graphflow.kernels.recipes.analysis.variant import Axes
from graphflow.layout import Layout
from graphflow.schedule import Handle, Schedule


def in_order(s: Schedule, order: Axes) -> Schedule:
    """The nest with its loops in the given order; loops that are gone are left out."""
    present = s.present(order)
    return s.apply(schedule.reorder_loops, s.names(present)) if len(present) > 1 else s


def is_compute(block: tir.Block) -> bool:
    """Whether a block computes, and does not state padding or assumptions."""
    return block.note(tir.BlockNote.PADDING_OF) is None and block.note(tir.BlockNote.STATES) is None


def lane_blocks_joined(s: Schedule, layout: Layout, axes: Axes) -> tuple[Schedule, Axes]:
    """`for o: for h: for i: S[b·o + i]` → `for h: for c: S[c]`, where the innermost axis of the
    output has blocks of b channels.

    Then tiles may be of any width, whatever the width of a block.
    """
    last = layout.index_map.outputs[-1]
    if not isinstance(last, FloorMod):
        return s, axes
    # Where the output is a view of a larger storage, the block number has an offset.
    blocked = set(variables(last))
    place = next(k for k, e in enumerate(layout.index_map.outputs) if blocked & set(variables(e)))
    over_blocks, in_block = axes[place], axes[-1]
    others = (*axes[:place], *axes[place + 1 : -1])
    if not s.present((over_blocks,)):
        return s, (*others, in_block)
    s = s.apply(schedule.reorder_loops, s.names(s.present((*others, over_blocks, in_block))))
    s = s.apply(schedule.mult_loops, s[over_blocks], s[in_block], s.fresh("oc_joined"))
    return s, (*others, *s.made["loop"])


def phases_apart(s: Schedule, axes: Axes) -> tuple[Schedule, Axes]:
    """`for p in (0, n·k): S` → `for r in (0, n): for q in (0, k): S[p → n·q + r]`, p the row loop.

    n is that of the conditions `(p + t) % n == 0`, up to a constant, on a tap t.  As it is, where
    there is no single such n, or it does not divide the extent.
    """
    present = s.present(axes)
    if len(present) < 2:
        return s, axes
    row = present[-2]
    loop = s.loop(row)
    counts = {n for about, n in _congruences_of_taps(s, axes).values() if loop.var in about}
    if len(counts) != 1 or (loop.extent or 1) % min(counts):
        return s, axes
    parts = (s.fresh("{}q", row), s.fresh("{}r", row))
    s = s.apply(schedule.divide_loop, s[row], min(counts), parts, "perfect")
    place = axes.index(row)
    axes = (*axes[:place], *reversed(s.made["parts"]), *axes[place + 1 :])
    return in_order(s, axes).apply(schedule.simplify), axes


def taps_met(s: Schedule, axes: Axes) -> Schedule:
    """`for t: if (p + t) % n == 0: S` → a loop over every n-th tap, those that a tile meets.

    Only where the first of these taps depends on loops outside the tiles alone: not on the rows and
    the lanes.
    """
    inside = {s.loop(axis).var for axis in s.present(axes)[-2:]}
    for place, (about, _) in _congruences_of_taps(s, axes).items():
        if not about & inside:
            s = s.apply(schedule.stride_loop, s[place]).apply(schedule.simplify)
    return s


def _congruences_of_taps(s: Schedule, axes: Axes) -> dict[Handle, tuple[set[Var], int]]:
    """For each reduction loop with one condition `… % n == 0`: its other variables, and n."""
    by_loop: dict[Handle, tuple[set[Var], int]] = {}
    for loop in reduction_loops(s, axes):
        congruent = [
            (set(about) - {loop.var}, divisor)
            for stmt in tir.walk((loop,))
            if isinstance(stmt, tir.If) and tir.is_predicate(stmt.condition)
            for about, divisor in congruences(stmt.condition)  # type: ignore[arg-type]
            if loop.var in about
        ]
        if len(congruent) == 1:
            by_loop[s.handle(loop.var.name)] = congruent[0]
    return by_loop


def reduction_order(s: Schedule, axes: Axes, channel: Handle) -> tuple[Schedule, Axes]:
    """The reduction loops, by falling stride in the data operand, outermost first.

    Then the data is read in the order of memory: of `x[h + r, w + s, c]` in NHWC first r, then s,
    then c.  `channel` is the output axis of the weights: the
    operand that follows the other axes is the data.
    """
    s = _split_blocked(s, axes)
    positions = {s.loop(axis).var for axis in s.present(axes) if axis is not channel}
    loops = reduction_loops(s, axes)
    # Sorting is stable: loops of equal strides stay in the order of the kernel.
    loops.sort(key=lambda loop: -_stride(s.func, loop.var, positions))
    return s, s.handles(loops)


def whole_groups_apart(s: Schedule, axes: Axes, count: int) -> Schedule:
    """`for k in (0, n): S` → `for ko in (0, n // 4): for ki in (0, 4): S`, and a nest for the rest.

    For a `count` of 4, of each reduction loop by whose groups of four an operand lies.  The rest is
    a nest of its own, of all loops of the reduction, so that each nest is perfect.  There is none
    where all operands have room for a whole group, and reading it is proven harmless: `ko` runs to
    n / 4, rounded up.
    """
    for loop in reduction_loops(s, axes):
        extent = loop.extent or 0
        grouped = _digit_base(s.func, loop.var) == count or 1 < extent < count
        if not grouped or extent % count == 0:
            continue
        (depth,) = s.handles((loop,))
        if _has_room(s.func, loop.var, -(-extent // count) * count):
            rounded = _rounded_up(s, axes, depth, count)
            if rounded is not None:
                s = rounded
                continue
        if extent > count:
            s = _rest_apart(s, axes, depth, count)
    return s


def _has_room(func: tir.PrimFunc, var: Var, extent: int) -> bool:
    """Whether all operands that are read along a loop have elements for so many iterations."""
    reads = [
        access
        for access in tir.accesses(func.body)
        if access.kind is tir.AccessKind.READ and any(var in variables(e) for e in access.indices)
    ]
    more = {var: (0, extent - 1)}
    return all(
        (bounds(e, more)[1] or 0) < n
        for access in reads
        for e, n in zip(access.indices, access.buffer.shape, strict=True)
        if variables(e) == {var}
    )


def _rounded_up(s: Schedule, axes: Axes, depth: Handle, count: int) -> Schedule | None:
    """The schedule whose last group of iterations is whole; None where that is not proven
    harmless."""
    parts = (s.fresh("{}g", depth), s.fresh("{}t", depth))
    outermost = s.present(axes)[0]
    s = s.apply(schedule.divide_loop, s[depth], count, parts, "guard")
    inner = s.made["parts"][1]
    before = len(s.refusals)
    s = s.attempt(schedule.remove_branching_through_overcompute, s[outermost], s[inner])
    return s.apply(schedule.simplify) if len(s.refusals) == before else None


def _rest_apart(s: Schedule, axes: Axes, depth: Handle, count: int) -> Schedule:
    """The schedule with whole groups of iterations, and the rest of them in a nest of its own."""
    var = s.loop(depth).var
    outer = s.handles(x for x in reduction_loops(s, axes) if x.var is not var)
    s = in_order(s, (*outer, depth))
    parts = (s.fresh("{}g", depth), s.fresh("{}t", depth))
    s = s.apply(schedule.divide_loop, s[depth], count, parts, "cut")
    if outer:
        s = s.apply(schedule.fission, s[outer[-1]], 1, "_r", len(outer))
    return s.apply(schedule.simplify)


def reduction_loops(s: Schedule, axes: Axes) -> list[tir.For]:
    """The loops of the stages that compute, without those over the output's axes."""
    output = {s.loop(axis).var for axis in s.present(axes)}
    compute = [b for b in s.func.body if isinstance(b, tir.Block) and is_compute(b)]
    return [loop for loop in tir.loops_of(tuple(compute)) if loop.var not in output]


def _split_blocked(s: Schedule, axes: Axes) -> Schedule:
    """`for k: … a[k // b, k % b]` → `for ko: for ki: … a[ko, ki]`, for the reduction loops."""
    for loop in reduction_loops(s, axes):
        factor = _digit_base(s.func, loop.var)
        if factor is not None:
            place = s.handle(loop.var.name)
            parts = (s.fresh("{}o", place), s.fresh("{}i", place))
            s = s.apply(schedule.divide_loop, s[place], factor, parts, "guard")
            return _split_blocked(s.apply(schedule.simplify), axes)
    return s


def _digit_base(func: tir.PrimFunc, var: Var) -> int | None:
    """The least b of the `k % b` by which operands are read, k the variable; None without one."""
    divisors = [
        atom.divisor
        for access in tir.accesses(func.body)
        if access.kind is tir.AccessKind.READ
        for e in access.indices
        for atom, _ in terms_of(e)[0]
        if isinstance(atom, FloorMod) and atom.numerator is var
    ]
    return min(divisors, default=None)


def _stride(func: tir.PrimFunc, var: Var, positions: set[Var]) -> int:
    """The distance, in elements, between two iterations of a reduction loop in the data operand.

    Of the buffers that the loop reads, the data is the one that depends on most of the output axes
    in `positions` (those without the channels); of several, the largest.
    """
    reads = [
        access
        for access in tir.accesses(func.body)
        if access.kind is tir.AccessKind.READ and any(var in variables(e) for e in access.indices)
    ]
    if not reads:
        return 0
    data = max(
        reads,
        key=lambda r: (
            len(positions & {v for e in r.indices for v in variables(e)}),
            r.buffer.size,
        ),
    )
    flat = data.buffer.flat_index(data.indices)
    return next((abs(k) for atom, k in terms_of(flat)[0] if atom is var), 0)


def in_row_blocks(s: Schedule, axes: Axes, blocks: int) -> tuple[Schedule, Axes]:
    """`for row: for lane: S` → `for block: for row: for lane: S`, for so many blocks of rows.

    Rows that the last block lacks are conditions, which the tile cuts off as those of a border.
    """
    *outer, row, lane = s.present(axes)
    parts = (s.fresh("{}b", row), s.fresh("{}r", row))
    extent = schedule.constant_extent(s.loop(row))
    rows = -(-extent // blocks)
    s = s.apply(
        schedule.divide_loop, s[row], rows, parts, "guard" if extent % blocks else "perfect"
    )
    return s, (*outer, *s.made["parts"], lane)
