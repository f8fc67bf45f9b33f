"""onnxruntime's own operators (domain com.microsoft) that exporters and optimizers write.

Each is written as operators of the standard domain, by its description in onnxruntime's
`docs/ContribOperators.md`: elementwise functions, fused products and normalizations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from graphflow.frontends.rewrites import NodeRewrite, layer_normalization
from graphflow.frontends.vendor import DOMAIN

_ACTIVATIONS = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}
"""The attributes for which the parameters of a fused activation stand, in order."""


def _gelu(body: NodeRewrite) -> None:
    body.require_attributes()
    body.add("Gelu", body.step.input(0), result=body.step.node.output[0])


def _bias_gelu(body: NodeRewrite) -> None:
    body.require_attributes()
    total = body.add("Add", body.step.input(0), body.step.input(1))
    body.add("Gelu", total, result=body.step.node.output[0])


def _fast_gelu(body: NodeRewrite) -> None:
    body.require_attributes()
    x = body.step.input(0)
    if body.step.input(1):
        x = body.add("Add", x, body.step.input(1))
    body.add("Gelu", x, result=body.step.node.output[0], approximate="tanh")


def _quick_gelu(body: NodeRewrite) -> None:
    body.require_attributes("alpha")
    x = body.step.input(0)
    alpha = body.number(body.step.attribute("alpha", 1.702), x)
    gate = body.add("Sigmoid", body.add("Mul", x, alpha))
    body.add("Mul", x, gate, result=body.step.node.output[0])


def _activation(body: NodeRewrite, x: str, kind: str, numbers: list[float]) -> None:
    """Apply the activation at the end of a fused operator to `x`; its result is the node's
    output."""
    result = body.step.node.output[0]
    if not kind:
        body.add("Identity", x, result=result)
    elif kind == "Clip" and len(numbers) == 2:
        low, high = (body.number(number, body.step.input(0)) for number in numbers)
        body.add("Clip", x, low, high, result=result)
    elif kind in _ACTIVATIONS and len(numbers) in (0, len(_ACTIVATIONS[kind])):
        names = _ACTIVATIONS[kind][: len(numbers)]
        body.add(kind, x, result=result, **dict(zip(names, numbers, strict=True)))
    else:
        body.refuse(f"activation {kind} with parameters {numbers}")


def _fused_conv(body: NodeRewrite) -> None:
    step = body.step
    window = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    body.require_attributes(*window, "activation", "activation_params")
    given = {name: step.attribute(name) for name in window}
    attributes = {name: value for name, value in given.items() if value is not None}
    y = body.add("Conv", *[name for name in step.node.input[:3] if name], **attributes)
    if step.input(3):
        y = body.add("Add", y, step.input(3))
    _activation(
        body, y, step.attribute("activation", ""), list(step.attribute("activation_params", []))
    )


def _fused_gemm(body: NodeRewrite) -> None:
    step = body.step
    numbers = ("activation_alpha", "activation_beta", "activation_gamma")
    body.require_attributes("alpha", "beta", "transA", "transB", "activation", *numbers)
    given = {name: step.attribute(name) for name in ("alpha", "beta", "transA", "transB")}
    attributes = {name: value for name, value in given.items() if value is not None}
    y = body.add("Gemm", *step.inputs, **attributes)
    values = [step.attribute(name) for name in numbers]
    _activation(
        body, y, step.attribute("activation", ""), [value for value in values if value is not None]
    )


def _fused_matmul(body: NodeRewrite) -> None:
    step = body.step
    body.require_attributes("alpha", "transA", "transB", "transBatchA", "transBatchB")
    factors = []
    for position, side in enumerate("AB"):
        name = step.input(position)
        order = list(range(len(body.shape(name))))
        if len(order) > 1:
            if step.attribute(f"transBatch{side}", 0):
                order = [*order[1:-1], order[0], order[-1]]
            if step.attribute(f"trans{side}", 0):
                order[-2:] = order[:-3:-1]
        plain = order == list(range(len(order)))
        factors.append(name if plain else body.transpose(name, order))
    alpha = step.attribute("alpha", 1.0)
    if alpha == 1.0:
        body.add("MatMul", *factors, result=step.node.output[0])
        return
    scaled = body.number(alpha, step.input(0))
    body.add("Mul", body.add("MatMul", *factors), scaled, result=step.node.output[0])


def _root_mean_square(
    body: NodeRewrite, x: str, scale: str, axis: int, epsilon: float, result: str, inverse: str
) -> None:
    """`scale · x / sqrt(mean(x²) + epsilon)`, with the mean over the axes from `axis` on."""
    rank = len(body.shape(body.step.input(0)))
    mean = body.mean(body.add("Mul", x, x), range(axis % rank, rank))
    root = body.add("Sqrt", body.add("Add", mean, body.number(epsilon, body.step.input(0))))
    reciprocal = body.add("Reciprocal", root, result=inverse)
    body.add("Mul", body.add("Mul", x, reciprocal), scale, result=result)


def _simplified_layer_normalization(body: NodeRewrite) -> None:
    step = body.step
    body.require_attributes("axis", "epsilon", "stash_type")
    if step.attribute("stash_type", 1) != 1:
        body.refuse(f"stash_type {step.attribute('stash_type')}")
    axis, epsilon = step.attribute("axis", -1), step.attribute("epsilon", 1e-5)
    _root_mean_square(
        body, step.input(0), step.input(1), axis, epsilon, step.node.output[0], body.output(1)
    )


def _skip_sum(body: NodeRewrite, bias: str) -> str:
    """The sum of input, skip and bias, which is also the node's fourth output."""
    total = body.output(3)
    if not bias:
        return body.add("Add", body.step.input(0), body.step.input(1), result=total)
    partial = body.add("Add", body.step.input(0), body.step.input(1))
    return body.add("Add", partial, bias, result=total)


