"""Resize and Upsample: the attributes become an exact coordinate transform for each axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor, inf, isfinite

import numpy as np
from msgspec import Struct

from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import require_open, sizes_in
from graphflow.frontends.nodes.counted_resize import (
    ResizedExtent,
    emit_counted_resize,
    resized_lost,
    scaled_extent,
)
from graphflow.frontends.protos.payload import require_extents
from graphflow.graph import Array
from graphflow.kernels.definitions.interpolation import resize
from graphflow.kernels.definitions.interpolation.computed_filters import FilterOptions
from graphflow.kernels.definitions.movements import movement

HALF = Fraction(1, 2)


class _ResizedAxis(Struct, frozen=True):
    """One axis: input and output extent, their ratio, and the region of interest."""

    before: int
    after: int
    scale: Fraction
    region: tuple[Fraction, Fraction] = (Fraction(0), Fraction(1))


class _Sampling(Struct, frozen=True):
    """How a node finds the input elements of an output element, and what it makes of them."""

    mode: str
    coordinates: str = "asymmetric"
    rounding: str = "floor"
    """Of the nearest mode."""
    outside: float | None = None
    """The value of elements whose coordinates are not in the input, if they have one."""
    cubic: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False


def _coordinates(call: NodeCall, mode: str, axis: _ResizedAxis) -> resize.Coordinates:
    """The input coordinate of output index i."""
    step = 1 / axis.scale
    at_start = resize.Coordinates(Fraction(0), Fraction(0))
    last, steps = axis.before - 1, axis.after - 1
    match mode:
        case "asymmetric":
            return resize.Coordinates(step, Fraction(0))
        case "half_pixel":
            return resize.Coordinates(step, HALF * step - HALF)
        case "pytorch_half_pixel":
            return resize.Coordinates(step, HALF * step - HALF) if axis.after > 1 else at_start
        case "half_pixel_symmetric":
            # The part of the input that a rounded output extent misses is cut on both sides.
            covered = axis.after / (axis.scale * axis.before)
            shift = Fraction(axis.before, 2) * (1 - covered)
            return resize.Coordinates(step, shift + HALF * step - HALF)
        case "tf_half_pixel_for_nn":
            return resize.Coordinates(step, HALF * step)
        case "align_corners":
            # As onnxruntime; ONNX's own data divides by the extent before it is rounded down.
            return resize.Coordinates(Fraction(last, steps), Fraction(0)) if steps > 0 else at_start
        case "tf_crop_and_resize":
            start, end = axis.region
            if steps > 0:
                return resize.Coordinates((end - start) * last / steps, start * last)
            return resize.Coordinates(Fraction(0), HALF * (start + end) * last)
    raise call.invalid(f"coordinate_transformation_mode {mode} does not exist")


def _resize(call: NodeCall) -> None:
    """Opset 10 has only scales and a mode; sizes and coordinate modes exist since opset 11."""
    mode = call.attribute("mode", "nearest")
    if call.opset < 11:
        scales = call.constant(1, "scales", rank=1)
        axes = _scaled(call, range(len(call.shape(0))), scales, ())
        # onnxruntime, whose operator this was, rounds up where an axis shrinks.
        rounding = ["ceil" if axis.scale < 1 else "floor" for axis in axes]
        if len(set(rounding)) > 1 and mode == "nearest":
            growing = [axis for axis in axes if axis.scale > 1]
            if growing:
                call.refuse("growing and shrinking at once", "convert the model to opset 11")
            rounding = ["ceil"]
        _emit_scaled(call, scales, _Sampling(mode, rounding=rounding[0]))
        return
    rounding_mode = call.attribute("nearest_mode", "round_prefer_floor")
    coordinates = call.attribute("coordinate_transformation_mode", "half_pixel")
    extrapolation = call.attribute("extrapolation_value", 0.0)
    outside = extrapolation if coordinates == "tf_crop_and_resize" else None
    sampling = _Sampling(
        mode,
        coordinates,
        rounding_mode,
        outside,
        float(call.attribute("cubic_coeff_a", -0.75)),
        call.flag("antialias"),
        call.flag("exclude_outside"),
    )
    rank = len(call.shape(0))
    which = [call.normalized_axis(axis) for axis in call.attribute("axes", range(rank))]
    region = call.constant(1, "roi", rank=1).tolist() if outside is not None else ()
    if outside is not None and not (len(region) == 2 * len(which) and all(map(isfinite, region))):
        raise call.invalid(
            f"roi {region} must have a finite start and end for each of {len(which)} axes"
        )
    policy = call.attribute("keep_aspect_ratio_policy", "stretch")
    scales = call.constant(2, "scales", rank=1) if call.has(2) else np.zeros(0, np.float32)
    extents = _counted_extents(call, which, scales, policy)
    if extents:
        _emit_counted(call, extents, sampling)
        return
    if scales.size:
        axes = _scaled(call, which, scales, region)
    else:
        axes = _sized(call, which, call.constant(3, "sizes", rank=1), policy, region)
    _emit(call, axes, sampling)
    if not scales.size:
        require_open(call, which)


def _counted_extents(
    call: NodeCall, which: Sequence[int], scales: Array, policy: str
) -> dict[int, ResizedExtent]:
    """The output extents along the axes in `which`, if a run decides one of them, or one of the
    input's that changes; else none."""
    counts = call.counts(0)
    sizes = {} if scales.size else sizes_in(call, 3)
    changed = [axis for axis, n in zip(which, scales, strict=False) if n != 1]
    if not (sizes or call.is_counted(0, changed if scales.size else which)):
        return {}
    if not all(counts[axis] in call.context.sizes for axis in which if axis in counts):
        raise resized_lost(call, "its bounds are not known")
    if scales.size:
        _require_positive(call, "scales", scales, which)
        ratios = [_exact(np.float32(scale)) for scale in scales]
        return {axis: scaled_extent(call, axis, n) for axis, n in zip(which, ratios, strict=True)}
    if policy != "stretch":
        raise resized_lost(call, f"policy {policy} depends on it")
    stated = call.constant(3, "sizes", rank=1)
    _require_positive(call, "sizes", stated, which)
    return {axis: ResizedExtent(sizes.get(k, int(stated[k]))) for k, axis in enumerate(which)}


