"""Tests of DFT and STFT against numpy's FFT."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import graphflow as gf
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from support.single import noise, single


def model_of(
    op: str, x: np.ndarray, opset: int, constants: dict[int, Any], rank: int = 0, **attributes: Any
) -> Any:
    rank = rank or x.ndim
    model = single(op, [x], opset, constants, result=["n"] * rank, **attributes)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    info = helper.make_tensor_value_info("o0", kind, [f"n{k}" for k in range(rank)])
    model.graph.output[0].CopyFrom(info)
    return model


def parts(values: np.ndarray) -> np.ndarray:
    return np.stack([values.real, values.imag], axis=-1)


@st.composite
def transforms(draw: st.DrawFn) -> tuple[tuple[int, ...], int, int | None, dict[str, int], int]:
    opset = draw(st.sampled_from([17, 20]))
    shape = draw(st.sampled_from([(5,), (2, 6), (3, 4, 2)]))
    axis = draw(st.integers(0, len(shape) - 1))
    length = draw(st.sampled_from([None, 1, 4, 7, 8]))
    flags = {"inverse": draw(st.integers(0, 1)), "onesided": draw(st.integers(0, 1))}
    return shape, axis, length, flags, opset


@settings(max_examples=60)
@given(transforms(), st.booleans())
def test_any_transform_is_numpys(
    case: tuple[tuple[int, ...], int, int | None, dict[str, int], int], real: bool
) -> None:
    shape, axis, length, flags, opset = case
    inverse, onesided = bool(flags["inverse"]), bool(flags["onesided"])
    real = not inverse if onesided else real
    x = noise(*shape, 1 if real else 2).astype(np.float64)
    values = x[..., 0] if real else x[..., 0] + 1j * x[..., 1]
    if inverse and onesided:
        length = length or 2 * (shape[axis] - 1)
        expected = np.fft.irfft(values, length, axis)[..., None]
    else:
        transform = np.fft.rfft if onesided else np.fft.ifft if inverse else np.fft.fft
        expected = parts(transform(values, length, axis))
    constants: dict[int, Any] = {1: None if length is None else np.int64(length)}
    attributes: dict[str, Any] = dict(flags)
    if opset < 20:
        attributes["axis"] = axis
    else:
        constants[2] = np.int64(axis - x.ndim)
    model = model_of("DFT", x, opset, constants, **attributes)
    del model.graph.value_info[:]
    found = interpret_graph(import_model(model), {"i0": x})["o0"]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=25)
@given(st.integers(1, 6), st.integers(1, 4), st.sampled_from(["none", "known", "given"]),
       st.booleans(), st.booleans())  # fmt: skip
def test_any_short_time_transform_is_numpys(
    length: int, step: int, window: str, onesided: bool, real: bool
) -> None:
    onesided = onesided and real
    x = noise(2, 9, 1 if real else 2).astype(np.float64)
    weights = np.ones(length) if window == "none" else noise(length, seed=1).astype(np.float64)
    constants: dict[int, Any] = {1: np.int64(step), 3: np.int64(length)}
    arrays = [x]
    if window == "given":
        arrays.append(weights)
    else:
        constants[2] = None if window == "none" else weights
    model = single("STFT", arrays, 17, constants, result=["n"] * 4, onesided=int(onesided))
    feeds = dict(zip([info.name for info in model.graph.input], arrays, strict=True))
    found = interpret_graph(import_model(model), feeds)["o0"]
    values = x[..., 0] if real else x[..., 0] + 1j * x[..., 1]
    starts = range(0, 9 - length + 1, step)
    cut = np.stack([values[:, s : s + length] * weights for s in starts], axis=1)
    expected = parts((np.fft.rfft if onesided else np.fft.fft)(cut, axis=-1))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_a_native_transform_of_1000_elements_is_exact_to_float32() -> None:
    x = noise(4, 1000, 1)
    model = model_of("DFT", x, 17, {}, onesided=1)
    exe = gf.compile(model, options=gf.Options(threads=1, workers=0))
    expected = parts(np.fft.rfft(x[..., 0].astype(np.float64)))
    np.testing.assert_allclose(exe.run({"i0": x})["o0"], expected, atol=2e-4)


def test_the_step_of_one_frame_may_be_any_number() -> None:
    x = noise(1, 20, 1)
    model = model_of("STFT", x, 17, {1: np.int64(2**62), 2: None, 3: np.int64(16)}, 4)
    exe = gf.compile(model, options=gf.Options(threads=1, workers=0))
    expected = parts(np.fft.rfft(x[:, None, :16, 0].astype(np.float64)))
    np.testing.assert_allclose(exe.run({"i0": x})["o0"], expected, atol=1e-5)


def test_what_is_no_signal_is_refused() -> None:
    with pytest.raises(InvalidModel):
        import_model(model_of("DFT", noise(2, 5, 1), 17, {}, axis=2))
    with pytest.raises(InvalidModel):
        import_model(model_of("DFT", noise(2, 5, 2), 17, {}, onesided=1))
    with pytest.raises(UnsupportedOp, match="100000 elements"):
        import_model(model_of("DFT", noise(1, 100000, 1), 17, {}))
