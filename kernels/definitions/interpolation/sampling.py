"""Kernels that read a tensor at positions computed as floats.

In: logical shapes and attributes.  Out: a PrimFunc.  A position is rounded or floored, cast to
int64 and matched against the loop variable of the axis (`graphflow.tir.traversal.matched`).  A
position outside of the tensor matches nothing and contributes zero, whatever the cast made of a NaN
or an infinity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import reduce
from itertools import product

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.indexing import as_int64, matched_nest
from graphflow.kernels.definitions.scalar_functions import add, compared, divide, multiply, subtract
from graphflow.kernels.definitions.stages import Loop, Shape
from graphflow.kernels.definitions.windows.window import Window

CUBIC = -0.75
"""The parameter of cubic convolution that ONNX prescribes."""

BORDERS = ("zeros", "border", "reflection")


def grid_places(
    grid_shape: Shape,
    extents: Shape,
    nearest: bool,
    border: str,
    align_corners: bool,
    dtype: str = "float32",
    sized: Collection[int] = (),
) -> tir.PrimFunc:
    """`y[k, n, o…]` is the position on spatial axis k to which `grid[n, o…]` refers, as a float.

    The last axis of the grid lists spatial axes in reverse order, in units in which the tensor
    extends from −1 to 1.  Positions outside are moved into the tensor as `border` says; with
    `nearest` positions are rounded.  Further inputs are the extents along the spatial axes `sized`,
    scalars of int64, in place of those in `extents`.
    """
    if border not in BORDERS:
        raise InvalidModel(f"padding mode {border} does not exist; {', '.join(BORDERS)} do")
    if grid_shape[-1] != len(extents):
        raise InvalidModel(f"a grid of shape {grid_shape} does not fit {len(extents)} spatial axes")
    grid = tir.Buffer("grid", grid_shape, dtype)
    y = tir.Buffer("y", (len(extents), *grid_shape[:-1]), dtype)
    sizes, known = _extents(extents, sized, dtype)
    parts = []
    for k, extent in enumerate(known):
        loops = stages.loops_over(f"i{k}_", grid_shape[:-1])
        at = stages.indices_of(loops)
        scaled = add(tir.Load(grid, (*at, const(len(extents) - 1 - k))), 1.0)
        if align_corners:
            place = multiply(divide(scaled, 2.0), _less_one(extent))
        else:
            place = divide(subtract(multiply(scaled, extent), 1.0), 2.0)
        if nearest:
            place = tir.Unary("round", place)
        if border == "border":
            place = _clamped(place, extent)
        elif border == "reflection":
            place = _reflected(place, extent, align_corners)
        parts.append(stages.store_stage(f"places{k}", y, loops, (const(k), *at), place))
    return stages.kernel_of_stages("grid_places", (grid, *sizes), (y,), parts)


def grid_sample(
    x_shape: Shape,
    places_shape: Shape,
    mode: str,
    border: str,
    align_corners: bool,
    dtype: str = "float32",
    place_dtype: str = "float32",
    sized: Collection[int] = (),
) -> tir.PrimFunc:
    """`y[n, c, o…]` is x[n, c] at the positions `places[:, n, o…]` that `grid_places` gives.

    `mode` is nearest, linear or cubic: the nearest element, or a weighted mean of two or four
    neighbours along each axis.  Neighbours outside are zero, or are taken from inside as `border`
    says.  Further inputs are extents as in `grid_places`; x is zero behind these.
    """
    if mode not in ("nearest", "linear", "cubic"):
        raise InvalidModel(f"mode {mode} does not exist; nearest, linear and cubic do")
    if mode != "nearest" and dtype not in tir.FLOATS:
        raise UnsupportedOp(f"{mode} sampling of {dtype} is not built; cast the input to float32")
    x, places = tir.Buffer("x", x_shape, dtype), tir.Buffer("places", places_shape, place_dtype)
    out = places_shape[2:]
    y = tir.Buffer("y", (*x_shape[:2], *out), dtype)
    loops = stages.loops_over("o", (x_shape[0], *out))
    at = stages.indices_of(loops)
    body = _zeroed(y, at)
    taps = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[mode]
    sizes, known = _extents(x_shape[2:], sized, place_dtype)
    rank = len(out)
    for number, corner in enumerate(product(taps, repeat=rank)):
        positions: list[tir.Expr] = []
        weights: list[tir.Expr] = []
        for k, tap in enumerate(corner):
            place = tir.Load(places, (const(k), *at))
            if mode == "nearest":
                positions.append(as_int64(place))
                continue
            low = tir.Unary("floor", place)
            whole = add(low, float(tap)) if tap else low
            if border == "border":
                whole = _clamped(whole, known[k])
            elif border == "reflection":
                whole = _reflected(whole, known[k], align_corners)
            positions.append(as_int64(whole))
            weights.append(_weight(subtract(place, low), tap, mode == "cubic"))
        body += _added(x, y, at, positions, weights, str(number))
    return stages.nest_kernel("grid_sample", (x, places, *sizes), y, loops, body)


def roi_align(
    x_shape: Shape,
    regions: int,
    outputs: tuple[int, int],
    samples: tuple[int, int],
    scale: float,
    half_pixel: bool,
    largest: bool,
    dtype: str = "float32",
    sized: Collection[int] = (),
) -> tir.PrimFunc:
    """`y[r, c, i, j]` is the mean, or the `largest`, of points in bin (i, j) of region r of x.

    `rois[r]` are the corners x, y, x, y in units of `1 / scale` elements, `batches[r]` the image.
    `counts[r, k]` is the number of points of a bin along axis k, of which there is room for
    `samples[k]`.  As in onnxruntime the largest is that of the weighted neighbours of the points,
    not of the interpolated points.  Further inputs are extents as in `grid_places`.
    """
    x, rois = tir.Buffer("x", x_shape, dtype), tir.Buffer("rois", (regions, 4), dtype)
    batches = tir.Buffer("batches", (regions,), "int64")
    counts = tir.Buffer("counts", (regions, 2), "int64")
    y = tir.Buffer("y", (regions, x_shape[1], *outputs), dtype)
    loops = stages.loops_over(("r", "i", "j"), (regions, *outputs))
    r, *bins = at = stages.indices_of(loops)
    points = stages.loops_over(("s", "t"), samples)
    image = tir.Load(batches, (r,))
    places = [
        _in_bin(
            *region_side(rois, r, k, scale, half_pixel),
            tir.IndexValue(bins[k], dtype),
            tir.IndexValue(points[k][0], dtype),
            tir.Cast(tir.Load(counts, (r, const(k))), dtype),
            outputs[k],
        )
        for k in range(2)
    ]
    sizes, known = _extents(x_shape[2:], sized, dtype)
    inside = _all_of(
        tir.Binary("and", compared("ge", place, -1.0), compared("le", place, extent))
        for place, extent in zip(places, known, strict=True)
    )
    op = tir.ReduceOp.MAX if largest else tir.ReduceOp.ADD
    corners: tir.Body = ()
    for number, corner in enumerate(product((0, 1), repeat=2)):
        positions: list[tir.Expr] = [image]
        weights: list[tir.Expr] = []
        for k, tap in enumerate(corner):
            inner = _clamped(places[k], known[k])
            low = tir.Unary("floor", inner)
            positions.append(as_int64(tir.Binary("min", add(low, float(tap)), _less_one(known[k]))))
            weights.append(_weight(subtract(inner, low), tap, False))
        corners += _added(x, y, at, positions, weights, str(number), op)
    there = _all_of(tir.below_count(points[k][0], counts, (r, const(k))) for k in range(2))
    beside: tir.Body = ()
    if largest:
        channels, to = _channels(y, at, "e")
        beside = tir.nest((channels,), (tir.Reduce(op, y, to, stages.literal(0, dtype)),))
    sampled = tir.nest(points, (tir.If(there, (tir.If(inside, corners, beside),)),))
    body = (*_zeroed(y, at, float("-inf") if largest else 0.0), *sampled)
    if largest:
        body += _where_empty(y, at, counts, r)
    else:
        body += _mean(y, at, counts, r)
    return stages.nest_kernel("roi_align", (x, rois, batches, counts, *sizes), y, loops, body)


def region_side(
    rois: tir.Buffer, r: IndexExpr, k: int, scale: float, half_pixel: bool
) -> tuple[tir.Expr, tir.Expr]:
    """The start of region r along spatial axis k (0: rows), and its length, in elements."""
    offset = 0.5 if half_pixel else 0.0
    start, stop = (
        subtract(multiply(tir.Load(rois, (r, const(corner))), scale), offset)
        for corner in (1 - k, 3 - k)
    )
    length = subtract(stop, start)
    least = stages.literal(1.0, rois.dtype)
    return start, length if half_pixel else tir.Binary("max", length, least)


def region_points(
    regions: int, outputs: tuple[int, int], scale: float, half_pixel: bool, dtype: str = "float32"
) -> tir.PrimFunc:
    """`y[r, k]` is the number of points of a bin along axis k of region r: its length, rounded
    up."""
    rois, y = tir.Buffer("rois", (regions, 4), dtype), tir.Buffer("y", (regions, 2), "int64")
    parts = []
    for k in range(2):
        loops = stages.loops_over(f"r{k}_", (regions,))
        (r,) = stages.indices_of(loops)
        length = region_side(rois, r, k, scale, half_pixel)[1]
        wanted = as_int64(tir.Unary("ceil", divide(length, float(outputs[k]))))
        parts.append(stages.store_stage(f"points{k}", y, loops, (r, const(k)), wanted))
    return stages.kernel_of_stages("region_points", (rois,), (y,), parts)


def deformed_columns(
    x_shape: Shape,
    out: Shape,
    window: Window,
    offset_groups: int,
    masked: bool,
    dtype: str = "float32",
    sized: Collection[int] = (),
) -> tir.PrimFunc:
    """`y[n, c, t, i, j]` is the input at tap t of the window of channel c at output (i, j).

    Each tap is moved by `offsets[n, (group, t, axis), i, j]` and, if `masked`, multiplied by
    `mask[n, (group, t), i, j]`; channels are divided among the groups of offsets.
    Further inputs are extents as in `grid_places`: what is behind these is outside.
    """
    taps = window.kernel[0] * window.kernel[1]
    batch, channels = x_shape[:2]
    x = tir.Buffer("x", x_shape, dtype)
    offsets = tir.Buffer("offsets", (batch, 2 * offset_groups * taps, *out), dtype)
    mask = tir.Buffer("mask", (batch, offset_groups * taps, *out), dtype)
    y = tir.Buffer("y", (batch, channels, taps, *out), dtype)
    # Rows come before taps, as threads share them in the product that reads the columns too.
    loops = stages.loops_over(
        ("n", "i", "g", "u", "v", "j"), (batch, out[0], offset_groups, *window.kernel, out[1])
    )
    n, i, g, u, v, j = stages.indices_of(loops)
    share = channels // offset_groups
    tap = u * window.kernel[1] + v

    def where(c: IndexExpr) -> tuple[tuple[IndexExpr, ...], tuple[IndexExpr, ...]]:
        channel = g * share + c
        return (n, channel, tap, i, j), (n, channel)

    sizes, known = _extents(x_shape[2:], sized, dtype)
    places: list[tir.Expr] = []
    for k, (o, t) in enumerate(((i, u), (j, v))):
        begin = o * window.strides[k] + t * window.dilations[k] - window.pads_begin[k]
        moved = tir.Load(offsets, (n, (g * taps + tap) * 2 + k, i, j))
        places.append(add(moved, tir.IndexValue(begin, dtype)))
    (clear,) = stages.loops_over("z", (share,))
    body = tir.nest((clear,), (tir.Store(y, where(clear[0])[0], stages.literal(0, dtype)),))
    for number, corner in enumerate(product((0, 1), repeat=2)):
        positions: list[tir.Expr] = []
        weights: list[tir.Expr] = []
        for k, tapped in enumerate(corner):
            low = tir.Unary("floor", places[k])
            whole = add(low, float(tapped)) if tapped else low
            if k in sized:
                inside = compared("lt", whole, known[k])
                whole = tir.Select(inside, whole, stages.literal(-1.0, dtype))
            positions.append(as_int64(whole))
            weights.append(_weight(subtract(places[k], low), tapped, False))
        if masked:
            weights.append(tir.Load(mask, (n, g * taps + tap, i, j)))
        rows = stages.loops_over(f"row{number}_", x_shape[2:])
        (inner,) = stages.loops_over(f"c{number}_", (share,))
        to, lead = where(inner[0])
        value = multiply(tir.Load(x, (*lead, *stages.indices_of(rows))), reduce(multiply, weights))
        update = tir.Reduce(tir.ReduceOp.ADD, y, to, value)
        body += matched_nest(rows, positions, tir.nest((inner,), (update,)))
    inputs = (x, offsets, *((mask,) if masked else ()), *sizes)
    return stages.nest_kernel("deformed_columns", inputs, y, loops, body)


# Places and weights ------------------------------------------------------------------------------


def _extents(
    extents: Shape, sized: Collection[int], dtype: str
) -> tuple[tuple[tir.Buffer, ...], list[tir.Expr]]:
    """The inputs that hold the extents along the axes `sized`; and all extents as floats."""
    sizes = {k: tir.Buffer(f"size{k}", (), "int64") for k in sorted(sized)}
    known: list[tir.Expr] = [
        tir.Cast(tir.Load(sizes[k], ()), dtype) if k in sizes else stages.literal(float(n), dtype)
        for k, n in enumerate(extents)
    ]
    return tuple(sizes.values()), known


def _less_one(extent: tir.Expr) -> tir.Expr:
    if isinstance(extent, tir.Literal):
        return stages.literal(extent.value - 1, extent.dtype)
    return subtract(extent, 1.0)


def _clamped(place: tir.Expr, extent: tir.Expr) -> tir.Expr:
    low = stages.literal(0.0, place.dtype)
    return tir.Binary("min", tir.Binary("max", place, low), _less_one(extent))


def _reflected(place: tir.Expr, extent: tir.Expr, align_corners: bool) -> tir.Expr:
    """A position outside, mirrored at the borders until it is inside.

    The borders are the centres of the first and the last element with `align_corners`, else half an
    element beyond them.
    """
    low = stages.literal(0.0 if align_corners else -0.5, place.dtype)
    span = _less_one(extent) if align_corners else extent
    if isinstance(span, tir.Literal) and span.value == 0:
        return low
    high = add(span, -0.5) if not align_corners else span
    below = compared("lt", place, low)
    beyond = tir.Select(below, subtract(low, place), subtract(place, high))
    turns = tir.Unary("floor", divide(beyond, span))
    rest = subtract(beyond, multiply(turns, span))
    odd = tir.Comparison("ne", multiply(tir.Unary("floor", divide(turns, 2.0)), 2.0), turns)
    from_low, from_high = add(rest, low), subtract(high, rest)
    mirrored = tir.Select(
        below, tir.Select(odd, from_high, from_low), tir.Select(odd, from_low, from_high)
    )
    outside = tir.Binary("or", below, compared("gt", place, high))
    inside = tir.Select(outside, mirrored, place)
    if isinstance(span, tir.Literal):
        return inside
    # Between borders at one position there is no other, whatever the position outside was.
    return tir.Select(compared("eq", span, 0.0), low, inside)


def _weight(distance: tir.Expr, tap: int, cubic: bool) -> tir.Expr:
    """The weight of neighbour `tap` of a position that is `distance` behind neighbour 0."""
    if not cubic:
        return distance if tap else subtract(stages.literal(1.0, distance.dtype), distance)
    near = add(distance, 1.0) if tap == -1 else distance
    if tap > 0:
        near = subtract(stages.literal(float(tap), distance.dtype), distance)
    if tap in (0, 1):
        inner = subtract(multiply(near, CUBIC + 2), CUBIC + 3)
        return add(multiply(multiply(inner, near), near), 1.0)
    inner = subtract(multiply(near, CUBIC), 5 * CUBIC)
    return subtract(multiply(add(multiply(inner, near), 8 * CUBIC), near), 4 * CUBIC)


def _in_bin(
    start: tir.Expr,
    length: tir.Expr,
    number: tir.Expr,
    point: tir.Expr,
    points: tir.Expr,
    bins: int,
) -> tir.Expr:
    """The position of point `point` of bin `number`, of `points` that divide the bin evenly."""
    size = divide(length, float(bins))
    within = divide(multiply(add(point, 0.5), size), points)
    return add(add(start, multiply(number, size)), within)


# Bodies ------------------------------------------------------------------------------------------


def _channels(
    y: tir.Buffer, at: Sequence[IndexExpr], name: str
) -> tuple[Loop, tuple[IndexExpr, ...]]:
    """A loop over the channels of y, and the index of y with that channel."""
    channel = Var(name)
    return (channel, y.shape[1]), (at[0], channel, *at[1:])


def _zeroed(y: tir.Buffer, at: Sequence[IndexExpr], value: float = 0.0) -> tir.Body:
    channels, to = _channels(y, at, "z")
    return tir.nest((channels,), (tir.Store(y, to, stages.literal(value, y.dtype)),))


def _added(
    x: tir.Buffer,
    y: tir.Buffer,
    at: Sequence[IndexExpr],
    positions: Sequence[tir.Expr],
    weights: Sequence[tir.Expr],
    name: str,
    op: tir.ReduceOp = tir.ReduceOp.ADD,
) -> tir.Body:
    """All channels of x at these positions, weighted and added to y; stored if there are no
    weights.

    Positions are those of the spatial axes, preceded by that of the image if it is not `at[0]`.
    """
    channels, to = _channels(y, at, f"c{name}_")
    spatial = stages.loops_over(f"row{name}_", x.shape[2:])
    image: IndexExpr = at[0]
    rows: tuple[Loop, ...] = spatial
    if len(positions) > len(spatial):
        image = Var(f"image{name}_")
        rows = ((image, x.shape[0]), *spatial)
    value: tir.Expr = tir.Load(x, (image, channels[0], *stages.indices_of(spatial)))
    if not weights:
        return matched_nest(rows, positions, tir.nest((channels,), (tir.Store(y, to, value),)))
    weight = reduce(multiply, weights)
    if weight.dtype != x.dtype:
        weight = tir.Cast(weight, x.dtype)
    update = tir.Reduce(op, y, to, multiply(value, weight))
    return matched_nest(rows, positions, tir.nest((channels,), (update,)))


def _all_of(tests: Iterable[tir.Expr]) -> tir.Expr:
    return reduce(lambda a, b: tir.Binary("and", a, b), tests)


def _points(counts: tir.Buffer, r: IndexExpr) -> tir.Expr:
    """The number of points of each bin of a region."""
    return multiply(tir.Load(counts, (r, const(0))), tir.Load(counts, (r, const(1))))


def _mean(y: tir.Buffer, at: Sequence[IndexExpr], counts: tir.Buffer, r: IndexExpr) -> tir.Body:
    channels, to = _channels(y, at, "d")
    number = tir.Cast(tir.Binary("max", _points(counts, r), stages.literal(1, "int64")), y.dtype)
    return tir.nest((channels,), (tir.Store(y, to, divide(tir.Load(y, to), number)),))


def _where_empty(
    y: tir.Buffer, at: Sequence[IndexExpr], counts: tir.Buffer, r: IndexExpr
) -> tir.Body:
    """Zero if a bin has no points."""
    channels, to = _channels(y, at, "d")
    clear = tir.nest((channels,), (tir.Store(y, to, stages.literal(0, y.dtype)),))
    return (tir.If(_has_none(counts, r), clear),)


def _has_none(counts: tir.Buffer, r: IndexExpr) -> tir.Expr:
    first, second = (compared("lt", tir.Load(counts, (r, const(k))), 1) for k in range(2))
    return tir.Binary("or", first, second)
