"""Tests of compute definitions: interpreted, against numpy and onnxruntime, and their loop
structure."""

from fractions import Fraction as F

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from graphflow import tir
from graphflow.arith import Var
from graphflow.base.errors import InvalidModel
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.interpolation import resize
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.movements import movement, selection
from graphflow.kernels.definitions.reductions import normalization, reduction
from graphflow.kernels.definitions.windows import convolution, pooling
from graphflow.kernels.definitions.windows.window import Window
from support.kernels.attributed_convolutions import attributed_convolution
from support.models.peer_sessions import peer_session

PAD_MODES = ("constant", "edge", "reflect", "wrap")
PROPERTY = settings(derandomize=True, max_examples=25, deadline=None)


def run(func: tir.PrimFunc, *arrays: np.ndarray) -> np.ndarray:
    tir.verify(func, "definition")
    named = {b.name: a for b, a in zip(func.inputs, arrays, strict=True)}
    (result,) = tir.interpret(func, named).values()
    return result


def peer(op: str, arrays: list[np.ndarray], opset: int = 17, **attributes: object) -> np.ndarray:
    names = [f"i{k}" for k in range(len(arrays))]
    node = helper.make_node(op, names, ["o"], **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, arrays, strict=True)
    ]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name="o")])
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    model = onnx.shape_inference.infer_shapes(model)
    session = peer_session(model)
    return session.run(None, dict(zip(names, arrays, strict=True)))[0]


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


CONVOLUTIONS = [
    ((1, 3, 5, 6), (4, 3, 3, 2), {}),
    ((2, 3, 7, 5), (2, 3, 3, 3), {"strides": (2, 3), "pads": (1, 0, 2, 1)}),
    ((1, 2, 9, 8), (3, 2, 3, 2), {"dilations": (2, 3), "pads": (2, 3, 0, 1)}),
    ((1, 4, 4, 4), (6, 2, 3, 3), {"group": 2, "pads": (1, 1, 1, 1)}),
    ((1, 3, 5, 4), (6, 1, 3, 3), {"group": 3, "pads": (1, 1, 1, 1), "strides": (2, 1)}),
    ((1, 3, 4, 4), (5, 3, 1, 1), {}),
    ((2, 3, 11), (4, 3, 4), {"strides": (2,), "pads": (3, 1)}),
    ((1, 2, 4, 3, 5), (2, 2, 2, 3, 3), {"pads": (0, 1, 1, 1, 1, 0)}),
]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), CONVOLUTIONS)
def test_convolution(x_shape, w_shape, attributes, bias):
    arrays = [noise(*x_shape), noise(*w_shape, seed=1)]
    if bias:
        arrays.append(noise(w_shape[0], seed=2))
    keywords = {("groups" if k == "group" else k): v for k, v in attributes.items()}
    func = attributed_convolution(x_shape, w_shape, bias=bias, **keywords)
    close(run(func, *arrays), peer("Conv", arrays, **attributes))


def test_convolution_has_the_agreed_loops():
    func = convolution.convolution(
        (1, 4, 5, 5), (6, 4, 3, 3), Window.of((3, 3), pads=(1, 1, 1, 1)), bias=True
    )
    names = [loop.var.name for loop in tir.loops_of(func.body)]
    assert names == ["n", "oc", "oh", "ow", "ic", "kh", "kw"]
    grouped = convolution.convolution((1, 4, 5, 5), (6, 2, 3, 3), groups=2)
    names = [loop.var.name for loop in tir.loops_of(grouped.body)]
    assert names == ["n", "g", "oc", "oh", "ow", "ic", "kh", "kw"]
    (write,) = (a for a in tir.accesses(grouped.body) if a.kind is tir.AccessKind.REDUCE)
    assert write.indices[1] is Var("g") * 3 + Var("oc")


def test_only_taps_that_can_leave_the_input_are_guarded():
    def guards(**attributes):
        func = attributed_convolution((1, 2, 6, 6), (2, 2, 3, 3), **attributes)
        return [s.condition for s in tir.walk(func.body) if isinstance(s, tir.If)]

    assert guards() == []
    (one_side,) = guards(pads=(1, 0, 0, 0))
    assert str(one_side) == "kh + oh >= 1"
    (all_sides,) = guards(pads=(1, 1, 1, 1))
    assert len(all_sides.members) == 4


