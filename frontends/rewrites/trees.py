"""Ensembles of decision trees: one node walks the trees, others finish the scores and find labels.

In: TreeEnsemble, TreeEnsembleClassifier and TreeEnsembleRegressor.  Out: a TreeWalk, a node with a
kernel that reads the trees from constants, and standard nodes, for any number of rows.  Where
ONNX's text is silent (two classes with weights of one), results are those of onnxruntime.  Refused
are labels that are strings, and classes of which it depends on the row whether they have scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import TensorProto, helper

from graphflow.base.errors import InvalidModel
from graphflow.base.fields import replace
from graphflow.frontends.protos.steps import derived
from graphflow.frontends.rewrites.linear_models import add_best_class
from graphflow.frontends.rewrites.rewrites import NodeRewrite
from graphflow.frontends.rewrites.tree_tables import (
    Trees,
    items_of,
    items_or_doubles,
    named_trees,
    numbered_trees,
)

_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_NEUTRAL = {"MIN": np.inf, "MAX": -np.inf}
_OF_NODES = (
    "nodes_falsenodeids", "nodes_featureids", "nodes_hitrates", "nodes_missing_value_tracks_true",
    "nodes_modes", "nodes_truenodeids", "post_transform",
)  # fmt: skip
_NAMED = (
    "base_values", "base_values_as_tensor", "nodes_hitrates_as_tensor", "nodes_nodeids",
    "nodes_treeids", "nodes_values", "nodes_values_as_tensor",
)  # fmt: skip


# Walks --------------------------------------------------------------------------------------------


def _read(body: NodeRewrite, read: Callable[[], Trees]) -> Trees:
    try:
        return read()
    except (LookupError, TypeError, ValueError) as error:
        raise _misfit(body, error) from error


def _misfit(body: NodeRewrite, error: Exception) -> InvalidModel:
    return InvalidModel(f"{body.step}: its trees do not fit together ({error})")


def _walked(body: NodeRewrite, trees: Trees, targets: int, aggregate: str) -> str:
    """What the trees have for each row and target, put together."""
    x = body.input(0)
    if body.rank(x) != 2:
        body.refuse(f"its input has {body.rank(x)} axes, not rows of features")
    if not trees.roots or targets < 1:
        raise _misfit(body, ValueError(f"{len(trees.roots)} trees and {targets} targets"))
    dtype, columns = body.dtype(x).name, body.extent(x, 1)
    if dtype not in ("float32", "float64"):
        x, dtype = body.add("Cast", x, to=TensorProto.FLOAT), "float32"
    try:
        tables = trees.tables(columns, targets, _NEUTRAL.get(aggregate, 0.0), dtype)
    except (LookupError, ValueError) as error:
        raise _misfit(body, error) from error
    extents = tables.extents
    name = body.context.unique_tensor_name(f"{body.step.name}/walked")
    step = derived(
        body.step,
        "TreeWalk",
        [x, *map(body.constant, tables.arrays)],
        [name],
        "walk",
        aggregate="SUM" if aggregate == "AVERAGE" else aggregate,
        rule=extents.rule.value,
        deepest=extents.deepest,
        targets=targets,
    )
    step.node.domain = "graphflow"
    body.steps.append(replace(step, opsets={**step.opsets, "graphflow": 1}))
    if aggregate == "AVERAGE":
        return body.add("Div", name, body.constant(np.array(len(trees.roots), dtype)))
    return name


# Scores -------------------------------------------------------------------------------------------


def _cast(body: NodeRewrite, scores: str, dtype: str) -> str:
    to = int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    return body.add("Cast", scores, to=to)


def _shifted(body: NodeRewrite, scores: str, base: Sequence[float], dtype: str) -> str:
    """The scores plus the base values, one for each column, if there are any."""
    return body.add("Add", scores, body.constant(np.array(base, dtype))) if base else scores


def _transformed(body: NodeRewrite, scores: str, chosen: str) -> str:
    """The scores, float32, transformed by one of ONNX's functions."""

    def number(value: float) -> str:
        return body.constant(np.array(value, np.float32))

    if chosen == "SOFTMAX":
        return body.add("Softmax", scores, axis=1)
    if chosen == "LOGISTIC":
        return body.add("Sigmoid", scores)
    if chosen == "SOFTMAX_ZERO":  # scores that are zero stay so, and are not counted
        most = body.add("ReduceMax", scores, body.ints([1]), keepdims=1)
        powers = body.add("Exp", body.add("Sub", scores, most))
        counts = body.add("Greater", body.add("Abs", scores), number(1e-7))
        counted = body.add("Where", counts, powers, number(0))
        rest = body.add("Mul", scores, body.add("Exp", body.add("Neg", most)))
        total = body.add("ReduceSum", counted, body.ints([1]), keepdims=1)
        return body.add("Div", body.add("Where", counts, powers, rest), total)
    if chosen == "PROBIT":
        body.refuse("post_transform PROBIT")
    return scores


def _chosen(body: NodeRewrite) -> str:
    """The transformation, a word or the number of one."""
    given = body.attribute("post_transform", "NONE")
    words = dict(enumerate(_TRANSFORMS)) | {word: word for word in _TRANSFORMS}
    if given not in words:
        raise InvalidModel(f"{body.step}: post_transform {given} does not exist")
    return words[given]


# Operators ----------------------------------------------------------------------------------------


