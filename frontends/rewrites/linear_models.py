"""Linear models of classical machine learning, and what scales and completes their features.

In: nodes of `ai.onnx.ml` that read a matrix of float32, one row for each sample.  Out: products
with constant matrices and elementwise operators, for any number of rows.  Another type or rank, a
transformation of scores beyond softmax and sigmoid, labels that are strings, and constants
of another length, of which onnxruntime takes some, are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphflow.frontends.rewrites.rewrites import NodeRewrite
from graphflow.graph import Array

_TRANSFORMED = {"NONE": "Identity", "SOFTMAX": "Softmax", "LOGISTIC": "Sigmoid"}
_NORMS = {"L1": "ReduceL1", "L2": "ReduceL2"}


def _features(body: NodeRewrite) -> tuple[str, int]:
    """The node's input, and its number of columns."""
    x = body.input(0)
    if body.rank(x) != 2 or body.dtype(x).name != "float32":
        body.refuse(f"its input is {body.dtype(x)} with {body.rank(x)} axes, not rows of float32")
    return x, body.extent(x, 1)


def _by_column(body: NodeRewrite, name: str, values: Array, columns: int) -> str:
    """A constant with one value for each column; one value holds for all."""
    if values.shape not in ((1,), (columns,)):
        body.refuse(f"{values.size} {name} for {columns} columns")
    return body.constant(values)


def _floats(body: NodeRewrite, name: str) -> Array:
    found: Array = np.array(body.attribute(name) or (), np.float32)
    return found


def _scores(body: NodeRewrite, count: int) -> str:
    """For each row, its products with `count` rows of coefficients, plus the intercepts."""
    x, columns = _features(body)
    factors, shifts = _floats(body, "coefficients"), _floats(body, "intercepts")
    if factors.size != count * columns or shifts.size not in (0, count):
        body.refuse(
            f"{factors.size} coefficients and {shifts.size} intercepts for {columns} columns and "
            f"{count} scores"
        )
    product = body.add("MatMul", x, body.constant(factors.reshape(count, columns).T.copy()))
    return body.add("Add", product, body.constant(shifts)) if shifts.size else product


def _transformed(body: NodeRewrite, scores: str, result: str, allowed: tuple[str, ...]) -> None:
    chosen = str(body.attribute("post_transform", "NONE"))
    if chosen not in allowed:
        body.refuse(f"post_transform {chosen}")
    body.add(_TRANSFORMED[chosen], scores, result=result)


def _linear_regressor(body: NodeRewrite) -> None:
    body.require_attributes("coefficients", "intercepts", "post_transform", "targets")
    scores = _scores(body, body.attribute("targets", 1))
    _transformed(body, scores, body.result, ("NONE",))


def add_best_class(body: NodeRewrite, scores: str, labels: Sequence[int]) -> None:
    """The node's first output: for each row the label of the greatest score, of equal ones the
    first.

    A Gather would look at the indices of all rows that a run may have, to see that they exist.
    """
    if list(labels) == list(range(len(labels))):
        body.add("ArgMax", scores, axis=1, keepdims=0, result=body.result)
        return
    greatest = body.add("ArgMax", scores, axis=1, keepdims=1)
    is_label = body.add("Equal", greatest, body.ints(range(len(labels))))
    own = body.add("Where", is_label, body.ints(labels), body.ints([0]))
    body.add("ReduceSum", own, body.ints([1]), keepdims=0, result=body.result)


def _linear_classifier(body: NodeRewrite) -> None:
    """The label of the greatest score, and the scores; of equal scores the first counts."""
    body.require_attributes(
        "classlabels_ints", "coefficients", "intercepts", "multi_class", "post_transform"
    )
    labels = body.attribute("classlabels_ints") or ()
    shifts = _floats(body, "intercepts").size
    if len(labels) < 2 or len(labels) != shifts:
        body.refuse(f"{len(labels)} labels that are integers and {shifts} intercepts")
    scores = _scores(body, len(labels))
    add_best_class(body, scores, labels)
    if body.output(1):
        _transformed(body, scores, body.output(1), tuple(_TRANSFORMED))


def _scaler(body: NodeRewrite) -> None:
    body.require_attributes("offset", "scale")
    x, columns = _features(body)
    shift = _by_column(body, "offset", _floats(body, "offset"), columns)
    factor = _by_column(body, "scale", _floats(body, "scale"), columns)
    body.add("Mul", body.add("Sub", x, shift), factor, result=body.result)


def _normalizer(body: NodeRewrite) -> None:
    """Rows divided by their norms; a row of zeros stays."""
    body.require_attributes("norm")
    x, _ = _features(body)
    chosen = str(body.attribute("norm", "MAX"))
    if chosen not in _NORMS:
        body.refuse(f"norm {chosen}")
    norm = body.add(_NORMS[chosen], x, body.ints([1]), keepdims=1)
    is_zero = body.add("Equal", norm, body.number(0.0, x))
    body.add("Div", x, body.add("Where", is_zero, body.number(1.0, x), norm), result=body.result)


def _imputer(body: NodeRewrite) -> None:
    body.require_attributes("imputed_value_floats", "replaced_value_float")
    x, columns = _features(body)
    values = _by_column(
        body, "imputed_value_floats", _floats(body, "imputed_value_floats"), columns
    )
    replaced = float(body.attribute("replaced_value_float", 0.0))
    is_missing = (
        body.add("IsNaN", x)
        if np.isnan(replaced)
        else body.add("Equal", x, body.number(replaced, x))
    )
    body.add("Where", is_missing, values, x, result=body.result)


LINEAR_MODELS: dict[tuple[str, str], Callable[[NodeRewrite], None]] = {
    ("ai.onnx.ml", "Imputer"): _imputer,
    ("ai.onnx.ml", "LinearClassifier"): _linear_classifier,
    ("ai.onnx.ml", "LinearRegressor"): _linear_regressor,
    ("ai.onnx.ml", "Normalizer"): _normalizer,
    ("ai.onnx.ml", "Scaler"): _scaler,
}
"""The rewrite of each operator, by domain and name."""