def _skip_layer_normalization(body: NodeRewrite) -> None:
    step = body.step
    body.require_attributes("epsilon")
    body.refuse_outputs(1, 2)
    epsilon = step.attribute("epsilon", 1e-12)
    total = _skip_sum(body, step.input(4))
    inputs = [total, step.input(2), *([step.input(3)] if step.input(3) else [])]
    body.add("LayerNormalization", *inputs, result=step.node.output[0], axis=-1, epsilon=epsilon)


def _skip_simplified_layer_normalization(body: NodeRewrite) -> None:
    step = body.step
    body.require_attributes("epsilon")
    body.refuse_outputs(1, 2)
    total = _skip_sum(body, step.input(3))
    epsilon = step.attribute("epsilon", 1e-12)
    _root_mean_square(body, total, step.input(2), -1, epsilon, step.node.output[0], "")


def _embed_layer_normalization(body: NodeRewrite) -> None:
    """The sum of word, position and segment embeddings, normalized."""
    step = body.step
    body.require_attributes("epsilon", "mask_index_type")
    ids, segments, words, places, kinds, gamma, beta, mask, positions = (
        step.input(k) for k in range(9)
    )
    batch, length = body.shape(ids)
    if not positions:
        positions = body.constant(np.arange(length, dtype=np.int64))
    total = body.add("Add", body.add("Gather", words, ids), body.add("Gather", places, positions))
    if segments:
        total = body.add("Add", total, body.add("Gather", kinds, segments))
    if body.output(2):
        body.add("Identity", total, result=body.output(2))
    epsilon = step.attribute("epsilon", 1e-12)
    result = step.node.output[0]
    body.add("LayerNormalization", total, gamma, beta, result=result, axis=-1, epsilon=epsilon)
    if not body.output(1):
        return
    if not mask or not step.attribute("mask_index_type", 1):
        body.add("Identity", body.constant(np.zeros(batch, np.int32)), result=body.output(1))
        return
    ones = body.add("Equal", mask, body.constant(np.array(1, np.int32)))
    counted = body.add("Cast", ones, to=6)
    body.add("ReduceSum", counted, body.ints([1]), result=body.output(1), keepdims=0)


CONTRIB: dict[tuple[str, str], Callable[[NodeRewrite], None]] = {
    (DOMAIN, "Gelu"): _gelu,
    (DOMAIN, "BiasGelu"): _bias_gelu,
    (DOMAIN, "FastGelu"): _fast_gelu,
    (DOMAIN, "QuickGelu"): _quick_gelu,
    (DOMAIN, "FusedConv"): _fused_conv,
    (DOMAIN, "FusedGemm"): _fused_gemm,
    (DOMAIN, "FusedMatMul"): _fused_matmul,
    (DOMAIN, "TransposeMatMul"): _fused_matmul,
    (DOMAIN, "SkipLayerNormalization"): _skip_layer_normalization,
    # onnxruntime has these two in the standard domain; see `vendor`.
    (DOMAIN, "LayerNormalization"): layer_normalization,
    (DOMAIN, "SimplifiedLayerNormalization"): _simplified_layer_normalization,
    # What asks for ways before a model is loaded sees it where it is.
    ("", "SimplifiedLayerNormalization"): _simplified_layer_normalization,
    (DOMAIN, "SkipSimplifiedLayerNormalization"): _skip_simplified_layer_normalization,
    (DOMAIN, "EmbedLayerNormalization"): _embed_layer_normalization,
}
