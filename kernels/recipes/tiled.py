"""Variants made by the register tile, in one layout of the output and one of the data.

In: a definition with its roles and the two layouts.  Out: the variant with its tiling and the work
it takes, or none.  The estimate is of one core's cycles; flow turns it into time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod

from graphflow.arith import FloorMod, IndexExpr, Var, evaluate, terms_of, variables
from graphflow.base.target import Target
from graphflow.cost import (
    GATHERED,
    MOST_PIXELS,
    UNPACKED,
    TileProblem,
    Work,
    fits_sets,
    near_weights,
    operation_cycles,
    plain_first,
    rows_worth_weights,
)
from graphflow.kernels.recipes.operand_layouts import OfferedLayout, SameAxisOrder, UserLayout
from graphflow.kernels.recipes.operands import Frame, place_operands
from graphflow.kernels.recipes.packing import packed_layout
from graphflow.kernels.recipes.roles import Roles
from graphflow.kernels.recipes.tiling import choose_tiling
from graphflow.kernels.recipes.variant import KernelVariant, Padding, Tiled
from graphflow.kernels.recipes.views import flat_offset
from graphflow.layout import Family, Layout
from graphflow.tir import DTYPES, Param, Role


def tiled_variant(
    roles: Roles,
    constants: frozenset[str],
    out: Family | SameAxisOrder | UserLayout,
    data: Family | UserLayout | OfferedLayout,
    target: Target,
) -> KernelVariant | None:
    """The variant that writes `out` and reads `data`; None where the operands cannot lie so."""
    operands = place_operands(roles, constants, out, data, target)
    if operands is None:
        return None
    frame, layouts = operands.frame, dict(operands.layouts)
    output, lane, group = frame.output, frame.lane, frame.group
    problem = _problem(roles, frame)
    apart = _pixel_bytes(roles, frame, layouts)
    if not fits_sets(apart, MOST_PIXELS, target):
        problem = replace(problem, pixel_bytes=apart)
    tiling, cycles = choose_tiling(problem, target)
    rows = _group_rows(frame, problem, cycles, target)
    width = max(panel.width for panel in tiling.panels)
    for buffer in frame.packed:
        layouts[buffer.name] = packed_layout(
            roles, buffer, lane, width, operands.layouts, group, frame.channels
        )
    cycles *= _lane_penalty(roles, layouts, lane, frame.second)
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
        private=frozenset(b.name for b in frame.packed),
        demands={},
        padding=padding,
        recipe=Tiled(tiling, group=group, group_rows=rows),
        work=Work(2.0 * roles.multiply_adds, cycles, problem.rows, *touched(roles.params, layouts)),
        vectorized=len(roles.output.shape) <= 2 or lane == 1,
    )


def _ends_in_block(layout: Layout) -> bool:
    """Whether the innermost physical axis runs within blocks of a logical one."""
    return any(isinstance(e, FloorMod) for e in layout.index_map.outputs[-1:])


@lru_cache(maxsize=10_000)
def _problem(roles: Roles, frame: Frame) -> TileProblem:
    """What a tile iterates over: the channels of one group, the pixels, all that is left.

    How far its pixels are apart is left open: that depends on the data, and seldom matters.
    """
    shape, group = roles.output.shape, frame.group
    outside = _axes_outside(frame)
    pixels, phases = (shape[outside[-1]], roles.phases[outside[-1]]) if outside else (1, 1)
    if pixels % phases == 0:
        pixels //= phases
    rows = max(1, prod(n for k, n in enumerate(shape) if k != frame.lane) // pixels)
    channels = shape[frame.lane]
    return TileProblem(
        channels=group or channels,
        pixels=pixels,
        rows=rows * (channels // group) if group else rows,
        steps=max(1, roles.steps),
        nests=max(1, len(roles.nests)),
        weight_bytes=sum(b.bytes for b in frame.packed),
        pixel_bytes=0,
        whole_vectors=not group and (_ends_in_block(frame.output) or frame.output.is_padded),
        dtype=roles.output.dtype,
        sum_dtype=roles.sum_dtype,
    )


@lru_cache(maxsize=10_000)
def _axes_outside(frame: Frame) -> tuple[int, ...]:
    """The logical axes of more than one element outside the lanes, the pixels last."""
    output = frame.output
    order = [
        next(k for k, v in enumerate(output.index_map.inputs) if v in variables(e))
        for e in output.index_map.outputs
        if variables(e)
    ]
    return tuple(k for k in order if k != frame.lane and output.logical_shape[k] > 1)


def _group_rows(frame: Frame, problem: TileProblem, cycles: float, target: Target) -> int:
    """How many rows of an image one group computes before the next one does; 0 where that is all.

    As few as make up for its weights, which are fetched again each time: threads share what is
    outermost, and so read and write the rows that they have in the kernels before and after.
    """
    outside = _axes_outside(frame)
    if not frame.group or len(outside) < 2:
        return 0
    extent = frame.output.logical_shape[outside[-2]]
    weights = problem.weight_bytes * frame.group / frame.output.logical_shape[frame.lane]
    near = near_weights(problem.weight_bytes, target)
    wanted = rows_worth_weights(weights, near, cycles / problem.rows, target)
    rows = next(n for n in range(1, extent + 1) if extent % n == 0 and n >= min(wanted, extent))
    return rows if rows < extent else 0


def _pixel_bytes(roles: Roles, frame: Frame, layouts: Mapping[str, Layout]) -> int:
    """How far apart the elements for neighbouring pixels lie in a reduced operand."""
    outside = _axes_outside(frame)
    name = next((name for name in _reduced(roles) if name in layouts), None)
    if not outside or name is None:
        return 0
    access = roles.reads[name][0]
    terms, _ = terms_of(flat_offset(layouts[name], access.indices))
    step = next((abs(k) for atom, k in terms if atom is roles.axes[outside[-1]]), 0)
    return step * DTYPES[access.buffer.dtype].itemsize


@lru_cache(maxsize=4096)
def _reduced(roles: Roles) -> tuple[str, ...]:
    """The inputs that are read along the loops of a reduction."""
    loops = {v for v, _ in roles.reduction}
    return tuple(
        name
        for name, reads in roles.reads.items()
        if reads and any(variables(e) & loops for e in reads[0].indices)
    )


def _lane_penalty(roles: Roles, layouts: Mapping[str, Layout], lane: int, second: int) -> float:
    """How much longer a step of a reduction takes because of what the lanes load."""
    if roles.reduction and any(
        _is_gathered(roles, name, layouts[name], lane, second) for name in roles.reads
    ):
        return GATHERED
    return UNPACKED if roles.multiply_adds and lane != 1 and len(roles.axes) > 2 else 1.0


@lru_cache(maxsize=10_000)
def _is_gathered(roles: Roles, name: str, layout: Layout, lane: int, second: int) -> bool:
    """Whether the first lanes load elements of an operand that are neither the same nor adjacent;
    lanes never begin inside a block."""
    var = roles.axes[lane]
    flats = {flat_offset(layout, access.indices) for access in roles.reads[name]}
    return any(_step(flat, var, second) not in (0, 1) for flat in flats)


def _step(flat: IndexExpr, var: Var, count: int) -> int:
    """By how much an expression grows from the origin to so many steps along one variable."""
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


def touched(params: Iterable[Param], layouts: Mapping[str, Layout]) -> tuple[int, int]:
    """Bytes read and bytes written, each buffer once."""
    read = written = 0
    for param in params:
        size = layouts[param.buffer.name].bytes(param.buffer.dtype)
        if param.role is Role.INPUT:
            read += size
        else:
            written += size
    return read, written