def test_infinite_input_beside_padding_stays_where_numpy_has_it():
    x = noise(1, 1, 4, 4)
    x[0, 0, 0, 0] = np.inf
    w = noise(1, 1, 3, 3, seed=1)
    result = run(
        convolution.convolution(x.shape, w.shape, Window.of(w.shape[2:], pads=(1, 1, 1, 1))), x, w
    )
    assert np.isinf(result[0, 0, :2, :2]).all()
    assert np.isfinite(result[0, 0, 2:]).all()
    assert np.isfinite(result[0, 0, :, 2:]).all()


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "keywords", "reason"),
    [
        ((1, 3, 5, 5), (4, 2, 3, 3), {}, "needs 2, and output channels"),
        ((1, 4, 5, 5), (3, 2, 3, 3), {"groups": 2}, "that 2 divides"),
        ((1, 3, 2, 2), (4, 3, 3, 3), {}, "larger than the padded input"),
        ((1, 3, 5), (4, 3, 3, 3), {}, "same rank"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"pads": (1, 1)}, "needs 2 strides and dilations and 4 pads"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"pads": (-1, 0, 0, 0)}, "must not be negative"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"strides": (0, 1)}, "at least 1"),
    ],
)
def test_convolution_refuses(x_shape, w_shape, keywords, reason):
    with pytest.raises(InvalidModel, match=reason):
        attributed_convolution(x_shape, w_shape, **keywords)


POOLS = [
    ((1, 2, 6, 7), {"kernel_shape": (3, 2)}),
    ((1, 2, 7, 7), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 0, 1, 2)}),
    ((1, 2, 6, 6), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
    (
        (1, 1, 6, 5),
        {"kernel_shape": (3, 2), "strides": (3, 2), "pads": (1, 1, 1, 1), "ceil_mode": 1},
    ),
    ((1, 1, 4, 4), {"kernel_shape": (2, 2), "strides": (3, 3), "ceil_mode": 1}),
    ((2, 1, 9), {"kernel_shape": (4,), "strides": (3,), "pads": (2, 1)}),
]
DILATED = ((1, 2, 8, 9), {"kernel_shape": (3, 2), "dilations": (2, 3), "pads": (1, 1, 2, 0)})


def pool(make, x_shape, attributes, **more):
    kernel, ceil_mode = attributes["kernel_shape"], bool(attributes.get("ceil_mode", 0))
    sides = (attributes.get(name) for name in ("strides", "pads", "dilations"))
    return make(x_shape, Window.of(kernel, *sides, ceil_mode), **more)


@pytest.mark.parametrize(("x_shape", "attributes"), [*POOLS, DILATED])
def test_max_pool(x_shape, attributes):
    # All negative, so that a pad that took part with 0 would win.
    x = -1 - np.abs(noise(*x_shape))
    close(run(pool(pooling.max_pool, x_shape, attributes), x), peer("MaxPool", [x], **attributes))


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize(("x_shape", "attributes"), [*POOLS, DILATED])
def test_average_pool(x_shape, attributes, include):
    x = noise(*x_shape)
    expected = peer("AveragePool", [x], opset=19, count_include_pad=include, **attributes)
    func = pool(pooling.average_pool, x_shape, attributes, count_include_pad=bool(include))
    close(run(func, x), expected)


def test_max_pool_keeps_nan_and_gives_minus_infinity_for_an_empty_window():
    x = np.zeros((1, 1, 4), np.float32)
    x[0, 0, 3] = np.nan
    result = run(pooling.max_pool(x.shape, Window.of((1,), pads=(2, 0))), x)
    np.testing.assert_array_equal(result[0, 0], [-np.inf, -np.inf, 0, 0, 0, np.nan])
    ints = np.full((1, 1, 3), -5, np.int8)
    assert run(pooling.max_pool(ints.shape, Window.of((2,)), dtype="int8"), ints).tolist() == [
        [[-5, -5]]
    ]


def test_average_without_cut_windows_divides_by_a_constant():
    func = pooling.average_pool((1, 2, 6, 6), Window.of((2, 3)))
    assert "IndexValue" not in repr(func.body)
    assert [type(s).__name__ for s in func.body] == ["Allocate", "Block", "Block"]


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pools(op):
    x = noise(2, 3, 4, 5)
    make = pooling.global_average_pool if op == "GlobalAveragePool" else pooling.global_max_pool
    close(run(make(x.shape), x), peer(op, [x]))


