"""The forms a kernel can take on a target, derived from its access relations.

In: a compute definition, which of its inputs are constants, and the target.  Out: alternatives,
from the plainest on.  No kernel is built here; a test builds the forms of small kernels and checks
the claims against what analysis finds in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod

from graphflow.arith import (
    FloorDiv,
    FloorMod,
    IndexExpr,
    Var,
    evaluate,
    floor_div,
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
from graphflow.kernels.recipes.known import NOTHING, Known
from graphflow.kernels.recipes.movement import flat_offset, moves_of, offered_views, view_forms
from graphflow.kernels.recipes.packing import packed_layout
from graphflow.kernels.recipes.placing import (
    Given,
    Like,
    Offered,
    Offers,
    channel_order,
    lane_axis,
    operand_layout,
    second_lane,
)
from graphflow.kernels.recipes.roles import Roles, iterations, multiply_adds, operations, roles_of
from graphflow.kernels.recipes.rows import along_rows
from graphflow.kernels.recipes.tiling import Plane, choose_tiling
from graphflow.layout import (
    Demand,
    Family,
    Layout,
    families,
    pad_region_name,
    reduction_demand,
    row_major,
)
from graphflow.target import Target
from graphflow.tir import DTYPES, Buffer, Load, PrimFunc, Store

MASKING = 1.05
"""How much longer a reduction takes that stops at the logical extent of a padded axis."""

GATHERED, UNPACKED = 8.0, 2.6
"""How much longer a step takes whose lanes load elements apart, or run along image rows, where no
loaded vector serves more than one multiply-add."""

MOVE_CYCLES = 2.0
"""Cycles to load and store one element by itself."""

SCALAR_CYCLES = 4.0
"""Cycles of one operation outside lanes, loads and stores included."""


@lru_cache(maxsize=4096)
def alternatives(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    known: Known = NOTHING,
    offered: Offers = (),
) -> tuple[Alternative, ...]:
    """All forms of `definition`; `constants` are the inputs that are there before the first run,
    and `known` says what is known of any.

    Besides the layouts of families, inputs are read in those that are `offered`.
    """
    roles = _tileable(definition)
    if offered:
        forms = [*alternatives(definition, constants, target, known)]
        forms += offered_views(definition, target, dict(offered))
        if roles is not None:
            forms += _as_offered(definition, roles, constants, target, offered)
    else:
        forms = [*view_forms(definition, target)]
        if roles is None:
            forms.append(plain_form(definition))
            forms += _moved(definition, target)
        else:
            forms += _tiled(definition, roles, constants, target, known)
    distinct: dict[tuple[object, ...], Alternative] = {}
    for form in forms:
        kind = isinstance(form.recipe, View) and form.recipe.outward
        claims = (type(form.recipe), kind, tuple(form.layouts.items()), tuple(form.demands.items()))
        distinct.setdefault(claims, form)
    return tuple(distinct.values())


@lru_cache(maxsize=4096)
def _tileable(definition: PrimFunc) -> Roles | None:
    """The roles, where they permit tiles: one element has no lanes, and none at all no loops."""
    roles = roles_of(definition)
    empty = any(p.buffer.size == 0 for p in definition.params)
    return None if roles is None or empty or prod(roles.output.shape) == 1 else roles


def forms_in(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    out: Family | Given,
    data: Family | Given | Offered,
) -> Iterator[Alternative]:
    """The tiled forms in layouts that are no family's; whether they can be made is not known."""
    roles = _tileable(definition)
    form = None if roles is None else _form(definition, roles, constants, out, data, target)
    if roles is not None and form is not None:
        yield from _with_demands(form, roles)


def plain_form(definition: PrimFunc, placed: Mapping[str, Layout] | None = None) -> Alternative:
    """The form made stage by stage, its parameters row-major where `placed` names no layout."""
    layouts = {p.buffer.name: row_major(p.buffer.shape) for p in definition.params}
    layouts |= placed or {}
    cycles = operations(definition) * SCALAR_CYCLES
    work = Work(2.0 * multiply_adds(definition), cycles, 1, *_bytes(definition, layouts))
    apart = [f"{n} {x.describe()}" for n, x in layouts.items() if n in (placed or {})]
    name = f"{', '.join(apart) or 'row-major'}, stage by stage"
    return Alternative(name, layouts, frozenset(), {}, Padding.NONE, Staged(), work, False)


