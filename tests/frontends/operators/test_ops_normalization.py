"""Tests of normalizations, determinants and other operators that become several kernels."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import graphflow as gf
from graphflow.base.errors import InvalidModel, UnsupportedOp
from graphflow.frontends import import_model
from graphflow.graph import interpret_graph
from graphflow.kernels.definitions.reductions import normalization
from graphflow.tir import interpret
from support.single import noise, peer, single


def run(model: Any, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return interpret_graph(import_model(model), feeds)


def with_outputs(model: Any, *infos: Any) -> Any:
    """The model with further outputs of its node, which are optional."""
    for info in infos:
        model.graph.node[0].output.append(info.name)
        model.graph.output.append(info)
    return model


@pytest.mark.parametrize("op", ["InstanceNormalization", "GroupNormalization"])
@pytest.mark.parametrize("shape", [(), (4, 1)])
def test_the_scale_of_a_normalization_is_a_vector(op: str, shape: tuple[int, ...]) -> None:
    groups = {"num_groups": 2} if op == "GroupNormalization" else {}
    model = single(op, [noise(2, 4, 3), noise(*shape), noise(4)], 21, **groups)
    with pytest.raises(InvalidModel, match=r"i1 is .*, no vector"):
        import_model(model)


@pytest.mark.parametrize("shape", [(), (4,)])
def test_an_instance_has_channels(shape: tuple[int, ...]) -> None:
    model = single("InstanceNormalization", [noise(*shape), noise(4), noise(4)], 22)
    with pytest.raises(InvalidModel, match="without an axis of channels"):
        import_model(model)


@settings(max_examples=20)
@given(st.sampled_from([(4,), (2, 3), (2, 3, 4)]), st.integers(1, 2), st.booleans())
def test_lp_normalization(shape: tuple[int, ...], p: int, zeros: bool) -> None:
    x = noise(*shape)
    if zeros:
        x[..., :1] = 0
        x[:1] = 0
    for axis in range(-len(shape), len(shape)):
        model = single("LpNormalization", [x], 22, p=p, axis=axis)
        norm = np.linalg.norm(x, p, axis, keepdims=True)
        expected = np.where(norm == 0, 0, x / np.where(norm == 0, 1, norm))
        np.testing.assert_allclose(run(model, {"i0": x})["o0"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("axis", [-3, -1, 0, 1, 2])
def test_hardmax(opset: int, axis: int) -> None:
    x = np.round(noise(2, 3, 4) * 2)  # with ties
    model = single("Hardmax", [x], opset, axis=axis)
    np.testing.assert_array_equal(run(model, {"i0": x})["o0"], peer(model, {"i0": x})["o0"])


@settings(max_examples=25)
@given(st.integers(1, 5), st.sampled_from([(), (3,), (2, 2)]), st.booleans(), st.integers(0, 99))
def test_det_is_numpys(n: int, batch: tuple[int, ...], singular: bool, seed: int) -> None:
    x = np.round(noise(*batch, n, n, seed=seed) * 2).astype(np.float64)  # with zero pivots
    if singular:
        x[..., -1, :] = x[..., 0, :]
    model = single("Det", [x], 11)
    expected = np.linalg.det(x)
    np.testing.assert_allclose(run(model, {"i0": x})["o0"], expected, rtol=1e-8, atol=1e-8)


def test_native_det() -> None:
    x = noise(3, 17, 17)
    exe = gf.compile(single("Det", [x], 11), options=gf.Options(threads=1, workers=0))
    expected = np.linalg.det(x.astype(np.float64))
    np.testing.assert_allclose(exe.run({"i0": x})["o0"], expected, rtol=1e-3)
    with pytest.raises(InvalidModel):
        import_model(single("Det", [noise(3, 4)], 11))


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("bias", [True, False])
def test_statistics_of_layer_normalization(axis: int, bias: bool) -> None:
    x = noise(2, 3, 4)
    parameters = [noise(*x.shape[axis:], seed=k) for k in (1, 2)][: 1 + bias]
    model = single("LayerNormalization", [x, *parameters], 17, axis=axis, epsilon=0.01)
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["a", "b", "c"])
        for name in ("mean", "inverse")
    ]
    model = with_outputs(model, *infos)
    feeds = {f"i{k}": array for k, array in enumerate([x, *parameters])}
    found = run(model, feeds)
    for name, array in peer(model, feeds).items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_root_mean_square_normalization_is_one_kernel(axis: int, dtype: str) -> None:
    x = noise(2, 3, 40).astype(dtype)
    for scale in (noise(40, seed=1).astype(dtype), noise(*x.shape[axis:], seed=2).astype(dtype)):
        model = single("RMSNormalization", [x, scale], 23, axis=axis, epsilon=0.01)
        found = run(model, {"i0": x, "i1": scale})["o0"]
        axes, wide = tuple(range(axis % 3, 3)), x.astype(np.float64)
        expected = wide / np.sqrt((wide**2).mean(axis=axes, keepdims=True) + 0.01) * scale
        tolerance = 2e-3 if dtype == "float16" else 1e-5
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
        names = {node.func.name for node in import_model(model).nodes} - {"cast"}
        assert names == {"root_mean_square_normalization"}


def test_a_root_mean_square_normalization_over_a_size() -> None:
    """Elements behind those of a run do not count."""
    x, scale = noise(2, 6), noise(1, seed=1)
    model = single("RMSNormalization", [x, scale], 23, axis=-1, epsilon=0.01)
    for dim, name in zip(model.graph.input[0].type.tensor_type.shape.dim, "mn", strict=True):
        dim.dim_param = name
    for dim, name in zip(model.graph.output[0].type.tensor_type.shape.dim, "mn", strict=True):
        dim.dim_param = name
    sizes = {"m": (1, 2), "n": (1, 6)}
    exe = gf.compile(model, sizes=sizes, options=gf.Options(threads=1, workers=0))
    for rows, columns in ((2, 6), (1, 5)):
        given = x[:rows, :columns]
        (found,) = exe.run({"i0": given, "i1": scale}).values()
        root = np.sqrt((given.astype(np.float64) ** 2).mean(axis=-1, keepdims=True) + 0.01)
        np.testing.assert_allclose(found, given / root * scale, rtol=1e-5, atol=1e-5)


def test_a_scale_that_does_not_broadcast_is_refused() -> None:
    with pytest.raises(InvalidModel, match="do not broadcast"):
        normalization.root_mean_square_normalization((2, 3), 1, (2, 3, 4))


@pytest.mark.parametrize("count", [3, 6])
def test_group_normalization_has_parameters_of_groups_or_of_channels(count: int) -> None:
    # ONNX had them of groups at opset 18, which its checker calls deprecated.
    x = noise(2, 6, 3, 2)
    parameters = [noise(count, seed=k) for k in (1, 2)]
    func = normalization.group_normalization(x.shape, 3, count)
    feeds = {"x": x, "scale": parameters[0], "shift": parameters[1]}
    grouped = x.reshape(2, 3, -1)
    centered = grouped - grouped.mean(axis=2, keepdims=True)
    scaled = centered / np.sqrt((centered**2).mean(axis=2, keepdims=True) + 1e-5)
    scale, shift = (np.repeat(p, 6 // count).reshape(6, 1, 1) for p in parameters)
    expected = scaled.reshape(x.shape) * scale + shift
    np.testing.assert_allclose(interpret(func, feeds)["y"], expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=30)
@given(
    st.lists(st.integers(-2, 3), min_size=4, max_size=4),
    st.sampled_from(["constant", "edge", "reflect", "wrap"]),
    st.sampled_from(["float32", "int32", "uint8", "bool"]),
)
def test_pads_with_a_value_of_the_run(pads: list[int], mode: str, dtype: str) -> None:
    if mode != "constant":
        pads = [abs(n) for n in pads]
    x = (3 * noise(4, 5)).astype(dtype)
    value = np.asarray(1, dtype)
    model = single("Pad", [x, value], 19, {1: np.array(pads, np.int64)}, mode=mode)
    names = [info.name for info in model.graph.input]
    feeds = dict(zip(names, [x, value], strict=True))
    (expected,) = ReferenceEvaluator(model).run(None, feeds) if min(pads) >= 0 else (None,)
    if expected is None:
        low, high = [max(n, 0) for n in pads[:2]], [max(n, 0) for n in pads[2:]]
        expected = np.pad(x, list(zip(low, high, strict=True)), constant_values=value)
        starts, ends = [max(-n, 0) for n in pads[:2]], [max(-n, 0) for n in pads[2:]]
        rows, columns = expected.shape
        expected = expected[starts[0] : rows - ends[0], starts[1] : columns - ends[1]]
    np.testing.assert_array_equal(run(model, feeds)["o0"], expected)


def test_dropout_masks() -> None:
    x = noise(3, 4)
    for opset, kind in ((7, TensorProto.FLOAT), (10, TensorProto.BOOL), (13, TensorProto.BOOL)):
        info = helper.make_tensor_value_info("mask", kind, x.shape)
        found = run(with_outputs(single("Dropout", [x], opset), info), {"i0": x})
        np.testing.assert_array_equal(found["o0"], x)
        assert found["mask"].all() and found["mask"].shape == x.shape
    ratio, training = np.float32(0), np.bool_(True)
    model = single("Dropout", [x], 13, {1: ratio, 2: training})
    np.testing.assert_array_equal(run(model, {"i0": x})["o0"], x)
    with pytest.raises(UnsupportedOp, match="training_mode"):
        import_model(single("Dropout", [x], 13, {1: np.float32(0.5), 2: training}))
