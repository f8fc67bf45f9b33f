"""The forms a kernel can take on a target, derived from its access relations.

In: a compute definition, which of its inputs are constants, and the target.  Out: alternatives,
from the plainest on.  No kernel is built here; a test builds the forms of small kernels and checks
the claims against what analysis finds in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import TypeAlias

from graphflow.arith import (
    FloorDiv,
    FloorMod,
    IndexExpr,
    Var,
    constant_value,
    evaluate,
    terms_of,
    variables,
)
from graphflow.kernels.recipes.alternative import (
    Alternative,
    Padding,
    Staged,
    Tiled,
    View,
    Work,
)
from graphflow.kernels.recipes.halo import halo_forms
from graphflow.kernels.recipes.movement import flat_offset, view_forms
from graphflow.kernels.recipes.packing import packed_layout
from graphflow.kernels.recipes.roles import Roles, multiply_adds, operations, roles_of
from graphflow.kernels.recipes.tiling import Plane, choose_tiling
from graphflow.layout import (
    Demand,
    Family,
    IndexMap,
    Layout,
    families,
    pad_region_name,
    reduction_demand,
    row_major,
)
from graphflow.target import Target
from graphflow.tir import DTYPES, Buffer, PrimFunc

MASKING = 1.05
"""How much longer a reduction takes that stops at the logical extent of a padded axis."""

GATHERED, UNPACKED = 8.0, 2.6
"""How much longer a step takes whose lanes load elements apart, or run along image rows, where no
loaded vector serves more than one multiply-add."""

SCALAR_CYCLES = 4.0
"""Cycles of one operation outside lanes, loads and stores included."""


Offers: TypeAlias = tuple[tuple[str, tuple[Layout, ...]], ...]
"""Layouts of no family, by the input that has them."""


@dataclass(frozen=True, slots=True)
class _Offered:
    """One layout for one operand; the others follow the family of the output."""

    name: str
    layout: Layout


@dataclass(frozen=True, slots=True)
class _Like:
    """The family of a layout that has the channels, in some order, innermost."""

    layout: Layout

    @property
    def rank(self) -> int:
        """The rank of its tensors."""
        return len(self.layout.logical_shape)

    def instantiate(self, shape: tuple[int, ...]) -> Layout | None:
        """The same order for another shape; None where that has other channels."""
        given, outputs = self.layout, self.layout.index_map.outputs
        if len(shape) != self.rank:
            return None
        channel = lane_axis(given)
        placed = {e for e in outputs[:-1] if isinstance(e, Var)}
        for axis, var in enumerate(given.index_map.inputs):
            kept = shape[axis] == given.logical_shape[axis]
            if not kept and (axis == channel or var not in placed):
                return None
        extents = dict(zip(given.index_map.inputs, shape, strict=True))
        box = [extents[e] for e in outputs[:-1] if isinstance(e, Var)]
        index_map = IndexMap.from_function(self.rank, lambda *_: outputs, shape)
        return Layout.of(index_map, shape, (*box, given.physical_shape[-1]))


def channel_order(layout: Layout) -> IndexExpr | None:
    """Where a channel is on the innermost axis, if that has them all, in another order than theirs.

    None where the other axes are not logical ones as they are.
    """
    *others, last = layout.index_map.outputs
    shape = layout.logical_shape
    channel = variables(last)
    if len(channel) != 1 or isinstance(last, Var) or layout.is_padded:
        return None
    (var,) = channel
    whole = layout.physical_shape[-1] == shape[layout.index_map.inputs.index(var)]
    plain = all(isinstance(e, Var) and e is not var for e in others)
    return last if whole and plain else None


@lru_cache(maxsize=4096)
def alternatives(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    finite: frozenset[str] = frozenset(),
    offered: Offers = (),
) -> tuple[Alternative, ...]:
    """All forms of `definition`; `constants` are the inputs known at compile time, and `finite`
    those of them that hold neither NaN nor infinity.

    Besides the layouts of families, inputs are read in those that are `offered`.
    """
    roles = roles_of(definition)
    forms = list(view_forms(definition, target, dict(offered)))
    # One element has no lanes, and none at all no loops.
    if (
        roles is None
        or prod(roles.output.shape) == 1
        or any(p.buffer.size == 0 for p in definition.params)
    ):
        forms.append(_staged(definition))
    else:
        forms += _tiled(definition, roles, constants, target, finite)
        forms += _as_offered(definition, roles, constants, target, offered)
    distinct: dict[tuple[object, ...], Alternative] = {}
    for form in forms:
        kind = isinstance(form.recipe, View) and form.recipe.outward
        claims = (type(form.recipe), kind, tuple(form.layouts.items()), tuple(form.demands.items()))
        distinct.setdefault(claims, form)
    return tuple(distinct.values())


def _staged(definition: PrimFunc) -> Alternative:
    layouts = {p.buffer.name: row_major(p.buffer.shape) for p in definition.params}
    cycles = operations(definition) * SCALAR_CYCLES
    work = Work(2.0 * multiply_adds(definition), cycles, 1, *_bytes(definition, layouts))
    name = "row-major, stage by stage"
    return Alternative(name, layouts, frozenset(), {}, Padding.NONE, Staged(), work, False)


def _tiled(
    definition: PrimFunc,
    roles: Roles,
    constants: frozenset[str],
    target: Target,
    finite: frozenset[str],
) -> Iterator[Alternative]:
    choices = families(len(roles.output.shape), target.lanes())
    seen: set[tuple[Layout | None, ...]] = set()
    for out in choices:
        for data in choices:
            placed = _placed(definition, out, data)
            if placed in seen:
                continue  # nothing is padded, so two families are one
            seen.add(placed)
            form = _form(definition, roles, constants, out, data, target)
            if form is not None:
                yield from _with_demands(form, roles)
                if data is out:
                    yield from halo_forms(form, roles, finite)


def _as_offered(
    definition: PrimFunc,
    roles: Roles,
    constants: frozenset[str],
    target: Target,
    offered: Offers,
) -> Iterator[Alternative]:
    """Forms that read an operand as it is offered, and write the layout of a family or that one."""
    for name, layouts in offered:
        for layout in layouts:
            outs: list[Family | _Like] = list(families(len(roles.output.shape), target.lanes()))
            if channel_order(layout) is not None:
                outs.append(_Like(layout))
            for out in outs:
                form = _form(definition, roles, constants, out, _Offered(name, layout), target)
                if form is not None:
                    yield from _with_demands(form, roles)


def _placed(definition: PrimFunc, out: Family, data: Family) -> tuple[Layout | None, ...]:
    """The layouts that two families give to the output and to every operand of its rank."""
    operands = [b.shape for b in definition.inputs if len(b.shape) == data.rank]
    output = definition.outputs[0].shape
    given = (f.instantiate(shape) for shape in operands for f in (out, data))
    return (out.instantiate(output), *given)


def _with_demands(form: Alternative, roles: Roles) -> Iterator[Alternative]:
    """The form, and where it reduces over a padded axis, one that reads the padding as well.

    Sums of products always run over the logical extent.  A reduction of bare elements may run over
    the padding too, if that holds a neutral element; then it needs no mask.
    """
    padded = _padded_reductions(form, roles)
    if not padded:
        yield form
        return
    masked = replace(form.work, cycles=form.work.cycles * MASKING)
    yield replace(form, work=masked)
    demands: dict[str, Demand] = {}
    for name in padded:
        assert roles.bare is not None
        demands[name] = reduction_demand(roles.bare, roles.output.dtype)[0]
    yield replace(form, name=f"{form.name}, over the padding", demands=demands)


def _padded_reductions(form: Alternative, roles: Roles) -> list[str]:
    """Inputs of which bare elements are reduced along an axis that their layout pads."""
    if roles.bare is None:
        return []
    reduced = {v for v, _ in roles.reduction}
    found = []
    for name, reads in roles.reads.items():
        layout = form.layouts[name]
        if not layout.is_padded:
            continue
        regions = {r.name for r in layout.regions()}
        along = [
            axis
            for axis, index in enumerate(reads[0].indices)
            if index in reduced and pad_region_name((axis,)) in regions
        ]
        if along:
            found.append(name)
    return found


def _form(
    definition: PrimFunc,
    roles: Roles,
    constants: frozenset[str],
    out: Family | _Like,
    data: Family | _Offered,
    target: Target,
) -> Alternative | None:
    output = out.instantiate(roles.output.shape)
    if output is None:
        return None
    lane = lane_axis(output)
    if output.is_padded and roles.output.shape[lane] == 1:
        return None  # one channel has no loop that could run on over the padding
    layouts: dict[str, Layout] = {roles.output.name: output}
    packed: list[Buffer] = []
    free: list[str] = []
    group = _group(roles, lane, target)
    for buffer in definition.inputs:
        family: Family | _Like | _Offered = out
        if buffer.name in constants and _is_weight(roles, buffer, lane):
            packed.append(buffer)
            continue
        if buffer.name in constants and len(buffer.shape) != len(roles.output.shape):
            if isinstance(out, _Like) and roles.depends_on(buffer.name, lane):
                return None  # its elements would be gathered
            layouts[buffer.name] = row_major(buffer.shape)
            continue
        # A constant is laid out as the form likes best; only data comes in several layouts.
        wanted = isinstance(data, _Offered) and data.name == buffer.name
        if buffer.name not in constants and (
            _is_free(roles, buffer.name, lane) or (wanted and group and not isinstance(out, _Like))
        ):
            family = data
            free.append(buffer.name)
        layout = _operand_layout(family, out, buffer)
        if layout is None:
            return None
        layouts[buffer.name] = layout
    if isinstance(data, _Offered):
        if layouts.get(data.name) != data.layout:
            return None
    elif not free and data is not out:
        return None
    if group and (
        isinstance(out, _Like)
        or output.is_padded
        or isinstance(output.index_map.outputs[-1], FloorMod)
    ):
        return None  # vectors would straddle blocks
    plane = _plane(roles, output, packed, layouts, lane)
    if group:
        rows = plane.rows * (plane.channels // group)
        plane = replace(plane, channels=group, rows=rows)
    tiling, cycles = choose_tiling(plane, target)
    width = max(panel.width for panel in tiling.panels)
    for buffer in packed:
        layouts[buffer.name] = packed_layout(
            roles, buffer, lane, width, layouts, group, channel_order(output)
        )
    cycles *= _lane_penalty(roles, layouts, lane)
    vector = len(roles.output.shape) <= 2 or lane == 1
    largest = max((layouts[n] for n in free), key=lambda x: prod(x.physical_shape), default=None)
    if largest is not None and isinstance((*largest.index_map.outputs, 0)[-1], FloorMod):
        cycles *= 1.01  # a blocked reduction has one loop more, and shorter ones
    if isinstance(output.index_map.outputs[-1], FloorMod):
        cycles *= 1.001  # each store finds its block first
    write_padding = output.is_padded
    if write_padding:
        tiling = replace(tiling, write_padding=True)
    padding = Padding.NONE
    if write_padding:
        padding = Padding.UNDEF if roles.reduction else Padding.EVALUATED
    work = Work(2.0 * roles.multiply_adds, cycles, plane.rows, *_bytes(definition, layouts))
    return Alternative(
        _name(layouts, free, output),
        layouts,
        frozenset(b.name for b in packed),
        {},
        padding,
        Tiled(tiling, group=group),
        work,
        vector,
    )


def _group(roles: Roles, lane: int, target: Target) -> int:
    """Channels that read the same part of an operand, where a vector could straddle two parts.

    Groups far narrower than a vector are not worth a tile each; their lanes gather.
    """
    var = roles.axes[lane]
    for reads in roles.reads.values():
        for index in (e for access in reads for e in access.indices):
            for atom, _ in terms_of(index)[0]:
                if (
                    isinstance(atom, FloorDiv)
                    and atom.numerator is var
                    and 2 * atom.divisor >= (target.lanes())
                ):
                    return atom.divisor
    return 0


def _lane_penalty(roles: Roles, layouts: dict[str, Layout], lane: int) -> float:
    """How much longer a step of a reduction takes because of what the lanes load."""
    var, second = roles.axes[lane], _second_lane(layouts[roles.output.name], lane)
    worst = 1.0
    for name, reads in roles.reads.items():
        if not roles.reduction or name not in layouts:
            continue
        for access in reads:
            flat = flat_offset(layouts[name], access.indices)
            origin = dict.fromkeys(variables(flat) | {var}, 0)
            step = evaluate(flat, {**origin, var: second}) - evaluate(flat, origin)
            if step not in (0, 1):  # lanes never begin inside a block
                worst = max(worst, GATHERED)
    if roles.multiply_adds and lane != 1 and len(roles.axes) > 2:
        worst = max(worst, UNPACKED)
    return worst


def _second_lane(output: Layout, lane: int) -> int:
    """The channel next to channel 0 in memory."""
    place = [0] * len(output.physical_shape)
    place[-1] = 1 if output.physical_shape[-1] > 1 else 0
    return constant_value(output.logical_index(place)[lane]) or 1


def _name(layouts: dict[str, Layout], free: list[str], output: Layout) -> str:
    """`NHWC`, or `NCHW → NHWC` where a data operand has another layout than the output."""
    rank = len(output.logical_shape)
    given = [layouts[n].describe() for n in free if len(layouts[n].logical_shape) == rank]
    own = output.describe()
    return own if not given or given[0] == own else f"{given[0]} → {own}"


def lane_axis(layout: Layout) -> int:
    """The logical axis that runs along the innermost physical one of more than one element."""
    axes = list(zip(layout.index_map.outputs, layout.physical_shape, strict=True))
    last = next((e for e, n in reversed(axes) if n > 1 and variables(e)), axes[-1][0])
    used = variables(last)
    return next(k for k, v in enumerate(layout.index_map.inputs) if v in used)


def _operand_layout(
    family: Family | _Like | _Offered, other: Family | _Like, buffer: Buffer
) -> Layout | None:
    if isinstance(family, _Offered):
        if family.name == buffer.name:
            return family.layout
        family = other
    if len(buffer.shape) != family.rank:
        return row_major(buffer.shape)
    return family.instantiate(buffer.shape)


def _is_weight(roles: Roles, buffer: Buffer, lane: int) -> bool:
    """Indexed by the lane variable and by reduction variables alone, each axis by one of them."""
    known: set[Var] = {roles.axes[lane], *(v for v, _ in roles.reduction)}
    reads = roles.reads[buffer.name]
    return bool(reads) and all(
        index in known and (index is roles.axes[lane] or len(access.indices) > 1)
        for access in reads
        for index in access.indices
    ) and any(roles.axes[lane] in variables(e) for e in reads[0].indices)  # fmt: skip


def _is_free(roles: Roles, name: str, lane: int) -> bool:
    """Whether an operand may be laid out otherwise than the output.

    It does not run along the lanes, or its channels are reduced away: then the lanes run along an
    axis that lies inside in one layout and outside in another, and loads of it are gathered.
    """
    shape = roles.output.shape
    channels_reduced = roles.bare is not None and len(shape) > 2 and shape[1] == 1
    return channels_reduced or not roles.depends_on(name, lane)


def _plane(
    roles: Roles, output: Layout, packed: list[Buffer], layouts: dict[str, Layout], lane: int
) -> Plane:
    channels = roles.output.shape[lane]
    padded = isinstance(output.index_map.outputs[-1], FloorMod)
    others = [n for k, n in enumerate(roles.output.shape) if k != lane]
    order = [
        next(k for k, v in enumerate(output.index_map.inputs) if v in variables(e))
        for e in output.index_map.outputs
        if variables(e)
    ]
    inner = [k for k in order if k != lane and roles.output.shape[k] > 1]
    pixels = roles.output.shape[inner[-1]] if inner else 1
    steps = prod(n for _, n in roles.reduction)
    return Plane(
        channels=channels,
        pixels=pixels,
        rows=max(1, prod(others) // pixels),
        steps=max(1, steps),
        weight_bytes=sum(b.bytes for b in packed),
        pixel_bytes=_pixel_bytes(roles, layouts, inner[-1]) if inner else 0,
        whole_vectors=padded or output.is_padded,
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


def _bytes(definition: PrimFunc, layouts: dict[str, Layout]) -> tuple[int, int]:
    read = sum(layouts[b.name].buffer(b.name, b.dtype).bytes for b in definition.inputs)
    written = sum(layouts[b.name].buffer(b.name, b.dtype).bytes for b in definition.outputs)
    return read, written
