"""DFT and STFT: matrix products with tables of Fourier factors that are made at import."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import InvalidModel
from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.frontends.nodes.counted import count_also
from graphflow.frontends.protos.steps import only_element
from graphflow.frontends.tensors.derived_sizes import (
    bounds_of,
    require_at_least,
    rounded_down,
)
from graphflow.kernels.definitions import elementwise, signal
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.movements import movement

LARGEST = 1 << 26
"""The most factors of a transform that is computed as a matrix product: 256 MiB of float32."""


def _scalar(call: NodeCall, position: int, role: str) -> int | None:
    if not call.has(position):
        return None
    return int(only_element(call.title, call.constant(position, role), role))


def _dft(call: NodeCall) -> None:
    """The axis is an attribute before opset 20, and the third input since."""
    shape = call.shape(0)
    inverse = call.flag("inverse")
    onesided = call.flag("onesided")
    axis = call.attribute("axis", 1) if call.opset < 20 else _scalar(call, 2, "axis")
    axis = -2 if axis is None else axis
    rank = len(shape)
    if rank < 2 or not (-rank <= axis <= -2 or 0 <= axis <= rank - 2):
        raise call.invalid(
            f"axis {axis} is no axis of a signal of shape {shape}; the last one "
            "holds the real and imaginary parts"
        )
    axis %= rank
    length = _scalar(call, 1, "dft_length")
    if length is None:
        length = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    factors = _factors(call, shape[axis], shape[-1], length, inverse, onesided)
    order = (*(k for k in range(rank - 1) if k != axis), axis, rank - 1)
    name = call.transposed(call.inputs[0], order, "axis_last", call.dtype())
    lead = tuple(shape[k] for k in order[:-2])
    name, found = _transformed(call, name, lead, factors)
    back = tuple(order.index(k) for k in range(rank))
    call.emit(movement.transpose(found, back, call.dtype()), (name,))


def _stft(call: NodeCall) -> None:
    shape = call.shape(0)
    if len(shape) == 2:  # a real signal without the axis of its parts, as onnxruntime takes it
        shape = (*shape, 1)
    onesided = call.flag("onesided", True)
    step = _scalar(call, 1, "frame_step")
    length = _scalar(call, 3, "frame_length")
    window = call.optional_shape(2)
    if length is None:
        length = shape[1] if window is None else window[0]
    if window not in (None, (length,)) or step is None or len(shape) != 3:
        raise call.invalid(
            f"a signal of shape {shape}, frames of {length} every {step} "
            f"and a window of shape {window} do not fit"
        )
    dtype = call.dtype()
    name = call.reshaped(call.inputs[0], shape, "signal", dtype)
    name = _frames(call, name, length, step)
    cut = call.context.graph.values[name].shape
    factors = _factors(call, length, shape[2], length, False, onesided)
    weights = call.known(2)
    if weights is not None:
        factors = factors * weights.astype(np.float64).reshape(-1, 1, 1, 1)
    elif window is not None:
        spread = call.reshaped(call.inputs[2], (length, 1), "window", dtype)
        func = elementwise.binary("mul", cut, (length, 1), dtype)
        name = call.emit_part(func, (name, spread), "windowed")
    name, found = _transformed(call, name, cut[:2], factors)
    call.emit(movement.copy(found, dtype), (name,))


def _frames(call: NodeCall, name: str, length: int, step: int) -> str:
    """The frames of `length` that lie inside of axis 1 of a signal, one every `step` elements."""
    context, value = call.context, call.context.graph.values[name]
    func = signal.frames(value.shape, length, step, call.dtype())
    count = context.counted.get(name, {}).get(1)
    if count is None:
        return call.emit_part(func, (name,), "frames")
    if not call.has(2) and not call.has(3):
        raise call.extents_lost(call.inputs, "it is the length of its only frame")
    bounds = bounds_of(context, count)
    if bounds is None or bounds[0] < length:
        require_at_least(context, count, length)
        raise call.extents_lost(call.inputs, f"a run may have fewer than the {length} of a frame")
    frames = call.emit_part(func, (name,), "frames", given={0: (1,)})
    number = rounded_down(context, count, step - length, step)
    count_also(call, frames, {1: number} if isinstance(number, str) else {})
    return frames


def _factors(
    call: NodeCall, given: int, parts: int, length: int, inverse: bool, onesided: bool
) -> NDArray[np.float64]:
    what = call.title
    if parts not in (1, 2) or length < 1:
        raise InvalidModel(
            f"{what}: a signal has 1 or 2 parts and a positive length, not {parts} and {length}"
        )
    if onesided and parts == (1 if inverse else 2):
        wanted = "complex" if inverse else "real"
        raise InvalidModel(f"{what}: onesided is 1, so the signal must be {wanted}")
    if given * parts * length * 2 > LARGEST:
        call.refuse(f"a transform of {length} elements as a matrix", "split the transform")
    return signal.fourier_factors(given, parts == 2, length, inverse=inverse, onesided=onesided)


def _transformed(
    call: NodeCall, name: str, lead: tuple[int, ...], factors: NDArray[np.float64]
) -> tuple[str, tuple[int, ...]]:
    """The product of a signal (lead…, elements, parts) with the factors: its name and its shape."""
    given, parts, outputs, of_output = factors.shape
    dtype = call.dtype()
    # Axes of which a run gives a part stay axes; the others are the rows of one product.
    rows = lead if name in call.context.counted else (prod(lead),)
    columns = factors.reshape(given * parts, outputs * of_output).astype(dtype)
    table = call.add_part(columns, "factors")
    flat = call.reshaped(name, (*rows, given * parts), "flat", dtype)
    func = linear.matmul((*rows, given * parts), columns.shape, dtype)
    name = call.emit_part(func, (flat, table), "product")
    result = (*lead, outputs, of_output)
    return call.reshaped(name, result, "parts", dtype), result


OPERATORS: Emitters = {"DFT": _dft, "STFT": _stft}
