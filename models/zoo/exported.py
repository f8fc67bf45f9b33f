"""Networks as exporters write them: their names, and inputs to run them with.

In: a name, a seed.  Out: a checked proto, or arrays for its inputs.  Inputs may be integers and
have symbolic shapes, so these networks are not among those of `catalog.ZOO`, whose shapes are all
known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.models.zoo.building.few_bits import with_few_bits
from graphflow.models.zoo.convnext import TINY, convnext
from graphflow.models.zoo.detector import detector, detector_any
from graphflow.models.zoo.efficientnet import efficientnet
from graphflow.models.zoo.half import half
from graphflow.models.zoo.mobilevit import mobilevit
from graphflow.models.zoo.qdq import qdq
from graphflow.models.zoo.segformer import DECODER, segformer
from graphflow.models.zoo.sequences import llama
from graphflow.models.zoo.sequences.albert import albert
from graphflow.models.zoo.sequences.bert import TYPES, bert
from graphflow.models.zoo.sequences.bert import VOCABULARY as WORD_PIECES
from graphflow.models.zoo.sequences.decoder import VOCABULARY as SYMBOLS
from graphflow.models.zoo.sequences.decoder import decoder
from graphflow.models.zoo.sequences.gpt import HEADS, LAYERS, WIDTH, gpt
from graphflow.models.zoo.sequences.gpt import VOCABULARY as TOKENS
from graphflow.models.zoo.sequences.speech import FEATURES, speech
from graphflow.models.zoo.sequences.t5 import VOCABULARY as PIECES
from graphflow.models.zoo.sequences.t5 import t5
from graphflow.models.zoo.sequences.tagger import VOCABULARY as WORDS
from graphflow.models.zoo.sequences.tagger import tagger
from graphflow.models.zoo.vit import vit

Feeds = dict[str, NDArray[Any]]


class Exported(Struct, frozen=True):
    """A network and what it is run with."""

    build: Callable[[int], onnx.ModelProto]
    """From a seed."""
    description: str
    feeds: Callable[[int], Feeds]
    """Inputs from a seed, of one choice of the symbolic extents."""


def bert_feeds(seed: int, batch: int = 2, length: int = 13) -> Feeds:
    """Token ids; the mask hides three tokens at the end of the first sequence."""
    rng = np.random.default_rng(seed)
    mask = np.ones((batch, length), np.int64)
    mask[0, -3:] = 0
    return {
        "input_ids": rng.integers(0, WORD_PIECES, (batch, length)),
        "attention_mask": mask,
        "token_type_ids": rng.integers(0, TYPES, (batch, length)),
    }


def gpt_feeds(seed: int, batch: int = 1, length: int = 1, past: int = 6) -> Feeds:
    """Token ids, and a cache of random keys and values, all of which count."""
    return cached_feeds(seed, (batch, HEADS, past, WIDTH // HEADS), length, LAYERS, TOKENS)


def llama_feeds(seed: int, batch: int = 1, length: int = 2, past: int = 5) -> Feeds:
    """The same for keys and values that several heads share."""
    cached = (batch, llama.GROUPS, past, llama.WIDTH // llama.HEADS)
    return cached_feeds(seed, cached, length, llama.LAYERS, llama.VOCABULARY)


def cached_feeds(
    seed: int, cached: tuple[int, int, int, int], length: int, layers: int, rows: int
) -> Feeds:
    """Ids below `rows`, a mask, and keys and values of the shape `cached` for each layer."""
    rng = np.random.default_rng(seed)
    batch, past = cached[0], cached[2]
    cache = {
        f"past_key_values.{layer}.{part}": rng.standard_normal(cached).astype(np.float32)
        for layer in range(layers)
        for part in ("key", "value")
    }
    return {
        "input_ids": rng.integers(0, rows, (batch, length)),
        "attention_mask": np.ones((batch, past + length), np.int64),
        **cache,
    }


def t5_feeds(seed: int, batch: int = 2, encoder: int = 11, decoder: int = 4) -> Feeds:
    """Token ids of two lengths; the mask hides three tokens at the end of the first text."""
    rng = np.random.default_rng(seed)
    mask = np.ones((batch, encoder), np.int64)
    mask[0, -3:] = 0
    return {
        "input_ids": rng.integers(0, PIECES, (batch, encoder)),
        "attention_mask": mask,
        "decoder_input_ids": rng.integers(0, PIECES, (batch, decoder)),
    }


def decoder_feeds(seed: int, batch: int = 2, length: int = 21) -> Feeds:
    """Token ids."""
    rng = np.random.default_rng(seed)
    return {"input_ids": rng.integers(0, SYMBOLS, (batch, length))}


def tagger_feeds(seed: int, batch: int = 2, length: int = 9) -> Feeds:
    """Word ids."""
    rng = np.random.default_rng(seed)
    return {"word_ids": rng.integers(0, WORDS, (batch, length))}


def noise(name: str, *shape: int) -> Callable[[int], Feeds]:
    """One float32 input of normally distributed numbers."""

    def feeds(seed: int) -> Feeds:
        values = np.random.default_rng(seed).standard_normal(shape)
        return {name: values.astype(np.float32)}

    return feeds


def _pixels(name: str, *shape: int) -> Callable[[int], Feeds]:
    """One float32 input of numbers from 0 to 255."""

    def feeds(seed: int) -> Feeds:
        return {name: np.random.default_rng(seed).uniform(0, 255, shape).astype(np.float32)}

    return feeds


EXPORTED: dict[str, Exported] = {
    "bert": Exported(bert, "an encoder of text with a mask", bert_feeds),
    "albert": Exported(albert, "the same with one layer that is repeated", bert_feeds),
    "vit": Exported(
        vit, "an encoder of 197 patches of an image", noise("pixel_values", 1, 3, 224, 224)
    ),
    "vit_any": Exported(
        partial(vit, image=None, patch=8, layers=2, width=48),
        "the same of an image of any height and width",
        noise("pixel_values", 1, 3, 75, 52),
    ),
    "gpt": Exported(gpt, "a decoder with a cache that grows by each token", gpt_feeds),
    "llama": Exported(
        llama.llama, "the same with rotary positions and shared keys and values", llama_feeds
    ),
    "llama_4bit": Exported(
        lambda seed: with_few_bits(llama.llama(seed)),
        "the same with weights of 4 bits in blocks of 32",
        llama_feeds,
    ),
    "t5": Exported(t5, "an encoder and a decoder of text with relative positions", t5_feeds),
    "efficientnet": Exported(
        efficientnet, "gated inverted residuals, channels last", _pixels("input_1", 1, 96, 96, 3)
    ),
    "speech": Exported(
        speech,
        "an encoder of speech behind two convolutions of stride 2",
        noise("input_features", 2, FEATURES, 37),
    ),
    "tagger": Exported(tagger, "a bidirectional LSTM over words", tagger_feeds),
    "detector": Exported(
        detector, "boxes by TopK and NonMaxSuppression", noise("images", 1, 3, 96, 96)
    ),
    "detector_any": Exported(
        detector_any,
        "boxes by NonMaxSuppression in images of any height and width",
        noise("images", 2, 3, 75, 52),
    ),
    "convnext": Exported(
        convnext,
        "depthwise convolutions, norms and linear layers with the channels last",
        noise("pixel_values", 1, 3, 96, 96),
    ),
    "mobilevit": Exported(
        mobilevit,
        "inverted residuals, and attention among unfolded patches",
        noise("pixel_values", 1, 3, 128, 128),
    ),
    "segformer": Exported(
        segformer,
        "attention with reduced keys at four resolutions, and a decoder",
        noise("pixel_values", 1, 3, 64, 64),
    ),
    "half": Exported(half, "convolutions and attention in float16", noise("image", 1, 3, 64, 64)),
    "qdq": Exported(qdq, "int8 weights, uint8 activations", noise("image", 1, 3, 32, 32)),
}
"""Every network that is written as an exporter writes it."""

FULL_SIZE: dict[str, Exported] = {
    "convnext_tiny": Exported(
        partial(convnext, stages=TINY, image=224, classes=1000),
        "ConvNeXt-T",
        noise("pixel_values", 1, 3, 224, 224),
    ),
    "mobilevit_xxs": Exported(
        partial(mobilevit, image=256, most_layers=4, classes=1000),
        "MobileViT-XXS",
        noise("pixel_values", 1, 3, 256, 256),
    ),
    "segformer_b0": Exported(
        partial(segformer, layers=2, image=256, decoder=DECODER, classes=150),
        "SegFormer-B0 of a quarter of the usual pixels",
        noise("pixel_values", 1, 3, 256, 256),
    ),
}
"""Networks of `EXPORTED` as they were published, for benchmarks: too large for every test."""

LONG: dict[str, Exported] = {
    "speech_1500": Exported(
        partial(speech, width=384, heads=6, positions=1500),
        "two layers of a Whisper-tiny encoder, 1,500 positions",
        noise("input_features", 1, FEATURES, 6000),
    ),
    "vit_577": Exported(
        partial(vit, layers=2, width=384, heads=6, image=384),
        "two layers of ViT-S of 577 tokens",
        noise("pixel_values", 1, 3, 384, 384),
    ),
    "bert_512": Exported(
        partial(bert, layers=2, width=768, heads=12, positions=512),
        "two layers of BERT base, 512 tokens",
        partial(bert_feeds, batch=1, length=512),
    ),
    "decoder_1024": Exported(
        partial(decoder, width=768, heads=12, positions=1024),
        "two layers of GPT-2, 1,024 tokens",
        partial(decoder_feeds, batch=1, length=1024),
    ),
}
"""Layers of published transformers over long sequences, for benchmarks of attention."""