def _emit_counted(
    call: NodeCall, extents: Mapping[int, ResizedExtent], sampling: _Sampling
) -> None:
    linear = sampling.mode in ("linear", "bilinear")
    if not (linear or sampling.mode in ("nearest", "cubic")):
        raise call.invalid(f"mode {sampling.mode} does not exist")
    filtered = sampling.antialias or sampling.exclude_outside
    way: str | FilterOptions | None = None if linear else sampling.rounding
    if sampling.mode == "cubic" or (linear and filtered):
        way = FilterOptions(
            "linear" if linear else "cubic",
            sampling.cubic,
            sampling.antialias,
            sampling.exclude_outside,
        )
    emit_counted_resize(call, extents, sampling.coordinates, way)


def _upsample(call: NodeCall) -> None:
    mode = call.attribute("mode", "nearest")
    given = call.opset < 9
    scales = np.asarray(call.required("scales")) if given else call.constant(1, "scales", rank=1)
    _emit_scaled(call, scales, _Sampling(mode))


def _emit_scaled(call: NodeCall, scales: Array, sampling: _Sampling) -> None:
    """Scale all axes, as the operators before opset 11 do."""
    which = range(len(call.shape(0)))
    extents = _counted_extents(call, which, scales, "stretch")
    if extents:
        _emit_counted(call, extents, sampling)
        return
    _emit(call, _scaled(call, which, scales, ()), sampling)


def _require_positive(call: NodeCall, role: str, numbers: Array, axes: Sequence[int]) -> None:
    """`InvalidModel` unless there is one positive finite number for each of the axes."""
    if len(numbers) != len(axes) or not all(0 < number < inf for number in numbers):
        raise call.invalid(
            f"{role} {numbers.tolist()} must be positive and finite, one for each of "
            f"{len(axes)} axes"
        )


def _scaled(
    call: NodeCall, which: Sequence[int], scales: Array, region: Sequence[float]
) -> list[_ResizedAxis]:
    """All axes of the input; those in `which` are scaled by `scales`."""
    _require_positive(call, "scales", scales, which)
    axes = [_ResizedAxis(n, n, Fraction(1)) for n in call.shape(0)]
    for number, axis in enumerate(which):
        before, scale = axes[axis].before, np.float32(scales[number])
        with np.errstate(over="ignore"):
            after = floor(min(np.float32(before) * scale, np.float32(1 << 62)))
        require_extents([after], f"{call.title}: axis {axis} of its result")
        axes[axis] = _ResizedAxis(before, after, _exact(scale), _region(region, number))
    return axes


