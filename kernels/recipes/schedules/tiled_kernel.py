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

from graphflow import schedule, tir
from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes.analysis.roles import merge_stages, merged_stages
from graphflow.kernels.recipes.analysis.variant import Axes, Tiled
from graphflow.kernels.recipes.schedules.tile import register_tile
from graphflow.kernels.recipes.schedules.tile_loops import is_compute
from graphflow.layout import Layout
from graphflow.schedule import Handle, PadValue, Schedule

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
    if writes_constant and recipe.kind.group:
        raise ScheduleError(f"tiles within groups of {recipe.kind.group} do not write padding")
    if writes_constant and _is_reduced(definition, output):
        s = s.apply(schedule.cache_write, output, s.fresh("{}_sum", s.handle(output)))
        s = merge_stages(s)
    else:
        s = merged_stages(definition)
    for name in recipe.finite:
        s = s.apply(schedule.assume_finite, name, KNOWN)
    for name in recipe.excludes_negative_zero:
        s = s.apply(schedule.assume_reciprocal, name, KNOWN)
    for name, (layout, pad) in placements.items():
        kept = recipe.kind.group > 0 and name == output
        s = s.apply(schedule.transform_layout, name, layout, None if kept else pad)
    block, *_ = s.handles(b for b in s.func.body if isinstance(b, tir.Block) and is_compute(b))
    rank = len(s.func.param(output).shape)
    names = tuple(s.fresh("o{}", axis) for axis in range(rank))
    whole_box = placements[output][0].is_padded and placements[output][1] is not None
    whole_box = whole_box and not recipe.kind.group
    s = s.apply(schedule.sequential_buffer_access, s[block], output, names, whole_box)
    axes = s.made["axes"]
    if writes_constant and placements[output][0].is_padded:
        s = _absorbed(s, block, output, axes)
    s, axes, reduction = recipe.kind.loops(s, axes, placements[output][0])
    return register_tile(s, axes, reduction, recipe)


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
        s = s.apply(schedule.split_condition, s[innermost])
    return s.apply(schedule.absorb_padding, s[block], output)