UNARY = ["Relu", "Exp", "Sigmoid", "Tanh", "Sqrt", "Neg", "Abs", "Log", "Erf", "Floor", "Ceil"]


@pytest.mark.parametrize("op", UNARY)
def test_unary(op):
    x = noise(3, 5)
    if op in ("Sqrt", "Log"):
        x = np.abs(x) + 0.1
    close(run(elementwise.unary(op.lower(), x.shape), x), peer(op, [x]))


@pytest.mark.parametrize("op", ["Relu", "LeakyRelu", "Clip", "Neg", "Abs"])
def test_unary_keeps_nan_and_infinity(op):
    x = np.array([np.nan, np.inf, -np.inf, -2, 0, 2], np.float32)
    func = {
        "LeakyRelu": lambda: elementwise.unary("leaky_relu", x.shape, attributes={"alpha": 0.5}),
        "Clip": lambda: elementwise.clip(x.shape, -1.0, 1.0),
    }.get(op, lambda: elementwise.unary(op.lower(), x.shape))()
    expected = {
        "Relu": np.maximum(x, 0),
        "LeakyRelu": np.where(x < 0, x * np.float32(0.5), x),
        "Clip": np.clip(x, -1, 1),
        "Neg": -x,
        "Abs": np.abs(x),
    }[op]
    np.testing.assert_array_equal(run(func, x), expected)


@pytest.mark.parametrize(
    ("low", "high"), [(None, None), (-0.5, None), (None, 0.5), (-0.5, 0.5), (0.5, -0.5)]
)
def test_clip_with_numbers_and_with_tensors(low, high):
    x = noise(4, 3)
    expected = x if low is None else np.maximum(x, np.float32(low))
    expected = expected if high is None else np.minimum(expected, np.float32(high))
    np.testing.assert_array_equal(run(elementwise.clip(x.shape, low, high), x), expected)
    bounds = [np.float32(b).reshape(()) for b in (low, high) if b is not None]
    func = elementwise.clip(x.shape, *(None if b is None else () for b in (low, high)))
    np.testing.assert_array_equal(run(func, x, *bounds), expected)


SHAPES = [
    ((2, 3), (2, 3)),
    ((2, 3, 4), (3, 1)),
    ((1, 3, 1), (2, 1, 4)),
    ((), (2, 2)),
    ((), ()),
    ((3, 1), (1, 1)),
    ((0, 3), (1, 3)),
]


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "max", "min"])
@pytest.mark.parametrize(("a_shape", "b_shape"), SHAPES)
def test_binary_broadcasts(op, a_shape, b_shape):
    a, b = noise(*a_shape), noise(*b_shape, seed=1) + 3
    a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
    numpy = {"max": np.maximum, "min": np.minimum, "sub": np.subtract, "mul": np.multiply}
    expected = {"add": np.add, "div": np.divide, **numpy}[op](a, b)
    close(run(elementwise.binary(op, a_shape, b_shape), a, b), np.asarray(expected))


def test_broadcast_operands_are_read_at_zero_and_others_at_the_loop_variables():
    func = elementwise.binary("add", (2, 1, 4), (3, 1))
    reads = {
        a.buffer.name: a.indices for a in tir.accesses(func.body) if a.kind is tir.AccessKind.READ
    }
    assert [str(i) for i in reads["a"]] == ["i0", "0", "i2"]
    assert [str(i) for i in reads["b"]] == ["i1", "0"]
    # An extent of 1 that the output has too is no broadcast.
    ones = elementwise.binary("add", (1, 4), (1, 4))
    reads = {
        a.buffer.name: a.indices for a in tir.accesses(ones.body) if a.kind is tir.AccessKind.READ
    }
    assert reads["a"] == reads["b"] == (Var("i0"), Var("i1"))


def test_shapes_that_do_not_broadcast_are_refused():
    with pytest.raises(InvalidModel, match=r"\(2, 3\), \(4,\) do not broadcast"):
        elementwise.binary("add", (2, 3), (4,))


