"""Resizing along axes whose extents a run decides, in front of the node or behind it.

In: a node, its output extents and how it finds coordinates.  Out: kernels that compute from the
sizes which elements are taken, and gather these, axis by axis.  What always holds: these are the
elements that a program for exactly these extents takes, with the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from msgspec import Struct

from graphflow.base.errors import ExtentsLost
from graphflow.frontends.nodes.call import NodeCall
from graphflow.frontends.nodes.counted import count_also, count_by, least_given
from graphflow.frontends.tensors.derived_sizes import (
    Element,
    bounds_of,
    held,
    merged,
    ratio_of,
    require_at_least,
    rounded_down,
)
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.data_dependent import indexing
from graphflow.kernels.definitions.interpolation import resize
from graphflow.kernels.definitions.interpolation.computed_filters import (
    ComputedFilter,
    FilterOptions,
    filter_at_places,
)
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.reductions import reduction
from graphflow.tir import PrimFunc

LEAST_CHANNELS = 8
"""From so many channels on, each pixel is a vector of them: fewer leave most lanes idle, and the
gathers of single elements that vectors replace take 2.4 cycles each."""

MOST_TAPS = 64
"""The most elements that a filter takes for one along an axis: all runs pass over as many."""

EXACT = 1 << 24
"""Below this, products of extents and scales in float32 are not rounded."""


class ResizedExtent(Struct, frozen=True):
    """The extent of an axis behind a resize: a number or a size, and the scale if that is given."""

    after: Element
    scale: Fraction | None = None


def resized_lost(call: NodeCall, reason: str) -> ExtentsLost:
    """The error for a node of which a run decides an extent, of the input or the output."""
    return ExtentsLost(
        f"{call.title}: an extent of its input or output is only known at run time, and {reason}; "
        "cut the model before this node"
    )


def scaled_extent(call: NodeCall, axis: int, scale: Fraction) -> ResizedExtent:
    """The extent of input 0 along an axis times a scale, rounded down as float32 does."""
    numerator, divisor = scale.numerator, scale.denominator
    if divisor & (divisor - 1) or call.shape(0)[axis] * numerator >= EXACT:
        raise resized_lost(call, f"the scale {float(scale)} is rounded")
    scaled = merged(call.context, (call.elements_along(0, axis), numerator))
    return ResizedExtent(rounded_down(call.context, scaled, 0, divisor), scale)


def emit_counted_resize(
    call: NodeCall,
    extents: Mapping[int, ResizedExtent],
    mode: str,
    way: str | FilterOptions | None,
) -> None:
    """Add kernels that resize input 0 along some axes, by coordinates of a mode.

    `way` is the rounding of the nearest element, a filter, or None for linear interpolation.
    """
    name = call.inputs[0]
    axes = [
        _Axis(call, axis, wanted, mode)
        for axis, wanted in sorted(extents.items())
        if wanted.after != call.elements_along(0, axis) or mode == "tf_half_pixel_for_nn"
    ]
    if isinstance(way, str):
        repeated = [axis for axis in axes if axis.repeats(way)]
        name = _emit_repeated(call, name, way, repeated)
        axes = [axis for axis in axes if axis not in repeated]
    inner = resize.inner_axis(len(call.shape(0)), {axis.number for axis in axes})
    fills_vectors = inner is not None and call.shape(0)[inner] >= LEAST_CHANNELS
    # The last axis comes first: so neighbours are combined in the order of one kernel for all.
    if isinstance(way, FilterOptions):
        for axis in reversed(axes):
            name = _emit_filtered_axis(call, name, axis, way, inner if fills_vectors else None)
    elif axes and fills_vectors:
        name = _emit_at_once(call, name, axes, way)
    else:
        for axis in reversed(axes):
            name = _emit_axis(call, name, axis, way)
    value = call.context.graph.values[name]
    call.emit(movement.copy(value.shape, call.dtype()), (name,))
    counts = {axis: one.after for axis, one in extents.items()}
    count_by(call, {axis: n for axis, n in counts.items() if isinstance(n, str)})


class _Axis:
    """An axis of a node that is resized: its extents in front and behind, and the tables of its
    places and weights."""

    def __init__(self, call: NodeCall, number: int, wanted: ResizedExtent, mode: str) -> None:
        self.call, self.number, self.wanted = call, number, wanted
        after = wanted.after
        self.before = call.elements_along(0, number)
        self.room = after if isinstance(after, int) else call.context.sizes[after].hi
        limits = bounds_of(call.context, after)
        assert limits is not None
        # By a scale, no elements become none.
        if wanted.scale is None and min(least_given(call, 0, number), limits[0]) < 1:
            raise resized_lost(call, "there may be no element to resize")
        if mode == "pytorch_half_pixel" and limits[0] < 2:
            if isinstance(after, str):  # runs with one element have a program of their own
                require_at_least(call.context, after, 2)
            raise resized_lost(call, f"{mode} treats an axis of one another way")
        known = {"pytorch_half_pixel": "half_pixel", "half_pixel_symmetric": "half_pixel"}
        is_whole = wanted.scale is None or wanted.scale.denominator == 1
        self.computed = resize.ComputedAxis(self.room, known.get(mode, mode), wanted.scale)
        if self.computed.mode not in resize.COMPUTED_MODES or (
            mode == "half_pixel_symmetric" and not is_whole
        ):
            raise resized_lost(call, f"coordinates by {mode} depend on it")

    @property
    def count(self) -> dict[int, str]:
        """How many elements a run gives behind the node, if it decides that."""
        return {self.number: self.wanted.after} if isinstance(self.wanted.after, str) else {}

    @property
    def whole_scale(self) -> int | None:
        """The ratio of the extents where that is a number which makes the axis longer."""
        scale = self.wanted.scale
        if scale is not None:
            return int(scale) if scale.denominator == 1 else None
        ratio = ratio_of(self.call.context, [self.wanted.after], [self.before])
        return ratio if isinstance(ratio, int) else None

    def filter(self, options: FilterOptions) -> ComputedFilter:
        """The taps of a filter; refuses the node if a run may have too many of them."""
        scale, limits = self.wanted.scale, bounds_of(self.call.context, self.wanted.after)
        assert limits is not None
        most = self.call.shape(0)[self.number]
        least = Fraction(max(limits[0], 1), max(most, 1)) if scale is None else scale
        stretch = min(least, Fraction(1)) if options.antialias else Fraction(1)
        found = ComputedFilter(self.computed, options, stretch)
        if found.taps > MOST_TAPS:
            raise resized_lost(
                self.call,
                f"a run may take {found.taps} elements for one, of which at most {MOST_TAPS} are "
                "built",
            )
        return found

    def coordinates(self) -> resize.Coordinates | None:
        """The coordinates where no extent decides them."""
        scale = self.whole_scale
        return None if scale is None else self.computed.coordinates(scale)

    def repeats(self, rounding: str) -> bool:
        """Whether the nearest elements are those of a program for any extents."""
        where, scale = self.coordinates(), self.whole_scale
        if where is None or scale is None:
            return False
        return resize.takes_the_same_of_all_extents(where, rounding, scale)

    def table(self, func: PrimFunc, part: str) -> str:
        """A tensor that a kernel computes from the extents in front and behind."""
        sizes = [held(self.call.context, extent) for extent in (self.before, self.wanted.after)]
        name = self.call.emit_part(func, sizes, f"{part}{self.number}")
        if isinstance(self.wanted.after, str):
            count_also(self.call, name, {0: self.wanted.after})
        return name

    def places(self, rounding: str | None) -> tuple[str, ...]:
        """The places of nearest elements; or those of both neighbours, and the weights."""
        if rounding is not None:
            return (self.table(resize.nearest_places(self.computed, rounding), "nearest"),)
        low, high = (
            self.table(resize.neighbour_places(self.computed, k), part)
            for k, part in enumerate(("low", "high"))
        )
        weights = resize.neighbour_weights(self.computed, self.call.dtype())
        return low, high, self.table(weights, "weights")


def _emit_repeated(call: NodeCall, x: str, rounding: str, axes: Sequence[_Axis]) -> str:
    """Resize along axes whose nearest elements no extent decides, as with known extents."""
    if not axes:
        return x
    shape = call.context.graph.values[x].shape
    scales = {axis.number: axis for axis in axes}
    same = resize.Coordinates(Fraction(1), Fraction(0))
    coordinates = [
        scales[k].coordinates() or same if k in scales else same for k in range(len(shape))
    ]
    after = tuple(scales[k].room if k in scales else n for k, n in enumerate(shape))
    func = resize.resize_nearest(shape, after, coordinates, rounding, None, call.dtype())
    name = call.emit_part(func, (x,), "repeated", given={0: tuple(scales)})
    for axis in axes:
        count_also(call, name, axis.count)
    return name


def _emit_at_once(call: NodeCall, x: str, axes: Sequence[_Axis], rounding: str | None) -> str:
    """Resize along all axes by one kernel, whose innermost loop is that over channels."""
    tables = [name for axis in axes for name in axis.places(rounding)]
    shape, rooms = call.context.graph.values[x].shape, {axis.number: axis.room for axis in axes}
    func = resize.resize_at_places(shape, rooms, rounding is None, call.dtype())
    return call.emit_part(func, (x, *tables), "resized", given={0: tuple(rooms)})


def _emit_axis(call: NodeCall, x: str, axis: _Axis, rounding: str | None) -> str:
    """Resize along an axis by gathers of its elements."""
    places, number = axis.places(rounding), axis.number

    def taken(at: str, part: str) -> str:
        shape = call.context.graph.values[x].shape
        gather = indexing.gather_at(shape, (axis.room,), number, call.dtype(), "int64")
        return call.emit_part(gather, (x, at), f"{part}{number}", given={0: (number,)})

    if rounding is not None:
        return taken(places[0], "nearest_taken")
    low, high = taken(places[0], "low_taken"), taken(places[1], "high_taken")
    shape = call.context.graph.values[low].shape
    func = resize.weighted_neighbours(shape, number, call.dtype())
    return call.emit_part(func, (low, high, places[2]), f"axis{number}")


def _emit_filtered_axis(
    call: NodeCall, x: str, axis: _Axis, options: FilterOptions, channels: int | None
) -> str:
    """Resize along an axis by sums of weighted elements; `channels` fill vectors, if given."""
    taken, dtype, number = axis.filter(options), call.dtype(), axis.number
    places = axis.table(taken.places(), "places")
    weights = axis.table(taken.weights(dtype), "weights")
    if taken.is_normalized:
        shape = call.context.graph.values[weights].shape
        total = reduction.reduce("sum", shape, (1,), dtype=dtype)
        totals = call.emit_part(total, (weights,), f"totals{number}")
        share = elementwise.binary("div", shape, (shape[0], 1), dtype)
        weights = call.emit_part(share, (weights, totals), f"shares{number}")
    shape = call.context.graph.values[x].shape
    last = max((k for k in range(len(shape)) if k != number), default=None)
    # Elements that follow each other fill vectors, unless that is the axis which is resized.
    inner = channels if last is None or last < number else last
    func = filter_at_places(
        shape, number, axis.room, taken.taps, last if inner is None else inner, dtype
    )
    return call.emit_part(func, (x, places, weights), f"axis{number}", given={0: (number,)})
