"""Packed layouts of constant operands: panel after panel, each read once from front to back.

In: the roles of a kernel, a constant operand, the width of a panel (the columns of a tile), and the
layouts of the other operands.  Out: the operand's layout.  What always holds: a tile reads its
panel in the order of memory, because the axes of the panel are in the order of the reduction loops,
which the data operand decides (`tiled_kernel` orders the loops by the same strides).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from graphflow import arith
from graphflow.base.fields import replace
from graphflow.kernels.recipes.analysis.roles import Roles
from graphflow.layout import IndexMap, Layout, smallest_box
from graphflow.tir import Access, Buffer


def packed_layout(
    roles: Roles,
    buffer: Buffer,
    lane: int,
    width: int,
    layouts: Mapping[str, Layout],
    group: int = 0,
    channels: arith.IndexExpr | None = None,
    terms: int = 1,
) -> Layout:
    """The layout of a constant operand that runs along the lanes, in panels of `width` columns.

    `lane` is the output axis along the lanes, `layouts` are those of the other operands.  Panels do
    not cross from one `group` of channels into the next (0: there are no groups).  `channels` is
    the position of a channel in the lanes, where that is not the logical order.  `terms` is the
    number of neighbouring terms of the reduction that a lane has next to each other.
    """
    if len(buffer.shape) == 1:
        return _packed_vector(buffer.shape[0], width, group, channels)
    beside = _read_beside(roles, buffer.name)
    data = next((name for name in layouts if name in beside), "")
    place = (layouts[data].index_map, layouts[data].physical_shape) if data else None
    axis = roles.axes[lane]
    return _packed_beside(roles, buffer, axis, width, data, place, group, channels, terms)


@lru_cache(maxsize=10_000)
def _packed_beside(
    roles: Roles,
    buffer: Buffer,
    lane: arith.Var,
    width: int,
    data: str,
    place: tuple[IndexMap, tuple[int, ...]] | None,
    group: int,
    channels: arith.IndexExpr | None,
    terms: int,
) -> Layout:
    """The layout of an operand of several axes; `place` is the index map and box of `data`."""
    order = _order_of(roles, buffer.name, lane, data, place)
    lane_of = roles.reads[buffer.name][0].indices.index(lane)
    return packed_weights(buffer.shape, lane_of, width, order, group, channels, terms)


@lru_cache(maxsize=4096)
def _packed_vector(extent: int, width: int, group: int, channels: arith.IndexExpr | None) -> Layout:
    """The layout of a vector along the lanes, padded to the end of the last group's last panel."""
    whole = group or extent
    size = extent - whole + -(-whole // width) * width
    in_order = IndexMap.from_function(1, lambda i: (_lane(i, channels),), (extent,))
    return Layout.of(in_order, (extent,), (size,))


def _lane(channel: arith.IndexExpr, channels: arith.IndexExpr | None) -> arith.IndexExpr:
    """The position of a channel in the lanes; `channels` is an expression over one variable."""
    if channels is None:
        return channel
    return arith.substitute(channels, dict.fromkeys(arith.variables(channels), channel))


class AxisDigit(Struct, frozen=True):
    """The digit `index // step % base` of an index along `axis`, as in a mixed-radix number.

    With a `base` of 0 the digit is `index // step`: all that is above the step.
    """

    axis: int
    step: int = 1
    base: int = 0

    def of(self, index: arith.IndexExpr) -> arith.IndexExpr:
        """This digit of an index along the axis."""
        above = index // self.step
        return above % self.base if self.base else above

    def divided(self, count: int) -> tuple[AxisDigit, AxisDigit]:
        """The digit as two: the number of its group of `count`, and the place in the group."""
        groups = replace(self, step=self.step * count, base=self.base // count)
        return groups, replace(self, base=count)


def _loops_of(roles: Roles, name: str) -> tuple[arith.Var, ...]:
    """The loops of the reduction that reads a constant operand."""
    return tuple(var for var, _ in roles.nest_of(roles.reads[name][0]))


@lru_cache(maxsize=10_000)
def _read_beside(roles: Roles, name: str) -> dict[str, Access]:
    """For each input that an operand's reduction reads along its loops, the first access."""
    loops = _loops_of(roles, name)
    found: dict[str, Access] = {}
    for other, reads in roles.reads.items():
        for access in reads:
            if any(v in arith.variables(e) for v in loops for e in access.indices):
                found.setdefault(other, access)
    return found


def _order_of(
    roles: Roles,
    name: str,
    lane: arith.Var,
    data: str,
    place: tuple[IndexMap, tuple[int, ...]] | None,
) -> tuple[AxisDigit, ...]:
    """The digits of an operand's axes, without that of the lanes, outermost first.

    They are in the order of the reduction loops: by falling stride in `data`, whose index map and
    box are `place`.  A loop that the data splits into quotient and remainder gives a digit for
    each.
    """
    loops, indices = _loops_of(roles, name), roles.reads[name][0].indices
    digits = tuple(AxisDigit(number) for number in range(len(loops)))
    if place is not None:
        digits = _by_stride(*place, _read_beside(roles, name)[data].indices, loops)
    return tuple(
        AxisDigit(axis, digit.step, digit.base)
        for digit in digits
        for axis, e in enumerate(indices)
        if e is loops[digit.axis] and e is not lane
    )


@lru_cache(maxsize=4096)
def _by_stride(
    index_map: IndexMap,
    box: tuple[int, ...],
    indices: tuple[arith.IndexExpr, ...],
    loops: tuple[arith.Var, ...],
) -> tuple[AxisDigit, ...]:
    """The digits of the loops by falling stride in the operand accessed at `indices`."""
    strides: dict[AxisDigit, int] = {}
    for e, step in zip(index_map.apply(indices), Buffer("_", box).strides, strict=True):
        for atom, k in arith.terms_of(e)[0]:
            for number, var in enumerate(loops):
                digit = _digit(atom, var, number)
                if digit is not None:
                    strides[digit] = max(strides.get(digit, 0), abs(k) * step)
    found = [
        digit
        for number in range(len(loops))
        for digit in [d for d in strides if d.axis == number] or [AxisDigit(number)]
    ]
    return tuple(sorted(found, key=lambda digit: -strides.get(digit, 0)))


def _digit(atom: arith.IndexExpr, var: arith.Var, number: int) -> AxisDigit | None:
    """The digit of `var`, the loop of this number, that an atom is; None if it is without it."""
    inner, base, step = atom, 0, 1
    if isinstance(inner, arith.FloorMod):
        base, inner = inner.divisor, inner.numerator
    if isinstance(inner, arith.FloorDiv):
        step, inner = inner.divisor, inner.numerator
    if inner is var:
        return AxisDigit(number, step, base)
    return AxisDigit(number) if var in arith.variables(atom) else None


@lru_cache(maxsize=4096)
def packed_weights(
    shape: tuple[int, ...],
    lane: int,
    width: int,
    order: tuple[AxisDigit, ...],
    group: int = 0,
    channels: arith.IndexExpr | None = None,
    terms: int = 1,
) -> Layout:
    """The layout `[lane // width, order …, lane % width]` of an operand of this logical shape.

    `lane` is its axis along the lanes, `order` the digits of the other axes, outermost first.  With
    a `group` the lane axis is cut into groups first; with `channels` it is in that order.  With
    `terms` a lane has so many neighbours along the innermost digit next to each other: `[lane //
    width, order …, digit // terms, lane % width, digit % terms]`, the last group padded.
    """
    *outer, innermost = order
    groups, inside = innermost.divided(terms)
    outside, within_lane = ((*outer, groups), (inside,)) if terms > 1 else (order, ())

    def place(*i: arith.Var) -> list[arith.IndexExpr]:
        within = i[lane] % group if group else i[lane]
        out: list[arith.IndexExpr] = [i[lane] // group] if group else []
        out.append(within // width)
        out += [digit.of(i[digit.axis]) for digit in outside]
        return [*out, within % width, *(digit.of(i[digit.axis]) for digit in within_lane)]

    def ordered(*i: arith.Var) -> list[arith.IndexExpr]:
        return [*i[:lane], _lane(i[lane], channels), *i[lane + 1 :]]

    index_map = IndexMap.from_function(len(shape), place, shape)
    if channels is not None and not group:
        index_map = IndexMap.from_function(len(shape), ordered, shape).then(index_map)
    innermost_axes = (width, terms) if terms > 1 else (width,)
    box = smallest_box(index_map, shape)[: -len(innermost_axes)]
    return Layout.of(index_map, shape, (*box, *innermost_axes))