def test_integer_division_truncates_and_casts_convert():
    a, b = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    assert run(elementwise.binary("div", (4,), (4,), "int32"), a, b).tolist() == [3, -3, -3, 3]
    x = np.array([-1.7, 0.0, 2.9], np.float32)
    assert run(elementwise.cast((3,), "float32", "int64"), x).tolist() == [-1, 0, 2]
    assert run(elementwise.cast((3,), "float32", "bool"), x).tolist() == [True, False, True]


def test_variadic_folds_from_the_left():
    arrays = [noise(2, 3), noise(3, seed=1), noise(2, 1, seed=2)]
    func = elementwise.variadic("add", [a.shape for a in arrays])
    close(run(func, *arrays), arrays[0] + arrays[1] + arrays[2])


NUMPY_REDUCE = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", [(0,), (-1,), (0, 2), (0, 1, 2), (2, 1)])
@pytest.mark.parametrize("kind", list(NUMPY_REDUCE))
def test_reduce(kind, axes, keepdims):
    x = noise(2, 3, 5)
    expected = NUMPY_REDUCE[kind](x, axis=tuple(axes), keepdims=keepdims)
    close(run(reduction.reduce(kind, x.shape, axes, keepdims), x), np.asarray(expected, np.float32))


def test_reduce_of_integers_starts_from_their_limits():
    x = np.array([[-7, -3], [5, 9]], np.int32)
    assert run(reduction.reduce("max", (2, 2), (1,), False, "int32"), x).tolist() == [-3, 9]
    assert run(reduction.reduce("min", (2, 2), (1,), False, "int32"), x).tolist() == [-7, 5]


def test_reduce_refuses_axes_that_do_not_exist():
    with pytest.raises(InvalidModel, match="rank 2"):
        reduction.reduce("sum", (2, 2), (2,))
    with pytest.raises(InvalidModel, match="twice"):
        reduction.reduce("sum", (2, 2), (1, -1))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax_of_one_axis_and_of_all_behind_it(axis):
    x = 5 * noise(2, 3, 4)
    close(run(reduction.softmax(x.shape, (axis,)), x), peer("Softmax", [x], 13, axis=axis))
    behind = range(axis % 3, 3)
    close(run(reduction.softmax(x.shape, behind), x), peer("Softmax", [x], 11, axis=axis))


def test_softmax_survives_large_numbers():
    x = np.array([[1e38, 0, 1e38]], np.float32)
    np.testing.assert_array_equal(run(reduction.softmax(x.shape, (1,)), x), [[0.5, 0, 0.5]])


@PROPERTY
@given(st.permutations([2, 3, 4, 5]), st.permutations([2, 3, 4, 5]), st.data())
def test_reshape_keeps_row_major_order(source, target, data):
    def merged(extents):
        cut = data.draw(st.integers(0, 2))
        return (*extents[:cut], extents[cut] * extents[cut + 1], *extents[cut + 2 :])

    x_shape, y_shape = merged(source), merged(target)
    x = np.arange(120, dtype=np.int32).reshape(x_shape)
    result = run(movement.reshape(x_shape, y_shape, "int32"), x)
    np.testing.assert_array_equal(result, x.reshape(y_shape))


@pytest.mark.parametrize(
    ("source", "target", "index"),
    [
        ((2, 3, 4), (6, 4), ["i0 // 3", "i0 % 3", "i1"]),
        ((6, 4), (2, 3, 4), ["3*i0 + i1", "i2"]),
        ((1, 10, 1, 1), (1, 10), ["0", "i1", "0", "0"]),
        ((4, 6), (24,), ["i0 // 6", "i0 % 6"]),
        ((5, 2, 3), (5, 6), ["i0", "i1 // 3", "i1 % 3"]),
    ],
)
def test_reshape_reads_in_few_terms(source, target, index):
    func = movement.reshape(source, target)
    (read,) = (a for a in tir.accesses(func.body) if a.kind is tir.AccessKind.READ)
    assert [str(i) for i in read.indices] == index


@pytest.mark.parametrize(("source", "target"), [((0, 3), (3, 0)), ((), (1, 1)), ((1,), ())])
def test_reshape_of_no_and_of_one_element(source, target):
    x = np.ones(source, np.float32)
    np.testing.assert_array_equal(run(movement.reshape(source, target), x), x.reshape(target))


def test_reshape_refuses_another_size():
    with pytest.raises(InvalidModel, match="24 elements"):
        movement.reshape((2, 3, 4), (5, 5))


