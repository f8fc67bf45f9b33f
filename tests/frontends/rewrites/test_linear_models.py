"""Tests of linear models and of what prepares their features, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import graphflow as gf
from graphflow.base.errors import UnsupportedOp
from graphflow.frontends import import_model
from support.single import assert_same_as_peer, noise, peer

COLUMNS = 4
COEFFICIENTS = [round(float(c), 3) for c in noise(3 * COLUMNS)]
CLASSES = {
    "classlabels_ints": [7, -2, 5],
    "coefficients": COEFFICIENTS,
    "intercepts": [0.5, -0.25, 0.0],
    "multi_class": 1,
}


def model_of(op: str, rows: int | str = "rows", kind: int = TensorProto.FLOAT, **attributes):
    """A model of one node that reads a matrix."""
    has_labels = op == "LinearClassifier"
    names = ["label", "y"] if has_labels else ["y"]
    types = [TensorProto.INT64, TensorProto.FLOAT] if has_labels else [TensorProto.FLOAT]
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], names, domain="ai.onnx.ml", **attributes)],
        "g",
        [helper.make_tensor_value_info("x", kind, [rows, COLUMNS])],
        [helper.make_tensor_value_info(n, t, None) for n, t in zip(names, types, strict=True)],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


CASES = [
    ("LinearClassifier", {**CLASSES, "post_transform": "NONE"}),
    ("LinearClassifier", {**CLASSES, "post_transform": "SOFTMAX"}),
    ("LinearClassifier", {**CLASSES, "post_transform": "LOGISTIC"}),
    ("LinearRegressor", {"coefficients": COEFFICIENTS, "targets": 3, "intercepts": [1.0, 0.5, 2]}),
    ("LinearRegressor", {"coefficients": COEFFICIENTS[:COLUMNS]}),
    ("Scaler", {"offset": [0.5, 1.0, -2.0, 0.0], "scale": [2.0, 0.1, 1.0, -3.0]}),
    ("Scaler", {"offset": [0.5], "scale": [2.0]}),
    ("Normalizer", {"norm": "L1"}),
    ("Normalizer", {"norm": "L2"}),
    ("Imputer", {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": np.nan}),
    ("Imputer", {"imputed_value_floats": [9.0], "replaced_value_float": 0.0}),
]


def features(rows: int) -> np.ndarray:
    """Numbers with a row of zeros and some NaN."""
    x = noise(rows, COLUMNS)
    x[1] = 0
    x[2, 3] = np.nan
    return x


@pytest.mark.parametrize(("op", "attributes"), CASES)
def test_results_are_those_of_onnxruntime(op: str, attributes: dict) -> None:
    rows = features(6) if op == "Imputer" else np.nan_to_num(features(6))
    assert_same_as_peer(model_of(op, 6, **attributes), {"x": rows})


def test_a_missing_feature_makes_missing_results() -> None:
    for op, attributes in CASES:
        feeds = {"x": features(6)}
        if op != "LinearClassifier":  # which label that has is not defined
            assert_same_as_peer(model_of(op, 6, **attributes), feeds)


def test_of_equal_scores_the_first_counts() -> None:
    attributes = {**CLASSES, "coefficients": COEFFICIENTS[:COLUMNS] * 3, "intercepts": [1.0] * 3}
    assert_same_as_peer(model_of("LinearClassifier", 6, **attributes), {"x": noise(6, COLUMNS)})


@pytest.mark.parametrize("target", [None, "avx2"])
def test_one_program_serves_any_number_of_rows(target: str | None) -> None:
    options = gf.Options(fallback=None, workers=0)
    for op, attributes in CASES:
        model = model_of(op, **attributes)
        exe = gf.compile(model, sizes={"rows": (1, 9)}, target=target, options=options)
        for rows in (9, 3):
            feeds = {"x": np.nan_to_num(features(rows))}
            expected = peer(model, feeds)
            for name, found in exe.run(feeds).items():
                np.testing.assert_allclose(found, expected[name], rtol=3e-5, atol=3e-5)
        assert len(exe.specializations) == 1


@pytest.mark.parametrize(
    ("op", "attributes", "reason"),
    [
        ("LinearClassifier", {**CLASSES, "post_transform": "PROBIT"}, "PROBIT"),
        ("LinearClassifier", {**CLASSES, "classlabels_ints": [1, 2]}, "2 labels that are integers"),
        ("LinearRegressor",
         {"coefficients": COEFFICIENTS, "targets": 3, "post_transform": "SOFTMAX"}, "SOFTMAX"),
        ("Normalizer", {"norm": "MAX"}, "norm MAX"),
    ],
)  # fmt: skip
def test_other_models_are_refused(op: str, attributes: dict, reason: str) -> None:
    with pytest.raises(UnsupportedOp, match=reason):
        import_model(model_of(op, 6, **attributes))


def test_features_of_another_type_are_refused() -> None:
    with pytest.raises(UnsupportedOp, match="float64"):
        import_model(model_of("Scaler", 6, TensorProto.DOUBLE, offset=[0.0], scale=[1.0]))


def test_constants_of_another_length_are_refused() -> None:
    for op, attributes in [
        ("Scaler", {"offset": [0.0, 1.0], "scale": [1.0]}),
        ("LinearRegressor", {"coefficients": COEFFICIENTS[:-1], "targets": 3}),
        ("Imputer", {"imputed_value_floats": [1.0, 2.0]}),
        ("LinearClassifier", {**CLASSES, "coefficients": COEFFICIENTS * 2}),
    ]:
        with pytest.raises(UnsupportedOp, match="columns"):
            import_model(model_of(op, 6, **attributes))
