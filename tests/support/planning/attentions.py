"""Attentions of a few rows: a model, inputs for it, and what it computes by numpy."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array: TypeAlias = np.ndarray[Any, Any]

LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Attention:
    """`softmax(q · kᵀ · scale + mask) · v` for each head, and the shapes of its inputs."""

    model: onnx.ModelProto
    shapes: Mapping[str, tuple[int, ...]]
    scale: float
    seen: Array | None
    groups: int

    def feeds(self, seed: int) -> dict[str, Array]:
        rng = np.random.default_rng(seed)
        return {n: rng.standard_normal(s).astype(np.float32) for n, s in self.shapes.items()}

    def want(self, feeds: Mapping[str, Array]) -> Array:
        q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
        k, v = (np.repeat(x, len(q) // self.groups, 0) for x in (k, v))
        scores = q @ k.transpose(0, 2, 1) * self.scale
        if self.seen is not None:
            scores = np.where(self.seen, scores, LOWEST)
        elif "mask" in feeds:
            scores = scores + feeds["mask"]
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return np.asarray(powers / powers.sum(-1, keepdims=True) @ v)


def attention(
    heads: int,
    rows: int,
    keys: int,
    depth: int,
    *,
    mask: str | Array | None = None,
    groups: int | None = None,
    outputs: tuple[str, ...] = ("y",),
    softmax: bool = True,
) -> Attention:
    """An attention with a `mask` that is added for each key (`row`) or for each row and key
    (`each`), or a constant causal one that selects (`where`); or the array is a constant that
    selects, or is added.

    Of `heads` several share the keys and values of one of the `groups`.
    """
    shared = groups or heads
    shapes = {"q": (heads, rows, depth), "k": (shared, keys, depth), "v": (shared, keys, depth)}
    constants = {"scale": np.float32(depth**-0.5)}
    nodes = [helper.make_node("Transpose", ["k"], ["kt"], perm=[0, 2, 1])]
    left, middle, right = "q", "kt", "v"
    if groups:
        times = heads // groups
        constants["grouped"] = np.array([groups, times, rows, depth])
        constants["heads"] = np.array([heads, rows, depth])
        constants["axis"] = np.array([1])
        nodes += [
            helper.make_node("Reshape", ["q", "grouped"], ["qg"]),
            helper.make_node("Unsqueeze", ["kt", "axis"], ["kg"]),
            helper.make_node("Unsqueeze", ["v", "axis"], ["vg"]),
        ]
        left, middle, right = "qg", "kg", "vg"
    nodes += [
        helper.make_node("MatMul", [left, middle], ["product"]),
        helper.make_node("Mul", ["product", "scale"], ["scaled"]),
    ]
    scores, seen = "scaled", None
    if isinstance(mask, np.ndarray) and mask.dtype != np.bool_:
        constants["mask"] = mask
        nodes.append(helper.make_node("Add", ["scaled", "mask"], ["scores"]))
        scores, seen = "scores", mask >= 0
    elif isinstance(mask, np.ndarray) or mask == "where":
        causal = np.tril(np.ones((rows, keys), np.bool_))
        seen = mask if isinstance(mask, np.ndarray) else causal
        constants |= {"seen": seen, "lowest": np.float32(LOWEST)}
        nodes.append(helper.make_node("Where", ["seen", "scaled", "lowest"], ["scores"]))
        scores = "scores"
    elif mask is not None:
        shapes["mask"] = (keys,) if mask == "row" else (rows, keys)
        nodes.append(helper.make_node("Add", ["scaled", "mask"], ["scores"]))
        scores = "scores"
    if scores == "scaled" and "scores" in outputs:
        nodes.append(helper.make_node("Identity", ["scaled"], ["scores"]))
    activation = (
        helper.make_node("Softmax", [scores], ["weights"], axis=-1)
        if softmax
        else helper.make_node("Relu", [scores], ["weights"])
    )
    nodes.append(activation)
    product = "yg" if groups else "y"
    nodes.append(helper.make_node("MatMul", ["weights", right], [product]))
    if groups:
        nodes.append(helper.make_node("Reshape", ["yg", "heads"], ["y"]))
    extents = {
        "y": (heads, rows, depth),
        "scores": (heads, rows, keys),
        "weights": (heads, rows, keys),
    }
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "attention",
        [info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [info(name, TensorProto.FLOAT, extents[name]) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return Attention(model, shapes, float(constants["scale"]), seen, shared)
