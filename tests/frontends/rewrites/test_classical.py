"""Tests of operators of classical machine learning and of training, against ONNX's reference."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import graphflow as gf
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from support.single import noise, peer
from support.texts import assert_agrees

F32, F64, I64 = np.float32, np.float64, np.int64
LEARNING, TRAINING = "ai.onnx.ml", "ai.onnx.preview.training"


def model_of(
    op: str, arrays: list[np.ndarray], outputs: list[np.dtype], domain: str = "", **attributes
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node, and its feeds."""
    feeds = {f"x{k}": array for k, array in enumerate(arrays)}
    names = [f"y{k}" for k in range(len(outputs))]
    graph = helper.make_graph(
        [helper.make_node(op, list(feeds), names, domain=domain, **attributes)],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in feeds.items()
        ],
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(t)), None)
            for n, t in zip(names, outputs, strict=True)
        ],
    )
    opsets = [("", 26 if op == "BitCast" else 21), (LEARNING, 5), (TRAINING, 1)]
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*o) for o in opsets]), feeds


GRAMS = {
    "ngram_counts": [0, 3, 9],
    "ngram_indexes": [2, 0, 5, 1, 3, 4, 6],
    "pool_int64s": [2, 3, 5, 2, 3, 3, 2, 5, 5, 2, 3, 5],
}


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("least", "most", "skips"), [(1, 1, 2), (1, 2, 0), (2, 3, 1), (1, 3, 5)])
def test_ngrams(mode, least, most, skips):
    x = np.random.default_rng(0).integers(2, 6, (3, 9))
    attributes = {
        "min_gram_length": least,
        "max_gram_length": most,
        "max_skip_count": skips,
        "weights": [0.5, 1.0, 2.0, 0.25, 3.0, 1.5, 1.0],
        "mode": mode,
        **GRAMS,
    }
    for rows in (x, x[0]):
        assert_agrees(*model_of("TfIdfVectorizer", [rows], [F32], **attributes), True)


def test_ngrams_that_do_not_fit_are_refused():
    wrong = {**GRAMS, "ngram_counts": [0, 30, 9]}
    lengths = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0}
    model, _ = model_of("TfIdfVectorizer", [np.zeros(3, I64)], [F32], mode="TF", **lengths, **wrong)
    with pytest.raises(InvalidModel, match="ngram_counts"):
        import_model(model)


def test_thresholds_and_features():
    x = noise(3, 5)
    assert_agrees(*model_of("Binarizer", [x], [F32], LEARNING, threshold=0.1), True)
    for data in (x, x[0]):
        arrays = [data, np.array([4, 0])]
        model, feeds = model_of("ArrayFeatureExtractor", arrays, [F32], LEARNING)
        exe = gf.compile(model, options=gf.Options(fallback=None, workers=0))
        (expected,) = ReferenceEvaluator(model).run(None, feeds)
        np.testing.assert_array_equal(exe.run(feeds)["y0"], expected)


def test_features_of_any_number_of_rows():
    """Classifiers of scikit-learn look labels up by indices, and pick columns of scores."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 21, "ai.onnx.ml" : 3]>
    g (float[rows,3] x) => (int64[1,rows] label, float[rows,2] picked)
    <int64[3] labels = {5, -1, 7}, int64[1,2] columns = {2, 0}>
    { best = ArgMax <axis = 1> (x)
      label = ai.onnx.ml.ArrayFeatureExtractor (labels, best)
      picked = ai.onnx.ml.ArrayFeatureExtractor (x, columns) }""")
    options = gf.Options(fallback=None, workers=0)
    for target in (None, "avx2"):
        exe = gf.compile(model, sizes={"rows": (1, 9)}, target=target, options=options)
        for rows in (9, 2):
            feeds = {"x": noise(rows, 3)}
            found = exe.run(feeds)
            for name, expected in peer(model, feeds).items():
                np.testing.assert_array_equal(found[name], expected)
        assert len(exe.specializations) == 1


@pytest.mark.parametrize("updates", [0, 3])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("op", "parts", "attributes"),
    [
        ("Momentum", 3, {"alpha": 0.9, "beta": 0.7, "mode": "standard", "norm_coefficient": 0.01}),
        ("Momentum", 3, {"alpha": 0.9, "beta": 0.7, "mode": "nesterov", "norm_coefficient": 0.01}),
        ("Adagrad", 3, {"decay_factor": 0.1, "epsilon": 1e-5, "norm_coefficient": 0.01}),
        ("Adam", 4, {"alpha": 0.9, "beta": 0.8, "epsilon": 1e-5, "norm_coefficient_post": 0.1,
                     "norm_coefficient": 0.01}),
    ],
)  # fmt: skip
def test_optimizers(op, parts, attributes, count, updates):
    tensors = [np.abs(noise(2 + k % count, 3, seed=k)) for k in range(parts * count)]
    arrays = [np.array(0.1, F32), np.array(updates), *tensors]
    model, feeds = model_of(op, arrays, [F32] * ((parts - 1) * count), TRAINING, **attributes)
    found = interpret_graph(import_model(model), feeds)
    for array, expected in zip(
        found.values(), ReferenceEvaluator(model).run(None, feeds), strict=True
    ):
        np.testing.assert_allclose(array, expected, rtol=3e-5, atol=3e-5)


def test_batch_statistics_of_training():
    x, channels = noise(4, 3, 5, 2), [np.abs(noise(3, seed=k)) for k in range(4)]
    model, feeds = model_of(
        "BatchNormalization", [x, *channels], [F32] * 3, training_mode=1, momentum=0.8
    )
    assert_agrees(model, feeds, reference=True)


BITS = [(F32, np.int32), (np.int32, F32), (F64, I64), (np.uint16, np.int16), (np.int8, np.uint8),
        (np.bool_, np.uint8), (np.float16, np.uint16)]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), BITS)
def test_the_same_bits_under_another_type(source, target):
    x = noise(3, 4) > 0 if source is np.bool_ else (100 * noise(3, 4)).astype(source)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    model, feeds = model_of("BitCast", [x], [target], to=kind)
    exe = gf.compile(model, options=gf.Options(fallback=None, workers=0))
    np.testing.assert_array_equal(exe.run(feeds)["y0"], x.view(target))
    assert_agrees(model, feeds, reference=True)


def test_bits_that_are_no_bool_are_refused():
    model, _ = model_of("BitCast", [np.zeros(3, np.uint8)], [np.bool_], to=TensorProto.BOOL)
    with pytest.raises(UnsupportedOp, match="bits of uint8 as bool"):
        import_model(model)
