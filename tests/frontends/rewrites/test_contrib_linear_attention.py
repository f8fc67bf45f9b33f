"""Tests of onnxruntime's operators of linear attention, against onnxruntime."""

import numpy as np
import pytest

from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.frontends import import_model
from support.single import contrib, noise
from support.texts import assert_agrees

HEADS = {"q_num_heads": 2, "kv_num_heads": 2}
QKV = [noise(1, 3, 8, seed=k) for k in range(3)]
STATE, DECAY, RATE = noise(1, 2, 4, 4, seed=3), -np.abs(noise(1, 3, 2, seed=4)), noise(1, 3, 2)
RECURRENCES = [
    ("linear", [*QKV, STATE]),
    ("gated", [*QKV, STATE, DECAY]),
    ("delta", [*QKV, None, None, RATE]),
    ("gated_delta", [*QKV, STATE, DECAY, RATE]),
]


@pytest.mark.parametrize(("rule", "arrays"), RECURRENCES)
def test_recurrences(rule, arrays):
    attributes = {**HEADS, "update_rule": rule, "scale": 0.4}
    assert_agrees(*contrib("LinearAttention", arrays, (), (0, 1), **attributes))


@pytest.mark.parametrize("activation", ["none", "silu"])
def test_convolutions_with_a_state(activation):
    arrays = [noise(2, 4, 5), noise(4, 1, 3, seed=1), noise(4, seed=2), noise(2, 4, 2, seed=3)]
    for given in (arrays, [*arrays[:2], None, None]):
        attributes = {"activation": activation}
        assert_agrees(*contrib("CausalConvWithState", given, (), (0, 1), **attributes))


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
@pytest.mark.parametrize("scales", [4, 8])
def test_normalizations_with_a_gate(activation, scales):
    arrays = [noise(2, 3, 8), noise(scales, seed=1), noise(2, 3, 8, seed=2)]
    assert_agrees(*contrib("GatedRMSNorm", arrays, activation=activation, epsilon=1e-3))


def test_gates_of_a_recurrence():
    arrays = [noise(2, 3, 4), noise(4, seed=1), -np.abs(noise(4, seed=2)), noise(2, 3, 4, seed=3)]
    assert_agrees(*contrib("LinearAttentionGate", arrays[:3]))
    assert_agrees(*contrib("LinearAttentionGate", arrays, (), (0, 1)))


def test_what_the_standard_operators_lack_is_refused():
    arrays = [noise(2, 4, 5), noise(4, 1, 3, seed=1)]
    with pytest.raises(UnsupportedOp, match="dilation = 2"):
        import_model(contrib("CausalConvWithState", arrays, (), (0, 1), dilation=2)[0])
    model, _ = contrib("GatedRMSNorm", [noise(2, 8), noise(4), noise(2, 8)])
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 3
    with pytest.raises(InvalidModel, match="3 scales do not divide rows of 8 elements"):
        import_model(model)
