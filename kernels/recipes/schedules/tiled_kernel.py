"""The tiled kernel of a compute definition: all steps before the register tile itself.

In: a compute definition, a layout and padding for each parameter, and a `Tiled` recipe.  Out: the
schedule of the finished kernel.  The steps merge the stages into one nest, put the buffers into
their layouts, bring the loops of that nest into the order of the output's memory, part the
iterations that meet the same taps of a strided window, and order the reduction loops; then
`tile.register_tile` tiles the nest.

What always holds: each step is a schedule primitive, so the kernel equals its definition wherever
no step is refused; a refusal is a ScheduleError.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphflow import tir
from graphflow.arith import (
    FloorMod,
    Var,
    congruences,
    terms_of,
    variables,
)
from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes.analysis.merged_stages import merge_stages
from graphflow.kernels.recipes.analysis.variant import Tiled
from graphflow.kernels.recipes.schedules.register_nests import restrictable
from graphflow.kernels.recipes.schedules.run_loops import in_runs
from graphflow.kernels.recipes.schedules.tile import register_tile
from graphflow.layout import Layout
from graphflow.schedule import (
    Handle,
    PadValue,
    Schedule,
    absorb_padding,
    assume_finite,
    assume_reciprocal,
    cache_write,
    divide_loop,
    mult_loops,
    reorder_loops,
    restrict_loop,
    sequential_buffer_access,
    simplify,
    split_condition,
    stride_loop,
    transform_layout,
)

KNOWN = "looking at the constant, or what follows from what the user says of the inputs"
"""The grounds on which a recipe assumes facts of values; `flow.contents` has proven them."""

Placement = tuple[Layout, PadValue]
"""The layout of a parameter, and what its padding holds (an input) or gets (the output)."""


def tiled(
    definition: tir.PrimFunc,
    placements: Mapping[str, Placement],
    output: str,
    recipe: Tiled,
) -> Schedule:
    """The schedule of the tiled kernel; ScheduleError where a step is refused.

    `placements` are by parameter, and `output` names the output.  Where the padding of the output
    gets a constant, the last store of each element selects between its value and the constant; a
    recipe with groups cannot do that, and raises.
    """
    s = Schedule.of(definition)
    writes_constant = not isinstance(placements[output][1], str | None)
    if writes_constant and recipe.group:
        raise ScheduleError(f"tiles within groups of {recipe.group} do not write padding")
    if writes_constant and _is_reduced(definition, output):
        s = s.apply(cache_write, output, s.fresh("{}_sum", s.handle(output)))
    s = merge_stages(s)
    for name in recipe.finite:
        s = s.apply(assume_finite, name, KNOWN)
    for name in recipe.excludes_negative_zero:
        s = s.apply(assume_reciprocal, name, KNOWN)
    for name, (layout, pad) in placements.items():
        kept = recipe.group > 0 and name == output
        s = s.apply(transform_layout, name, layout, None if kept else pad)
    block, *_ = s.handles(b for b in s.func.body if isinstance(b, tir.Block) and _is_compute(b))
    rank = len(s.func.param(output).shape)
    names = tuple(s.fresh("o{}", axis) for axis in range(rank))
    whole_box = placements[output][0].is_padded and placements[output][1] is not None
    whole_box = whole_box and not recipe.group
    s = s.apply(sequential_buffer_access, s[block], output, names, whole_box)
    axes = s.made["axes"]
    if writes_constant and placements[output][0].is_padded:
        s = _absorbed(s, block, output, axes)
    if recipe.tiling.run:
        s, axes = in_runs(s, axes, recipe.tiling.run)
        return register_tile(s, axes, recipe.tiling, (), False)
    s, axes = _joined_lanes(s, placements[output][0], axes)
    held = None if recipe.held_axis is None else axes[recipe.held_axis]
    if held is not None:
        s, axes = _held(s, axes, held)
    if recipe.group:
        s, axes = _grouped(s, axes, recipe.group, recipe.group_rows)
    s, axes = _phases_apart(s, axes)
    s = _taps_met(s, axes)
    channel = axes[-1] if held is None else held
    s, reduction = _reduction_order(s, axes, channel, recipe.tiling.sliding)
    return register_tile(
        s, axes, recipe.tiling, reduction, held is not None, recipe.transposed, recipe.fetched
    )


Axes = tuple[Handle, ...]
"""The loops over the axes of the output, innermost last.  A loop that runs once may be gone."""


def _held(s: Schedule, axes: Axes, held: Handle) -> tuple[Schedule, Axes]:
    """The nest with the axis `held`, which gives the rows of a tile, next to the lanes."""
    axes = (*(axis for axis in axes[:-1] if axis is not held), held, axes[-1])
    return _in_order(s, axes), axes


def _in_order(s: Schedule, order: Axes) -> Schedule:
    """The nest with its loops in the given order; loops that are gone are left out."""
    present = s.present(order)
    return s.apply(reorder_loops, s.names(present)) if len(present) > 1 else s


def _grouped(s: Schedule, axes: Axes, group: int, rows: int) -> tuple[Schedule, Axes]:
    """The lane axis divided into a loop over groups and one over the channels of a group.

    The loop over groups runs outside all others, or if `rows` is not 0, inside a loop over blocks
    of that many rows of an image.
    """
    *others, lane = s.present(axes)
    if restrictable(s.loop(lane)):
        s = s.apply(restrict_loop, s[lane])
    if group % (s.loop(lane).extent or group + 1) == 0:
        return s, axes  # the loop runs over a block of channels that lies within one group
    parts = (s.fresh("group"), s.fresh("within"))
    s = s.apply(divide_loop, s[lane], group, parts, "perfect")
    groups, within = s.made["parts"]
    s = s.apply(simplify)
    others = list(s.present(others))
    outside, inside = [], others
    if rows:
        *outside, row, position = others
        blocks = (s.fresh("{}b", row), s.fresh("{}r", row))
        s = s.apply(divide_loop, s[row], rows, blocks, "perfect")
        block, rest = s.made["parts"]
        s = s.apply(simplify)
        outside, inside = [*outside, block], [rest, position]
    order = (*outside, groups, *inside, within)
    return _in_order(s, order), order


def _is_reduced(definition: tir.PrimFunc, output: str) -> bool:
    return any(
        isinstance(stmt, tir.Reduce) and stmt.buffer.name == output
        for stmt in tir.walk(definition.body)
    )


def _absorbed(s: Schedule, block: Handle, output: str, axes: Axes) -> Schedule:
    """The constant in the output's padding selected by the kernel's last store of each element."""
    innermost = s.present(axes)[-1]
    body = s.loop(innermost).body
    if isinstance(body[0], tir.If) and len(body[0].then) > 1:
        s = s.apply(split_condition, s[innermost])
    return s.apply(absorb_padding, s[block], output)


def _is_compute(block: tir.Block) -> bool:
    """Whether a block computes, and does not state padding or assumptions."""
    return block.note(tir.BlockNote.PADDING_OF) is None and block.note(tir.BlockNote.STATES) is None


def _joined_lanes(s: Schedule, layout: Layout, axes: Axes) -> tuple[Schedule, Axes]:
    """The loops over `c // b` and `c % b` of a blocked axis → one loop over c, innermost.

    Then tiles may be of any width, whatever the width of a block.
    """
    last = layout.index_map.outputs[-1]
    if not isinstance(last, FloorMod):
        return s, axes
    # Where the output is a view of a larger storage, the block number has an offset.
    blocked = set(variables(last))
    whole = next(k for k, e in enumerate(layout.index_map.outputs) if blocked & set(variables(e)))
    others = (*axes[:whole], *axes[whole + 1 : -1])
    if not s.present((axes[whole],)):
        return s, (*others, axes[-1])
    s = s.apply(reorder_loops, s.names(s.present((*others, axes[whole], axes[-1]))))
    s = s.apply(mult_loops, s[axes[whole]], s[axes[-1]], s.fresh("oc_joined"))
    return s, (*others, *s.made["loop"])


def _phases_apart(s: Schedule, axes: Axes) -> tuple[Schedule, Axes]:
    """`for p in (0, n·k): S` → `for r in (0, n): for q in (0, k): S[p → n·q + r]`, p the row loop.

    In a transposed convolution of stride n, the position p of an image row meets the taps t with
    `(p + t) % n == 0`, up to a constant.  All positions of one phase r meet the same taps, so tiles
    of them have no condition on taps inside.  As it is, where there is no single such n, or it does
    not divide the extent.
    """
    present = s.present(axes)
    if len(present) < 2:
        return s, axes
    row = present[-2]
    loop = s.loop(row)
    phases = {n for about, n in _conditions_on_reductions(s, axes).values() if loop.var in about}
    if len(phases) != 1 or (loop.extent or 1) % min(phases):
        return s, axes
    parts = (s.fresh("{}q", row), s.fresh("{}r", row))
    s = s.apply(divide_loop, s[row], min(phases), parts, "perfect")
    place = axes.index(row)
    axes = (*axes[:place], *reversed(s.made["parts"]), *axes[place + 1 :])
    return _in_order(s, axes).apply(simplify), axes


def _taps_met(s: Schedule, axes: Axes) -> Schedule:
    """The reduction loops that run over all taps, restricted to every n-th, which a tile meets.

    Only where the first of these taps depends on loops outside the tiles alone.
    """
    inside = {s.loop(axis).var for axis in s.present(axes)[-2:]}
    for place, (about, _) in _conditions_on_reductions(s, axes).items():
        if not about & inside:
            s = s.apply(stride_loop, s[place]).apply(simplify)
    return s


def _conditions_on_reductions(s: Schedule, axes: Axes) -> dict[Handle, tuple[set[Var], int]]:
    """For each reduction loop with one condition `… % n == 0`: its other variables, and n."""
    found: dict[Handle, tuple[set[Var], int]] = {}
    for loop in _reduction_loops(s, axes):
        conditions = [
            (set(about) - {loop.var}, divisor)
            for stmt in tir.walk((loop,))
            if isinstance(stmt, tir.If) and tir.is_predicate(stmt.condition)
            for about, divisor in congruences(stmt.condition)  # type: ignore[arg-type]
            if loop.var in about
        ]
        if len(conditions) == 1:
            found[s.handle(loop.var.name)] = conditions[0]
    return found


def _reduction_order(
    s: Schedule, axes: Axes, channel: Handle, sliding: bool
) -> tuple[Schedule, Axes]:
    """The reduction loops, by falling stride in the data operand, outermost first.

    Then the data is read in the order of memory.  `channel` is the output axis of the weights: the
    operand that follows the other axes is the data.  If `sliding`, the loop that steps through the
    data like the rows of a tile is the innermost one instead; ScheduleError where there is none.
    """
    s = _split_blocked(s, axes)
    positions = {s.loop(axis).var for axis in s.present(axes) if axis is not channel}
    loops = _reduction_loops(s, axes)
    # Sorting is stable: loops of equal strides stay in the order of the kernel.
    loops.sort(key=lambda loop: -_stride(s.func, loop.var, positions))
    if sliding:
        taps = _taps_across(s, axes, loops)
        loops.sort(key=lambda loop: loop is taps)
    return s, s.handles(loops)


def _taps_across(s: Schedule, axes: Axes, loops: list[tir.For]) -> tir.For:
    """The loop of a reduction that steps through the data like the rows of a tile do.

    The data is the operand that both the rows and the lanes of a tile step through.  ScheduleError
    where there is no such loop.
    """
    row, lane = (s.loop(axis).var for axis in s.present(axes)[-2:])
    for access in tir.accesses(s.func.body):
        if access.kind is not tir.AccessKind.READ:
            continue
        flat = access.buffer.flat_index(access.indices)
        steps = dict(terms_of(flat)[0])
        if {row, lane} <= variables(flat):
            for loop in loops:
                if loop.var in steps and steps[loop.var] == steps.get(row):
                    return loop
    raise ScheduleError(f"no loop of the reduction steps through the data like {row}")


def _reduction_loops(s: Schedule, axes: Axes) -> list[tir.For]:
    output = {s.loop(axis).var for axis in s.present(axes)}
    compute = [b for b in s.func.body if isinstance(b, tir.Block) and _is_compute(b)]
    return [loop for loop in tir.loops_of(tuple(compute)) if loop.var not in output]


def _split_blocked(s: Schedule, axes: Axes) -> Schedule:
    """`for k: … a[k // b, k % b]` → `for ko: for ki: … a[ko, ki]`, for the reduction loops."""
    for loop in _reduction_loops(s, axes):
        factor = _digit_base(s.func, loop.var)
        if factor is not None:
            place = s.handle(loop.var.name)
            parts = (s.fresh("{}o", place), s.fresh("{}i", place))
            s = s.apply(divide_loop, s[place], factor, parts, "guard")
            return _split_blocked(s.apply(simplify), axes)
    return s


def _digit_base(func: tir.PrimFunc, var: Var) -> int | None:
    """The least b of the `k % b` by which operands are read, k the variable; None without one."""
    found = [
        atom.divisor
        for access in tir.accesses(func.body)
        if access.kind is tir.AccessKind.READ
        for e in access.indices
        for atom, _ in terms_of(e)[0]
        if isinstance(atom, FloorMod) and atom.numerator is var
    ]
    return min(found, default=None)


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
