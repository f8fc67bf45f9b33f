"""Quantization by onnxruntime's quantizer.

In: a float model, inputs to calibrate with, and a way of quantizing.  Out: the quantized proto.
What always holds: the same arguments give the same bytes.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

Feeds = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Way:
    """How a network is quantized."""

    activations: QuantType = QuantType.QUInt8
    weights: QuantType = QuantType.QInt8
    per_channel: bool = True
    format: QuantFormat = QuantFormat.QDQ
    dynamic: bool = False


WAYS: dict[str, Way] = {
    "u8s8": Way(),
    "s8s8": Way(activations=QuantType.QInt8),
    "u8s8_tensor": Way(per_channel=False),
    "s8s8_tensor": Way(activations=QuantType.QInt8, per_channel=False),
    "qlinear": Way(format=QuantFormat.QOperator),
    "dynamic": Way(dynamic=True),
}
"""By name: types of activations and weights; one scale for each channel of a weight, or `tensor`
for one; `qlinear` operators on quantized tensors in place of QDQ pairs; `dynamic` scales of the
run."""


class _Batches(CalibrationDataReader):  # type: ignore[misc]
    """The inputs with which ranges are measured, one run after the other."""

    def __init__(self, runs: Iterable[Feeds]) -> None:
        self._left = iter(runs)

    def get_next(self) -> Feeds | None:
        return next(self._left, None)


def quantized_by_onnxruntime(
    model: onnx.ModelProto, runs: Iterable[Feeds], way: Way
) -> onnx.ModelProto:
    """`model` quantized by onnxruntime.

    Its ranges are measured with the inputs of `runs`, unless the scales are dynamic.
    """
    with tempfile.TemporaryDirectory() as folder, _quiet():
        given, prepared, made = (
            os.path.join(folder, f"{part}.onnx") for part in ("model", "prepared", "quantized")
        )
        onnx.save(model, given)
        quant_pre_process(given, prepared, skip_symbolic_shape=True)
        if way.dynamic:
            quantize_dynamic(prepared, made, per_channel=way.per_channel, weight_type=way.weights)
        else:
            quantize_static(
                prepared,
                made,
                _Batches(runs),
                quant_format=way.format,
                activation_type=way.activations,
                weight_type=way.weights,
                per_channel=way.per_channel,
            )
        return onnx.load(made)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the quantizer's advice in the log."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
