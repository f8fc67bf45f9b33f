"""Tests of RotaryEmbedding beside ONNX's reference evaluator: ranks, widths, pairs, positions."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import graphflow as gf
from graphflow.base.errors import InvalidModel
from support.single import noise
from support.targets import in_turn


def rotary(arrays: list[Any], **attributes: Any) -> Any:
    infos = [
        helper.make_tensor_value_info(f"i{k}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for k, a in enumerate(arrays)
    ]
    made = helper.make_node("RotaryEmbedding", [i.name for i in infos], ["y"], **attributes)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, arrays[0].shape)
    graph = helper.make_graph([made], "g", infos, [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


@in_turn("interleaved width", [0, 1], [0, 12])
def test_rotated_heads(width: int, interleaved: int, target: Any) -> None:
    half, positions = (width or 34) // 2, np.random.default_rng(3).integers(0, 9, (2, 5))
    for split, given in product((True, False), (True, False)):
        x = noise(2, 3, 5, 34) if split else noise(2, 5, 3 * 34)
        caches = [noise(*((9, half) if given else (2, 5, half)), seed=k) for k in (1, 2)]
        arrays = [x, *caches, *([positions] if given else [])]
        attributes = {"interleaved": interleaved, "rotary_embedding_dim": width}
        attributes |= {} if split else {"num_heads": 3}
        model = rotary(arrays, **attributes)
        feeds = {f"i{k}": array for k, array in enumerate(arrays)}
        (wanted,) = ReferenceEvaluator(model).run(None, feeds)
        made = gf.compile(model, target=target, threads=2).run(feeds)["y"]
        np.testing.assert_allclose(made, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "caches", "attributes"),
    [
        ((2, 3, 5, 8), (2, 5, 3), {}),
        ((2, 3, 5, 8), (2, 4, 4), {}),
        ((2, 3, 5, 8), (2, 5, 5), {"rotary_embedding_dim": 10}),
        ((2, 5, 24), (2, 5, 4), {}),
        ((2, 5, 24), (2, 5, 4), {"num_heads": 5}),
    ],
)
def test_shapes_that_do_not_fit(shape: Any, caches: Any, attributes: Any) -> None:
    model = rotary([noise(*shape), noise(*caches), noise(*caches)], **attributes)
    with pytest.raises(InvalidModel):
        gf.compile(model)
