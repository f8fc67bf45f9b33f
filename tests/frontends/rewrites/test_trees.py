"""Tests of ensembles of trees: every mode, aggregate and transformation, against onnxruntime."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.frontends import import_model
from support.single import noise, peer
from support.texts import assert_agrees

F32, F64 = np.float32, np.float64
OPTIONS = gf.Options(fallback=None, workers=0)
LEQ, LT, GTE, GT, EQ, NEQ = MODES = [
    f"BRANCH_{mode}" for mode in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")
]
SPLITS = [-1.0, -0.5, 0.0, 0.25, 1.0]
KINDS = {"Classifier": "class", "Regressor": "target"}


def forest(
    kind, targets, scored, modes=(LEQ,), depth=4, count=11, seed=0,
    tracks=False, one=False, positive=False, base=0, doubles=False, **attributes,
):  # fmt: skip
    """The attributes of random trees; leaves have weights for the targets `scored`, or, if `one`,
    for one of them that the tree has."""
    rng, of = np.random.default_rng(seed), KINDS[kind]
    nodes, leaves = [], []
    for tree in range(count):
        pending, free = [(0, 0)], 1
        while pending:
            number, level = pending.pop()
            if level >= depth or rng.random() < 0.15:
                nodes.append((tree, number, 0, "LEAF", 0.0, 0, 0, 0))
                for target in [scored[tree % len(scored)]] if one else scored:
                    weight = float(F32(rng.standard_normal()))
                    leaves.append((tree, number, target, abs(weight) if positive else weight))
                continue
            mode, split = str(rng.choice(modes)), float(rng.choice(SPLITS))
            followed = int(tracks and rng.random() < 0.5)
            nodes.append(
                (tree, number, int(rng.integers(4)), mode, split, free, free + 1, followed)
            )
            pending += [(free + 1, level + 1), (free, level + 1)]
            free += 2
    of_nodes = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids",
                "falsenodeids", "missing_value_tracks_true")  # fmt: skip
    columns = zip(of_nodes, zip(*nodes, strict=True), strict=True)
    found = {f"nodes_{name}": list(values) for name, values in columns}
    names = ("treeids", "nodeids", "ids", "weights")
    columns = zip(names, zip(*leaves, strict=True), strict=True)
    found |= {f"{of}_{name}": list(values) for name, values in columns}
    if base:
        found["base_values"] = [float(v) for v in rng.standard_normal(base).astype(F32)]
    for name in ("nodes_values", f"{of}_weights", "base_values") if doubles else ():
        if name in found:
            array = np.array(found.pop(name), F64)
            found[f"{name}_as_tensor"] = numpy_helper.from_array(array, name)
    if kind == "Regressor":
        return {**found, "n_targets": targets, **attributes}
    return {**found, "classlabels_int64s": [3 + 2 * k for k in range(targets)], **attributes}


def model_of(kind, targets, attributes, dtype=F32, rows="rows"):
    outputs = [helper.make_tensor_value_info("scores", 1, [rows, targets])]
    if kind == "Classifier":
        outputs.insert(0, helper.make_tensor_value_info("label", 7, [rows]))
    names = [info.name for info in outputs]
    op = f"TreeEnsemble{kind}"
    node = helper.make_node(op, ["x"], names, domain="ai.onnx.ml", **attributes)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    x = helper.make_tensor_value_info("x", element, [rows, 4])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph([node], "g", [x], outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def features(dtype=F32, rows=9, seed=0):
    """Rows with elements at splits, zeros of both signs, infinities and NaN."""
    rng = np.random.default_rng(seed)
    x = rng.choice([*SPLITS, -2.0, -0.3, -0.0, 0.4, np.inf, -np.inf, np.nan], (rows, 4))
    return x.astype(dtype)


def compare(kind, targets, attributes, dtype=F32):
    model = model_of(kind, targets, attributes, dtype, rows=9)
    assert_agrees(model, {"x": features(dtype)})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("modes", "tracks"), [*(([mode], False) for mode in MODES), (MODES, True), ([LT], True)]
)
def test_modes_at_splits_and_of_what_is_missing(kind, modes, tracks):
    compare(kind, 3, forest(kind, 3, [0, 1, 2], modes, tracks=tracks))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
def test_scores_are_transformed(kind, one, transform):
    chosen = {"post_transform": transform, "base": 0 if one else 3, "one": one}
    compare(kind, 3, forest(kind, 3, [0, 1, 2], **chosen))


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("base", [0, 1])
def test_two_classes_that_share_a_score(transform, positive, base):
    """A score is a probability of the second class if no weight is negative."""
    chosen = {"post_transform": transform, "positive": positive, "base": base, "count": 2}
    compare("Classifier", 2, forest("Classifier", 2, [0], **chosen))


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_aggregates(aggregate, targets):
    for base in (0, targets):
        chosen = {"aggregate_function": aggregate, "base": base, "post_transform": "LOGISTIC"}
        compare("Regressor", targets, forest("Regressor", targets, [*range(targets)], **chosen))


@pytest.mark.parametrize("kind", KINDS)
def test_doubles(kind):
    for doubles in (False, True):
        attributes = forest(kind, 3, [0, 1, 2], base=3, doubles=doubles)
        compare(kind, 3, attributes, F64)


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 1000), st.integers(1, 20), st.integers(0, 6), st.sets(st.sampled_from(MODES),
    min_size=1), st.booleans(), st.booleans(),
)  # fmt: skip
def test_random_forests(seed, count, depth, modes, tracks, one):
    chosen = {"seed": seed, "count": max(count, 3), "depth": depth, "tracks": tracks, "one": one}
    compare("Classifier", 3, forest("Classifier", 3, [0, 1, 2], sorted(modes), **chosen))


@pytest.mark.parametrize("target", [None, "avx2"])
def test_one_program_for_any_number_of_rows(target):
    attributes = forest("Classifier", 3, [0, 1, 2], [LT], count=20, one=True)
    model = model_of("Classifier", 3, attributes)
    exe = gf.compile(model, sizes={"rows": (1, 40)}, target=target, options=OPTIONS)
    for rows in (40, 1, 7):
        feeds = {"x": features(rows=rows)}
        found = exe.run(feeds)
        for name, expected in peer(model, feeds).items():
            np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-5)
    assert len(exe.specializations) == 1


@pytest.mark.parametrize(
    ("kind", "targets", "others", "reason"),
    [
        ("Classifier", 2, {}, "two classes with a score each"),
        ("Classifier", 4, {}, "have weights"),
        ("Classifier", 3, {"post_transform": "PROBIT"}, "PROBIT"),
        ("Regressor", 4, {"aggregate_function": "MIN"}, "MIN of targets"),
        ("Regressor", 3, {"base_values": [1.0]}, "1 base values"),
    ],
)
def test_what_onnxruntime_alone_decides_is_refused(kind, targets, others, reason):
    scored = [*range(min(targets, 3))]
    model = model_of(kind, targets, forest(kind, targets, scored, **others), rows=9)
    with pytest.raises(UnsupportedOp, match=reason):
        import_model(model)


def test_labels_that_are_strings_are_refused():
    attributes = forest("Classifier", 3, [0, 1, 2])
    del attributes["classlabels_int64s"]
    model = model_of("Classifier", 3, {**attributes, "classlabels_strings": ["a", "b", "c"]})
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(UnsupportedOp, match="classlabels_strings"):
        import_model(model, {"x": (9, 4)})


def numbered(dtype: type, modes: list[int], **others) -> dict[str, object]:
    kind = TensorProto.FLOAT if dtype is F32 else TensorProto.DOUBLE
    return {
        "n_targets": 3,
        "tree_roots": [0, 3],
        "nodes_modes": helper.make_tensor("modes", TensorProto.UINT8, (4,), modes),
        "nodes_featureids": [0, 2, 1, 1],
        "nodes_splits": helper.make_tensor("splits", kind, (4,), [0.2, -0.3, 0.4, 0.0]),
        "nodes_truenodeids": [1, 0, 2, 4],
        "nodes_trueleafs": [0, 1, 1, 1],
        "nodes_falsenodeids": [2, 1, 3, 5],
        "nodes_falseleafs": [0, 1, 1, 1],
        "leaf_targetids": [0, 1, 2, 0, 1, 1],
        "leaf_weights": helper.make_tensor("weights", kind, (6,), [5.0, 12.0, -1.0, 7.0, 2.0, 3.0]),
        **others,
    }


def numbered_model(dtype, attributes, rows=20):
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    x, y = (helper.make_tensor_value_info(name, element, [rows, 3]) for name in "xy")
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 5)]
    return helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=opsets)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("modes", [[0, 0, 0, 0], [0, 1, 2, 3], [4, 5, 1, 2]])
@pytest.mark.parametrize("function", [0, 1, 2, 3])
def test_numbered_trees(dtype, modes, function):
    x = noise(20, 3).astype(dtype)
    x[3, 2], x[4, 1] = np.nan, np.nan
    attributes = numbered(dtype, modes, aggregate_function=function)
    attributes["nodes_missing_value_tracks_true"] = [0, 1, 0, 1]
    assert_agrees(numbered_model(dtype, attributes), {"x": x}, reference=True)


def test_transformations_have_numbers():
    """They are ONNX's: onnxruntime has 1 and 2 the other way round, and its evaluator has none."""
    x = noise(20, 3).astype(F32)
    (plain, *others) = [
        gf.compile(numbered_model(F32, numbered(F32, [0] * 4, post_transform=k)), options=OPTIONS)(
            x
        )
        for k in range(3)
    ]
    powers = np.exp(plain - plain.max(1, keepdims=True))
    wanted = (powers / powers.sum(1, keepdims=True), 1 / (1 + np.exp(-plain)))
    for found, expected in zip(others, wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "values",
    [[1.0, 3.0, np.nan, 2.0, np.nan], [1.0, 0.0, np.nan, 0.0, np.nan], [-0.0, np.nan, 2.0, np.nan]],
)
def test_members_of_sets(values):
    """Sets follow each other in one tensor, each with a NaN at its end; a NaN is in none.

    ONNX's evaluator takes a member that is zero for the end of its set; onnxruntime does not.
    """
    members = numpy_helper.from_array(np.array(values, F32), "members")
    attributes = numbered(F32, [6, 0, 6, 1], membership_values=members)
    x = np.random.default_rng(0).choice([0.0, -0.0, 1.0, 2.0, 3.0], (20, 3)).astype(F32)
    x[3, 0] = np.nan
    assert_agrees(numbered_model(F32, attributes), {"x": x}, reference=0.0 not in values)


