"""Small networks for the tests of the page, compiled and shown once.

`probe:concat:58` has a padded tensor, a conversion and cancelled pairs; `stage` has the units of a
ShuffleNetV2, which repeat, and memory that is used again.
"""

from contextlib import nullcontext
from functools import cache
from unittest.mock import patch

import onnx

from graphflow.inspect.page import shown_kernels, shown_model
from graphflow.inspect.page.page_data import ShownModel
from graphflow.models.zoo.building.layers import NetworkBuilder
from graphflow.models.zoo.shufflenet import stage
from graphflow.pipeline.compiler import Compiled
from support.models.compiled_networks import compiled_model, compiled_network


@cache
def compiled(name: str) -> Compiled:
    """`stage`, or a network of the zoo, compiled."""
    return compiled_model(shuffled_stage()) if name == "stage" else compiled_network(name)


@cache
def shown(name: str) -> ShownModel:
    """What the page shows of it; of `stage` without the steps and the code of its kernels, as in
    large models."""
    most = {"STEP_CHARACTERS": 0, "CODE_CHARACTERS": 0} if name == "stage" else {}
    with patch.multiple(shown_kernels, **most) if most else nullcontext():
        return shown_model(compiled(name))


def shuffled_stage() -> onnx.ModelProto:
    """A stage of ShuffleNetV2 on a small map: a unit that halves it, and three that keep it."""
    b = NetworkBuilder(0, name="shuffled_stage")
    x = stage(b, b.relu(b.conv_bias(b.input("input", (1, 3, 12, 12)), 24, 3)), 48, 4, 6)
    b.output(b.node("GlobalAveragePool", [b.relu(b.conv_bias(x, 30, 1))]))
    return b.model()
