"""onnxruntime's own operators (domain com.microsoft) that exporters and optimizers write.

Each is written as operators of the standard domain, by its description in onnxruntime's
`docs/ContribOperators.md`: elementwise functions, fused products and normalizations.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from onnx import numpy_helper

from graphflow.frontends.reading.vendor import DOMAIN
from graphflow.frontends.rewrites.rewrites import NodeRewrite, layer_normalization_rewrite

WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
"""The attributes of a convolution."""

_ACTIVATIONS = {
    "Celu": ("alpha",),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}
"""The attributes for which the parameters of a fused activation stand, in order.  onnxruntime fuses
these into a Gemm, and some of them into a Conv."""


def _gelu(body: NodeRewrite, approximate: str = "none", biased: bool = False) -> None:
    """Gelu of the input, or of the sum of both inputs, which `biased` says that there are."""
    body.require_attributes()
    x, bias = body.inputs(2)
    x = body.add("Add", x, bias) if bias or biased else x
    body.add("Gelu", x, result=body.result, approximate=approximate)


def _quick_gelu(body: NodeRewrite) -> None:
    body.require_attributes("alpha")
    x = body.input(0)
    alpha = body.number(body.attribute("alpha", 1.702), x)
    gate = body.add("Sigmoid", body.add("Mul", x, alpha))
    body.add("Mul", x, gate, result=body.result)


def _activation(body: NodeRewrite, x: str, numbers: list[float]) -> None:
    """Apply the activation at the end of a fused operator to `x`; its result is the node's
    output."""
    kind, result = body.attribute("activation", ""), body.result
    if not kind:
        body.add("Identity", x, result=result)
    elif kind == "Clip" and len(numbers) == 2:
        low, high = (body.number(number, body.input(0)) for number in numbers)
        body.add("Clip", x, low, high, result=result)
    elif kind in _ACTIVATIONS and len(numbers) in (0, len(_ACTIVATIONS[kind])):
        names = _ACTIVATIONS[kind][: len(numbers)]
        body.add(kind, x, result=result, **dict(zip(names, numbers, strict=True)))
    else:
        body.refuse(f"activation {kind} with parameters {numbers}")


def _fused_conv(body: NodeRewrite) -> None:
    body.require_attributes(*WINDOW, "activation", "activation_params")
    *operands, summand = body.inputs(4)
    y = body.add("Conv", *filter(None, operands), **body.given(*WINDOW))
    y = body.add("Add", y, summand) if summand else y
    _activation(body, y, list(body.attribute("activation_params", [])))


def _fused_gemm(body: NodeRewrite) -> None:
    numbers = ("activation_alpha", "activation_beta", "activation_gamma")
    body.require_attributes("alpha", "beta", "transA", "transB", "activation", *numbers)
    y = body.add("Gemm", *body.step.inputs, **body.given("alpha", "beta", "transA", "transB"))
    _activation(body, y, [*body.given(*numbers).values()])


def _fused_matmul(body: NodeRewrite) -> None:
    body.require_attributes("alpha", "transA", "transB", "transBatchA", "transBatchB")
    factors = []
    for position, side in enumerate("AB"):
        name = body.input(position)
        order = list(range(body.rank(name)))
        if len(order) > 1:
            if body.attribute(f"transBatch{side}", 0):
                order = [*order[1:-1], order[0], order[-1]]
            if body.attribute(f"trans{side}", 0):
                order[-2:] = order[:-3:-1]
        plain = order == list(range(len(order)))
        factors.append(name if plain else body.transpose(name, order))
    alpha = body.attribute("alpha", 1.0)
    if alpha == 1.0:
        body.add("MatMul", *factors, result=body.result)
        return
    scaled = body.number(alpha, body.input(0))
    body.add("Mul", body.add("MatMul", *factors), scaled, result=body.result)


def _root_mean_square(
    body: NodeRewrite, x: str, scale: str, axis: int, epsilon: float, result: str, inverse: str
) -> None:
    """`scale · x / sqrt(mean(x²) + epsilon)`, with the mean over the axes from `axis` on."""
    rank = body.rank(body.input(0))
    mean = body.mean(body.add("Mul", x, x), range(axis % rank, rank))
    root = body.add("Sqrt", body.add("Add", mean, body.number(epsilon, body.input(0))))
    reciprocal = body.add("Reciprocal", root, result=inverse)
    body.add("Mul", body.add("Mul", x, reciprocal), scale, result=result)


def _simplified_layer_normalization(body: NodeRewrite) -> None:
    body.require_attributes("axis", "epsilon", "stash_type")
    if body.attribute("stash_type", 1) != 1:
        body.refuse(f"stash_type {body.attribute('stash_type')}")
    axis, epsilon = body.attribute("axis", -1), body.attribute("epsilon", 1e-5)
    _root_mean_square(
        body, body.input(0), body.input(1), axis, epsilon, body.result, body.output(1)
    )


def _skip_layer_normalization(body: NodeRewrite, simplified: bool = False) -> None:
    """Normalizes the sum of input, skip and bias, which is also the node's fourth output."""
    body.require_attributes("epsilon")
    body.refuse_outputs(1, 2)
    x, skip, scale, *others = body.inputs(5)
    shift, bias = ("", others[0]) if simplified else others
    total = body.add("Add", x, skip, result="" if bias else body.output(3))
    if bias:
        total = body.add("Add", total, bias, result=body.output(3))
    epsilon = body.attribute("epsilon", 1e-12)
    if simplified:
        _root_mean_square(body, total, scale, -1, epsilon, body.result, "")
        return
    inputs = [name for name in (total, scale, shift) if name]
    body.add("LayerNormalization", *inputs, result=body.result, axis=-1, epsilon=epsilon)