def test_transpose_and_concat_and_fill():
    x, y = noise(2, 3, 4), noise(2, 1, 4, seed=1)
    np.testing.assert_array_equal(
        run(movement.transpose(x.shape, (2, 0, 1)), x), np.transpose(x, (2, 0, 1))
    )
    joined = movement.concat([x.shape, y.shape, x.shape], -2)
    np.testing.assert_array_equal(run(joined, x, y, x), np.concatenate([x, y, x], 1))
    assert [s.name for s in joined.body] == ["concat0", "concat1", "concat2"]
    np.testing.assert_array_equal(run(movement.fill((2, 3), 7, "int64")), np.full((2, 3), 7))
    with pytest.raises(InvalidModel, match="agree on each axis but 1"):
        movement.concat([(2, 3), (3, 3)], 1)
    with pytest.raises(InvalidModel, match="not a permutation"):
        movement.transpose((2, 3), (0,))


@pytest.mark.parametrize("c_shape", [None, (), (4,), (3, 1), (1, 4), (3, 4)])
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (1.0, 0.5), (0.25, 1.0), (0.25, 2.0)])
@pytest.mark.parametrize(("ta", "tb"), [(0, 0), (1, 1)])
def test_gemm(c_shape, alpha, beta, ta, tb):
    a, b = noise(5, 3) if ta else noise(3, 5), noise(4, 5, seed=1) if tb else noise(5, 4, seed=1)
    arrays = [a, b] if c_shape is None else [a, b, np.asarray(noise(*c_shape, seed=2), np.float32)]
    func = linear.gemm(
        a.shape, b.shape, c_shape, alpha=alpha, beta=beta, transpose_a=ta, transpose_b=tb
    )
    expected = np.float32(alpha) * ((a.T if ta else a) @ (b.T if tb else b))
    if c_shape is not None:
        expected = expected + np.float32(beta) * arrays[2]
    close(run(func, *arrays), expected)


@pytest.mark.parametrize(
    ("a_shape", "b_shape"),
    [
        ((3, 4), (4, 2)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (3, 4, 2)),
        ((4,), (4, 3)),
        ((2, 3, 4), (4,)),
        ((4,), (4,)),
        ((4,), (2, 4, 3)),
        ((2, 0), (0, 3)),
    ],
)
def test_matmul(a_shape, b_shape):
    a, b = noise(*a_shape), noise(*b_shape, seed=1)
    close(run(linear.matmul(a_shape, b_shape), a, b), np.asarray(np.matmul(a, b), np.float32))


def test_matrix_products_refuse_shapes_that_do_not_fit():
    with pytest.raises(InvalidModel, match="inner extents differ: 3"):
        linear.matmul((2, 3), (4, 2))
    with pytest.raises(InvalidModel, match="do not broadcast"):
        linear.gemm((2, 3), (3, 2), (3,))


def test_batch_normalization_in_three_kernels():
    x = noise(2, 3, 2, 2)
    gamma, beta, mean = (noise(3, seed=k) for k in (1, 2, 3))
    variance = np.abs(noise(3, seed=4)) + 0.1
    scale = run(elementwise.normalization_scale((3,), 1e-3), gamma, variance)
    shift = run(elementwise.normalization_shift(3), beta, mean, scale)
    expected = peer("BatchNormalization", [x, gamma, beta, mean, variance], epsilon=1e-3)
    close(run(elementwise.scale_and_shift(x.shape), x, scale, shift), expected)


@PROPERTY
@given(st.integers(1, 6), st.integers(-3, 5), st.integers(-3, 5), st.sampled_from(PAD_MODES))
def test_pads_are_those_of_numpy_on_what_cropping_leaves(extent, begin, end, mode):
    left = extent + min(begin, 0) + min(end, 0)
    # numpy has no mode but the constant one for an axis without elements.
    if left < (0 if mode == "constant" else 1) or extent + begin + end < 0:
        return
    x = np.arange(1, extent + 1, dtype=np.int32)
    cropped = x[max(-begin, 0) : extent - max(-end, 0)]
    expected = np.pad(cropped, (max(begin, 0), max(end, 0)), mode)
    result = run(selection.pad((extent,), (begin,), (end,), mode, dtype="int32"), x)
    np.testing.assert_array_equal(result, expected)
    in_runs = selection.pad_rows((extent,), begin, end, mode, "int32")
    fits = min(begin, end) >= 0 and max(begin, end) < extent
    assert (in_runs is not None) == (fits and mode in ("reflect", "wrap"))
    if in_runs is not None:
        np.testing.assert_array_equal(run(in_runs, x), expected)
        assert len(in_runs.body) == 1 + (begin > 0) + (end > 0)


