"""Operators of classical machine learning: n-grams, trees, thresholds, weights of mel bands.

In: nodes whose attributes hold a model, such as trees.  Out: comparisons and products with
constant matrices, which give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from graphflow.base.errors import InvalidModel
from graphflow.frontends.rewrites.rewrites import NodeRewrite
from graphflow.frontends.tensors.values import contents_missing
from graphflow.graph import Array

MOST_ENTRIES = 1 << 24
"""The most entries of a matrix, or of a tensor of comparisons, into which a node is rewritten."""


# N-grams ------------------------------------------------------------------------------------------


def _tfidf(body: NodeRewrite) -> None:
    """Counts of n-grams: windows of the input are compared with all n-grams of one length."""
    body.require_attributes(
        "max_gram_length", "max_skip_count", "min_gram_length", "mode", "ngram_counts",
        "ngram_indexes", "pool_int64s", "weights",
    )  # fmt: skip
    x, shape = body.input(0), body.shape(body.input(0))
    if len(shape) not in (1, 2) or body.dtype(x).kind not in "iu":
        body.refuse(f"its input is {body.dtype(x)}{list(shape)} and not integers in rows")
    columns = [int(n) for n in body.attribute("ngram_indexes")]
    width, length = max(columns) + 1, shape[-1]
    rows = prod(shape[:-1])
    grid = body.reshape(body.add("Cast", x, to=TensorProto.INT64), (rows, length, 1))
    least, skips = body.attribute("min_gram_length"), body.attribute("max_skip_count")
    found: list[str] = []
    for size, grams in _grams_by_size(body).items():
        for distance in range(1, skips + 2 if size > 1 else 2):
            windows = length - distance * (size - 1)
            if windows < 1 or size < least:
                continue
            if rows * windows * len(grams) > MOST_ENTRIES:
                body.refuse(f"{rows * windows * len(grams)} comparisons")
            found.append(_gram_counts(body, grid, windows, distance, grams, columns, width))
    counts = body.constant(np.zeros((rows, width), np.float32))
    for name in found:
        counts = body.add("Add", counts, name)
    body.reshape(_weighted(body, counts, width), (*shape[:-1], width), body.result)


def _grams_by_size(body: NodeRewrite) -> dict[int, dict[tuple[int, ...], int]]:
    """By length, the n-grams with their numbers; of equal ones the last number counts."""
    pool = [int(n) for n in body.attribute("pool_int64s") or ()]
    starts = [int(n) for n in body.attribute("ngram_counts")]
    lengths = range(body.attribute("min_gram_length"), body.attribute("max_gram_length") + 1)
    found: dict[int, dict[tuple[int, ...], int]] = {}
    number = 0
    for size, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        if not 0 <= begin <= end <= len(pool):
            raise InvalidModel(
                f"{body.step}: ngram_counts {starts} do not divide {len(pool)} items"
            )
        for k in range((end - begin) // size):
            if size in lengths:
                gram = tuple(pool[begin + k * size : begin + (k + 1) * size])
                found.setdefault(size, {})[gram] = number
            number += 1
    if number > len(body.attribute("ngram_indexes")):
        raise InvalidModel(f"{body.step}: {number} n-grams have fewer ngram_indexes")
    return found


def _gram_counts(
    body: NodeRewrite,
    grid: str,
    windows: int,
    distance: int,
    grams: Mapping[tuple[int, ...], int],
    columns: Sequence[int],
    width: int,
) -> str:
    """How often each n-gram occurs, by column of the result."""
    items = np.array(list(grams), np.int64)
    matches = ""
    for k in range(items.shape[1]):
        begin, end = body.ints([k * distance]), body.ints([k * distance + windows])
        window = body.add("Slice", grid, begin, end, body.ints([1]))
        alike = body.add("Equal", window, body.constant(items[:, k].reshape(1, 1, -1)))
        matches = body.add("And", matches, alike) if matches else alike
    numbers = body.add("Cast", matches, to=TensorProto.FLOAT)
    counts = body.add("ReduceSum", numbers, body.ints([1]), keepdims=0)
    placed = np.zeros((len(grams), width), np.float32)
    placed[range(len(grams)), [columns[number] for number in grams.values()]] = 1
    return body.add("MatMul", counts, body.constant(placed))


def _weighted(body: NodeRewrite, counts: str, width: int) -> str:
    mode, given = body.attribute("mode"), body.attribute("weights")
    if given and len(given) != width:
        raise InvalidModel(f"{body.step}: it has {len(given)} weights for {width} columns")
    weights = body.constant(np.array(given or np.ones(width), np.float32))
    zero = body.constant(np.array(0, np.float32))
    if mode == "IDF":
        return body.add("Where", body.add("Greater", counts, zero), weights, zero)
    if mode == "TFIDF":
        return body.add("Mul", counts, weights)
    if mode != "TF":
        raise InvalidModel(f"{body.step}: mode {mode} does not exist")
    return body.add("Identity", counts)


# Trees --------------------------------------------------------------------------------------------

_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(7)
_COMPARED = {
    _LEQ: "LessOrEqual", _LT: "Less", _GTE: "GreaterOrEqual", _GT: "Greater", _EQ: "Equal",
}  # fmt: skip
_AVERAGE, _SUM, _MIN, _MAX = range(4)


@dataclass(frozen=True, slots=True)
class _Trees:
    """The nodes and leaves of an ensemble of trees, as arrays by node or by leaf."""

    features: list[int]
    modes: list[int]
    splits: Array
    branches: tuple[list[int], list[int]]
    """The node or leaf that follows where the comparison is true, and where it is false."""
    leaves: tuple[list[int], list[int]]
    """Whether that is a leaf."""
    roots: list[int]
    targets: list[int]
    weights: Array

    def paths(self, limit: int) -> Iterator[tuple[int, dict[int, bool]]]:
        """Each leaf of each tree, and the results of the comparisons that lead to it.

        LookupError for a node that does not exist, and for more than `limit` leaves.
        """
        count = 0
        for root in self.roots:
            alike = self.branches[0][root] == self.branches[1][root]
            is_leaf = bool(self.leaves[0][root] and self.leaves[1][root] and alike)
            first = self.branches[0][root] if is_leaf else root
            pending: list[tuple[int, bool, dict[int, bool]]] = [(first, is_leaf, {})]
            while pending:
                place, is_leaf, path = pending.pop()
                if place < 0 or count > limit or (place in path and not is_leaf):
                    raise LookupError(place)
                if is_leaf:
                    count += 1
                    yield place, path
                    continue
                for way, known in ((1, False), (0, True)):
                    behind = self.branches[way][place], bool(self.leaves[way][place])
                    pending.append((*behind, {**path, place: known}))


def _tree_ensemble(body: NodeRewrite) -> None:
    """All comparisons at once; a leaf is reached if a product with those on its path says so.

    The number of true comparisons on the path where they have to be true, minus those where they
    have to be false, is greatest for the leaf that is reached.
    """
    body.require_attributes(
        "aggregate_function", "leaf_targetids", "leaf_weights", "membership_values", "n_targets",
        "nodes_falseleafs", "nodes_falsenodeids", "nodes_featureids", "nodes_hitrates",
        "nodes_missing_value_tracks_true", "nodes_modes", "nodes_splits", "nodes_trueleafs",
        "nodes_truenodeids", "post_transform", "tree_roots",
    )  # fmt: skip
    x, shape = body.input(0), body.shape(body.input(0))
    dtype = body.dtype(x)
    if len(shape) != 2 or dtype.name not in ("float32", "float64"):
        body.refuse(f"its input is {dtype}{list(shape)} and not a matrix of floats")
    if body.attribute("post_transform", 0):
        body.refuse(f"post_transform {body.attribute('post_transform')}")
    trees, targets = _trees_of(body), body.attribute("n_targets")
    count = len(trees.modes)
    try:
        leaves = list(trees.paths(MOST_ENTRIES // max(1, count)))
        placed = [(trees.targets[leaf], trees.weights[leaf]) for leaf, _ in leaves]
        signs, wanted = np.zeros((count, len(leaves)), dtype), np.zeros(len(leaves), dtype)
        for column, (_, path) in enumerate(leaves):
            for node, known in path.items():
                signs[node, column] = 1 if known else -1
            wanted[column] = sum(path.values())
        weights = np.zeros((len(leaves), targets), dtype)
        for row, (target, weight) in enumerate(placed):
            weights[row, target] = weight
        answers = _answers(body, trees, x, shape[1])
    except (LookupError, ValueError) as error:
        raise InvalidModel(f"{body.step}: its trees do not fit together ({error})") from error
    sums = body.add("MatMul", body.add("Cast", answers, to=_number_of(dtype)), body.constant(signs))
    reached = body.add("Equal", sums, body.constant(wanted))
    _add_aggregate(body, reached, weights, [target for target, _ in placed], len(trees.roots))


def _number_of(dtype: np.dtype[Any]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def _trees_of(body: NodeRewrite) -> _Trees:
    def listed(name: str) -> list[int]:
        value = body.attribute(name)
        if isinstance(value, TensorProto):
            value = numpy_helper.to_array(value).tolist()
        return [int(n) for n in value or ()]

    def array(name: str) -> Array:
        value = body.attribute(name)
        if not isinstance(value, TensorProto):
            raise InvalidModel(f"{body.step} lacks its attribute {name}")
        found: Array = numpy_helper.to_array(value)
        return found

    return _Trees(
        listed("nodes_featureids"),
        listed("nodes_modes"),
        array("nodes_splits"),
        (listed("nodes_truenodeids"), listed("nodes_falsenodeids")),
        (listed("nodes_trueleafs"), listed("nodes_falseleafs")),
        listed("tree_roots"),
        listed("leaf_targetids"),
        array("leaf_weights"),
    )


def _answers(body: NodeRewrite, trees: _Trees, x: str, width: int) -> str:
    """The result of the comparison of each node, for each row of the input."""
    if any(not 0 <= feature < width for feature in trees.features):
        raise LookupError("a feature that does not exist")
    values = body.add("Gather", x, body.ints(trees.features), axis=1)
    splits = body.constant(trees.splits.astype(body.dtype(x)))
    modes = np.array(trees.modes)
    answers = ""
    for mode in sorted(set(trees.modes)):
        if mode == _MEMBER:
            found = _memberships(body, modes, values)
        elif mode == _NEQ:
            found = body.add("Not", body.add("Equal", values, splits))
        else:
            found = body.add(_COMPARED[mode], values, splits)
        answers = (
            found
            if not answers
            else body.add("Where", body.constant(modes == mode), found, answers)
        )
    tracks = body.attribute("nodes_missing_value_tracks_true")
    if tracks and any(tracks):
        missing = body.add("IsNaN", values)
        tracked = body.add("And", missing, body.constant(np.array(tracks, bool)))
        answers = body.add("Or", answers, tracked)
    return answers


def _memberships(body: NodeRewrite, modes: Array, values: str) -> str:
    """Whether the value of each node is in its set; false for nodes without one.

    The sets of all nodes that have one follow each other, each with a NaN at its end.
    """
    listed = body.attribute("membership_values")
    if not isinstance(listed, TensorProto):
        raise LookupError("no membership_values")
    members = numpy_helper.to_array(listed)
    ends = np.flatnonzero(np.isnan(members))
    nodes = np.flatnonzero(modes == _MEMBER)
    if len(ends) != len(nodes):
        raise LookupError(f"{len(ends)} sets for {len(nodes)} nodes")
    longest = int(max(np.diff([-1, *ends])))
    table = np.full((longest, len(modes)), np.nan, body.dtype(body.input(0)))
    for node, begin, end in zip(nodes, [0, *(ends[:-1] + 1)], ends, strict=True):
        table[: end - begin, node] = members[begin:end]
    rows = body.add("Unsqueeze", values, body.ints([1]))
    alike = body.add("Equal", rows, body.constant(table))  # a NaN equals nothing
    largest = body.add("Cast", alike, to=TensorProto.FLOAT)
    largest = body.add("ReduceMax", largest, body.ints([1]), keepdims=0)
    return body.add("Cast", largest, to=TensorProto.BOOL)


def _add_aggregate(
    body: NodeRewrite, reached: str, weights: NDArray[Any], targets: Sequence[int], trees: int
) -> None:
    """The result: what the reached leaves give for each target, put together."""
    function, dtype = body.attribute("aggregate_function", _SUM), weights.dtype
    if function in (_SUM, _AVERAGE):
        factors = body.add("Cast", reached, to=_number_of(dtype))
        shares = weights * (1 / trees if function == _AVERAGE else 1)
        body.add("MatMul", factors, body.constant(shares), result=body.result)
        return
    if function not in (_MIN, _MAX):
        raise InvalidModel(f"{body.step}: aggregate_function {function} does not exist")
    if weights.size * body.shape(body.input(0))[0] > MOST_ENTRIES:
        body.refuse("a tensor of all leaves and targets")
    limit = np.finfo(dtype).max if function == _MIN else np.finfo(dtype).min
    own = np.arange(weights.shape[1]) == np.array(targets)[:, None]
    has = body.add("And", body.add("Unsqueeze", reached, body.ints([2])), body.constant(own))
    values = body.add("Where", has, body.constant(weights), body.constant(np.array(limit, dtype)))
    op = "ReduceMin" if function == _MIN else "ReduceMax"
    body.add(op, values, body.ints([1]), result=body.result, keepdims=0)


# Others -------------------------------------------------------------------------------------------


def _binarizer(body: NodeRewrite) -> None:
    body.require_attributes("threshold")
    x = body.input(0)
    above = body.add("Greater", x, body.number(body.attribute("threshold", 0.0), x))
    body.add("Cast", above, to=_number_of(body.dtype(x)), result=body.result)


def _array_feature_extractor(body: NodeRewrite) -> None:
    """Elements of the last axis; a vector counts as a matrix of one row.  The number of rows and of
    indices may be sizes."""
    x, indices = body.inputs(2)
    rank = body.rank(x)
    flat = indices if body.rank(indices) == 1 else body.reshape(indices, (-1,))
    if rank > 1:
        body.add("Gather", x, flat, axis=rank - 1, result=body.result)
        return
    body.add("Unsqueeze", body.add("Gather", x, flat), body.ints([0]), result=body.result)


def _mel_weight_matrix(body: NodeRewrite) -> None:
    """A constant, which is evaluated as soon as all inputs are known."""
    graph, known = body.context.graph, body.context.known
    for name in body.step.inputs:
        if body.context.constant(name) is None:
            raise contents_missing(graph, known, name, f"{body.step}: input {name}")
    for name, array in body.context.folding.evaluate(body.step).items():
        body.context.add_constant(name, array)


_LEARNING = "ai.onnx.ml"

CLASSICAL: dict[tuple[str, str], Callable[[NodeRewrite], None]] = {
    ("", "MelWeightMatrix"): _mel_weight_matrix,
    ("", "TfIdfVectorizer"): _tfidf,
    (_LEARNING, "ArrayFeatureExtractor"): _array_feature_extractor,
    (_LEARNING, "Binarizer"): _binarizer,
    (_LEARNING, "TreeEnsemble"): _tree_ensemble,
}
"""The rewrite of each operator, by domain and name."""
