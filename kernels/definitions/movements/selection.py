"""Kernels that move a part of a tensor, or move its elements to several positions.

In: logical shapes and attributes that are known numbers.  Out: a PrimFunc whose stages store plain
loads; only padding with a constant stores a select.  Indices are quasi-affine in the loop
variables, so which element moves where is known at compile time.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow import arith
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.elementwise import broadcast, broadcast_indices
from graphflow.kernels.definitions.stages import Loop, Shape
from graphflow.tir import Buffer, Expr, Load, PrimFunc, Select

MOST_RUNS = 8
"""The most stages of one gather, each of which is code that one thread runs once.  What is taken in
few runs may be a view; for more, `indexing.gather_at` reads a table of indices."""


def take_slice(
    x_shape: Shape, ranges: Sequence[range], dtype: str = "float32", name: str = "slice"
) -> PrimFunc:
    """`y[i…] = x[ranges[0][i0], …]`; steps may be negative, a range may be empty."""
    x, y = Buffer("x", x_shape, dtype), Buffer("y", tuple(map(len, ranges)), dtype)
    loops = stages.loops_over("i", y.shape)
    source = tuple(
        var * wanted.step + wanted.start for wanted, (var, _) in zip(ranges, loops, strict=True)
    )
    return stages.elementwise_kernel(name, (x,), y, loops, Load(x, source))


def expand(x_shape: Shape, shape: Shape, dtype: str = "float32") -> PrimFunc:
    """`y = x`, broadcast with `shape`."""
    x, y = Buffer("x", x_shape, dtype), Buffer("y", broadcast([x_shape, shape]), dtype)
    loops = stages.loops_over("i", y.shape)
    value = Load(x, broadcast_indices(x_shape, loops))
    return stages.elementwise_kernel("expand", (x,), y, loops, value)


def tile(x_shape: Shape, repeats: Sequence[int], dtype: str = "float32") -> PrimFunc:
    """`y` is x repeated `repeats[k]` times along each axis k."""
    if len(repeats) != len(x_shape) or min(repeats, default=0) < 0:
        raise InvalidModel(f"repeats {tuple(repeats)} do not fit a tensor of shape {x_shape}")
    y_shape = tuple(n * times for n, times in zip(x_shape, repeats, strict=True))
    x, y = Buffer("x", x_shape, dtype), Buffer("y", y_shape, dtype)
    loops = stages.loops_over("i", y_shape)
    ranges = stages.ranges_of(loops)
    source = tuple(
        arith.simplify_index(arith.floor_mod(var, max(n, 1)), ranges)
        for n, (var, _) in zip(x_shape, loops, strict=True)
    )
    return stages.elementwise_kernel("tile", (x,), y, loops, Load(x, source))


def gather(
    x_shape: Shape, axis: int, positions: int | Sequence[int], dtype: str = "float32"
) -> PrimFunc:
    """`y` has the slices `positions` of `x` along `axis`, in that order; a single number drops the
    axis.

    There is one stage for each run of equally spaced positions; `UnsupportedOp` beyond `MOST_RUNS`.
    """
    (axis,) = stages.normalized_axes((axis,), len(x_shape))
    wanted = [positions] if isinstance(positions, int) else list(positions)
    extent = x_shape[axis]
    outside = [p for p in wanted if not -extent <= p < extent]
    if outside:
        raise InvalidModel(f"indices {outside[:4]} are outside axis {axis} of shape {x_shape}")
    runs = runs_of(wanted, extent)
    if len(runs) > MOST_RUNS:
        raise UnsupportedOp(
            f"a gather of {len(wanted)} indices in {len(runs)} runs is not built, at most "
            f"{MOST_RUNS} runs are; sort the indices, or cut the model before it"
        )
    if isinstance(positions, int):
        x = Buffer("x", x_shape, dtype)
        y = Buffer("y", (*x_shape[:axis], *x_shape[axis + 1 :]), dtype)
        loops = stages.loops_over("i", y.shape)
        at = stages.indices_of(loops)
        source = (*at[:axis], arith.const(runs[0].start), *at[axis:])
        stage = stages.store_stage("gather0", y, loops, at, Load(x, source))
        return stages.kernel_of_stages("gather", (x,), (y,), (stage,))
    return _in_runs("gather", x_shape, axis, runs, dtype)


def _in_runs(name: str, x_shape: Shape, axis: int, runs: Sequence[range], dtype: str) -> PrimFunc:
    """The slices of x at these runs of positions along an axis, with a stage for each run."""
    x = Buffer("x", x_shape, dtype)
    y = Buffer("y", (*x_shape[:axis], sum(map(len, runs)), *x_shape[axis + 1 :]), dtype)
    parts, done = [], 0
    for k, run in enumerate(runs):
        extents = (*x_shape[:axis], len(run), *x_shape[axis + 1 :])
        loops = stages.loops_over(f"i{k}_" if len(runs) > 1 else "i", extents)
        source, target = list(stages.indices_of(loops)), list(stages.indices_of(loops))
        source[axis] = source[axis] * run.step + run.start
        target[axis] = target[axis] + done
        parts.append(stages.store_stage(f"{name}{k}", y, loops, target, Load(x, tuple(source))))
        done += len(run)
    return stages.kernel_of_stages(name, (x,), (y,), parts)


def runs_of(indices: Sequence[int], extent: int) -> list[range]:
    """Positions of an axis as equally spaced runs, in order, each as long as possible.

    `indices` lie in `-extent <= index < extent`; negative ones count from the end.
    """
    positions = [index % extent for index in indices]
    runs: list[range] = []
    start = 0
    while start < len(positions):
        stop = start + 1
        step = positions[stop] - positions[start] if stop < len(positions) else 1
        while stop < len(positions) and positions[stop] - positions[stop - 1] == step:
            stop += 1
        first, count = positions[start], stop - start
        if step == 0:
            count, stop, step = 1, start + 1, 1
        runs.append(range(first, first + step * count, step))
        start = stop
    return runs or [range(0)]


def pad(
    x_shape: Shape,
    begins: Sequence[int],
    ends: Sequence[int],
    mode: str = "constant",
    value: float | Shape = 0.0,
    dtype: str = "float32",
) -> PrimFunc:
    """`y` is x with `begins[k]` elements before and `ends[k]` behind axis k; negative numbers crop.

    `mode` says what the new elements are: "constant" `value`; "edge" the nearest element; "reflect"
    the elements mirrored at the first or last one; "wrap" those of the other end.  If `value` is a
    shape, there is a parameter `value` of that shape, with one element.
    """
    if len(begins) != len(x_shape) or len(ends) != len(x_shape):
        raise InvalidModel(f"pads {(*begins, *ends)} do not fit a tensor of shape {x_shape}")
    y_shape = tuple(n + b + e for n, b, e in zip(x_shape, begins, ends, strict=True))
    if min(y_shape, default=0) < 0:
        raise InvalidModel(f"pads {(*begins, *ends)} crop more than shape {x_shape} has")
    # Cropping comes first: what is cut off is no neighbour of the new elements.
    starts = tuple(max(-begin, 0) for begin in begins)
    left = tuple(
        n + min(begin, 0) + min(end, 0) for n, begin, end in zip(x_shape, begins, ends, strict=True)
    )
    loops = stages.loops_over("i", y_shape)
    places = [var - max(begin, 0) for (var, _), begin in zip(loops, begins, strict=True)]
    x, y = Buffer("x", x_shape, dtype), Buffer("y", y_shape, dtype)
    inputs = [x]
    if mode == "constant":
        filling: Expr
        if isinstance(value, tuple):
            inputs.append(Buffer("value", value, dtype))
            filling = Load(inputs[1], (arith.const(0),) * len(value))
        else:
            filling = stages.literal(value, dtype)
        # Where all of x is cropped away it stays a parameter nevertheless.
        empty = min(left, default=1) <= 0
        stored = filling if empty else _or_else(x, places, left, starts, loops, filling)
    else:
        source = [
            arith.simplify_index(_mirrored(mode, place, n, y_n) + start, stages.ranges_of(loops))
            for place, n, y_n, start in zip(places, left, y_shape, starts, strict=True)
        ]
        stored = Load(x, tuple(source))
    return stages.elementwise_kernel("pad", inputs, y, loops, stored)


def pad_rows(
    x_shape: Shape, begin: int, end: int, mode: str, dtype: str = "float32"
) -> PrimFunc | None:
    """`pad` along the last axis with a stage for each run of positions, two of which are mirrored
    in mode "reflect"; None where an end takes more than one run, and in other modes but "wrap".

    Then lanes read neighbouring elements, or run backwards, and none tests on which side it is.
    """
    extent = x_shape[-1]
    if not 0 <= min(begin, end) <= max(begin, end) < extent or mode not in ("reflect", "wrap"):
        return None
    ends = (range(begin, 0, -1), range(extent - 2, extent - 2 - end, -1))
    if mode == "wrap":
        ends = (range(extent - begin, extent), range(end))
    runs = [run for run in (ends[0], range(extent), ends[1]) if run]
    return _in_runs("pad", x_shape, len(x_shape) - 1, runs, dtype)


def _or_else(
    x: Buffer,
    places: Sequence[arith.IndexExpr],
    left: Shape,
    starts: Shape,
    loops: tuple[Loop, ...],
    otherwise: Expr,
) -> Expr:
    """The element at `places` if they lie in the part `left` of x, else `otherwise`."""
    load = Load(x, tuple(place + start for place, start in zip(places, starts, strict=True)))
    inside = arith.conjunction(
        arith.within(place, 0, n) for place, n in zip(places, left, strict=True)
    )
    inside = arith.simplify_predicate(inside, stages.ranges_of(loops))
    return load if inside == arith.TRUE else Select(inside, load, otherwise)


def _mirrored(mode: str, place: arith.IndexExpr, extent: int, padded: int) -> arith.IndexExpr:
    """The position from which the element at `place`, which may be outside of 0..extent, is
    taken."""
    if padded == extent:
        return place
    if extent < 1:
        raise InvalidModel(f"an axis without elements cannot be padded in mode {mode}")
    if mode == "edge":
        return arith.minimum(arith.maximum(place, 0), extent - 1)
    if mode == "wrap":
        return arith.floor_mod(place, extent)
    if mode != "reflect":
        raise UnsupportedOp(
            f"padding in mode {mode} is not built; constant, edge, reflect and wrap are"
        )
    if extent == 1:
        return arith.const(0)
    there = arith.floor_mod(place, 2 * (extent - 1))
    return arith.minimum(there, 2 * (extent - 1) - there)


def depth_to_space(
    x_shape: Shape, block: int, column_row: bool = False, dtype: str = "float32"
) -> PrimFunc:
    """Channels become blocks of pixels: `y[n, c, h, w] = x[n, d, h // block, w // block]`.

    d is the row-major index of (block row, block column, c), or of (c, block row, block column) if
    `column_row`.
    """
    if len(x_shape) != 4 or block < 1 or x_shape[1] % (block * block):
        raise InvalidModel(f"blocks of {block}·{block} do not divide the channels of {x_shape}")
    depth = x_shape[1] // (block * block)
    y_shape = (x_shape[0], depth, x_shape[2] * block, x_shape[3] * block)
    x, y = Buffer("x", x_shape, dtype), Buffer("y", y_shape, dtype)
    loops = stages.loops_over("i", y_shape)
    n, c, h, w = stages.indices_of(loops)
    within_block = arith.floor_mod(h, block) * block + arith.floor_mod(w, block)
    channel = c * (block * block) + within_block if column_row else within_block * depth + c
    value = Load(x, (n, channel, arith.floor_div(h, block), arith.floor_div(w, block)))
    return stages.elementwise_kernel("depth_to_space", (x,), y, loops, value)


def space_to_depth(
    x_shape: Shape, block: int, dtype: str = "float32", channel_first: bool = False
) -> PrimFunc:
    """Blocks of pixels become channels: `y[n, (row, column, c), h, w] = x[n, c, h·b + row, …]`.

    With `channel_first` the new channels are (c, row, column).
    """
    if len(x_shape) != 4 or block < 1 or x_shape[2] % block or x_shape[3] % block:
        raise InvalidModel(f"blocks of {block}·{block} do not divide the pixels of {x_shape}")
    depth = x_shape[1]
    y_shape = (x_shape[0], depth * block * block, x_shape[2] // block, x_shape[3] // block)
    x, y = Buffer("x", x_shape, dtype), Buffer("y", y_shape, dtype)
    loops = stages.loops_over("i", y_shape)
    n, d, h, w = stages.indices_of(loops)
    place, channel = arith.floor_div(d, depth), arith.floor_mod(d, depth)
    if channel_first:
        place, channel = arith.floor_mod(d, block * block), arith.floor_div(d, block * block)
    row, column = arith.floor_div(place, block), arith.floor_mod(place, block)
    value = Load(x, (n, channel, h * block + row, w * block + column))
    return stages.elementwise_kernel("space_to_depth", (x,), y, loops, value)
