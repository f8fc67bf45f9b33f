"""Resize and Upsample: the attributes become exact coordinates, axis by axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np

from graphflow.errors import InvalidModel
from graphflow.frontends.call import Call
from graphflow.graph import Array
from graphflow.kernels.definitions import Coordinates, resize_linear, resize_nearest

HALF = Fraction(1, 2)


@dataclass(frozen=True, slots=True)
class _Axis:
    """Extents before and after, the factor between them, and the part of the input to show."""

    before: int
    after: int
    scale: Fraction
    region: tuple[Fraction, Fraction] = (Fraction(0), Fraction(1))


def _coordinates(mode: str, axis: _Axis) -> Coordinates | None:
    """Where output index i lies in the input; None for a mode that does not exist."""
    step = 1 / axis.scale
    at_start = Coordinates(Fraction(0), Fraction(0))
    last, steps = axis.before - 1, axis.after - 1
    match mode:
        case "asymmetric":
            return Coordinates(step, Fraction(0))
        case "half_pixel":
            return Coordinates(step, HALF * step - HALF)
        case "pytorch_half_pixel":
            return Coordinates(step, HALF * step - HALF) if axis.after > 1 else at_start
        case "half_pixel_symmetric":
            # The part of the input that a rounded output extent misses is cut on both sides.
            covered = axis.after / (axis.scale * axis.before)
            shift = Fraction(axis.before, 2) * (1 - covered)
            return Coordinates(step, shift + HALF * step - HALF)
        case "tf_half_pixel_for_nn":
            return Coordinates(step, HALF * step)
        case "align_corners":
            return Coordinates(Fraction(last, steps), Fraction(0)) if steps > 0 else at_start
        case "tf_crop_and_resize":
            start, end = axis.region
            if steps > 0:
                return Coordinates((end - start) * last / steps, start * last)
            return Coordinates(Fraction(0), HALF * (start + end) * last)
    return None


def _resize(call: Call) -> None:
    """Opset 10 knows a mode alone; since 11 there are sizes and rules for coordinates."""
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
        _emit(call, mode, axes, "asymmetric", rounding[0], None)
        return
    if call.attribute("antialias", 0):
        call.refuse("antialias is 1", "resize without it, or filter before")
    # These two speak of the cubic mode only, which is refused.
    call.attribute("cubic_coeff_a")
    call.attribute("exclude_outside")
    rounding_mode = call.attribute("nearest_mode", "round_prefer_floor")
    coordinates = call.attribute("coordinate_transformation_mode", "half_pixel")
    extrapolation = call.attribute("extrapolation_value", 0.0)
    outside = extrapolation if coordinates == "tf_crop_and_resize" else None
    rank = len(call.shape(0))
    which = [axis % rank for axis in call.attribute("axes", range(rank))]
    region = call.constant(1, "roi", rank=1).tolist() if outside is not None else ()
    policy = call.attribute("keep_aspect_ratio_policy", "stretch")
    scales = call.constant(2, "scales", rank=1) if call.has(2) else np.zeros(0, np.float32)
    if scales.size:
        axes = _scaled(call, which, scales, region)
    else:
        axes = _sized(call, which, call.constant(3, "sizes", rank=1), policy, region)
    _emit(call, mode, axes, coordinates, rounding_mode, outside)


def _upsample(call: Call) -> None:
    mode = call.attribute("mode", "nearest")
    given = call.opset < 9
    scales = np.asarray(call.required("scales")) if given else call.constant(1, "scales", rank=1)
    axes = _scaled(call, range(len(call.shape(0))), scales, ())
    _emit(call, mode, axes, "asymmetric", "floor", None)


def _scaled(
    call: Call, which: Sequence[int], scales: Array, region: Sequence[float]
) -> list[_Axis]:
    """Each axis of the input, those in `which` with their factors."""
    if len(scales) != len(which) or not all(scale > 0 for scale in scales):
        raise InvalidModel(
            f"{call.op} node {call.name}: scales {scales.tolist()} must be positive, one for each "
            f"of {len(which)} axes"
        )
    axes = [_Axis(n, n, Fraction(1)) for n in call.shape(0)]
    for number, axis in enumerate(which):
        before, scale = axes[axis].before, np.float32(scales[number])
        after = floor(np.float32(before) * scale)
        axes[axis] = _Axis(before, after, _exact(scale), _region(region, number))
    return axes


def _sized(
    call: Call, which: Sequence[int], sizes: Array, policy: str, region: Sequence[float]
) -> list[_Axis]:
    """Each axis of the input, those in `which` with their new extents."""
    if len(sizes) != len(which) or not all(size > 0 for size in sizes):
        raise InvalidModel(
            f"{call.op} node {call.name}: sizes {sizes.tolist()} must be positive, one for each "
            f"of {len(which)} axes"
        )
    axes = [_Axis(n, n, Fraction(1)) for n in call.shape(0)]
    factors = [Fraction(int(n), axes[axis].before) for axis, n in zip(which, sizes, strict=True)]
    extents = [int(n) for n in sizes]
    if policy in ("not_larger", "not_smaller"):
        common = min(factors) if policy == "not_larger" else max(factors)
        extents = [floor(axes[axis].before * common + HALF) for axis in which]
        factors = [common] * len(factors)
    elif policy != "stretch":
        raise InvalidModel(f"{call.op} node {call.name}: policy {policy} does not exist")
    for number, axis in enumerate(which):
        after, scale = extents[number], factors[number]
        axes[axis] = _Axis(axes[axis].before, after, scale, _region(region, number))
    return axes


def _exact(scale: np.float32) -> Fraction:
    """The simplest fraction that a float32 factor stands for."""
    whole = Fraction(float(scale))
    simple = whole.limit_denominator(1000)
    return simple if simple > 0 and np.float32(float(simple)) == scale else whole


def _region(region: Sequence[float], number: int) -> tuple[Fraction, Fraction]:
    """Start and end along one axis; `region` lists all starts, then all ends."""
    if not region:
        return Fraction(0), Fraction(1)
    ends = len(region) // 2
    return _exact_bound(region[number]), _exact_bound(region[ends + number])


def _exact_bound(value: float) -> Fraction:
    return -_exact(np.float32(-value)) if value < 0 else _exact(np.float32(value))


def _emit(
    call: Call,
    mode: str,
    axes: Sequence[_Axis],
    coordinate_mode: str,
    rounding: str,
    outside: float | None,
) -> None:
    found = [_coordinates(coordinate_mode, axis) for axis in axes]
    coordinates = [c for c in found if c is not None]
    if len(coordinates) < len(found):
        raise InvalidModel(
            f"{call.op} node {call.name}: coordinate_transformation_mode {coordinate_mode} does "
            f"not exist"
        )
    shape, result = call.shape(0), tuple(axis.after for axis in axes)
    if mode == "nearest":
        func = resize_nearest(shape, result, coordinates, rounding, outside, call.dtype())
    elif mode in ("linear", "bilinear"):
        func = resize_linear(shape, result, coordinates, outside, call.dtype())
    else:
        call.refuse(f"mode {mode}", "use nearest or linear")
    call.emit(func, call.inputs[:1])


RESIZE: dict[str, Callable[[Call], None]] = {"Resize": _resize, "Upsample": _upsample}