def _tree_ensemble(body: NodeRewrite) -> None:
    body.require_attributes(
        *_OF_NODES, "aggregate_function", "leaf_targetids", "leaf_weights", "membership_values",
        "n_targets", "nodes_falseleafs", "nodes_splits", "nodes_trueleafs", "tree_roots",
    )  # fmt: skip
    number = body.attribute("aggregate_function", 1)
    if not 0 <= number < len(_AGGREGATES):
        raise InvalidModel(f"{body.step}: aggregate_function {number} does not exist")
    targets, dtype = body.attribute("n_targets", 1), body.dtype(body.input(0)).name
    trees, aggregate = _read(body, lambda: numbered_trees(body)), _AGGREGATES[number]
    scores = _walked(body, trees, targets, aggregate)
    if aggregate in _NEUTRAL:  # what no leaf gives a score for is the end of the type
        limit = np.finfo(dtype).max
        ends = [body.constant(np.array(end, dtype)) for end in (-limit, limit)]
        scores = body.add("Clip", scores, *ends)
    chosen = _chosen(body)
    if chosen != "NONE" and (targets == 1 or dtype != "float32"):
        body.refuse(f"post_transform {chosen} of {targets} targets of {dtype}")
    body.add("Identity", _transformed(body, scores, chosen), result=body.result)


def _tree_regressor(body: NodeRewrite) -> None:
    body.require_attributes(
        *_OF_NODES, *_NAMED, "aggregate_function", "n_targets", "target_ids", "target_nodeids",
        "target_treeids", "target_weights", "target_weights_as_tensor",
    )  # fmt: skip
    aggregate = str(body.attribute("aggregate_function", "SUM"))
    targets, chosen = body.attribute("n_targets", 1), _chosen(body)
    if aggregate not in _AGGREGATES:
        raise InvalidModel(f"{body.step}: aggregate_function {aggregate} does not exist")
    trees = _read(body, lambda: named_trees(body, "target"))
    if aggregate in _NEUTRAL and not trees.always_given().issuperset(range(targets)):
        body.refuse(f"{aggregate} of targets for which not every leaf of a tree has a weight")
    base = _base(body, targets)
    scores = _walked(body, trees, targets, aggregate)
    dtype = "float64" if body.dtype(body.input(0)).name == "float64" else "float32"
    scores = _cast(body, _shifted(body, scores, base, dtype), "float32")
    # onnxruntime transforms one score by PROBIT alone.
    transformed = _transformed(
        body, scores, chosen if targets > 1 or chosen == "PROBIT" else "NONE"
    )
    body.add("Identity", transformed, result=body.result)


def _base(body: NodeRewrite, count: int) -> list[float]:
    base = [float(value) for value in items_or_doubles(body, "base_values")]
    if len(base) not in (0, count):
        body.refuse(f"{len(base)} base values for {count} scores")
    return base


def _tree_classifier(body: NodeRewrite) -> None:
    body.require_attributes(
        *_OF_NODES, *_NAMED, "class_ids", "class_nodeids", "class_treeids", "class_weights",
        "class_weights_as_tensor", "classlabels_int64s",
    )  # fmt: skip
    labels = [int(label) for label in body.attribute("classlabels_int64s") or ()]
    if len(labels) < 2:
        body.refuse(f"{len(labels)} labels that are integers")
    trees, chosen = _read(body, lambda: named_trees(body, "class")), _chosen(body)
    dtype = "float64" if body.dtype(body.input(0)).name == "float64" else "float32"
    # Those of nodes that are no leaves too, by which onnxruntime decides what two classes mean.
    weights, scored = items_or_doubles(body, "class_weights"), {*items_of(body, "class_ids")}
    if scored != trees.always_given():
        body.refuse("classes for which some leaves of each tree have no weight")
    if len(labels) == 2 and scored == {0}:
        _binary(body, trees, labels, min(weights) >= 0, chosen, dtype)
        return
    if scored != set(range(len(labels))):
        body.refuse(f"{len(labels)} classes, of which {len(scored)} have weights")
    if len(labels) == 2:
        body.refuse("two classes with a score each, of which onnxruntime compares one with zero")
    base = _base(body, len(labels))
    scores = _shifted(body, _walked(body, trees, len(labels), "SUM"), base, dtype)
    add_best_class(body, scores, labels)
    _add_scores(body, _transformed(body, _cast(body, scores, "float32"), chosen))


def _add_scores(body: NodeRewrite, scores: str) -> None:
    if body.output(1):
        body.add("Identity", scores, result=body.output(1))


def _binary(
    body: NodeRewrite,
    trees: Trees,
    labels: Sequence[int],
    is_probability: bool,
    chosen: str,
    dtype: str,
) -> None:
    """Two classes that share one score, a probability of the second class if no weight is
    negative."""
    base = _base(body, 1)
    score = _shifted(body, _walked(body, trees, 1, "SUM"), base, dtype)
    limit = body.constant(np.array(0.5 if is_probability else 0, dtype))
    is_second = body.reshape(body.add("Greater", score, limit), (-1,))
    second, first = (body.constant(np.array(label, np.int64)) for label in reversed(labels))
    body.add("Where", is_second, second, first, result=body.result)
    score = _cast(body, score, "float32")
    if chosen == "PROBIT":
        body.refuse("post_transform PROBIT")
    other = (
        body.add("Sub", body.constant(np.array(1, np.float32)), score)
        if is_probability
        else body.add("Neg", score)
    )
    both = body.add("Concat", other, score, axis=1)
    if chosen == "LOGISTIC":  # the others change nothing here
        both = _transformed(body, body.add("Concat", body.add("Neg", score), score, axis=1), chosen)
    _add_scores(body, both)


TREES: dict[tuple[str, str], Callable[[NodeRewrite], None]] = {
    ("ai.onnx.ml", "TreeEnsemble"): _tree_ensemble,
    ("ai.onnx.ml", "TreeEnsembleClassifier"): _tree_classifier,
    ("ai.onnx.ml", "TreeEnsembleRegressor"): _tree_regressor,
}
"""The rewrite of each operator, by domain and name."""
