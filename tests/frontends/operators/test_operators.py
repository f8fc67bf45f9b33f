"""Tests of single operators, interpreted, against onnxruntime: every attribute, odd shapes, and
refusals."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import graphflow as gf
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, interpret_graph
from graphflow.models import ModelBuilder
from support.single import assert_same_as_peer, noise, single

I64, F32 = np.int64, np.float32
X4 = (1, 2, 5, 3)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, I64)


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, F32)


def compare(op, arrays, opset, constants, attributes):
    result = arrays[0].shape if op == "GroupNormalization" else ("a", "b")
    model = single(op, arrays, opset, constants, result=result, **attributes)
    feeds = {info.name: array for info, array in zip(model.graph.input, arrays, strict=True)}
    assert_same_as_peer(model, feeds)


ELEMENTWISE = [
    ("HardSigmoid", 7, {}),
    ("HardSigmoid", 7, {"alpha": 0.6, "beta": 0.3}),
    ("HardSwish", 14, {}),
    ("Elu", 7, {}),
    ("Elu", 7, {"alpha": 0.4}),
    ("Selu", 7, {}),
    ("Selu", 7, {"alpha": 1.5, "gamma": 0.7}),
    ("Softplus", 7, {}),
    ("Softsign", 7, {}),
    ("ThresholdedRelu", 10, {"alpha": 0.5}),
    ("Gelu", 20, {}),
    ("Gelu", 20, {"approximate": "tanh"}),
    ("Mish", 18, {}),
    ("Reciprocal", 13, {}),
    ("Sign", 13, {}),
    ("Round", 11, {}),
]


@pytest.mark.parametrize(("op", "opset", "attributes"), ELEMENTWISE)
def test_functions_of_one_operand(op, opset, attributes):
    x = np.concatenate([3 * noise(9), floats(0.5, 1.5, -0.5, 30, -30, 90, -90)])
    compare(op, [x], opset, {}, attributes)


def test_activations_keep_nan():
    x = floats(np.nan)
    for op in ("HardSigmoid", "HardSwish", "Elu", "Selu", "Softplus", "Sign"):
        opset = 14 if op == "HardSwish" else 13
        graph = import_model(single(op, [x], opset))
        assert np.isnan(interpret_graph(graph, {"i0": x})["o0"]), op
    # ONNX's body takes what is larger than alpha, and onnxruntime agrees.
    compare("ThresholdedRelu", [floats(np.nan, 2, 1, -1)], 22, {}, {})
    graph = import_model(single("ThresholdedRelu", [x], 22))
    assert interpret_graph(graph, {"i0": x})["o0"] == 0


def test_softplus_neither_overflows_nor_loses_its_small_values():
    x = floats(1000, -1000, 0, -1, -10, -20, -60, np.inf, -np.inf, np.nan)
    with np.errstate(invalid="ignore"):
        expected = np.logaddexp(x, 0, dtype=np.float64)
        mish = x * np.tanh(expected)
    for op, known in (("Softplus", expected), ("Mish", mish)):
        model = single(op, [x], 18)
        graph = import_model(model)
        native = gf.compile(model).run({"i0": x})["o0"]
        for result in (interpret_graph(graph, {"i0": x})["o0"], native):
            np.testing.assert_allclose(result, known, rtol=5e-7)


@pytest.mark.parametrize("slope", [(3,), (2, 1, 1), (1,), (2, 5, 3), ()])
def test_prelu_broadcasts_its_slope(slope):
    compare("PRelu", [noise(*X4), np.asarray(noise(*slope, seed=1), F32)], 16, {}, {})
    compare("PRelu", [noise(*X4)], 9, {1: np.asarray(noise(*slope, seed=1), F32)}, {})


def test_prelu_never_broadcasts_the_input():
    with pytest.raises(InvalidModel, match="slope"):
        import_model(single("PRelu", [noise(3), noise(2, 3)], 16))


@pytest.mark.parametrize("exponent", [F32(2), F32(3), F32(0.5), floats(2, 0.5, -1), I64(2)])
def test_pow_by_constants(exponent):
    compare("Pow", [np.abs(noise(2, 3)) + F32(0.1)], 13, {1: exponent}, {})


def test_pow_by_tensors_of_several_dtypes():
    x = np.abs(noise(2, 3)) + F32(0.1)
    compare("Pow", [x, noise(3)], 13, {}, {})
    compare("Pow", [x, ints(2, 0, 3)], 13, {}, {})
    compare("Pow", [ints(-3, 2, 5), ints(3, 4, 0)], 13, {}, {})
    compare("Pow", [ints(2, 9), floats(3.0, 0.5)], 13, {}, {})
    # A constant of more axes than the base broadcasts the base.
    compare("Pow", [x], 13, {1: np.full((1, 1, 1), 2, F32)}, {})


@pytest.mark.parametrize("op", ["Mean", "Sum", "Max", "Min"])
def test_variadic(op):
    compare(op, [noise(2, 3), noise(3, seed=1), noise(2, 1, seed=2)], 13, {}, {})
    compare(op, [noise(2, 3)], 8, {}, {})


COMPARISONS = ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]


@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons(op):
    a, b = floats(1, 2, np.nan, 3).reshape(2, 2), floats(1, 3)
    compare(op, [a, b], 16, {}, {})
    compare(op, [ints(1, -2, 3), ints(1)], 16, {}, {})


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op):
    compare(op, [np.array([[True], [False]]), np.array([True, False])], 13, {}, {})


def test_not_and_where():
    condition = np.array([[True], [False]])
    compare("Not", [condition], 13, {}, {})
    compare("Where", [condition, noise(2, 3), noise(3, seed=1)], 16, {}, {})
    compare("Where", [condition, ints(1), ints(2, 3)], 16, {}, {})
    # Only the side that is taken counts.
    compare("Where", [condition, floats(1), floats(np.nan)], 16, {}, {})


NORMALIZATIONS = [
    ("LRN", [(2, 7, 3, 2)], 13, {"size": 5}),
    ("LRN", [(1, 6, 3, 1)], 13, {"size": 3, "alpha": 0.7, "beta": 0.6, "bias": 1.5}),
    ("LRN", [(1, 3, 2, 2)], 7, {"size": 9, "alpha": 2.0}),
    ("LRN", [(1, 3, 2, 2)], 7, {"size": 1, "alpha": 2.0}),
    ("InstanceNormalization", [(2, 3, 4, 5), (3,), (3,)], 7, {}),
    ("InstanceNormalization", [(2, 3, 5), (3,), (3,)], 7, {"epsilon": 0.1}),
    ("LayerNormalization", [(2, 3, 5), (5,), (5,)], 17, {}),
    ("LayerNormalization", [(2, 3, 5), (3, 5)], 17, {"axis": 1, "epsilon": 0.1, "stash_type": 1}),
    ("LayerNormalization", [(2, 3), (2, 3), (3,)], 17, {"axis": 0}),
    ("GroupNormalization", [(2, 6, 3, 2), (6,), (6,)], 21, {"num_groups": 3}),
    ("GroupNormalization", [(2, 6, 3), (6,), (6,)], 21, {"num_groups": 1, "epsilon": 0.1}),
    ("GroupNormalization", [(2, 6, 3), (6,), (6,)], 21, {"num_groups": 6}),
]


@pytest.mark.parametrize(("op", "shapes", "opset", "attributes"), NORMALIZATIONS)
def test_normalizations(op, shapes, opset, attributes):
    compare(op, [noise(*s, seed=k) for k, s in enumerate(shapes)], opset, {}, attributes)


def test_an_even_size_reaches_one_channel_further_up():
    x = noise(1, 6, 2)
    graph = import_model(single("LRN", [x], 13, size=4, alpha=0.8, beta=0.6, bias=1.5))
    squares = np.stack([(x[:, max(c - 1, 0) : c + 3] ** 2).sum(1) for c in range(6)], 1)
    result = interpret_graph(graph, {"i0": x})["o0"]
    np.testing.assert_allclose(result, x / (1.5 + 0.2 * squares) ** 0.6, rtol=1e-5)


def test_the_variance_is_of_differences_from_the_mean():
    x = (1e4 + noise(2, 64)).astype(F32)
    graph = import_model(single("LayerNormalization", [x, np.ones(64, F32)], 17))
    result = interpret_graph(graph, {"i0": x, "i1": np.ones(64, F32)})["o0"]
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(result, expected, atol=5e-3)


def test_second_outputs_of_layer_normalization_are_computed_beside_it():
    arrays = [noise(2, 3), noise(3, seed=1)]
    model = single("LayerNormalization", arrays, 17, outputs=3)
    for name in ("o1", "o2"):
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 1))
        model.graph.output.append(info)
    assert_same_as_peer(model, dict(zip(("i0", "i1"), arrays, strict=True)))


def test_running_statistics_of_batch_normalization_are_refused():
    arrays = [noise(2, 3), *(np.abs(noise(3, seed=k)) for k in range(4))]
    model = single("BatchNormalization", arrays, 9, outputs=5)
    model.graph.output.append(helper.make_tensor_value_info("o1", TensorProto.FLOAT, (3,)))
    with pytest.raises(UnsupportedOp, match="its output o1 is used"):
        import_model(model)


REDUCTIONS = ["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"]


@pytest.mark.parametrize("op", REDUCTIONS)
def test_reductions(op):
    x = np.abs(noise(2, 3, 4)) + F32(0.1)
    compare(op, [x], 13, {}, {"axes": [0, -1]})
    compare(op, [x], 13, {}, {"keepdims": 0})
    compare(op, [x], 18, {1: ints(1)}, {"keepdims": 0})
    compare(op, [x], 18, {1: ints(-1)}, {})
    with pytest.raises(UnsupportedOp, match="noop_with_empty_axes"):
        import_model(single(op, [x], 18, noop_with_empty_axes=1))


def test_log_sum_exp_of_large_and_of_infinite_numbers():
    x = floats(1000, 1000, -np.inf, -np.inf, np.inf, 0).reshape(3, 2)
    graph = import_model(single("ReduceLogSumExp", [x], 13, axes=[1], keepdims=0))
    result = interpret_graph(graph, {"i0": x})["o0"]
    np.testing.assert_allclose(result, [1000 + np.log(2), -np.inf, np.inf])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_log_softmax(axis):
    compare("LogSoftmax", [5 * noise(2, 3, 4)], 13, {}, {"axis": axis})
    compare("LogSoftmax", [5 * noise(2, 3, 4)], 11, {}, {"axis": axis})
    compare("LogSoftmax", [floats(1e38, 0, 1e38)], 13, {}, {})


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_arg_max_and_min(op, last):
    x = np.random.default_rng(0).integers(0, 3, (3, 4, 5)).astype(F32)
    for attributes in ({}, {"axis": 1}, {"axis": -1, "keepdims": 0}):
        compare(op, [x], 13, {}, {**attributes, "select_last_index": last})
    compare(op, [x.astype(np.int32)], 13, {}, {"axis": 1, "select_last_index": last})


def test_arg_max_finds_nan_and_infinity():
    x = floats(1, np.nan, 2, np.nan, -np.inf, -np.inf).reshape(3, 2)
    graph = import_model(single("ArgMax", [x], 13, axis=1, keepdims=0))
    assert interpret_graph(graph, {"i0": x})["o0"].tolist() == np.argmax(x, 1).tolist()


LAST = np.iinfo(I64).max
FIRST = np.iinfo(I64).min

MOVEMENTS = [
    ("Slice", [(4, 5)], 9, {}, {"starts": [1, -3], "ends": [3, 100]}),
    ("Slice", [(4, 5)], 9, {}, {"starts": [1], "ends": [-1], "axes": [-1]}),
    ("Slice", [(4, 5)], 10, {1: ints(1, 0), 2: ints(4, LAST)}, {}),
    ("Slice", [(4, 5)], 13, {1: ints(-1), 2: ints(FIRST), 3: ints(1), 4: ints(-1)}, {}),
    ("Slice", [(4, 5)], 13, {1: ints(3), 2: ints(0), 3: ints(-2), 4: ints(-2)}, {}),
    ("Slice", [(4, 5)], 13, {1: ints(-9), 2: ints(FIRST), 3: ints(0), 4: ints(-2)}, {}),
    ("Slice", [(4, 7)], 13, {1: ints(1), 2: ints(6), 3: ints(1), 4: ints(3)}, {}),
    ("Slice", [(4, 5)], 13, {1: ints(3), 2: ints(2), 3: ints(0)}, {}),
    ("Slice", [(4, 5)], 13, {1: ints(-100), 2: ints(100), 3: ints(0), 4: ints(2)}, {}),
    ("Slice", [(4, 5)], 13, {1: ints(2), 2: ints(LAST), 3: ints(0), 4: ints(1 << 62)}, {}),
    ("Slice", [(4, 5)], 13, {1: ints(2), 2: ints(FIRST), 3: ints(0), 4: ints(-LAST)}, {}),
    (
        "Slice",
        [(4, 5, 0, 2, 3)],
        13,
        {1: ints(1, 1, LAST), 2: ints(-9, 0, 9), 3: ints(1, 2, 4), 4: ints(3, -1, 2)},
        {},
    ),
    ("Pad", [(2, 3)], 10, {}, {"pads": [1, 0, 0, 2]}),
    ("Pad", [(2, 3)], 10, {}, {"pads": [1, 2, 0, 1], "value": 1.5, "mode": "constant"}),
    ("Pad", [(3, 4)], 10, {}, {"pads": [2, 3, 1, 0], "mode": "reflect"}),
    ("Pad", [(2, 3)], 10, {}, {"pads": [3, 0, 1, 4], "mode": "edge"}),
    ("Pad", [(2, 3)], 13, {1: ints(0, 1, 2, 1), 2: F32(-2)}, {}),
    ("Pad", [(2, 3)], 13, {1: ints(0, 1, 2, 1)}, {}),
    ("Pad", [(4, 5)], 13, {1: ints(-1, 1, 2, -2), 2: F32(7)}, {}),
    ("Pad", [(4, 5)], 13, {1: ints(-1, 0, 0, -2)}, {}),
    ("Pad", [(4, 5)], 13, {1: ints(-1, 1, 2, -2)}, {"mode": "edge"}),
    ("Pad", [(2, 4)], 18, {1: ints(2, 1), 2: F32(3), 3: ints(-1)}, {}),
    ("Pad", [(2, 600)], 13, {1: ints(0, 70, 0, 3)}, {"mode": "reflect"}),
    ("Pad", [(2, 600)], 18, {1: ints(70, 0), 2: None, 3: ints(-1)}, {"mode": "wrap"}),
    ("Pad", [(3, 4)], 18, {1: ints(2, 1), 2: None, 3: ints(0)}, {"mode": "reflect"}),
    ("Pad", [(2, 3)], 19, {1: ints(1, 2, 1, 3)}, {"mode": "wrap"}),
    ("Expand", [(3, 1)], 13, {1: ints(2, 1, 4)}, {}),
    ("Expand", [(2, 3)], 8, {1: ints(1, 1)}, {}),
    ("Expand", [()], 13, {1: ints(2, 2)}, {}),
    ("Tile", [(2, 3)], 13, {1: ints(2, 3)}, {}),
    ("Tile", [(2, 1)], 13, {1: ints(1, 1)}, {}),
    ("Gather", [(4, 3)], 13, {1: ints(2)}, {}),
    ("Gather", [(4, 3)], 13, {1: I64(-1)}, {}),
    ("Gather", [(4, 3)], 13, {1: I64(1)}, {"axis": 1}),
    ("Gather", [(4,)], 13, {1: I64(1)}, {}),
    ("Gather", [(5, 3)], 13, {1: ints(0, 2, 4, 4, 4, 3, 2, -5)}, {}),
    ("Gather", [(2, 5, 3)], 13, {1: np.array([[0, 1], [4, -1], [2, 2]], np.int32)}, {"axis": -2}),
    ("DepthToSpace", [(1, 12, 2, 3)], 13, {}, {"blocksize": 2}),
    ("DepthToSpace", [(2, 18, 1, 2)], 13, {}, {"blocksize": 3, "mode": "CRD"}),
    ("DepthToSpace", [(1, 8, 2, 3)], 7, {}, {"blocksize": 2}),
    ("SpaceToDepth", [(2, 3, 4, 6)], 13, {}, {"blocksize": 2}),
]


@pytest.mark.parametrize("case", MOVEMENTS, ids=lambda c: f"{c[0]}-{c[2]}")
def test_movements(case):
    op, shapes, opset, constants, attributes = case
    arrays = [noise(*shape, seed=k) for k, shape in enumerate(shapes)]
    compare(op, arrays, opset, constants, attributes)


@pytest.mark.parametrize(
    ("opset", "constants", "attributes", "outputs"),
    [
        (7, {}, {"axis": 1}, 3),
        (11, {}, {"axis": -1, "split": [1, 4]}, 2),
        (13, {1: ints(2, 0, 4)}, {"axis": 1}, 3),
        (13, {}, {}, 2),
        (18, {}, {"axis": 0, "num_outputs": 3}, 3),
        (18, {1: ints(4, 2)}, {"axis": 1}, 2),
    ],
)
def test_split(opset, constants, attributes, outputs):
    last = attributes.get("axis") == -1
    x = noise(4, 3, 5) if last else noise(5 if "num_outputs" in attributes else 4, 6)
    model = single("Split", [x], opset, constants, outputs, **attributes)
    graph = import_model(model)
    # One kernel for each part, so that a part nobody wants costs nothing.
    assert [len(node.outputs) for node in graph.nodes] == [1] * outputs
    sizes = [graph.values[f"o{k}"].shape for k in range(outputs)]
    for k, shape in enumerate(sizes[1:], 1):
        info = helper.make_tensor_value_info(f"o{k}", TensorProto.FLOAT, shape)
        model.graph.output.append(info)
    assert_same_as_peer(model, {"i0": x})


RESIZED = (1, 2, 5, 4)
MODES = [
    "half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners", "half_pixel_symmetric",
]  # fmt: skip
SCALES = [(1, 1, 2, 2), (1, 1, 1.7, 0.6), (1, 1, 0.5, 3), (1, 1, 0.2, 1)]


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("coordinates", MODES)
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_by_scales(mode, coordinates, scales):
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    constants = {1: None, 2: floats(*scales)}
    compare("Resize", [noise(*RESIZED)], 19, constants, attributes)


@pytest.mark.parametrize("sizes", [(1, 2, 10, 8), (1, 2, 7, 3), (1, 2, 1, 9), (1, 2, 3, 4)])
@pytest.mark.parametrize("coordinates", MODES)
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_to_sizes(mode, coordinates, sizes):
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    constants = {1: None, 2: None, 3: ints(*sizes)}
    compare("Resize", [noise(*RESIZED)], 19, constants, attributes)


@pytest.mark.parametrize("scale", [2, 3, 0.5, 1.5, 0.4])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest_modes(rounding, coordinates, scale):
    attributes = {"nearest_mode": rounding, "coordinate_transformation_mode": coordinates}
    constants = {1: None, 2: floats(1, 1, scale, 1)}
    compare("Resize", [noise(1, 1, 7, 2)], 13, constants, attributes)


def test_resize_of_chosen_axes_and_kept_ratios():
    x = noise(*RESIZED)
    constants = {1: None, 2: floats(3, 0.5)}
    compare("Resize", [x], 18, constants, {"axes": [3, 2]})
    for policy in ("not_larger", "not_smaller"):
        constants = {1: None, 2: None, 3: ints(7, 9)}
        attributes = {"axes": [2, 3], "keep_aspect_ratio_policy": policy, "mode": "linear"}
        compare("Resize", [x], 18, constants, attributes)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(
    "region", [(0, 0, 0.2, 0.1, 1, 1, 0.8, 0.7), (0, 0, -0.5, 0, 1, 1, 1.5, 1)]
)
def test_resize_of_a_part(mode, region):
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "extrapolation_value": 9.0,
    }
    constants = {1: floats(*region), 2: None, 3: ints(1, 2, 3, 6)}
    compare("Resize", [noise(*RESIZED)], 13, constants, attributes)


def test_resize_before_there_were_coordinates():
    x = noise(*RESIZED)
    compare("Resize", [x], 10, {1: floats(1, 1, 2, 3)}, {})
    compare("Resize", [x], 10, {1: floats(1, 1, 0.4, 0.5)}, {"mode": "nearest"})
    compare("Resize", [x], 10, {1: floats(1, 1, 1.6, 0.5)}, {"mode": "linear"})
    attributes = {"coordinate_transformation_mode": "tf_half_pixel_for_nn"}
    compare("Resize", [x], 11, {1: floats(), 2: floats(1, 1, 2, 0.5)}, attributes)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample(mode):
    x = noise(*RESIZED)
    scales = (1, 1, 2, 3)
    compare("Upsample", [x], 7, {}, {"mode": mode, "scales": [float(s) for s in scales]})
    compare("Upsample", [x], 9, {1: floats(*scales)}, {"mode": mode})


TRANSPOSED = [
    ((1, 3, 4, 5), (3, 2, 3, 3), {}),
    ((2, 3, 4, 3), (3, 2, 3, 2), {"strides": [2, 3]}),
    ((1, 2, 4, 5), (2, 2, 3, 3), {"strides": [2, 1], "pads": [1, 0, 0, 1]}),
    ((1, 2, 4, 5), (2, 2, 3, 3), {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 0]}),
    ((1, 2, 4, 3), (2, 2, 2, 3), {"dilations": [3, 2], "strides": [2, 1]}),
    ((1, 4, 3, 3), (4, 1, 3, 3), {"group": 2}),
    ((1, 6, 3, 2), (6, 2, 2, 2), {"group": 3, "strides": [2, 2], "kernel_shape": [2, 2]}),
    ((1, 3, 3, 3), (3, 1, 2, 2), {"group": 3, "strides": [2, 2]}),
    ((1, 2, 3, 4), (2, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 3, 4), (2, 2, 2, 3), {"strides": [3, 2], "auto_pad": "SAME_LOWER"}),
    ((1, 2, 3, 4), (2, 2, 3, 3), {"strides": [2, 2], "auto_pad": "VALID"}),
    ((1, 2, 3, 4), (2, 2, 3, 3), {"strides": [2, 2], "output_shape": [6, 8]}),
    ((1, 2, 5), (2, 3, 3), {"strides": [2], "pads": [2, 1]}),
    ((1, 1, 2, 3, 2), (1, 2, 2, 2, 2), {"strides": [1, 2, 2]}),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), TRANSPOSED)
def test_transposed_convolution(x_shape, w_shape, attributes, bias):
    arrays = [noise(*x_shape), noise(*w_shape, seed=1)]
    if bias:
        arrays.append(noise(w_shape[1] * attributes.get("group", 1), seed=2))
    compare("ConvTranspose", arrays, 11, {}, attributes)


REFUSED = [
    ("Expand", [(4, 3), (2,)], {}, {}, UnsupportedOp, r"input i1 \(shape\)"),
    ("Gather", [(4, 3)], {1: ints(4)}, {}, InvalidModel, r"index 4 of tensor i1 is outside of its"),
    ("Pad", [(4,)], {1: ints(1, 1)}, {"mode": "other"}, UnsupportedOp, "mode other"),
    ("Slice", [(4,)], {1: ints(0), 2: ints(2), 3: ints(0), 4: ints(0)}, {}, InvalidModel, "step"),
    ("ArgMax", [(0, 3)], {}, {}, InvalidModel, "empty"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda c: c[0])
def test_refusals(case):
    op, shapes, constants, attributes, error, reason = case
    arrays = [noise(*shape) for shape in shapes]
    if len(arrays) > 1:
        arrays[1] = arrays[1].astype(I64)
    with pytest.raises(error, match=reason):
        import_model(single(op, arrays, 13, constants, **attributes))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, I64])
def test_products_of_integers_have_whole_factors(dtype):
    """A factor of a half is not rounded to none, nor -1 to a number without a sign."""
    a, b, c = (np.arange(1, 5, dtype=dtype).reshape(2, 2) + k for k in range(3))
    model = single("Gemm", [a, b, c], 13, alpha=2.0, beta=3.0)
    (found,) = interpret_graph(import_model(model), {"i0": a, "i1": b, "i2": c}).values()
    np.testing.assert_array_equal(found, 2 * (a @ b) + 3 * c)
    for factors in ({"alpha": 0.5}, {"beta": 1.5}, {"alpha": 1e30}, {"alpha": -1.0}):
        model = single("Gemm", [a, b, c], 13, **factors)
        if factors == {"alpha": -1.0} and dtype is not np.uint32:
            import_model(model)
            continue
        with pytest.raises(UnsupportedOp, match="alpha"):
            import_model(model)


def test_gathers_of_many_runs_look_their_indices_up():
    order = np.random.default_rng(0).permutation(400)
    compare("Gather", [noise(400, 2)], 13, {1: order.astype(I64)}, {})
    compare("Gather", [noise(400, 2)], 13, {1: order.astype(I64) - 200}, {})


def test_size_and_range_are_constants():
    graph = import_model(single("Size", [noise(2, 3)], 13))
    assert graph.initializers["o0"] == 6
    for start, limit, delta in ((1, 8, 3), (5, 0, -2), (0.0, 1.0, 0.25), (3, 3, 1)):
        kind = F32 if isinstance(start, float) else I64
        constants = {k: kind(n) for k, n in enumerate((start, limit, delta))}
        graph = import_model(single("Range", [], 13, constants))
        np.testing.assert_array_equal(
            graph.initializers["o0"], np.arange(start, limit, delta, kind)
        )


def test_exported_shape_arithmetic_folds():
    """What exporters write for x.view(x.size(0), -1, x.size(2) * 2) and for an interpolation."""
    b = ModelBuilder(opset=13)
    x = b.input("x", (5, 4, 6))
    shape = b.node("Shape", [x])
    first = b.node("Gather", [shape, b.constant(np.array(0, I64))], axis=0)
    third = b.node("Gather", [shape, b.constant(np.array(2, I64))], axis=0)
    doubled = b.node("Mul", [third, b.constant(np.array(2, I64))])
    zero = b.constant(ints(0))
    parts = [b.node("Unsqueeze", [n, zero]) for n in (first, doubled)]
    target = b.node("Concat", [parts[0], b.constant(ints(-1)), parts[1]], axis=0)
    y = b.node("Reshape", [x, target])
    tail = b.node("Slice", [shape, b.constant(ints(1)), b.constant(ints(3)), zero])
    twice = b.node("Mul", [tail, b.constant(np.array(2, I64))])
    sizes = b.node("Concat", [b.node("Unsqueeze", [first, zero]), twice], axis=0)
    z = b.node("Resize", [x, "", "", sizes], mode="nearest")
    scaled = b.node("Mul", [b.node("Cast", [tail], to=TensorProto.FLOAT), b.constant(F32(1.4))])
    rounded = b.node("Cast", [b.node("Floor", [scaled])], to=TensorProto.INT64)
    both = b.node("Where", [b.node("Equal", [rounded, b.constant(ints(8))]), twice, rounded])
    # ONNX itself cannot tell the shapes of y and z, which it wants of outputs.
    b.output(*(b.node("Reshape", [t, b.constant(ints(-1))]) for t in (y, z)), both)
    graph = import_model(b.model())
    assert graph.values[y].shape == (5, 2, 12)
    assert graph.values[z].shape == (5, 8, 12)
    canonical = canonicalize(graph)
    assert sorted(n.op for n in canonical.nodes) == [*(["Reshape"] * 3), "Resize"]
    np.testing.assert_array_equal(canonical.initializers[both], [5, 12])
