"""Models by name, as the command line and the benchmarks take them."""

from __future__ import annotations

import onnx

from graphflow.base.offered_names import LIGHT, ZOO_PREFIX
from graphflow.models.light import light, reseed
from graphflow.models.zoo import zoo_model


def named(name: str, seed: int | None = None) -> onnx.ModelProto | None:
    """The model `light:NAME` of the onnx package or `zoo:NAME` of the zoo; None for other names.

    Both have random weights, by default from seed 0: with the single numbers that fill the weights
    of a light model as it is shipped, deep networks end in infinities, and their times are those
    of no network that anyone runs.
    """
    chosen = 0 if seed is None else seed
    if name.startswith(ZOO_PREFIX):
        return zoo_model(name.removeprefix(ZOO_PREFIX), chosen)
    if name.startswith(LIGHT):
        return reseed(light(name.removeprefix(LIGHT)), chosen)
    return None
