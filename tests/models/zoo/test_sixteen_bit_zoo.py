"""Tests of networks in 16 bits: every float of the model has the type, and results are near."""

from functools import cache, partial

import numpy as np
import onnx
import pytest
from onnx import TensorProto, version_converter

import graphflow as gf
from graphflow.base.dtypes import DTYPES, HALVES
from graphflow.models.zoo.building.sixteen_bits import ELEMENTS, in_sixteen_bits
from graphflow.models.zoo.mobilenet import V2_STAGES, mobilenet_v2
from graphflow.models.zoo.sequences.bert import bert
from graphflow.models.zoo.sixteen_bit_zoo import (
    BRAIN_FLOAT_OPSET,
    sixteen_bit_feeds,
    sixteen_bit_network,
)

SMALL = partial(mobilenet_v2, size=32, width=0.35, stages=V2_STAGES[:2])
OPTIONS = gf.Options(workers=0)
"""Without processes that would make kernels anew that both types share."""


def float_types(model: onnx.ModelProto) -> set[int]:
    """The element types of the inputs, outputs and weights that are floats."""
    graph = model.graph
    found = {v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
    found |= {tensor.data_type for tensor in graph.initializer}
    return found - {TensorProto.INT64}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("build", [SMALL, partial(bert, layers=1, width=32, heads=2)])
def test_no_float32_is_left(dtype: str, build: partial[onnx.ModelProto]) -> None:
    model = build(0)
    assert float_types(in_sixteen_bits(model, dtype)) == {ELEMENTS[dtype]}
    assert float_types(model) == {TensorProto.FLOAT}


X = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)


@cache
def in_float32() -> tuple[onnx.ModelProto, np.ndarray]:
    """A network, and its result for `X`."""
    model = version_converter.convert_version(SMALL(0), BRAIN_FLOAT_OPSET)
    return model, gf.compile(model, options=OPTIONS)(X)


@pytest.mark.parametrize("dtype", HALVES)
def test_results_are_near_those_of_float32(dtype: str) -> None:
    model, wanted = in_float32()
    got = gf.compile(in_sixteen_bits(model, dtype), options=OPTIONS)(X.astype(DTYPES[dtype]))
    error = np.abs(got.astype(np.float32) - wanted).max() / np.abs(wanted).max()
    assert got.dtype == DTYPES[dtype]
    assert 0 < error < {"float16": 0.01, "bfloat16": 0.08}[dtype]


def test_inputs_are_of_the_type_but_for_integers() -> None:
    feeds = sixteen_bit_feeds("bert_mini", "float16", 0)
    assert {array.dtype.name for array in feeds.values()} == {"int64"}
    (image,) = sixteen_bit_feeds("ssd", "bfloat16", 0).values()
    assert image.dtype == DTYPES["bfloat16"]


def test_a_network_is_rewritten_before_it_is_cast() -> None:
    def without_last(model: onnx.ModelProto) -> onnx.ModelProto:
        assert float_types(model) == {TensorProto.FLOAT}
        del model.graph.node[-1]
        return model

    whole = sixteen_bit_network("ssd", "float16", 0)
    assert len(sixteen_bit_network("ssd", "float16", 0, without_last).graph.node) == (
        len(whole.graph.node) - 1
    )