@PROPERTY
@given(st.lists(st.integers(-7, 6), max_size=20))
def test_gather_takes_positions_in_order(positions):
    x = np.arange(14, dtype=np.int32).reshape(7, 2)
    result = run(selection.gather(x.shape, 0, positions, "int32"), x)
    np.testing.assert_array_equal(result, x[np.array(positions, int)])


def test_gather_makes_one_stage_of_equally_spaced_positions():
    assert len(selection.gather((9,), 0, [8, 6, 4, 2]).body) == 1
    assert len(selection.gather((9,), 0, [0, 1, 2, 7, 5, 3]).body) == 2


ALL = [
    convolution.convolution(
        (1, 2, 5, 5), (2, 2, 3, 3), Window.of((3, 3), pads=(1, 1, 1, 1)), bias=True
    ),
    convolution.convolution((1, 4, 5, 5), (4, 1, 3, 3), groups=4),
    pooling.max_pool((1, 2, 5, 5), Window.of((3, 3), pads=(1, 1, 1, 1))),
    pooling.average_pool((1, 2, 5, 5), Window.of((3, 3), pads=(1, 1, 1, 1))),
    pooling.global_average_pool((1, 2, 3, 3)),
    reduction.softmax((2, 3), (1,)),
    linear.gemm((2, 3), (3, 2), (2,), alpha=0.5),
    linear.matmul((2, 2, 3), (3, 2)),
    movement.concat([(2, 3), (2, 2)], 1),
    movement.reshape((2, 3), (3, 2)),
    elementwise.unary("relu", (2, 3)),
    elementwise.clip((2, 3), (), ()),
    movement.fill((2, 3), 1.0),
    convolution.transposed_convolution(
        (1, 4, 3, 3), (4, 1, 3, 3), (5, 6), strides=(2, 2), groups=2
    ),
    elementwise.prelu((2, 3), (3,)),
    elementwise.where((2, 1), (2, 3), ()),
    elementwise.power((2, 3), (3,), "float32", "int64"),
    normalization.local_response_normalization((1, 4, 2, 2), 3),
    normalization.layer_normalization((2, 3), 1, (3,), (3,)),
    normalization.group_normalization((1, 4, 3), 2, 4),
    reduction.log_softmax((2, 3), (1,)),
    reduction.log_sum_exp((2, 3), (1,)),
    reduction.arg_reduce("max", (2, 3), 1),
    reduction.reduce("l2", (2, 3), (1,)),
    selection.take_slice((4, 5), (range(3, 0, -2), range(1, 5))),
    selection.expand((3, 1), (2, 1, 4)),
    selection.tile((2, 3), (2, 1)),
    selection.gather((5, 2), 0, [0, 2, 4, 1]),
    selection.pad((2, 3), (1, 0), (0, 2)),
    selection.depth_to_space((1, 8, 2, 2), 2),
    selection.space_to_depth((1, 2, 4, 2), 2),
    resize.resize_linear(
        (2, 3), (2, 5), [resize.Coordinates(F(1), F(0)), resize.Coordinates(F(3, 5), F(-1, 5))]
    ),
    resize.resize_nearest((3,), (6,), [resize.Coordinates(F(1, 2), F(0))], "floor"),
]


@pytest.mark.parametrize("func", ALL, ids=lambda f: f.name)
def test_every_definition_is_a_sequence_of_stages(func):
    tir.verify(func, "definition")
    assert all(isinstance(stmt, tir.Block | tir.Allocate) for stmt in func.body)
    for stage in (s for s in func.body if isinstance(s, tir.Block)):
        (top,) = stage.body
        assert isinstance(top, tir.For)
        writes = {
            s.buffer.name for s in tir.walk(stage.body) if isinstance(s, tir.Store | tir.Reduce)
        }
        assert len(writes) == 1
    loops = [loop.var for loop in tir.loops_of(func.body)]
    assert len(loops) == len(set(loops))
    names = [b.name for b in tir.buffers_of(func)]
    assert len(names) == len(set(names))
