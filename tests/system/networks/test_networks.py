"""Tests of whole networks, compiled and run natively, against onnxruntime."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest

import graphflow
from graphflow.base.options import assumed_host
from graphflow.baselines import plan_groups
from graphflow.codegen import avx2_target, host_target
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, fuse_groups
from graphflow.models import ModelBuilder, expose, light, reseed
from graphflow.plan import LayoutPlan
from support.kernels.planned_only import code_left_out
from support.models.peer_sessions import peer_session
from support.targets import USUAL

Array = np.ndarray[Any, Any]
LANES = host_target().lanes("float32")
BLOCKED = f"blocked({LANES})"
TOLERANCE = 1e-5
"""Of the norm of the difference, relative to the norm of the reference."""


def random_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    given = {t.name for t in model.graph.initializer}
    found = {}
    for info in model.graph.input:
        if info.name not in given:
            shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
            found[info.name] = rng.standard_normal(shape).astype(np.float32)
    return found


def reference(model: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array]:
    session = peer_session(model)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def error(got: Array, want: Array) -> float:
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    if want.dtype.kind != "f":
        return 0.0 if np.array_equal(got, want) else np.inf
    assert np.array_equal(np.isfinite(got), np.isfinite(want))
    exact, found = want.astype(np.float64), got.astype(np.float64)
    return float(np.linalg.norm(found - exact) / max(float(np.linalg.norm(exact)), 1e-30))


def check(model: onnx.ModelProto, **options: Any) -> graphflow.Executable:
    """Compiles, runs twice with different inputs, and compares every output."""
    executable = graphflow.compile(model, **options)
    for seed in (0, 1):
        inputs = random_inputs(model, seed)
        got, want = executable.run(inputs), reference(model, inputs)
        assert list(got) == list(want)
        errors = {name: error(got[name], want[name]) for name in want}
        assert all(e <= TOLERANCE for e in errors.values()), errors
    return executable


# Small networks -----------------------------------------------------------------------------------


def branches() -> onnx.ModelProto:
    """conv, relu, pool, concat and softmax with channels that fill no vector."""
    b = ModelBuilder(1)
    x = b.relu(b.conv(b.input("x", (1, 3, 21, 19)), 17, 3, strides=[2, 2]))
    x = b.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    left = b.relu(b.conv(x, 18, 1, in_channels=17))
    right = b.relu(b.conv(x, 5, 3, in_channels=17, pads=[1, 1, 1, 1]))
    x = b.conv(b.node("Concat", [left, right], axis=1), 11, 1, in_channels=23)
    x = b.node("GlobalAveragePool", [b.relu(x)])
    b.output(b.node("Softmax", [b.node("Flatten", [x])], axis=1))
    return b.model()


def residuals() -> onnx.ModelProto:
    b = ModelBuilder(2)
    x = b.relu(b.batch_norm(b.conv(b.input("x", (1, 5, 12, 13)), 18, 3, pads=[1, 1, 1, 1])))
    for _ in range(2):
        y = b.relu(b.batch_norm(b.conv(x, 18, 3, pads=[1, 1, 1, 1], in_channels=18, bias=False)))
        y = b.batch_norm(b.conv(y, 18, 3, pads=[1, 1, 1, 1], in_channels=18))
        x = b.relu(b.add(y, x))
    down = b.conv(x, 33, 1, strides=[2, 2], in_channels=18)
    b.output(
        b.relu(b.add(down, b.conv(x, 33, 3, strides=[2, 2], pads=[1, 1, 1, 1], in_channels=18)))
    )
    return b.model()


def several_outputs() -> onnx.ModelProto:
    """Outputs that are also read inside, moved, windows of another, or the input itself."""
    b = ModelBuilder(3)
    x = b.input("x", (1, 6, 9, 10))
    a = b.relu(b.conv(x, 17, 3))
    c = b.conv(a, 4, 1, in_channels=17)
    joined = b.node("Concat", [c, b.conv(a, 3, 1, in_channels=17)], axis=1)
    moved = b.node("Transpose", [a], perm=[0, 2, 3, 1])
    copied = b.node("Identity", [c])
    b.output(a, c, joined, moved, copied, b.node("ReduceMean", [joined], axes=[1], keepdims=1))
    return b.model()


def linear_tail() -> onnx.ModelProto:
    b = ModelBuilder(4)
    x = b.relu(b.conv(b.input("x", (2, 3, 11, 11)), 7, 3, pads=[1, 1, 1, 1], strides=[2, 2]))
    x = b.node("AveragePool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = b.node("Flatten", [x])
    x = b.relu(b.node("Gemm", [x, b.weight(63, 37, scale=0.1), b.weight(37)]))
    x = b.node("Gemm", [x, b.weight(10, 37, scale=0.1), b.weight(10)], transB=1)
    b.output(b.node("Softmax", [x], axis=-1))
    return b.model()


def depthwise() -> onnx.ModelProto:
    b = ModelBuilder(5)
    x = b.node("Clip", [b.conv(b.input("x", (1, 3, 16, 16)), 19, 3, strides=[2, 2]),
                        b.constant(np.float32(0)), b.constant(np.float32(6))])  # fmt: skip
    x = b.relu(b.conv(x, 19, 3, in_channels=19, group=19, pads=[1, 1, 1, 1]))
    x = b.conv(x, 40, 1, in_channels=19)
    scale = b.node("Sigmoid", [b.conv(b.node("GlobalAveragePool", [x]), 40, 1, in_channels=40)])
    b.output(b.node("Mul", [x, scale]))
    return b.model()


def dense() -> onnx.ModelProto:
    """Each layer reads the concatenation of all before it."""
    b = ModelBuilder(6)
    parts, channels = [b.conv(b.input("x", (1, 4, 10, 10)), 9, 1)], 9
    for _ in range(3):
        x = b.node("Concat", parts, axis=1) if len(parts) > 1 else parts[0]
        parts.append(b.relu(b.conv(x, 7, 3, in_channels=channels, pads=[1, 1, 1, 1])))
        channels += 7
    b.output(b.node("Concat", parts, axis=1))
    return b.model()


def detection_tail() -> onnx.ModelProto:
    """Flattened maps of several sizes in one tensor: reshaped memory inside a larger one."""
    b = ModelBuilder(7)
    x = b.relu(b.conv(b.input("x", (1, 3, 12, 12)), 8, 3, pads=[1, 1, 1, 1]))
    y = b.relu(b.conv(x, 8, 3, strides=[2, 2], pads=[1, 1, 1, 1]))
    heads = []
    for part in (x, y):
        head = b.conv(part, 6, 1, in_channels=8)
        moved = b.node("Transpose", [head], perm=[0, 2, 3, 1])
        shape = b.constant(np.array([1, -1, 3], np.int64))
        heads.append(b.node("Reshape", [moved, shape]))
    b.output(b.node("Concat", heads, axis=1))
    return b.model()


def wide_values() -> onnx.ModelProto:
    """exp(0) = 1 and 1/x in padded lanes, then a convolution over them."""
    b = ModelBuilder(8)
    x = b.conv(b.input("x", (1, 3, 7, 8)), 17, 1)
    x = b.node("Exp", [b.node("Tanh", [x])])
    x = b.node("Div", [b.constant(np.float32(1)), x])
    b.output(b.conv(x, 21, 3, in_channels=17), b.node("ReduceSum", [x, b.constant([1])]))
    return b.model()


NETWORKS = [
    branches, residuals, several_outputs, linear_tail, depthwise, dense, detection_tail,
    wide_values,
]  # fmt: skip


@pytest.mark.parametrize("make", NETWORKS, ids=lambda f: f.__name__)
def test_network(make: Callable[[], onnx.ModelProto]) -> None:
    model = make()
    executable = check(model, threads=1)
    twice = graphflow.compile(model, threads=2)
    inputs = random_inputs(model, 2)
    first, second = twice.run(inputs), twice.run(inputs)
    for name, want in executable.run(inputs).items():
        assert np.array_equal(first[name], second[name]), "runs of one program differ"
        assert error(first[name], want) <= TOLERANCE


@pytest.mark.parametrize("make", [branches, residuals], ids=lambda f: f.__name__)
def test_network_with_short_vectors(make: Callable[[], onnx.ModelProto]) -> None:
    check(make(), threads=1, target=avx2_target())


@cache
def residuals_and_inner() -> tuple[onnx.ModelProto, list[str]]:
    """The network, and the names of its tensors between kernels."""
    model = residuals()
    with code_left_out():
        graph = graphflow.compile(model, threads=1).compiled.graph
    ends = {"x", *graph.outputs}
    return model, [n for n in graph.values if not graph.is_constant(n) and n not in ends]


def plan_with(model: onnx.ModelProto, pins: dict[str, str]) -> LayoutPlan:
    """The plan of a program whose results agree; where `.ci/run` asks for other processors, for
    which nothing runs programs, the plan alone."""
    if assumed_host() == USUAL:
        return check(model, threads=1, layouts=pins).compiled.plan
    groups = fuse_groups(canonicalize(import_model(model)))
    return plan_groups(groups, host_target(), 1, pins).plan


@pytest.mark.decisions
@pytest.mark.parametrize("layout", ["row_major", "channels_last", BLOCKED])
def test_network_with_pinned_layouts(layout: str) -> None:
    model, inner = residuals_and_inner()
    plan = plan_with(model, dict.fromkeys(inner, layout))
    for name in inner:
        made = plan.edges[name].edge_type.layout.describe()
        assert made.startswith(
            {"row_major": "NCHW", "channels_last": "NHWC"}.get(layout, f"NCHW{LANES}c")
        )


def test_values_that_are_not_finite_come_out_where_they_should() -> None:
    b = ModelBuilder(9)
    x = b.node("Sigmoid", [b.conv(b.input("x", (1, 3, 9, 9)), 17, 3)])
    b.output(b.conv(x, 58, 1, in_channels=17))
    model = b.model()
    executable = graphflow.compile(model, threads=1)
    inputs = random_inputs(model)
    flat = inputs["x"].reshape(-1)
    flat[[3, 50, 100, 200]] = np.array([np.inf, -np.inf, np.nan, 1e38], np.float32)
    got, want = executable.run(inputs), reference(model, inputs)
    for name in want:
        assert np.array_equal(np.isnan(got[name]), np.isnan(want[name]))
        assert np.array_equal(np.isinf(got[name]), np.isinf(want[name]))


def test_large_constants_are_computed_once_and_natively() -> None:
    """Constant arithmetic too large for the interpreter, with intermediates of its own."""
    b = ModelBuilder(10)
    table = b.node("Softmax", [b.weight(80, 100)], axis=1)
    b.output(b.node("MatMul", [b.input("x", (3, 80)), table]))
    executable = check(b.model(), threads=2)
    assert executable.report()["summary"]["folded_constants"] >= 0


@pytest.mark.decisions
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("channels", [24, 17])
def test_a_flattened_image_is_multiplied_where_it_lies(batch: int, channels: int) -> None:
    """The weights' rows follow the order of the image, so nothing has to be reordered."""
    b = ModelBuilder(11)
    x = b.relu(b.conv(b.input("x", (batch, 5, 7, 7)), channels, 3))
    x = b.node("Flatten", [b.relu(b.conv(x, channels, 3, in_channels=channels))])
    b.output(b.node("Gemm", [x, b.weight(33, channels * 9), b.weight(33)], transB=1))
    model = b.model()
    check(model, threads=2)
    image = next(n.input[0] for n in model.graph.node if n.op_type == "Flatten")
    pinned = check(model, threads=1, layouts={image: "channels_last"})
    assert pinned.report()["summary"]["inner_conversions"] == 0


