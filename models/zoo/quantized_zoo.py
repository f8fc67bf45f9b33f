"""Networks of the zoo as onnxruntime's quantizer writes them.

In: the name of a network and a way of quantizing.  Out: a checked proto.  Static quantization is
calibrated with random inputs.  The same seed gives the same bytes.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
from onnx import version_converter
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from graphflow.models.light import light, reseed
from graphflow.models.zoo.exported import Exported, Feeds, bert_feeds
from graphflow.models.zoo.mobilenet import mobilenet_v2
from graphflow.models.zoo.resnet import resnet18
from graphflow.models.zoo.sequences.bert import bert
from graphflow.models.zoo.ssd import ssd


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


def _image(name: str, *shape: int) -> Callable[[int], Feeds]:
    def feeds(seed: int) -> Feeds:
        values = np.random.default_rng(seed).standard_normal(shape)
        return {name: values.astype(np.float32)}

    return feeds


def _text(seed: int, batch: int = 1, length: int = 128) -> Feeds:
    """Token ids, all of which count."""
    return {**bert_feeds(seed, batch, length), "attention_mask": np.ones((batch, length), np.int64)}


def _squeezenet(seed: int) -> onnx.ModelProto:
    # Scales along an axis need opset 13.
    return version_converter.convert_version(reseed(light("squeezenet"), seed), 13)


NETWORKS: dict[str, Exported] = {
    "resnet18": Exported(resnet18, "residual blocks", _image("input", 1, 3, 224, 224)),
    "mobilenet_v2": Exported(
        mobilenet_v2, "inverted residuals, depthwise", _image("input", 1, 3, 224, 224)
    ),
    "squeezenet": Exported(_squeezenet, "joined branches", _image("data_0", 1, 3, 224, 224)),
    "ssd": Exported(ssd, "detector with heads on three maps", _image("input", 1, 3, 160, 160)),
    "bert_mini": Exported(
        partial(bert, layers=4, width=256, heads=4, positions=128), "four layers of BERT", _text
    ),
}
"""Networks that are quantized for benchmarks, by name."""


class _Batches(CalibrationDataReader):  # type: ignore[misc]
    """The inputs with which ranges are measured, one run after the other."""

    def __init__(self, feeds: Callable[[int], Feeds], runs: int = 2) -> None:
        self._left: Iterator[Feeds] = map(feeds, range(runs))

    def get_next(self) -> Feeds | None:
        return next(self._left, None)


def quantized(model: onnx.ModelProto, feeds: Callable[[int], Feeds], way: Way) -> onnx.ModelProto:
    """`model` quantized by onnxruntime, calibrated with the inputs of `feeds` from two seeds."""
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
                _Batches(feeds),
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


def quantized_network(name: str, way: str, seed: int) -> onnx.ModelProto:
    """A network of `NETWORKS`, quantized in one of `WAYS`."""
    network = NETWORKS[name]
    return quantized(network.build(seed), network.feeds, WAYS[way])


QUANTIZED: dict[str, Exported] = {
    f"{name}_{way}": Exported(
        partial(quantized_network, name, way), f"{network.description}, {way}", network.feeds
    )
    for name, network in NETWORKS.items()
    for way in WAYS
}
"""Every network in every way of quantizing, by the names of both."""
