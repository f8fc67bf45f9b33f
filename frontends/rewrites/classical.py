"""Operators of classical machine learning: n-grams, thresholds, weights of mel bands.

In: nodes whose attributes hold a model.  Out: comparisons and products with
constant matrices, which give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np
from onnx import TensorProto, helper

from graphflow.base.errors import InvalidModel
from graphflow.frontends.rewrites.rewrites import NodeRewrite
from graphflow.frontends.tensors.values import contents_missing

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


# Others -------------------------------------------------------------------------------------------


def _binarizer(body: NodeRewrite) -> None:
    body.require_attributes("threshold")
    x = body.input(0)
    above = body.add("Greater", x, body.number(body.attribute("threshold", 0.0), x))
    body.add(
        "Cast", above, to=int(helper.np_dtype_to_tensor_dtype(body.dtype(x))), result=body.result
    )


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
}
"""The rewrite of each operator, by domain and name."""
