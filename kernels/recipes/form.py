"""From a compute definition and layouts to a tiled kernel."""

from __future__ import annotations

from collections.abc import Mapping

from graphflow.arith import (
    FloorMod,
    IsZero,
    Var,
    conjuncts,
    terms_of,
    variables,
)
from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes.alternative import Tiled
from graphflow.kernels.recipes.tile import find_loop, register_tile, restrictable
from graphflow.layout import Layout
from graphflow.schedule import (
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
from graphflow.tir import Block, If, PrimFunc, Reduce, accesses, is_predicate, loops_of, walk

KNOWN = "looking at the constant, or what follows from what the user says of the inputs"

Placement = tuple[Layout, PadValue]


def merge_stages(s: Schedule) -> Schedule:
    """All stages → one block with one nest, where the later stages follow the first elementwise."""
    s = join_axes(s)
    blocks = [stmt for stmt in s.func.body if isinstance(stmt, Block)]
    for block in blocks[1:]:
        s = s.apply(compute_at, block.name, blocks[0].name)
    return s


def join_axes(s: Schedule) -> Schedule:
    """Two neighbouring loops that a stored index sees as `k·i + j` → one loop over that axis.

    A grouped reduction counts outputs within groups; its output axis is one axis nevertheless.
    """
    for access in accesses(s.func.body):
        if access.kind != "write":
            continue
        for index in access.indices:
            terms, offset = terms_of(index)
            if len(terms) != 2 or offset or terms[1][1] != 1:
                continue
            outer, inner = (find_loop(s.func, str(atom)) for atom, _ in terms)
            if outer is None or inner is None or inner.extent != terms[0][1]:
                continue
            if outer.body == (inner,):
                name = f"{outer.var.name}_{inner.var.name}"
                return join_axes(s.apply(mult_loops, outer.var.name, inner.var.name, name))
    return s


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
        s = s.apply(cache_write, output, f"{output}_sum")
    s = merge_stages(s)
    for name in recipe.finite:
        s = s.apply(assume_finite, name, KNOWN)
    for name in recipe.reciprocal:
        s = s.apply(assume_reciprocal, name, KNOWN)
    for name, (layout, pad) in placements.items():
        kept = recipe.group > 0 and name == output
        s = s.apply(transform_layout, name, layout, None if kept else pad)
    block = next(b.name for b in s.func.body if isinstance(b, Block) and _is_compute(b))
    rank = len(s.func.param(output).shape)
    axes = tuple(f"o{k}" for k in range(rank))
    whole_box = placements[output][0].is_padded and placements[output][1] is not None
    whole_box = whole_box and not recipe.group
    s = s.apply(sequential_buffer_access, block, output, axes, whole_box)
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


def _held(s: Schedule, axes: tuple[str, ...], held: str) -> tuple[Schedule, tuple[str, ...]]:
    """The axis that a tile holds in registers next to the lanes."""
    axes = (*(name for name in axes[:-1] if name != held), held, axes[-1])
    present = tuple(name for name in axes if find_loop(s.func, name) is not None)
    return (s.apply(reorder_loops, present) if len(present) > 1 else s), axes


def _grouped(
    s: Schedule, axes: tuple[str, ...], group: int, rows: int
) -> tuple[Schedule, tuple[str, ...]]:
    """The lane axis as groups and what is within one; groups run outside everything else, or
    outside so many rows of an image."""
    lane = next(name for name in reversed(axes) if find_loop(s.func, name) is not None)
    if restrictable(s.func, lane):
        s = s.apply(restrict_loop, lane)
    if group % (find_loop(s.func, lane).extent or group + 1) == 0:  # type: ignore[union-attr]
        return s, axes  # a block that was not joined lies within one group
    s = s.apply(divide_loop, lane, group, ("group", "within"), "perfect")
    s = s.apply(simplify_kernel)
    others = [name for name in axes if name != lane and find_loop(s.func, name) is not None]
    outside, inside = [], others
    if rows:
        *outside, row, pixel = others
        s = s.apply(divide_loop, row, rows, (f"{row}b", f"{row}r"), "perfect")
        s = s.apply(simplify_kernel)
        outside, inside = [*outside, f"{row}b"], [f"{row}r", pixel]
    order = (*outside, "group", *inside, "within")
    present = [name for name in order if find_loop(s.func, name) is not None]
    if len(present) > 1:
        s = s.apply(reorder_loops, tuple(present))
    return s, order


def _is_reduced(definition: PrimFunc, output: str) -> bool:
    return any(
        isinstance(stmt, Reduce) and stmt.buffer.name == output for stmt in walk(definition.body)
    )


def _absorbed(s: Schedule, block: str, output: str, axes: tuple[str, ...]) -> Schedule:
    present = [name for name in axes if find_loop(s.func, name) is not None]
    body = find_loop(s.func, present[-1]).body  # type: ignore[union-attr]
    if isinstance(body[0], If) and len(body[0].then) > 1:
        s = s.apply(split_condition, present[-1])
    return s.apply(absorb_padding, block, output)


def _is_compute(block: Block) -> bool:
    return not any(key in ("padding_of", "states") for key, _ in block.annotations)


def _joined_lanes(
    s: Schedule, layout: Layout, axes: tuple[str, ...]
) -> tuple[Schedule, tuple[str, ...]]:
    """A blocked axis `c // b … c % b` → one loop over c, innermost."""
    last = layout.index_map.outputs[-1]
    if not isinstance(last, FloorMod):
        return s, axes
    # In a window of a larger storage the block number has an offset.
    blocked = set(variables(last))
    whole = next(k for k, e in enumerate(layout.index_map.outputs) if blocked & set(variables(e)))
    order = [*axes[:whole], *axes[whole + 1 : -1], axes[whole], axes[-1]]
    present = [name for name in order if find_loop(s.func, name) is not None]
    if axes[whole] not in present:
        return s, tuple(order[:-2] + order[-1:])
    s = s.apply(reorder_loops, tuple(present))
    s = s.apply(mult_loops, axes[whole], axes[-1], "oc_joined")
    return s, (*order[:-2], "oc_joined")


def _phases_apart(s: Schedule, axes: tuple[str, ...]) -> tuple[Schedule, tuple[str, ...]]:
    """The pixels that meet the same taps next to each other, in a loop of their own for each phase.

    Pixels in one row meet every so many taps, beginning with another one from each to the next.
    """
    present = [name for name in axes if find_loop(s.func, name) is not None]
    pixel = present[-2] if len(present) > 1 else None
    phases = {n for about, n in _congruences(s.func, axes).values() if Var(str(pixel)) in about}
    loop = find_loop(s.func, str(pixel))
    if pixel is None or len(phases) != 1 or loop is None or (loop.extent or 1) % min(phases):
        return s, axes
    s = s.apply(divide_loop, pixel, min(phases), (pixel + "q", pixel + "r"), "perfect")
    place = axes.index(pixel)
    axes = (*axes[:place], pixel + "r", pixel + "q", *axes[place + 1 :])
    s = s.apply(reorder_loops, tuple(name for name in axes if find_loop(s.func, name) is not None))
    return s.apply(simplify_kernel), axes


def _taps_met(s: Schedule, axes: tuple[str, ...]) -> Schedule:
    """Reduction loops over every so many taps, where axes outside the tiles say which."""
    inside = {Var(name) for name in [a for a in axes if find_loop(s.func, a) is not None][-2:]}
    for name, (about, _) in _congruences(s.func, axes).items():
        if not about & inside:
            s = s.apply(stride_loop, name).apply(simplify_kernel)
    return s


def _congruences(func: PrimFunc, axes: tuple[str, ...]) -> dict[str, tuple[set[Var], int]]:
    """By reduction loop the only condition `… % n == 0` on it: what else it is about, and n."""
    found: dict[str, tuple[set[Var], int]] = {}
    for name in _reduction_loops(func, axes):
        conditions = [
            (set(variables(member.expr)) - {Var(name)}, member.expr.divisor)
            for stmt in walk((find_loop(func, name),))  # type: ignore[arg-type]
            if isinstance(stmt, If) and is_predicate(stmt.condition)
            for member in conjuncts(stmt.condition)  # type: ignore[arg-type]
            if isinstance(member, IsZero)
            and isinstance(member.expr, FloorMod)
            and Var(name) in variables(member.expr)
        ]
        if len(conditions) == 1:
            found[name] = conditions[0]
    return found


def _reduction_order(
    s: Schedule, axes: tuple[str, ...], channel: str
) -> tuple[Schedule, tuple[str, ...]]:
    """The reduction loops, those that stride furthest through the data operand outermost.

    `channel` is the axis that the other operand, the weights, follows.
    """
    s = _split_blocked(s, axes)
    loops = _reduction_loops(s.func, axes)
    pixels = {Var(axis) for axis in axes if axis != channel}
    strides = {name: _stride(s.func, name, pixels) for name in loops}
    return s, tuple(sorted(loops, key=lambda name: (-strides[name], loops.index(name))))


def _reduction_loops(func: PrimFunc, axes: tuple[str, ...]) -> list[str]:
    compute = [b for b in func.body if isinstance(b, Block) and _is_compute(b)]
    return [s.var.name for s in loops_of(tuple(compute)) if s.var.name not in axes]


def _split_blocked(s: Schedule, axes: tuple[str, ...]) -> Schedule:
    """A reduction loop of which an operand sees digits becomes a loop for each."""
    for name in _reduction_loops(s.func, axes):
        factor = _digit_base(s.func, Var(name))
        if factor is not None:
            s = s.apply(divide_loop, name, factor, (name + "o", name + "i"), "guard")
            return _split_blocked(s.apply(simplify_kernel), axes)
    return s


def _digit_base(func: PrimFunc, var: Var) -> int | None:
    """The lowest base by which an operand splits a loop variable; None where none does."""
    found = [
        atom.divisor
        for access in accesses(func.body)
        if access.kind == "read"
        for e in access.indices
        for atom, _ in terms_of(e)[0]
        if isinstance(atom, FloorMod) and atom.numerator is var
    ]
    return min(found, default=None)


def _stride(func: PrimFunc, name: str, pixels: set[Var]) -> int:
    """Elements that one step of a reduction loop moves in the data operand.

    That is the largest buffer it runs through, before all one that follows most axes
    of the output's pixels.
    """
    var = Var(name)
    reads = [
        access
        for access in accesses(func.body)
        if access.kind == "read" and any(var in variables(e) for e in access.indices)
    ]
    if not reads:
        return 0
    data = max(
        reads,
        key=lambda r: (len(pixels & {v for e in r.indices for v in variables(e)}), r.buffer.size),
    )
    flat = data.buffer.flat_index(data.indices)
    return next((abs(k) for atom, k in terms_of(flat)[0] if atom is var), 0)
