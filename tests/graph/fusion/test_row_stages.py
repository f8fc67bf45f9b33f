"""Tests of kernels that keep rows apart: which nodes become one group, and what it computes."""

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph, canonicalize, fuse_groups, interpret_graph
from graphflow.graph.fusion.row_stages import keeps_axes, recomputed
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.definitions.windows import pooling
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.recipes import SharedLoops
from graphflow.models import ModelBuilder
from graphflow.tir import Allocate, interpret, parse, walk
from support.targets import in_turn

ROWS = (2, 67, 58)


def made(b: ModelBuilder, op: str, *inputs: str, **attributes: object) -> str:
    """The first output of a new node."""
    return b.node(op, inputs, **attributes)


def layer_norm(b: ModelBuilder, x: str, axis: int = -1) -> str:
    """A layer normalization as exporters write it for opsets before 17."""
    mean = made(b, "ReduceMean", x, axes=[axis])
    less = made(b, "Sub", x, mean)
    square = made(b, "Pow", less, b.literal(np.float32(2)))
    variance = made(b, "ReduceMean", square, axes=[axis])
    deviation = made(b, "Sqrt", made(b, "Add", variance, b.literal(np.float32(1e-5))))
    return made(b, "Div", less, deviation)


def rms_norm(b: ModelBuilder, x: str, axis: int = -1) -> str:
    mean = made(b, "ReduceMean", made(b, "Mul", x, x), axes=[axis])
    deviation = made(b, "Sqrt", made(b, "Add", mean, b.literal(np.float32(1e-6))))
    return made(b, "Mul", x, made(b, "Reciprocal", deviation))


def softmax(b: ModelBuilder, x: str, axis: int = -1) -> str:
    power = made(b, "Exp", made(b, "Sub", x, made(b, "ReduceMax", x, axes=[axis])))
    return made(b, "Div", power, made(b, "ReduceSum", power, b.literal(np.array([axis]))))


NORMS = {"layer": layer_norm, "root mean square": rms_norm, "softmax": softmax}


def norm(name: str, shape: tuple[int, ...], axis: int = -1) -> onnx.ModelProto:
    b = ModelBuilder(1)
    y = NORMS[name](b, b.input("x", shape), axis)
    b.output(made(b, "Add", y, b.weight(shape[-1])))
    return b.model()


def groups(model: onnx.ModelProto) -> OperatorGraph:
    return fuse_groups(canonicalize(import_model(model, {})))