def _embed_layer_normalization(body: NodeRewrite) -> None:
    """The sum of word, position and segment embeddings, normalized."""
    body.require_attributes("epsilon", "mask_index_type")
    ids, segments, words, places, kinds, gamma, beta, mask, positions = body.inputs(9)
    batch, length = body.extents(ids)
    if not positions:
        positions = body.range(0, length)
    total = body.add("Add", body.add("Gather", words, ids), body.add("Gather", places, positions))
    if segments:
        total = body.add("Add", total, body.add("Gather", kinds, segments))
    if body.output(2):
        body.add("Identity", total, result=body.output(2))
    epsilon = body.attribute("epsilon", 1e-12)
    result = body.result
    body.add("LayerNormalization", total, gamma, beta, result=result, axis=-1, epsilon=epsilon)
    if not body.output(1):
        return
    if not mask or not body.attribute("mask_index_type", 1):
        none = numpy_helper.from_array(np.zeros(1, np.int32))
        extent = body.add("Unsqueeze", body.integer(batch), body.ints([0]))
        body.add("ConstantOfShape", extent, result=body.output(1), value=none)
        return
    ones = body.add("Equal", mask, body.constant(np.array(1, np.int32)))
    counted = body.add("Cast", ones, to=6)
    body.add("ReduceSum", counted, body.ints([1]), result=body.output(1), keepdims=0)


CONTRIB: dict[tuple[str, str], Callable[[NodeRewrite], None]] = {
    (DOMAIN, "Gelu"): _gelu,
    (DOMAIN, "BiasGelu"): partial(_gelu, biased=True),
    (DOMAIN, "FastGelu"): partial(_gelu, approximate="tanh"),
    (DOMAIN, "QuickGelu"): _quick_gelu,
    (DOMAIN, "FusedConv"): _fused_conv,
    (DOMAIN, "FusedGemm"): _fused_gemm,
    (DOMAIN, "FusedMatMul"): _fused_matmul,
    (DOMAIN, "TransposeMatMul"): _fused_matmul,
    (DOMAIN, "SkipLayerNormalization"): _skip_layer_normalization,
    # onnxruntime has these two in the standard domain; see `vendor`.
    (DOMAIN, "LayerNormalization"): layer_normalization_rewrite,
    (DOMAIN, "SimplifiedLayerNormalization"): _simplified_layer_normalization,
    # What asks for ways before a model is loaded sees it where it is.
    ("", "SimplifiedLayerNormalization"): _simplified_layer_normalization,
    (DOMAIN, "SkipSimplifiedLayerNormalization"): partial(
        _skip_layer_normalization, simplified=True
    ),
    (DOMAIN, "EmbedLayerNormalization"): _embed_layer_normalization,
}
