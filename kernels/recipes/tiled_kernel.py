"""From a compute definition and layouts to a tiled kernel."""

from __future__ import annotations

from collections.abc import Mapping

from graphflow.arith import (
    FloorMod,
    Var,
    congruences,
    terms_of,
    variables,
)
from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes.tile import register_tile, restrictable
from graphflow.kernels.recipes.variant import Tiled
from graphflow.layout import Layout
from graphflow.schedule import (
    Handle,
    PadValue,
    Schedule,
    absorb_padding,
    assume_finite,
    assume_reciprocal,
    cache_write,
    compute_at,
    divide_loop,
    mult_loops,
    reorder_loops,
    restrict_loop,
    sequential_buffer_access,
    simplify_kernel,
    split_condition,
    stride_loop,
    transform_layout,
)
from graphflow.tir import (
    AccessKind,
    Block,
    BlockNote,
    For,
    If,
    PrimFunc,
    Reduce,
    accesses,
    is_predicate,
    loops_of,
    walk,
)

KNOWN = "looking at the constant, or what follows from what the user says of the inputs"

Placement = tuple[Layout, PadValue]


def merge_stages(s: Schedule) -> Schedule:
    """All stages → one block with one nest, where the later stages follow the first elementwise."""
    s = join_axes(s)
    blocks = s.handles(stmt for stmt in s.func.body if isinstance(stmt, Block))
    for block in blocks[1:]:
        s = s.apply(compute_at, s[block], s[blocks[0]])
    return s


def join_axes(s: Schedule) -> Schedule:
    """Two neighbouring loops that a stored index sees as `k·i + j` → one loop over that axis.

    A grouped reduction counts outputs within groups; its output axis is one axis nevertheless.
    """
    pair = _two_of_one_axis(s.func)
    if pair is None:
        return s
    outer, inner = s.handles(pair)
    return join_axes(s.apply(mult_loops, s[outer], s[inner], s.fresh("{}_{}", outer, inner)))


def _two_of_one_axis(func: PrimFunc) -> tuple[For, For] | None:
    """The first two loops, one the body of the other, that run along one axis of what is stored."""
    for access in accesses(func.body):
        if access.kind is not AccessKind.WRITE:
            continue
        for index in access.indices:
            terms, offset = terms_of(index)
            if len(terms) != 2 or offset or terms[1][1] != 1:
                continue
            loops = {stmt.var: stmt for stmt in loops_of(func.body)}
            outer, inner = (loops.get(atom) for atom, _ in terms)  # type: ignore[call-overload]
            if outer is None or inner is None or inner.extent != terms[0][1]:
                continue
            if outer.body == (inner,):
                return outer, inner
    return None