def test_a_leaf_may_follow_several_nodes():
    attributes = numbered(F32, [0] * 4, nodes_falsenodeids=[2, 2, 3, 5])
    assert_agrees(numbered_model(F32, attributes), {"x": noise(20, 3).astype(F32)})
    attributes = forest("Regressor", 1, [0], depth=1, count=1, seed=1)
    attributes["nodes_truenodeids"][0] = attributes["nodes_falsenodeids"][0]
    compare("Regressor", 1, attributes)


@pytest.mark.parametrize(("kind", "scored"), [("Classifier", [0]), ("Regressor", [0, 1, 2])])
@pytest.mark.parametrize("weight", [5.0, -5.0])
def test_weights_of_nodes_that_are_no_leaves_count_for_nothing(kind, scored, weight):
    """Only the sign of one decides whether a score that two classes share is a probability."""
    targets, of = max(len(scored), 2), KINDS[kind]
    attributes = forest(kind, targets, scored, positive=True)
    for part, value in (("treeids", 0), ("nodeids", 0), ("ids", 0), ("weights", weight)):
        attributes[f"{of}_{part}"].append(value)
    compare(kind, targets, attributes)


def test_first_nodes_are_roots():
    """Of trees whose nodes take turns too, as in ONNX's evaluator; other roots are refused."""
    attributes = forest("Regressor", 1, [0], depth=2, count=3, seed=1)
    names = [name for name in attributes if name.startswith("nodes_")]
    order = np.argsort(attributes["nodes_nodeids"], kind="stable")
    turned = {name: [attributes[name][k] for k in order] for name in names}
    model = model_of("Regressor", 1, {**attributes, **turned}, rows=9)
    assert_agrees(model, {"x": features()}, reference=True)
    turned = {name: attributes[name][::-1] for name in names}
    with pytest.raises(UnsupportedOp, match="first node follows another one"):
        import_model(model_of("Regressor", 1, {**attributes, **turned}, rows=9))


def test_nodes_in_a_circle_are_refused():
    attributes = forest("Regressor", 1, [0], depth=3, count=1, seed=0)
    first, second = attributes["nodes_truenodeids"][0], attributes["nodes_falsenodeids"][0]
    inner = [k for k in (first, second) if attributes["nodes_modes"][k] != "LEAF"]
    at = attributes["nodes_nodeids"].index(inner[0])
    attributes["nodes_truenodeids"][at] = inner[0]
    with pytest.raises(InvalidModel, match="do not fit together"):
        import_model(model_of("Regressor", 1, attributes, rows=9))


def test_trees_that_do_not_fit_together_are_refused():
    for wrong in (
        {"nodes_truenodeids": [1, 0, 9, 4]},
        {"nodes_truenodeids": [1, 0, 2, -4]},
        {"nodes_falsenodeids": [0, 1, 3, 5]},
        {"nodes_falsenodeids": [-2, 1, 3, 5]},
        {"tree_roots": [0, -1]},
    ):
        model = numbered_model(F32, numbered(F32, [0] * 4, **wrong), rows=2)
        with pytest.raises(InvalidModel, match="do not fit together"):
            import_model(model)