def _sized(
    call: NodeCall, which: Sequence[int], sizes: Array, policy: str, region: Sequence[float]
) -> list[_ResizedAxis]:
    """All axes of the input; those in `which` get the extents `sizes`."""
    _require_positive(call, "sizes", sizes, which)
    axes = [_ResizedAxis(n, n, Fraction(1)) for n in call.shape(0)]
    if not all(axes[axis].before for axis in which):
        raise call.invalid(f"its input of shape {call.shape(0)} has no element")
    factors = [Fraction(int(n), axes[axis].before) for axis, n in zip(which, sizes, strict=True)]
    extents = [int(n) for n in sizes]
    if policy in ("not_larger", "not_smaller"):
        common = min(factors) if policy == "not_larger" else max(factors)
        extents = [floor(axes[axis].before * common + HALF) for axis in which]
        factors = [common] * len(factors)
    elif policy != "stretch":
        raise call.invalid(f"policy {policy} does not exist")
    for number, axis in enumerate(which):
        after, scale = extents[number], factors[number]
        axes[axis] = _ResizedAxis(axes[axis].before, after, scale, _region(region, number))
    return axes


def _exact(scale: np.float32) -> Fraction:
    """A fraction with a denominator up to 1,000 that rounds to this float32, else its exact value.

    Models state scales such as 1/3 as floats; coordinates have to be exact to hit the same
    elements.
    """
    whole = Fraction(float(scale))
    simple = whole.limit_denominator(1000)
    return simple if simple > 0 and np.float32(float(simple)) == scale else whole


def _region(region: Sequence[float], number: int) -> tuple[Fraction, Fraction]:
    """Start and end of the region along one axis; `region` lists all starts, then all ends."""
    if not region:
        return Fraction(0), Fraction(1)
    ends = len(region) // 2
    return _exact_bound(region[number]), _exact_bound(region[ends + number])


def _exact_bound(value: float) -> Fraction:
    return -_exact(np.float32(-value)) if value < 0 else _exact(np.float32(value))


def _emit(call: NodeCall, axes: Sequence[_ResizedAxis], sampling: _Sampling) -> None:
    coordinates = [_coordinates(call, sampling.coordinates, axis) for axis in axes]
    shape, result = call.shape(0), tuple(axis.after for axis in axes)
    mode, outside = sampling.mode, sampling.outside
    linear = mode in ("linear", "bilinear")
    if 0 in result:
        call.emit(movement.fill(result, 0, call.dtype()), ())
        return
    # Coordinates inside the input have both of their neighbours there, or one with weight zero.
    filtered = sampling.antialias or (sampling.exclude_outside and outside is None)
    if mode == "cubic" or (linear and filtered):
        _emit_filtered(call, axes, coordinates, sampling)
        return
    if mode == "nearest":
        func = resize.resize_nearest(
            shape, result, coordinates, sampling.rounding, outside, call.dtype()
        )
    elif linear:
        func = resize.resize_linear(shape, result, coordinates, outside, call.dtype())
    else:
        raise call.invalid(f"mode {mode} does not exist")
    call.emit(func, call.inputs[:1])


def _emit_filtered(
    call: NodeCall,
    axes: Sequence[_ResizedAxis],
    coordinates: Sequence[resize.Coordinates],
    sampling: _Sampling,
) -> None:
    """One kernel for each resized axis, with a table of weights.

    Axes that shrink most come first, so that the later kernels have less to do.
    """
    name, shape, dtype = call.inputs[0], call.shape(0), call.dtype()
    same = resize.Coordinates(Fraction(1), Fraction(0))
    for k in sorted(range(len(axes)), key=lambda k: Fraction(axes[k].after, axes[k].before)):
        axis, where = axes[k], coordinates[k]
        if where == same and axis.before == axis.after:
            continue
        taps = resize.filter_taps(
            "cubic" if sampling.mode == "cubic" else "linear",
            where,
            (axis.before, axis.after),
            axis.scale,
            cubic=sampling.cubic,
            antialias=sampling.antialias,
            exclude_outside=sampling.exclude_outside,
        )
        table = call.add_part(taps.weights.astype(dtype), f"weights{k}")
        count = taps.weights.shape[1]
        func = resize.resize_taps(shape, k, axis.after, where, taps.first, count, dtype)
        name, shape = call.emit_part(func, (name, table), f"axis{k}"), func.outputs[0].shape
    if sampling.outside is None:
        func = movement.copy(shape, dtype)
    else:
        func = resize.resize_outside(call.shape(0), shape, coordinates, sampling.outside, dtype)
    call.emit(func, (name,))


OPERATORS: Emitters = {"Resize": _resize, "Upsample": _upsample}
