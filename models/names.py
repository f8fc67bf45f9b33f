"""Models by name, as the command line and the benchmarks take them."""

from __future__ import annotations

import onnx

from graphflow.base.offered_names import LIGHT, ZOO_PREFIX
from graphflow.models.light import light, reseed
from graphflow.models.zoo import zoo_model


def named(name: str, seed: int | None = None) -> onnx.ModelProto | None:
    """The model `light:NAME` of the onnx package or `zoo:NAME` of the zoo; None for other names.

    With a seed a light model gets random weights; models of the zoo always have random weights, by
    default from seed 0.
    """
    if name.startswith(ZOO_PREFIX):
        return zoo_model(name.removeprefix(ZOO_PREFIX), 0 if seed is None else seed)
    if name.startswith(LIGHT):
        model = light(name.removeprefix(LIGHT))
        return model if seed is None else reseed(model, seed)
    return None