# SqueezeNet ---------------------------------------------------------------------------------------


def squeezenet(*inner: str) -> onnx.ModelProto:
    """The network with random weights; further outputs are what goes into its softmax, which might
    be saturated, and the results of the operators `inner`."""
    model = reseed(light("squeezenet"), 0)
    last = [node.input[0] for node in model.graph.node if node.op_type == "Softmax"]
    assert last
    return expose(model, [n.output[0] for n in model.graph.node if n.op_type in inner] + last)


def relative(got: dict[str, Array], want: dict[str, Array]) -> dict[str, float]:
    return {name: error(got[name], want[name]) for name in want}


def check_network(model: onnx.ModelProto) -> graphflow.Executable:
    """Compiles for two threads, and compares every output."""
    inputs = random_inputs(model)
    want = reference(model, inputs)
    logits = [*want.values()][-1]
    assert logits.std() / abs(logits.mean()) >= 1e-2, "the reference says nothing"
    options = graphflow.Options(threads=2, workers=0)  # a worker would import the compiler
    executable = graphflow.compile(model, options=options)
    errors = relative(executable.run(inputs), want)
    assert max(errors.values()) <= TOLERANCE, errors
    return executable


@pytest.mark.slow
def test_squeezenet() -> None:
    """The ordinary run has its plan for processors of each width (`test_agreement`), its operators
    in the small networks above, and zfnet512 from end to end."""
    summary = check_network(squeezenet()).report()["summary"]
    assert summary["inner_conversions"] == 0
    assert summary["vectorized_share"] >= 0.9


@pytest.mark.slow
def test_squeezenet_in_the_middle() -> None:
    """Every convolution's result."""
    assert len(check_network(squeezenet("Conv")).outputs) >= 27