def _moved(definition: PrimFunc, target: Target) -> Iterator[Alternative]:
    """Movement with the operands in layouts of one family, which is not row-major."""
    moves = moves_of(definition)
    if not moves or len(definition.outputs) != 1:
        return
    rank = len(definition.outputs[0].shape)
    others = families(rank, target.lanes())[1:]
    for out, data in product(others, others):
        layouts = {b.name: data.instantiate(b.shape) for b in definition.inputs
                   if len(b.shape) == rank}  # fmt: skip
        layouts[definition.outputs[0].name] = out.instantiate(definition.outputs[0].shape)
        placed = {name: layout for name, layout in layouts.items() if layout is not None}
        if len(placed) < len(definition.params):
            continue
        cycles = sum(
            iterations(domain.axes) * _move_cycles(store, load, placed, target)
            for store, load, domain in moves
        )
        shape = definition.outputs[0].shape
        work = Work(0.0, cycles, prod(shape) // shape[1], *_bytes(definition, placed))
        output = placed[definition.outputs[0].name]
        padding = Padding.UNDEF if output.is_padded else Padding.NONE
        given = placed[definition.inputs[0].name].describe()
        name = f"copied from {given} to {output.describe()}"
        yield Alternative(name, placed, frozenset(), {}, padding, Staged(), work, False)


def _move_cycles(store: Store, load: Load, layouts: Mapping[str, Layout], target: Target) -> float:
    """Cycles for one element: less where both sides lie in the order in which they are walked."""
    steps = []
    for access in (store, load):
        flat = flat_offset(layouts[access.buffer.name], access.indices)
        steps.append({atom for atom, k in terms_of(flat)[0] if k == 1 and isinstance(atom, Var)})
    return MOVE_CYCLES / target.lanes() if steps[0] & steps[1] else MOVE_CYCLES


def _tiled(
    definition: PrimFunc,
    roles: Roles,
    constants: frozenset[str],
    target: Target,
    known: Known,
) -> Iterator[Alternative]:
    rank = len(roles.output.shape)
    choices = families(rank, target.lanes())
    wider = {len(b.shape) for b in definition.inputs if _loses_axes(roles, b)}
    seen: set[tuple[Layout | None, ...]] = set()
    for out in choices:
        for data in (*choices, *(f for r in sorted(wider) for f in families(r, target.lanes()))):
            placed = _placed(definition, out, data)
            if placed in seen:
                continue  # nothing is padded, so two families are one
            seen.add(placed)
            form = _form(definition, roles, constants, out, data, target)
            if form is not None:
                yield from _with_demands(form, roles)
                if data is out:
                    yield from halo_forms(form, roles, known)


def _cheaper_rows(
    form: Alternative, roles: Roles, constants: frozenset[str], target: Target
) -> Alternative:
    """The form, or if that is cheaper, the one with its lanes along rows of the data."""
    rows = along_rows(form, roles, constants, target)
    cheaper = rows is not None and rows.work.cycles < form.work.cycles
    return rows if rows is not None and cheaper else form


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
            outs: list[Family | Like] = list(families(len(roles.output.shape), target.lanes()))
            if channel_order(layout) is not None:
                outs.append(Like(layout))
            for out in outs:
                form = _form(definition, roles, constants, out, Offered(name, layout), target)
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
    out: Family | Like | Given,
    data: Family | Given | Offered,
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
        family: Family | Like | Given | Offered = out
        if buffer.name in constants and _is_weight(roles, buffer.name, lane):
            packed.append(buffer)
            continue
        if buffer.name in constants and len(buffer.shape) != len(roles.output.shape):
            if isinstance(out, Like) and roles.depends_on(buffer.name, lane):
                return None  # its elements would be gathered
            layouts[buffer.name] = row_major(buffer.shape)
            continue
        # A constant is laid out as the form likes best; only data comes in several layouts.
        wanted = (
            isinstance(data, Offered) and data.name == buffer.name and not isinstance(out, Like)
        )
        if buffer.name not in constants and (
            _is_free(roles, buffer, lane)
            or (group and (wanted or _is_same_in_group(roles, buffer.name, lane, group)))
        ):
            family = data
            free.append(buffer.name)
        layout = operand_layout(family, out, buffer)
        if layout is None:
            return None
        layouts[buffer.name] = layout
    if isinstance(data, Offered):
        if layouts.get(data.name) != data.layout:
            return None
    elif not free and data is not out:
        return None
    if group and isinstance(out, Like):
        return None
    blocks = isinstance(output.index_map.outputs[-1], FloorMod)
    plane = _plane(roles, output, packed, layouts, lane)
    if group:
        rows = plane.rows * (plane.channels // group)
        plane = replace(plane, channels=group, rows=rows, whole_vectors=False)
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
    if blocks:
        cycles *= 1.001  # each store finds its block first
    if blocks and group % target.lanes():
        cycles += SCALAR_CYCLES * prod(roles.output.shape)  # groups begin anywhere in a block
    write_padding = output.is_padded and not group
    if write_padding:
        tiling = replace(tiling, write_padding=True)
    padding = Padding.KEPT if group else Padding.NONE
    if write_padding:
        padding = Padding.UNDEF if roles.reduction else Padding.EVALUATED
    work = Work(2.0 * roles.multiply_adds, cycles, plane.rows, *_bytes(definition, layouts))
    form = Alternative(
        _name(layouts, free, output),
        layouts,
        frozenset(b.name for b in packed),
        {},
        padding,
        Tiled(tiling, group=group),
        work,
        vector,
    )
    return _cheaper_rows(form, roles, constants, target)


@lru_cache(maxsize=10_000)
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


def _name(layouts: dict[str, Layout], free: list[str], output: Layout) -> str:
    """`NHWC`, or `NCHW → NHWC` where a data operand has another layout than the output."""
    rank = len(output.logical_shape)
    given = [layouts[n].describe() for n in free if len(layouts[n].logical_shape) >= rank]
    own = output.describe()
    return own if not given or given[0] == own else f"{given[0]} → {own}"


@lru_cache(maxsize=10_000)
def _is_weight(roles: Roles, name: str, lane: int) -> bool:
    """Indexed by the lane variable and by reduction variables alone, each axis by one of them."""
    known: set[Var] = {roles.axes[lane], *(v for v, _ in roles.reduction)}
    reads = roles.reads[name]
    return bool(reads) and all(
        index in known and (index is roles.axes[lane] or len(access.indices) > 1)
        for access in reads
        for index in access.indices
    ) and any(roles.axes[lane] in variables(e) for e in reads[0].indices)  # fmt: skip


def _is_free(roles: Roles, buffer: Buffer, lane: int) -> bool:
    """Whether an operand may be laid out otherwise than the output.

    It does not run along the lanes, or it has other axes, or its channels are reduced away: then
    the lanes may run along an axis that lies inside in one layout and outside in another, and loads
    of it are gathered.
    """
    shape = roles.output.shape
    channels_reduced = roles.bare is not None and len(shape) > 2 and shape[1] == 1
    apart = _loses_axes(roles, buffer) or not roles.depends_on(buffer.name, lane)
    return channels_reduced or apart


def _loses_axes(roles: Roles, buffer: Buffer) -> bool:
    """Whether axes of an operand are reduced away that the output does not have at all."""
    reduced = {v for v, _ in roles.reduction}
    used = {v for a in roles.reads[buffer.name] for e in a.indices for v in variables(e)}
    return len(buffer.shape) > len(roles.output.shape) and not reduced.isdisjoint(used)


def _is_same_in_group(roles: Roles, name: str, lane: int, group: int) -> bool:
    """Whether all channels of one group read the same elements of an operand."""
    var = roles.axes[lane]
    groups = {atom for a in roles.reads[name] for e in a.indices for atom, _ in terms_of(e)[0]
              if var in variables(atom)}  # fmt: skip
    return groups == {floor_div(var, group)}


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
    phases = roles.phases[inner[-1]] if inner else 1
    if pixels % phases == 0:
        pixels //= phases
    return Plane(
        channels=channels,
        pixels=pixels,
        rows=max(1, prod(others) // pixels),
        steps=max(1, roles.steps),
        nests=max(1, len(roles.nests)),
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
