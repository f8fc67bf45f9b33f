"""Tests of the builders of test models, and of models that are found by name."""

import numpy as np
import pytest

from graphflow.base.errors import InvalidModel
from graphflow.models import ModelBuilder, expose, light, light_names, named, reseed
from support.models.peer_sessions import peer_session


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, 3, 224, 224)).astype(np.float32)


@pytest.fixture(scope="module")
def squeezenet():
    return reseed(light("squeezenet"), seed=0)


def test_reseeded_squeezenet_tells_inputs_and_classes_apart(squeezenet):
    before = squeezenet.graph.node[-1].input[0]
    runner = peer_session(expose(squeezenet, [before]))
    first, second = (runner.run(["softmaxout_1", before], {"data_0": noise(s)}) for s in (1, 2))
    for a, b in zip(first, second, strict=True):
        assert a.std() / abs(a.mean()) >= 1e-2
        assert np.linalg.norm(a - b) / np.linalg.norm(a) >= 1e-3


def test_reseed_depends_on_the_seed_and_the_name_alone(squeezenet):
    model = light("squeezenet")
    untouched = model.SerializeToString(deterministic=True)
    again = reseed(model, seed=0)
    assert model.SerializeToString(deterministic=True) == untouched
    assert again.SerializeToString(deterministic=True) == squeezenet.SerializeToString(
        deterministic=True
    )
    other = reseed(model, seed=1)
    assert other.SerializeToString() != again.SerializeToString()


def test_reseed_replaces_all_weights_and_the_shapes_they_had(squeezenet):
    assert not [n for n in squeezenet.graph.node if n.op_type == "ConstantOfShape"]
    names = [t.name for t in squeezenet.graph.initializer]
    assert not [name for name in names if name.endswith("__SHAPE")]
    assert len(names) == 52
    weight = next(t for t in squeezenet.graph.initializer if t.name == "conv10_w_0")
    values = np.frombuffer(weight.raw_data, np.float32)
    assert values.std() == pytest.approx((2 / 512) ** 0.5, rel=0.02)


def test_reseed_leaves_other_constants_and_keeps_variances_positive():
    b = ModelBuilder()
    x = b.input("x", (1, 3, 2, 2))
    three = b.constant(np.array([3], np.int64))
    fills = [b.node("ConstantOfShape", [three]) for _ in range(4)]
    y = b.node("BatchNormalization", [x, *fills])
    full = b.constant(np.array([1, 3, 2, 2], np.int64))
    b.output(b.add(y, b.node("ConstantOfShape", [full])))
    model = reseed(b.model(), 0)
    assert [n.op_type for n in model.graph.node if n.op_type == "ConstantOfShape"] == [
        "ConstantOfShape"
    ]
    found = {t.name: np.frombuffer(t.raw_data, np.float32) for t in model.graph.initializer}
    assert (found[fills[3]] > 0).all()
    assert abs(found[fills[0]] - 1).max() < 0.6


def test_expose_adds_typed_outputs_once(squeezenet):
    name = squeezenet.graph.node[0].output[0]
    model = expose(squeezenet, [name, "softmaxout_1", name])
    assert [o.name for o in model.graph.output] == ["softmaxout_1", name]
    dims = [d.dim_value for d in model.graph.output[1].type.tensor_type.shape.dim]
    assert dims == [1, 64, 111, 111]
    with pytest.raises(InvalidModel, match="no tensor nowhere"):
        expose(squeezenet, ["nowhere"])


def test_unknown_light_model_names_those_there_are():
    with pytest.raises(InvalidModel, match="squeezenet"):
        light("lenet")
    assert "squeezenet" in light_names()


def build(seed: int):
    b = ModelBuilder(seed)
    x = b.input("x", (1, 3, 8, 8))
    y = b.relu(b.batch_norm(b.conv(x, 4, 3, pads=[1, 1, 1, 1])))
    b.output(b.add(y, b.conv(y, 4, 1, group=2, bias=False)))
    return b.model()


def test_builder_is_deterministic_and_runs():
    assert build(3).SerializeToString() == build(3).SerializeToString()
    assert build(3).SerializeToString() != build(4).SerializeToString()
    (result,) = peer_session(build(3)).run(None, {"x": np.ones((1, 3, 8, 8), np.float32)})
    assert result.shape == (1, 4, 8, 8)
    assert result.std() > 0


def test_names_stand_for_models_with_random_weights():
    by_default, of_zero, of_one = (named("light:squeezenet", seed) for seed in (None, 0, 1))
    assert by_default == of_zero == reseed(light("squeezenet"), 0)
    assert of_one == reseed(light("squeezenet"), 1)
    assert named("zoo:resnet18") == named("zoo:resnet18", 0)
    assert named("a.onnx") is None