def values(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", [*NORMS])
@pytest.mark.parametrize(
    ("shape", "axis"), [(ROWS, -1), ((1, 1, 300), -1), ((1, 20, 40, 32), 1), ((1, 130, 200), -1)]
)
def test_a_norm_of_several_nodes_is_one_kernel(
    name: str, shape: tuple[int, ...], axis: int
) -> None:
    model = norm(name, shape, axis)
    graph = groups(model)
    (node,) = graph.nodes
    ours = [n.name for n in model.graph.node if n.op_type != "Constant"]
    assert node.origins == tuple(ours)
    gone = {*canonicalize(import_model(model, {})).values} - {*graph.values}
    assert gone == {value for value, _ in node.inner} | (gone & {*graph.removed})


def test_the_kernel_of_a_layer_norm_stores_no_row() -> None:
    """What costs one subtraction is computed again, where the stage of the rows reads it."""
    (node,) = groups(norm("layer", ROWS)).nodes
    stored = [stmt.buffer for stmt in walk(node.func.body) if isinstance(stmt, Allocate)]
    assert stored
    assert all(buffer.shape == (2, 67, 1) for buffer in stored)


def test_powers_that_are_read_twice_are_computed_once() -> None:
    (node,) = groups(norm("softmax", ROWS)).nodes
    stored = [stmt.buffer.shape for stmt in walk(node.func.body) if isinstance(stmt, Allocate)]
    assert stored.count(ROWS) == 1


@pytest.mark.parametrize("name", [*NORMS])
def test_a_group_computes_what_its_nodes_do(name: str) -> None:
    model = norm(name, (3, 5, 7))
    before = canonicalize(import_model(model, {}))
    feeds = {"x": values((3, 5, 7))}
    (want,) = interpret_graph(before, feeds).values()
    (got,) = interpret_graph(groups(model), feeds).values()
    np.testing.assert_array_equal(got, want)


@in_turn("name axis", NORMS, (1, 2))
def test_programs_of_both_widths(name: str, axis: int, target: Target) -> None:
    model, x = norm(name, ROWS, axis), values(ROWS)
    x[0, 3], x[1, 4, 5], x[1, 7, 8] = np.float32(1e4), np.inf, np.nan
    exe = gf.compile(model, target=target, options=Options(threads=2, validate=True))
    (choice,) = exe.compiled.plan.choices.values()
    assert isinstance(choice.variant.recipe, SharedLoops)
    (want,) = interpret_graph(canonicalize(import_model(model, {})), {"x": x}).values()
    (got,) = exe.run({"x": x}).values()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_the_explanation_says_what_became_of_the_tensors_inside() -> None:
    exe = gf.compile(norm("layer", ROWS), threads=1)
    (sub,) = (n for n in norm("layer", ROWS).graph.node if n.op_type == "Sub")
    assert "computed anew where" in exe.explain(sub.output[0])


def test_what_others_read_stays_a_value() -> None:
    b = ModelBuilder(1)
    x = b.input("x", ROWS)
    less = made(b, "Sub", x, made(b, "ReduceMean", x, axes=[-1]))
    b.output(made(b, "Div", less, made(b, "ReduceL2", less, axes=[-1])))
    b.output(less)
    assert len(groups(b.model()).nodes) == 2


def test_kernels_of_several_stages_meet() -> None:
    b = ModelBuilder(1)
    y = made(b, "Softmax", made(b, "Softmax", b.input("x", (70, 300)), axis=1), axis=1)
    b.output(y)
    assert len(groups(b.model()).nodes) == 1


def test_what_serves_several_rows_is_made_apart() -> None:
    """Else the rows that it serves would not be shared by threads."""
    b = ModelBuilder(1)
    x, mask = b.input("x", (12, 64, 128)), b.input("mask", (64, 128))
    y = made(b, "Softmax", made(b, "Add", x, made(b, "Sqrt", mask)), axis=2)
    b.output(y)
    assert [node.op for node in groups(b.model()).nodes] == ["Sqrt", "Add+Softmax"]


def test_many_reductions_are_groups_of_a_few() -> None:
    b = ModelBuilder(1)
    x = b.input("x", (70, 300))
    for _ in range(30):
        x = rms_norm(b, x)
    b.output(x)
    assert 10 <= len(groups(b.model()).nodes) <= 30


def test_rows_along_different_axes_stay_apart() -> None:
    b = ModelBuilder(1)
    y = made(b, "Softmax", made(b, "Softmax", b.input("x", (70, 90)), axis=0), axis=1)
    b.output(y)
    assert len(groups(b.model()).nodes) == 2


def test_threads_share_the_stages_of_a_large_tensor_with_few_rows() -> None:
    b = ModelBuilder(1)
    x = b.input("x", (2, 300, 200))
    less = made(b, "Sub", x, made(b, "ReduceMean", x, axes=[1, 2]))
    b.output(less)
    assert len(groups(b.model()).nodes) == 2


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("name", [*NORMS])
def test_rows_of_which_a_run_gives_a_part(name: str, axis: int) -> None:
    """They meet where rows are counted, and stay apart where what they hold is."""
    b = ModelBuilder(1)
    b.output(NORMS[name](b, b.input("x", ("batch", "sequence", 58)), axis))
    sizes = {"batch": (1, 2), "sequence": (1, 9)}
    exe = gf.compile(b.model(), sizes=sizes, options=Options(threads=2, validate=True))
    nodes = exe.compiled.graph.nodes
    assert (len(nodes) == 1) == (axis == 2)
    for shape in ((1, 1, 58), (2, 4, 58), (1, 9, 58)):
        x = values(shape)
        exact = gf.compile(b.model(), input_shapes={"x": shape}, threads=1)
        (want,), (got,) = exact.run({"x": x}).values(), exe.run({"x": x}).values()
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_a_value_that_depends_on_its_place() -> None:
    """The place is that of the reader."""
    kernel = parse(
        """@primfunc
def places(x: f32[3, 5], count: i64[()], y: out[f32[3, 1]]):
    t = alloc(f32[3, 5])
    with block("given"):
        for i0 in serial(0, 3):
            for i1 in serial(0, 5):
                t[i0, i1] = select(data(index(i1, i64) < count[()]), x[i0, i1], f32(0.0))
    with block("sum"):
        for j0 in serial(0, 3):
            for j1 in serial(0, 1):
                y[j0, j1] = f32(0.0)
                for r in serial(0, 5):
                    y[j0, j1] += t[j0, r]
"""
    )
    shorter = recomputed(kernel)
    assert not any(isinstance(stmt, Allocate) for stmt in walk(shorter.body))
    feeds = {"x": values((3, 5)), "count": np.array(2)}
    np.testing.assert_array_equal(interpret(shorter, feeds)["y"], interpret(kernel, feeds)["y"])


def test_products_and_windows_do_not_keep_axes() -> None:
    assert keeps_axes(elementwise.unary("exp", (3, 4)))
    assert keeps_axes(reduction.softmax((3, 4), (1,)))
    assert keeps_axes(reduction.reduce("mean", (3, 4), (0,), True))
    assert not keeps_axes(linear.matmul((3, 4), (4, 5)))
    assert not keeps_axes(pooling.max_pool((1, 2, 6, 6), Window.of((3, 3))))
