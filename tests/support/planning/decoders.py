"""Decoders behind a cache of keys and values, of open lengths: models, inputs, numpy's results."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array: TypeAlias = np.ndarray[Any, Any]

NEVER = np.float32(-np.inf)


@dataclass(frozen=True)
class Decoder:
    """`new` queries behind `past` keys and values, both open, of `heads` that share `groups`.

    `mask` says what excludes later keys: a selection, an added bias, or nothing (None).
    """

    heads: int
    groups: int
    head: int
    mask: str | None
    layers: int = 1
    """How often the queries are replaced by what they attend to."""

    @property
    def model(self) -> onnx.ModelProto:
        """The model, whose mask is computed from the lengths."""
        nodes = [
            helper.make_node("Concat", ["past_k", "k"], ["keys"], axis=2),
            helper.make_node("Concat", ["past_v", "v"], ["values"], axis=2),
            *(n for name in ("keys", "values") for n in self._repeated(name)),
            helper.make_node("Transpose", ["keys_all"], ["turned"], perm=[0, 1, 3, 2]),
            *self._places(),
            *(node for layer in range(self.layers) for node in self._attended(layer)),
        ]
        shapes = self._shapes("new", "past")
        given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
        results = {"y": [1, self.heads, "new", self.head]}
        results |= {n: [1, self.groups, "total", self.head] for n in ("keys", "values")}
        made = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in results.items()]
        constants = {
            "scale": np.float32(self.head**-0.5),
            "never": NEVER,
            "nothing": np.float32(0),
            "0": np.int64(0),
            "1": np.int64(1),
            "2": np.int64(2),
            "axes": np.array([2]),
            "behind": np.array([3]),
            "last": np.array([1]),
            "around": np.array([1, self.groups, self.heads // self.groups]),
            "each": np.array([1, self.heads]),
            "row": np.array([self.head]),
        }
        held = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
        graph = helper.make_graph(nodes, "decoder", given, made, held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def _shapes(self, new: Any, past: Any) -> dict[str, list[Any]]:
        before, fresh = ([1, self.groups, n, self.head] for n in (past, new))
        queries = [1, self.heads, new, self.head]
        return {"q": queries, "k": fresh, "v": fresh, "past_k": before, "past_v": before}

    def _repeated(self, name: str) -> list[onnx.NodeProto]:
        """Keys or values for each head, of those for each group."""
        if self.groups == self.heads:
            return [helper.make_node("Identity", [name], [f"{name}_all"])]
        return [
            helper.make_node("Unsqueeze", [name, "axes"], [f"{name}_apart"]),
            helper.make_node("Shape", [name], [f"{name}_shape"]),
            helper.make_node("Slice", [f"{name}_shape", "axes", "behind"], [f"{name}_rows"]),
            helper.make_node("Concat", ["around", f"{name}_rows", "row"], [f"{name}_to"], axis=0),
            helper.make_node("Expand", [f"{name}_apart", f"{name}_to"], [f"{name}_each"]),
            helper.make_node("Concat", ["each", f"{name}_rows", "row"], [f"{name}_as"], axis=0),
            helper.make_node("Reshape", [f"{name}_each", f"{name}_as"], [f"{name}_all"]),
        ]

    def _places(self) -> list[onnx.NodeProto]:
        """Which keys stand before a query, and the bias of the others."""
        if self.mask is None:
            return []
        return [
            helper.make_node("Shape", ["past_k"], ["past_shape"]),
            helper.make_node("Gather", ["past_shape", "2"], ["past"]),
            helper.make_node("Shape", ["q"], ["new_shape"]),
            helper.make_node("Gather", ["new_shape", "2"], ["new"]),
            helper.make_node("Add", ["past", "new"], ["total"]),
            helper.make_node("Range", ["0", "new", "1"], ["queries"]),
            helper.make_node("Add", ["queries", "past"], ["places"]),
            helper.make_node("Unsqueeze", ["places", "last"], ["rows"]),
            helper.make_node("Range", ["0", "total", "1"], ["columns"]),
            helper.make_node("LessOrEqual", ["columns", "rows"], ["seen"]),
            *(
                [helper.make_node("Where", ["seen", "nothing", "never"], ["bias"])]
                if self.mask == "added"
                else []
            ),
        ]

    def _attended(self, layer: int) -> list[onnx.NodeProto]:
        """What the queries of a layer attend to."""
        queries = "q" if layer == 0 else f"y{layer}"
        result = "y" if layer == self.layers - 1 else f"y{layer + 1}"
        names = ("product", "scaled", "scores", "weights")
        product, scaled, scores, weights = (f"{name}{layer}" for name in names)
        masked = {
            None: helper.make_node("Identity", [scaled], [scores]),
            "selected": helper.make_node("Where", ["seen", scaled, "never"], [scores]),
            "added": helper.make_node("Add", [scaled, "bias"], [scores]),
        }
        return [
            helper.make_node("MatMul", [queries, "turned"], [product]),
            helper.make_node("Mul", [product, "scale"], [scaled]),
            masked[self.mask],
            helper.make_node("Softmax", [scores], [weights], axis=-1),
            helper.make_node("MatMul", [weights, "values_all"], [result]),
        ]

    def feeds(self, new: int, past: int, seed: int = 0) -> dict[str, Array]:
        """Inputs of such lengths."""
        rng = np.random.default_rng(seed)
        shapes = self._shapes(new, past)
        return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}

    def want(self, feeds: Mapping[str, Array]) -> Array:
        """What the model gives, in double precision."""
        joined = (np.concatenate([feeds[f"past_{n}"], feeds[n]], 2) for n in "kv")
        keys, values = (
            np.repeat(x.astype(np.float64), self.heads // self.groups, 1) for x in joined
        )
        new, past = feeds["q"].shape[2], feeds["past_k"].shape[2]
        seen = np.arange(past + new) <= past + np.arange(new)[:, None]
        result: Array = feeds["q"].astype(np.float64)
        for _ in range(self.layers):
            scores = result @ keys.swapaxes(-1, -2) * self.head**-0.5
            if self.mask is not None:
                scores = np.where(seen, scores, NEVER)
            powers = np.exp(scores - scores.max(-1, keepdims=True))
            result = powers / powers.sum(-1, keepdims=True) @ values
        return result
