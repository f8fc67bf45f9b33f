"""Forms made by the register tile, in one layout of the output and one of the data.

In: a definition with its roles and the two layouts.  Out: the form with its tiling and the work it
takes, or none.  The estimate is of one core's cycles; flow turns it into time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod

from graphflow.arith import FloorMod, IndexExpr, Var, evaluate, terms_of, variables
from graphflow.kernels.recipes.alternative import Alternative, Padding, Tiled, Work
from graphflow.kernels.recipes.movement import flat_offset
from graphflow.kernels.recipes.operands import Operands, place_operands
from graphflow.kernels.recipes.packing import packed_layout
from graphflow.kernels.recipes.placing import (
    Given,
    Like,
    Offered,
    channel_order,
    second_lane,
)
from graphflow.kernels.recipes.roles import Roles
from graphflow.kernels.recipes.tiling import Plane, choose_tiling
from graphflow.layout import Family, Layout
from graphflow.target import Target
from graphflow.tir import DTYPES, PrimFunc

GATHERED, UNPACKED = 8.0, 2.6
"""How much longer a step takes whose lanes load elements apart, or run along image rows, where no
loaded vector serves more than one multiply-add."""

SCALAR_CYCLES = 4.0
"""Cycles of one operation outside lanes, loads and stores included."""

BLOCKED_STORES = 1.001
"""How much longer it takes where each store finds its block first."""


def tiled_form(
    definition: PrimFunc,
    roles: Roles,
    constants: frozenset[str],
    out: Family | Like | Given,
    data: Family | Given | Offered,
    target: Target,
) -> Alternative | None:
    """The form that writes `out` and reads `data`; None where the operands cannot lie so."""
    operands = place_operands(definition, roles, constants, out, data, target)
    if operands is None:
        return None
    output, lane, group = operands.layouts[roles.output.name], operands.lane, operands.group
    plane = _plane(roles, output, operands)
    tiling, cycles = choose_tiling(plane, target)
    width = max(panel.width for panel in tiling.panels)
    layouts = dict(operands.layouts)
    for buffer in operands.packed:
        layouts[buffer.name] = packed_layout(
            roles, buffer, lane, width, layouts, group, channel_order(output)
        )
    cycles *= _lane_penalty(roles, layouts, lane)
    if _ends_in_block(output):
        cycles *= BLOCKED_STORES
        if group % target.lanes():  # groups begin anywhere in a block
            cycles += SCALAR_CYCLES * prod(roles.output.shape)
    padding = Padding.KEPT if group else Padding.NONE
    if output.is_padded and not group:
        tiling = replace(tiling, write_padding=True)
        padding = Padding.UNDEF if roles.reduction else Padding.EVALUATED
    return Alternative(
        name=_name(layouts, operands.free, output),
        layouts=layouts,
        private=frozenset(b.name for b in operands.packed),
        demands={},
        padding=padding,
        recipe=Tiled(tiling, group=group),
        work=Work(2.0 * roles.multiply_adds, cycles, plane.rows, *touched(definition, layouts)),
        vector_form=len(roles.output.shape) <= 2 or lane == 1,
    )


def _ends_in_block(layout: Layout) -> bool:
    """Whether the innermost physical axis runs within blocks of a logical one."""
    return any(isinstance(e, FloorMod) for e in layout.index_map.outputs[-1:])


def _plane(roles: Roles, output: Layout, operands: Operands) -> Plane:
    """What a tile iterates over: the channels of one group, the pixels, all that is left."""
    lane, group = operands.lane, operands.group
    channels = roles.output.shape[lane]
    others = [n for k, n in enumerate(roles.output.shape) if k != lane]
    order = [
        next(k for k, v in enumerate(output.index_map.inputs) if v in variables(e))
        for e in output.index_map.outputs
        if variables(e)
    ]
    inner = [k for k in order if k != lane and roles.output.shape[k] > 1]
    pixels = roles.output.shape[inner[-1]] if inner else 1
    phases = roles.phases[inner[-1]] if inner else 1
    if pixels % phases == 0:
        pixels //= phases
    rows = max(1, prod(others) // pixels)
    return Plane(
        channels=group or channels,
        pixels=pixels,
        rows=rows * (channels // group) if group else rows,
        steps=max(1, roles.steps),
        nests=max(1, len(roles.nests)),
        weight_bytes=sum(b.bytes for b in operands.packed),
        pixel_bytes=_pixel_bytes(roles, operands.layouts, inner[-1]) if inner else 0,
        whole_vectors=not group and (_ends_in_block(output) or output.is_padded),
    )


def _pixel_bytes(roles: Roles, layouts: dict[str, Layout], pixel: int) -> int:
    """How far apart the elements for neighbouring pixels lie in a reduced operand."""
    var = roles.axes[pixel]
    reduced = {v for v, _ in roles.reduction}
    for name, reads in roles.reads.items():
        if name in layouts and reads and any(variables(e) & reduced for e in reads[0].indices):
            flat = flat_offset(layouts[name], reads[0].indices)
            step = next((abs(k) for atom, k in terms_of(flat)[0] if atom is var), 0)
            return step * DTYPES[reads[0].buffer.dtype].itemsize
    return 0


def _lane_penalty(roles: Roles, layouts: dict[str, Layout], lane: int) -> float:
    """How much longer a step of a reduction takes because of what the lanes load."""
    var, second = roles.axes[lane], second_lane(layouts[roles.output.name], lane)
    worst = 1.0
    for name, reads in roles.reads.items():
        if not roles.reduction or name not in layouts:
            continue
        for access in reads:
            step = _step(flat_offset(layouts[name], access.indices), var, second)
            if step not in (0, 1):  # lanes never begin inside a block
                worst = max(worst, GATHERED)
    if roles.multiply_adds and lane != 1 and len(roles.axes) > 2:
        worst = max(worst, UNPACKED)
    return worst


@lru_cache(maxsize=100_000)
def _step(flat: IndexExpr, var: Var, count: int) -> int:
    """By how much an expression grows from the origin to so many steps along one variable."""
    origin = dict.fromkeys(variables(flat) | {var}, 0)
    return evaluate(flat, {**origin, var: count}) - evaluate(flat, origin)


def _name(layouts: dict[str, Layout], free: tuple[str, ...], output: Layout) -> str:
    """`NHWC`, or `NCHW → NHWC` where a data operand has another layout than the output."""
    rank = len(output.logical_shape)
    given = [layouts[n].describe() for n in free if len(layouts[n].logical_shape) >= rank]
    own = output.describe()
    return own if not given or given[0] == own else f"{given[0]} → {own}"


def touched(definition: PrimFunc, layouts: Mapping[str, Layout]) -> tuple[int, int]:
    """Bytes read and bytes written, each buffer once."""
    read = sum(layouts[b.name].buffer(b.name, b.dtype).bytes for b in definition.inputs)
    written = sum(layouts[b.name].buffer(b.name, b.dtype).bytes for b in definition.outputs)
    return read, written