def tiled(
    definition: PrimFunc,
    placements: Mapping[str, Placement],
    output: str,
    recipe: Tiled,
) -> Schedule:
    """The kernel of `definition` with its buffers placed as said and its output tiled.

    Where the padding of the output gets a constant, the last store of each element selects it.
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
    for name in recipe.reciprocal:
        s = s.apply(assume_reciprocal, name, KNOWN)
    for name, (layout, pad) in placements.items():
        kept = recipe.group > 0 and name == output
        s = s.apply(transform_layout, name, layout, None if kept else pad)
    block, *_ = s.handles(b for b in s.func.body if isinstance(b, Block) and _is_compute(b))
    rank = len(s.func.param(output).shape)
    names = tuple(s.fresh("o{}", axis) for axis in range(rank))
    whole_box = placements[output][0].is_padded and placements[output][1] is not None
    whole_box = whole_box and not recipe.group
    s = s.apply(sequential_buffer_access, s[block], output, names, whole_box)
    axes = s.made["axes"]
    if writes_constant and placements[output][0].is_padded:
        s = _absorbed(s, block, output, axes)
    s, axes = _joined_lanes(s, placements[output][0], axes)
    held = None if recipe.registers is None else axes[recipe.registers]
    if held is not None:
        s, axes = _held(s, axes, held)
    if recipe.group:
        s, axes = _grouped(s, axes, recipe.group, recipe.group_rows)
    s, axes = _phases_apart(s, axes)
    s = _taps_met(s, axes)
    s, reduction = _reduction_order(s, axes, axes[-1] if held is None else held)
    return register_tile(s, axes, recipe.tiling, reduction, held is not None)


Axes = tuple[Handle, ...]
"""The loops over the axes of the output, innermost last; those that run once may be gone."""


def _held(s: Schedule, axes: Axes, held: Handle) -> tuple[Schedule, Axes]:
    """The axis that a tile holds in registers next to the lanes."""
    axes = (*(axis for axis in axes[:-1] if axis is not held), held, axes[-1])
    return _in_order(s, axes), axes


def _in_order(s: Schedule, order: Axes) -> Schedule:
    """The nest in that order, without the loops that are gone."""
    present = s.present(order)
    return s.apply(reorder_loops, s.names(present)) if len(present) > 1 else s


def _grouped(s: Schedule, axes: Axes, group: int, rows: int) -> tuple[Schedule, Axes]:
    """The lane axis as groups and what is within one; groups run outside everything else, or
    outside so many rows of an image."""
    *others, lane = s.present(axes)
    if restrictable(s.loop(lane)):
        s = s.apply(restrict_loop, s[lane])
    if group % (s.loop(lane).extent or group + 1) == 0:
        return s, axes  # a block that was not joined lies within one group
    parts = (s.fresh("group"), s.fresh("within"))
    s = s.apply(divide_loop, s[lane], group, parts, "perfect")
    groups, within = s.made["parts"]
    s = s.apply(simplify_kernel)
    others = list(s.present(others))
    outside, inside = [], others
    if rows:
        *outside, row, pixel = others
        blocks = (s.fresh("{}b", row), s.fresh("{}r", row))
        s = s.apply(divide_loop, s[row], rows, blocks, "perfect")
        block, rest = s.made["parts"]
        s = s.apply(simplify_kernel)
        outside, inside = [*outside, block], [rest, pixel]
    order = (*outside, groups, *inside, within)
    return _in_order(s, order), order


def _is_reduced(definition: PrimFunc, output: str) -> bool:
    return any(
        isinstance(stmt, Reduce) and stmt.buffer.name == output for stmt in walk(definition.body)
    )


def _absorbed(s: Schedule, block: Handle, output: str, axes: Axes) -> Schedule:
    innermost = s.present(axes)[-1]
    body = s.loop(innermost).body
    if isinstance(body[0], If) and len(body[0].then) > 1:
        s = s.apply(split_condition, s[innermost])
    return s.apply(absorb_padding, s[block], output)


def _is_compute(block: Block) -> bool:
    return block.note(BlockNote.PADDING_OF) is None and block.note(BlockNote.STATES) is None


def _joined_lanes(s: Schedule, layout: Layout, axes: Axes) -> tuple[Schedule, Axes]:
    """A blocked axis `c // b … c % b` → one loop over c, innermost."""
    last = layout.index_map.outputs[-1]
    if not isinstance(last, FloorMod):
        return s, axes
    # In a window of a larger storage the block number has an offset.
    blocked = set(variables(last))
    whole = next(k for k, e in enumerate(layout.index_map.outputs) if blocked & set(variables(e)))
    others = (*axes[:whole], *axes[whole + 1 : -1])
    if not s.present((axes[whole],)):
        return s, (*others, axes[-1])
    s = s.apply(reorder_loops, s.names(s.present((*others, axes[whole], axes[-1]))))
    s = s.apply(mult_loops, s[axes[whole]], s[axes[-1]], s.fresh("oc_joined"))
    return s, (*others, *s.made["loop"])


def _phases_apart(s: Schedule, axes: Axes) -> tuple[Schedule, Axes]:
    """The pixels that meet the same taps next to each other, in a loop of their own for each phase.

    Pixels in one row meet every so many taps, beginning with another one from each to the next.
    """
    present = s.present(axes)
    if len(present) < 2:
        return s, axes
    pixel = present[-2]
    loop = s.loop(pixel)
    phases = {n for about, n in _conditions_on_reductions(s, axes).values() if loop.var in about}
    if len(phases) != 1 or (loop.extent or 1) % min(phases):
        return s, axes
    parts = (s.fresh("{}q", pixel), s.fresh("{}r", pixel))
    s = s.apply(divide_loop, s[pixel], min(phases), parts, "perfect")
    place = axes.index(pixel)
    axes = (*axes[:place], *reversed(s.made["parts"]), *axes[place + 1 :])
    return _in_order(s, axes).apply(simplify_kernel), axes


def _taps_met(s: Schedule, axes: Axes) -> Schedule:
    """Reduction loops over every so many taps, where axes outside the tiles say which."""
    inside = {s.loop(axis).var for axis in s.present(axes)[-2:]}
    for place, (about, _) in _conditions_on_reductions(s, axes).items():
        if not about & inside:
            s = s.apply(stride_loop, s[place]).apply(simplify_kernel)
    return s


def _conditions_on_reductions(s: Schedule, axes: Axes) -> dict[Handle, tuple[set[Var], int]]:
    """By reduction loop the only condition `… % n == 0` on it: what else it is about, and n."""
    found: dict[Handle, tuple[set[Var], int]] = {}
    for loop in _reduction_loops(s, axes):
        conditions = [
            (set(about) - {loop.var}, divisor)
            for stmt in walk((loop,))
            if isinstance(stmt, If) and is_predicate(stmt.condition)
            for about, divisor in congruences(stmt.condition)  # type: ignore[arg-type]
            if loop.var in about
        ]
        if len(conditions) == 1:
            found[s.handle(loop.var.name)] = conditions[0]
    return found


def _reduction_order(s: Schedule, axes: Axes, channel: Handle) -> tuple[Schedule, Axes]:
    """The reduction loops, those that stride furthest through the data operand outermost.

    `channel` is the axis that the other operand, the weights, follows.
    """
    s = _split_blocked(s, axes)
    pixels = {s.loop(axis).var for axis in s.present(axes) if axis is not channel}
    loops = _reduction_loops(s, axes)
    # Sorting is stable: loops of equal strides stay in the order of the kernel.
    loops.sort(key=lambda loop: -_stride(s.func, loop.var, pixels))
    return s, s.handles(loops)


def _reduction_loops(s: Schedule, axes: Axes) -> list[For]:
    output = {s.loop(axis).var for axis in s.present(axes)}
    compute = [b for b in s.func.body if isinstance(b, Block) and _is_compute(b)]
    return [loop for loop in loops_of(tuple(compute)) if loop.var not in output]


def _split_blocked(s: Schedule, axes: Axes) -> Schedule:
    """A reduction loop of which an operand sees digits becomes a loop for each."""
    for loop in _reduction_loops(s, axes):
        factor = _digit_base(s.func, loop.var)
        if factor is not None:
            place = s.handle(loop.var.name)
            parts = (s.fresh("{}o", place), s.fresh("{}i", place))
            s = s.apply(divide_loop, s[place], factor, parts, "guard")
            return _split_blocked(s.apply(simplify_kernel), axes)
    return s


def _digit_base(func: PrimFunc, var: Var) -> int | None:
    """The lowest base by which an operand splits a loop variable; None where none does."""
    found = [
        atom.divisor
        for access in accesses(func.body)
        if access.kind is AccessKind.READ
        for e in access.indices
        for atom, _ in terms_of(e)[0]
        if isinstance(atom, FloorMod) and atom.numerator is var
    ]
    return min(found, default=None)


def _stride(func: PrimFunc, var: Var, pixels: set[Var]) -> int:
    """Elements that one step of a reduction loop moves in the data operand.

    That is the largest buffer it runs through, before all one that follows most axes
    of the output's pixels.
    """
    reads = [
        access
        for access in accesses(func.body)
        if access.kind is AccessKind.READ and any(var in variables(e) for e in access.indices)
    ]
    if not reads:
        return 0
    data = max(
        reads,
        key=lambda r: (len(pixels & {v for e in r.indices for v in variables(e)}), r.buffer.size),
    )
    flat = data.buffer.flat_index(data.indices)
    return next((abs(k) for atom, k in terms_of(flat)[0] if atom is var), 0)
