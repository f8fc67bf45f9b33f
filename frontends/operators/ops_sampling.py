"""Operators that read a tensor at computed positions: GridSample, RoiAlign, DeformConv."""

from __future__ import annotations

from math import prod

from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import (
    count_also,
    count_like,
    filled,
    filled_input,
    require_same,
)
from graphflow.frontends.nodes.counted_windows import counted_windows
from graphflow.frontends.nodes.indices import require_places
from graphflow.frontends.operators.ops_window import weight_extents, window_of
from graphflow.kernels.definitions.interpolation import sampling
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.definitions.windows import convolution

MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""The mode names since opset 20, by those of opset 16."""


def _grid_sample(call: NodeCall) -> None:
    mode = str(call.attribute("mode", "linear"))
    mode = MODES.get(mode, mode)
    border = str(call.attribute("padding_mode", "zeros"))
    align = call.flag("align_corners")
    shape, grid = call.shape(0), call.shape(1)
    if len(grid) != len(shape) or len(shape) < 3 or grid[0] != shape[0]:
        raise call.invalid(f"a grid of shape {grid} does not fit {shape}")
    # Cubic weights are those of the place as it is, as in onnxruntime and PyTorch.
    moved = "zeros" if mode == "cubic" and border in sampling.BORDERS else border
    sized, sizes = _sized(call)
    nearest, dtype = mode == "nearest", call.dtype(1)
    func = sampling.grid_places(grid, shape[2:], nearest, moved, align, dtype, sized)
    places = call.emit_part(func, (call.inputs[1], *sizes), "places")
    func = sampling.grid_sample(
        shape, func.outputs[0].shape, mode, border, align, call.dtype(), dtype, sized
    )
    # What a run does not give is outside, and contributes nothing.
    x = filled_input(call, 0, range(2, len(shape)), 0)
    call.emit(func, (x, places, *sizes))


def _sized(call: NodeCall) -> tuple[list[int], list[str]]:
    """The spatial axes of input 0 of which a run decides the extent, and the tensors with these."""
    counts = call.counts(0)
    sized = [axis - 2 for axis in range(2, len(call.shape(0))) if axis in counts]
    return sized, [counts[k + 2] for k in sized]


MOST_POINTS = 1 << 15
"""The most points of a bin along an axis, which is 10⁹ of a bin: more are no model's."""


def _roi_align(call: NodeCall) -> None:
    """Without a `sampling_ratio` the number of points depends on the size of a bin; a guard bounds
    it."""
    shape, rois = call.shape(0), call.shape(1)
    mode = str(call.attribute("mode", "avg"))
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    coordinates = str(call.attribute("coordinate_transformation_mode", default))
    outputs = (int(call.attribute("output_height", 1)), int(call.attribute("output_width", 1)))
    ratio = int(call.attribute("sampling_ratio", 0))
    scale = float(call.attribute("spatial_scale", 1.0))
    if ratio < 0:
        raise call.invalid(f"sampling_ratio is {ratio}; it must be at least 0")
    if ratio > MOST_POINTS:
        call.refuse(f"{ratio} points of a bin along an axis", f"use at most {MOST_POINTS}")
    if mode not in ("avg", "max") or coordinates not in ("half_pixel", "output_half_pixel"):
        raise call.invalid(f"mode {mode} with coordinates {coordinates} does not exist")
    if len(shape) != 4 or rois[1:] != (4,) or call.shape(2) != rois[:1]:
        raise call.invalid(
            f"data of shape {shape}, regions of shape {rois} and "
            f"batch indices of shape {call.shape(2)} do not fit"
        )
    half_pixel = coordinates == "half_pixel"
    require_places(call, 2, 0)
    samples = (ratio, ratio)
    if ratio > 0:
        func = movement.fill((rois[0], 2), ratio, "int64")
        counts = call.emit_part(func, (), "points")
        count_like(call, counts, 1)
    else:
        # Room for regions of twice the size of the image.
        most = max(2 * -(-n // m) + 1 for n, m in zip(shape[2:], outputs, strict=True))
        samples = (most, most)
        func = sampling.region_points(rois[0], outputs, scale, half_pixel, call.dtype())
        counts = call.emit_part(func, call.inputs[1:2], "points")
        largest = reduction.reduce("max", (rois[0], 2), (0, 1), False, "int64")
        if rois[0]:
            given = filled(call, counts, 0, ".points")
            limit = call.emit_part(largest, (given,), "most_points")
            subject = f"{call.title}: points of a bin along an axis, at most"
            call.context.graph.add_guard(limit, -(2**63), most, subject)
    sized, sizes = _sized(call)
    func = sampling.roi_align(
        shape, rois[0], outputs, samples, scale, half_pixel, mode == "max", call.dtype(), sized
    )
    # Positions are moved into what a run gives.
    call.emit(func, (*call.inputs[:3], counts, *sizes), given={0: (0, 2, 3)})


def _deform_conv(call: NodeCall) -> None:
    """Gathers the taps of each window into columns, and convolves these with a kernel of 1x1."""
    shape, weight, offsets = call.shape(0), call.shape(1), call.shape(2)
    if len(shape) != 4:
        call.refuse(f"data of rank {len(shape)}", "use two spatial axes")
    kernel = weight_extents(call, 1)
    window = window_of(call, kernel)
    out = window.output_shape(shape[2:])
    groups = int(call.attribute("offset_group", 1))
    taps, masked = prod(kernel), call.has(4)
    wanted = (shape[0], 2 * groups * taps, *out)
    fits = groups > 0 and shape[1] % groups == 0 and offsets == wanted
    if not fits or (masked and call.shape(4) != (shape[0], groups * taps, *out)):
        raise call.invalid(
            f"offsets of shape {offsets} and the mask do not fit data "
            f"of shape {shape} in {groups} groups; offsets must have the shape {wanted}"
        )
    sized, sizes = _sized(call)
    func = sampling.deformed_columns(shape, out, window, groups, masked, call.dtype(), sized)
    windows = counted_windows(call, call.inputs[0], window)
    for position in (2, 4)[: 1 + masked]:
        for axis in (2, 3):
            count = call.counts(position).get(axis)
            require_same(call, windows.counts.get(axis), count, "its windows are moved by")
    # What a run does not give is outside: zeros there would be multiplied with the mask.
    moved = (call.inputs[0], call.inputs[2], *call.inputs[4:5][:masked])
    given = dict.fromkeys(range(len(moved)), (2, 3))
    columns = call.emit_part(func, (*moved, *sizes), "columns", given=given)
    count_also(call, columns, {axis + 1: count for axis, count in windows.counts.items()})
    flat = (shape[0], shape[1] * taps, *out)
    columns = call.reshaped(columns, flat, "flat", call.dtype())
    row = (weight[0], weight[1] * taps, 1, 1)
    filters = call.reshaped(call.inputs[1], row, "filters", call.dtype(1))
    func = convolution.convolution(
        flat, row, groups=int(call.attribute("group", 1)), bias=call.has(3), dtype=call.dtype()
    )
    # A kernel of 1x1 takes each column by itself.
    call.emit(func, (columns, filters, *call.inputs[3:4][: call.has(3)]), given={0: (2, 3)})
    count_also(call, call.outputs[0], windows.counts)


OPERATORS: Emitters = {
    "DeformConv": _deform_conv,
    "GridSample": _grid_sample,
    "RoiAlign": _roi_align,
}
