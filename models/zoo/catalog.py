"""The catalog of the zoo: the names of all models, and building one by its name.

In: a name, a seed.  Out: a checked proto.  Models of `ZOO` have batch 1 and known shapes; those of
`EXPORTS` may have symbolic shapes.  The same name and seed give the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import onnx
from msgspec import Struct

from graphflow.base.errors import InvalidModel
from graphflow.models.zoo.densenet import densenet40, densenet121
from graphflow.models.zoo.exported import EXPORTED, FULL_SIZE, LONG
from graphflow.models.zoo.feature_pyramid import feature_pyramid
from graphflow.models.zoo.mobilenet import mobilenet_v2, mobilenet_v3_small
from graphflow.models.zoo.resnet import regnet_y_400mf, resnet18
from graphflow.models.zoo.shufflenet import shufflenet_v2
from graphflow.models.zoo.single_patterns import EXTENT, PATTERNS, probe
from graphflow.models.zoo.ssd import ssd
from graphflow.models.zoo.unet import unet

PROBE = "probe:"
Shape = tuple[int, ...]


class ZooEntry(Struct, frozen=True):
    """A model that can be built."""

    build: Callable[[int], onnx.ModelProto]
    """From a seed."""
    description: str
    inputs: dict[str, Shape]
    """Logical shape of each graph input."""


def _image(size: int, channels: int = 3) -> dict[str, Shape]:
    return {"input": (1, channels, size, size)}


def _networks() -> dict[str, ZooEntry]:
    image = _image(224)
    return {
        "resnet18": ZooEntry(resnet18, "residual blocks of two 3x3 convolutions", image),
        "mobilenet_v2_1.0": ZooEntry(mobilenet_v2, "inverted residuals, depthwise, Clip", image),
        "mobilenet_v2_0.35": ZooEntry(
            partial(mobilenet_v2, width=0.35), "the same with few channels", image
        ),
        "mobilenet_v3_small": ZooEntry(
            mobilenet_v3_small, "hard swish and squeeze-and-excite", image
        ),
        "shufflenet_v2": ZooEntry(
            shufflenet_v2, "splits, concats and shuffles of 58, 116, 232 channels", image
        ),
        "regnet_y_400mf": ZooEntry(
            regnet_y_400mf, "grouped convolutions of 48, 104, 208, 440 channels, gated", image
        ),
        "densenet40_k12": ZooEntry(densenet40, "concats that grow by 12 channels", _image(32)),
        "densenet121_k12": ZooEntry(densenet121, "58 bottlenecks that add 12 channels each", image),
        "unet": ZooEntry(unet, "20, 40, 80 channels, skips, ConvTranspose", _image(128)),
        "unet_resize": ZooEntry(
            partial(unet, resize=True), "the same with nearest Resize", _image(128)
        ),
        "ssd": ZooEntry(ssd, "detector with heads on three maps and decoded boxes", _image(160)),
        "feature_pyramid": ZooEntry(
            feature_pyramid, "detector with a pyramid up and down over ShuffleNetV2", image
        ),
    }


def _probes() -> dict[str, ZooEntry]:
    """Each pattern at a small and a middling number of channels that fill no vector evenly."""
    found = {}
    for pattern, (build, divisor) in PATTERNS.items():
        for channels in (20, 60 if divisor == 4 else 58):
            found[f"{PROBE}{pattern}:{channels}"] = ZooEntry(
                partial(probe, pattern, channels),
                (build.__doc__ or pattern).splitlines()[0],  # python -OO has no docstrings
                _image(EXTENT, channels),
            )
    return found


ZOO: dict[str, ZooEntry] = {**_networks(), **_probes()}
"""Every network, and every probe at a few numbers of channels."""


EXPORTS = {**EXPORTED, **FULL_SIZE, **LONG}
"""Every network that is written as an exporter writes it, in all sizes."""


def zoo_model(name: str, seed: int = 0) -> onnx.ModelProto:
    """The model `name` of the zoo, or `probe:PATTERN:CHANNELS` for any number of channels.

    Raises `InvalidModel` for a name that is neither.
    """
    if name in ZOO:
        return ZOO[name].build(seed)
    if name in EXPORTS:
        return EXPORTS[name].build(seed)
    if not name.startswith(PROBE):
        networks = ", ".join((*(n for n in ZOO if not n.startswith(PROBE)), *EXPORTS))
        raise InvalidModel(
            f"the zoo has no model {name}; it has {networks} and {PROBE}PATTERN:CHANNELS"
        )
    pattern, _, channels = name.removeprefix(PROBE).partition(":")
    if not channels.isdecimal():
        raise InvalidModel(f"{name} names no number of channels; write {PROBE}{pattern}:58")
    return probe(pattern, int(channels), seed)
