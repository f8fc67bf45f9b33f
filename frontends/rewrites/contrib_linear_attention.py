"""onnxruntime's operators of linear attention and of short convolutions with a state, written as
standard operators.

ONNX has LinearAttention and CausalConvWithState since opset 27, with fewer attributes; nodes that
use no others become these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from onnx import TensorProto

from graphflow.base.errors import InvalidModel
from graphflow.frontends.reading.vendor import DOMAIN
from graphflow.frontends.rewrites.rewrites import NodeRewrite

_RECURRENT = ("chunk_size", "kv_num_heads", "q_num_heads", "scale", "update_rule")
_STANDARD = 27
"""The first opset that has the operators."""


def _as_standard(own: tuple[str, ...], others: Mapping[str, Any], body: NodeRewrite) -> None:
    """The node as ONNX's operator of its name, which has the attributes `own`; `others` have the
    values with which they change nothing."""
    body.require_attributes(*own, *others)
    body.require_without_effect({name: (value,) for name, value in others.items()})
    body.refuse_outputs(2)
    node = body.step.node
    names = [*node.output[:2]]
    made = body.add_several(node.op_type, len(names), *node.input, **body.given(*own))
    body.of_opset(_STANDARD)
    for name, part in zip(names, made, strict=True):
        if name:
            body.add("Identity", part, result=name)


def _gated_root_mean_square(body: NodeRewrite) -> None:
    """A normalization of each run of as many elements as there are scales, times a gate."""
    body.require_attributes("activation", "epsilon")
    x, scale, gate = body.inputs(3)
    kind = body.attribute("activation", "silu")
    if kind not in ("silu", "swish", "sigmoid"):
        body.refuse(f"activation {kind}")
    count, last, rank = body.extent(scale, 0), body.extent(x, -1), body.rank(x)
    if last % count:
        raise InvalidModel(f"{body.step}: {count} scales do not divide rows of {last} elements")
    runs = x if last == count else body.reshape(x, (*[0] * (rank - 1), last // count, count))
    normal = body.add(
        "RMSNormalization", runs, scale, axis=-1, epsilon=body.attribute("epsilon", 1e-5)
    )
    body.of_opset(23)
    if runs != x:
        normal = body.reshape(normal, (*[0] * (rank - 1), last))
    share = body.add("Sigmoid", gate)
    share = share if kind == "sigmoid" else body.add("Mul", gate, share)
    body.add("Mul", normal, share, result=body.result)


def _gates(body: NodeRewrite) -> None:
    """The logarithms of decay, and the rates of update."""
    body.require_attributes()
    a, shift, scale, b = body.inputs(4)
    single = TensorProto.FLOAT
    softened = body.add("Softplus", body.add("Add", body.add("Cast", a, to=single), shift))
    body.add("CastLike", body.add("Mul", softened, scale), a, result=body.result)
    if body.output(1):
        body.add("Sigmoid", b, result=body.output(1))


CONTRIB_LINEAR_ATTENTION: dict[tuple[str, str], Callable[[NodeRewrite], None]] = {
    (DOMAIN, "CausalConvWithState"): partial(
        _as_standard,
        ("activation",),
        {
            "ndim": 1, "dilation": 1, "channels_last": 0, "state_window": 0, "state_length": 0,
            "state_update_capacity": 0, "input_channel_offset": 0, "input_channels": 0,
            "state_channels_last": -1,
        },
    ),
    (DOMAIN, "GatedRMSNorm"): _gated_root_mean_square,
    (DOMAIN, "LinearAttention"): partial(_as_standard, _RECURRENT, {"state_window": 0}),
    (DOMAIN, "LinearAttentionGate"): _gates,
}  # fmt: skip
