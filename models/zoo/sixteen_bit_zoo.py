"""Networks of the zoo in float16 and bfloat16, for benchmarks beside their float32.

In: the name of a network and one of `HALVES`.  Out: a proto, and inputs of that type.  The same
seed gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
from onnx import version_converter

from graphflow.base.dtypes import DTYPES
from graphflow.models.zoo.building.sixteen_bits import in_sixteen_bits
from graphflow.models.zoo.exported import Exported, Feeds, cached_feeds
from graphflow.models.zoo.quantized_zoo import NETWORKS as QUANTIZED_NETWORKS
from graphflow.models.zoo.sequences.gpt import VOCABULARY, gpt
from graphflow.models.zoo.vit import vit

BRAIN_FLOAT_OPSET = 22
"""The first opset in which Conv and pools are defined on bfloat16."""


def _vit_feeds(seed: int) -> Feeds:
    values = np.random.default_rng(seed).standard_normal((1, 3, 224, 224))
    return {"pixel_values": values.astype(np.float32)}


def _decoding_feeds(seed: int) -> Feeds:
    """One token behind 64 others."""
    return cached_feeds(seed, (1, 12, 64, 64), length=1, layers=4, rows=VOCABULARY)


NETWORKS: dict[str, Exported] = {
    **QUANTIZED_NETWORKS,
    "vit_small": Exported(
        partial(vit, layers=4, width=384, heads=6), "four layers of ViT-S", _vit_feeds
    ),
    "gpt_row": Exported(
        partial(gpt, layers=4, width=768, heads=12),
        "four layers of GPT-2 that decode one token: products of one row",
        _decoding_feeds,
    ),
}
"""Networks that are compared in float32 and in 16 bits, by name."""


def sixteen_bit_network(
    name: str,
    dtype: str,
    seed: int,
    rewritten: Callable[[onnx.ModelProto], onnx.ModelProto] | None = None,
) -> onnx.ModelProto:
    """A network of `NETWORKS` in one of `HALVES`; `rewritten` is asked for its float32 before."""
    model = NETWORKS[name].build(seed)
    if dtype == "bfloat16":
        model = version_converter.convert_version(model, BRAIN_FLOAT_OPSET)
    return in_sixteen_bits(model if rewritten is None else rewritten(model), dtype)


def sixteen_bit_feeds(name: str, dtype: str, seed: int) -> Feeds:
    """The inputs of that network, rounded to its type."""
    feeds = NETWORKS[name].feeds(seed)
    return {
        tensor: array.astype(DTYPES[dtype]) if array.dtype == np.float32 else array
        for tensor, array in feeds.items()
    }
