"""Networks of the zoo as onnxruntime's quantizer writes them.

In: the name of a network and a way of quantizing.  Out: a checked proto.  Static quantization is
calibrated with two random inputs.  The same seed gives the same bytes.  The catalog does not have
these networks, since importing this module imports onnxruntime.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
from onnx import version_converter

from graphflow.models.light import light, reseed
from graphflow.models.zoo.exported import Exported, Feeds, bert_feeds, noise
from graphflow.models.zoo.mobilenet import mobilenet_v2
from graphflow.models.zoo.resnet import resnet18
from graphflow.models.zoo.sequences.bert import bert
from graphflow.models.zoo.ssd import ssd
from graphflow.quantization import WAYS, quantized_by_onnxruntime

CALIBRATING = 2
"""Inputs that ranges are measured with."""


def _text(seed: int, batch: int = 1, length: int = 128) -> Feeds:
    """Token ids, all of which count."""
    return {**bert_feeds(seed, batch, length), "attention_mask": np.ones((batch, length), np.int64)}


def _squeezenet(seed: int) -> onnx.ModelProto:
    # Scales along an axis need opset 13.
    return version_converter.convert_version(reseed(light("squeezenet"), seed), 13)


NETWORKS: dict[str, Exported] = {
    "resnet18": Exported(resnet18, "residual blocks", noise("input", 1, 3, 224, 224)),
    "mobilenet_v2": Exported(
        mobilenet_v2, "inverted residuals, depthwise", noise("input", 1, 3, 224, 224)
    ),
    "squeezenet": Exported(_squeezenet, "joined branches", noise("data_0", 1, 3, 224, 224)),
    "ssd": Exported(ssd, "detector with heads on three maps", noise("input", 1, 3, 160, 160)),
    "bert_mini": Exported(
        partial(bert, layers=4, width=256, heads=4, positions=128), "four layers of BERT", _text
    ),
}
"""Networks that are quantized for benchmarks, by name."""


def quantized_network(name: str, way: str, seed: int) -> onnx.ModelProto:
    """A network of `NETWORKS`, quantized in one of `WAYS`."""
    network = NETWORKS[name]
    runs = map(network.feeds, range(CALIBRATING))
    return quantized_by_onnxruntime(network.build(seed), runs, WAYS[way])


QUANTIZED: dict[str, Exported] = {
    f"{name}_{way}": Exported(
        partial(quantized_network, name, way), f"{network.description}, {way}", network.feeds
    )
    for name, network in NETWORKS.items()
    for way in WAYS
}
"""Every network in every way of quantizing, by the names of both."""
