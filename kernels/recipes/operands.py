"""Where the operands of a tiled form lie, once its output and its data are decided.

In: a definition with its roles, the layouts of the output and of the data.  Out: a layout for every
operand but the weights, which are packed for the tile that is chosen afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from graphflow.arith import FloorDiv, Var, floor_div, terms_of, variables
from graphflow.kernels.recipes.placing import Given, Like, Offered, lane_axis, operand_layout
from graphflow.kernels.recipes.roles import Roles
from graphflow.layout import Family, Layout, row_major
from graphflow.target import Target
from graphflow.tir import Buffer, PrimFunc


@dataclass(frozen=True, slots=True)
class Operands:
    """Layouts of the output and of the operands; constants that are yet to be packed; operands that
    lie as the data does; the axis along the lanes, and the number of its elements that read the
    same part of an operand (0: all do)."""

    layouts: dict[str, Layout]
    packed: tuple[Buffer, ...]
    free: tuple[str, ...]
    lane: int
    group: int


def place_operands(
    definition: PrimFunc,
    roles: Roles,
    constants: frozenset[str],
    out: Family | Like | Given,
    data: Family | Given | Offered,
    target: Target,
) -> Operands | None:
    """The operands' places, or None where there is no form with the output and the data so."""
    output = out.instantiate(roles.output.shape)
    if output is None:
        return None
    lane = lane_axis(output)
    if output.is_padded and roles.output.shape[lane] == 1:
        return None  # one channel has no loop that could run on over the padding
    group = _group(roles, lane, target)
    if group and isinstance(out, Like):
        return None
    layouts: dict[str, Layout] = {roles.output.name: output}
    packed: list[Buffer] = []
    free: list[str] = []
    for buffer in definition.inputs:
        constant = buffer.name in constants
        if constant and _is_weight(roles, buffer.name, lane):
            packed.append(buffer)
            continue
        if constant and len(buffer.shape) != len(roles.output.shape):
            if isinstance(out, Like) and roles.depends_on(buffer.name, lane):
                return None  # its elements would be gathered
            layouts[buffer.name] = row_major(buffer.shape)
            continue
        # A constant is laid out as the form likes best; only data comes in several layouts.
        as_data = not constant and _follows_data(roles, buffer, lane, group, out, data)
        if as_data:
            free.append(buffer.name)
        layout = operand_layout(data if as_data else out, out, buffer)
        if layout is None:
            return None
        layouts[buffer.name] = layout
    if isinstance(data, Offered):
        if layouts.get(data.name) != data.layout:
            return None
    elif not free and data is not out:
        return None
    return Operands(layouts, tuple(packed), tuple(free), lane, group)


def _follows_data(
    roles: Roles,
    buffer: Buffer,
    lane: int,
    group: int,
    out: Family | Like | Given,
    data: Family | Given | Offered,
) -> bool:
    """Whether an operand lies as the data does, rather than as the output."""
    if _is_free(roles, buffer, lane):
        return True
    offered = isinstance(data, Offered) and data.name == buffer.name
    wanted = offered and not isinstance(out, Like)
    return group > 0 and (wanted or _is_same_in_group(roles, buffer.name, lane, group))


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
                    and 2 * atom.divisor >= target.lanes()
                ):
                    return atom.divisor
    return 0


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
    apart = loses_axes(roles, buffer) or not roles.depends_on(buffer.name, lane)
    return channels_reduced or apart


def loses_axes(roles: Roles, buffer: Buffer) -> bool:
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
