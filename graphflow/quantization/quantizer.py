"""Quantization by onnxruntime's quantizer.

In: a float model, inputs to calibrate with, and a way of quantizing.  Out: the quantized proto.
What always holds: the same arguments give the same bytes.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import onnx
from msgspec import Struct
from numpy.typing import NDArray
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from graphflow.base.errors import GraphflowError
from graphflow.base.offered_names import BYTE_TYPE_NAMES, CALIBRATION_METHOD_NAMES

Feeds = Mapping[str, NDArray[Any]]

TYPES = dict(zip(BYTE_TYPE_NAMES, (QuantType.QUInt8, QuantType.QInt8), strict=True))
METHODS = dict(
    zip(
        CALIBRATION_METHOD_NAMES,
        (CalibrationMethod.MinMax, CalibrationMethod.Entropy, CalibrationMethod.Percentile),
        strict=True,
    )
)
"""onnxruntime's types and methods, by the names that are offered."""

REASON = 300
"""The most characters of a message of onnxruntime that an error repeats."""


class Way(Struct, frozen=True):
    """How a network is quantized.

    `symmetric` ranges of activations have 0 in their middle; `method` makes ranges of the values
    that activations have while it is calibrated.
    """

    activations: QuantType = QuantType.QUInt8
    weights: QuantType = QuantType.QInt8
    per_channel: bool = True
    format: QuantFormat = QuantFormat.QDQ
    dynamic: bool = False
    symmetric: bool = False
    method: CalibrationMethod = CalibrationMethod.MinMax


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
    return quantize_prepared(prepared_network(model), runs, way)


def prepared_network(model: onnx.ModelProto) -> onnx.ModelProto:
    """The float network as onnxruntime prepares it: constants evaluated, BatchNormalization folded
    into weights, shapes inferred."""
    with _folder() as folder, _failure("prepare the network"):
        given, prepared = os.path.join(folder, "model.onnx"), os.path.join(folder, "prepared.onnx")
        onnx.save(model, given)
        quant_pre_process(given, prepared, skip_symbolic_shape=True)
        return onnx.load(prepared)


def quantize_prepared(
    prepared: onnx.ModelProto, runs: Iterable[Feeds], way: Way, excluded: Collection[str] = ()
) -> onnx.ModelProto:
    """A prepared network quantized, but for its nodes of the names in `excluded`."""
    with _folder() as folder, _failure("quantize the network"):
        source, made = os.path.join(folder, "prepared.onnx"), os.path.join(folder, "made.onnx")
        onnx.save(prepared, source)
        if way.dynamic:
            quantize_dynamic(
                source,
                made,
                per_channel=way.per_channel,
                weight_type=way.weights,
                nodes_to_exclude=[*excluded],
            )
        else:
            quantize_static(
                source,
                made,
                _Batches(runs),
                quant_format=way.format,
                activation_type=way.activations,
                weight_type=way.weights,
                per_channel=way.per_channel,
                nodes_to_exclude=[*excluded],
                calibrate_method=way.method,
                extra_options={"ActivationSymmetric": True} if way.symmetric else None,
            )
        return onnx.load(made)


@contextmanager
def _folder() -> Iterator[str]:
    """A temporary folder; the quantizer's advice does not reach the log, nor why it prepares less
    than it could."""
    disabled = logging.root.manager.disable
    logging.disable(max(disabled, logging.ERROR))
    try:
        with tempfile.TemporaryDirectory() as folder:
            yield folder
    finally:
        logging.disable(disabled)


@contextmanager
def _failure(what: str) -> Iterator[None]:
    """The errors of the quantizer, which are of many classes, as GraphflowError."""
    try:
        yield
    except GraphflowError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:REASON] or type(error).__name__
        raise GraphflowError(
            f"onnxruntime's quantizer cannot {what}: {reason}; leave out the nodes that it names, "
            "or quantize in another way"
        ) from error
