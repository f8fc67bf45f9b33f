"""Tests of tensors with room for more elements than a run gives: what is proven of kernels that
read them, and models in which suppression makes them."""

import re
from contextlib import suppress
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.errors import ExtentsLost, UnsupportedOp
from graphflow.frontends import import_model
from graphflow.frontends.tensors.data_extents import CountsDiffer, passed_counts
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.data_dependent import indexing, ranking
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.movements import movement, selection
from graphflow.kernels.definitions.reductions import reduction
from graphflow.tir import DTYPES, PrimFunc, interpret
from support.kernels.random_kernels import KernelOptions
from support.single import noise, peer
from support.strategies import primfuncs
from support.texts import parsed

F32 = np.float32

GIVEN = 2
"""How many elements a run gives along each counted axis."""


def assert_independent(func: PrimFunc, counted: dict[Any, dict[int, str]], seed: int) -> bool:
    """Whether the counts pass `func`; then what is behind them must not matter."""
    try:
        passed = passed_counts(func, counted)
    except ExtentsLost:
        return False
    rng = np.random.default_rng(seed)
    results = []
    arrays = {
        b.name: np.asarray(rng.integers(0, 3, b.shape)).astype(DTYPES[b.dtype]) for b in func.inputs
    }
    for _ in range(2):
        for buffer, axes in counted.items():
            for axis in axes:
                behind = (slice(None),) * axis + (slice(GIVEN, None),)
                part = arrays[buffer.name][behind]
                part[...] = rng.integers(0, 3, part.shape).astype(part.dtype)
        results.append(interpret(func, arrays))
    for buffer in func.outputs:
        kept: list[Any] = [slice(None)] * len(buffer.shape)
        for axis in passed.get(buffer, {}):
            kept[axis] = slice(GIVEN)
        one, other = (result[buffer.name][tuple(kept)] for result in results)
        np.testing.assert_array_equal(one, other)
    return True


@settings(max_examples=150, deadline=None)
@given(
    func=primfuncs(KernelOptions(stage="definition", extents=(3, 4), given=(((3, 4), "int32"),))),
    axis=st.integers(0, 1),
    seed=st.integers(0, 99),
)
def test_elements_that_a_run_does_not_give_change_nothing(
    func: PrimFunc, axis: int, seed: int
) -> None:
    assert_independent(func, {func.inputs[0]: {axis: "n"}}, seed)


TAKEN = [
    (movement.transpose((3, 4), (1, 0)), {0: "n"}, {1: "n"}),
    (elementwise.binary("add", (3, 4), (4,)), {0: "n"}, {0: "n"}),
    (movement.reshape((3, 4), (3, 2, 2)), {0: "n"}, {0: "n"}),
    (selection.take_slice((3, 4), (range(3), range(1, 3))), {0: "n"}, {0: "n"}),
    (indexing.gather_at((3, 4), (2,), 1), {0: "n"}, {0: "n"}),
    (linear.matmul((3, 4), (4, 5)), {0: "n"}, {0: "n"}),
    (reduction.softmax((3, 4), (1,)), {0: "n"}, {0: "n"}),
    (selection.expand((3, 1), (1, 5)), {0: "n"}, {0: "n"}),
    (ranking.selected((3, 9, 4), 1, 2), {0: "n", 2: "m"}, {0: "n", 2: "m"}),
]
LEFT = [
    (elementwise.binary("add", (3, 4), (3, 1)), "together with those of another tensor"),
    (movement.reshape((3, 4), (12,)), "it takes x"),
    (movement.reshape((3, 4), (4, 3)), "it takes x"),
    (selection.take_slice((3, 4), (range(2), range(4))), "it takes x"),
    (selection.take_slice((3, 4), (range(2, -1, -1), range(4))), "it takes x"),
    (movement.concat([(3, 4), (3, 4)], 0), "it makes|together"),
    (indexing.gather_at((3, 4), (2,), 0), "together with those of another tensor"),
    (reduction.reduce("sum", (3, 4), (0,), False), "it combines all elements of the axis"),
    (ranking.selected((3, 9, 4), 0, 2), "it makes keys|together|combines"),
    (reduction.softmax((3, 4), (0,)), "it takes|it makes|combines|together"),
]


@pytest.mark.parametrize(("func", "counts", "wanted"), TAKEN)
def test_counts_pass(func: PrimFunc, counts: dict[int, str], wanted: dict[int, str]) -> None:
    assert passed_counts(func, {func.inputs[0]: counts}) == {func.outputs[0]: wanted}
    assert assert_independent(func, {func.inputs[0]: counts}, 1)


@pytest.mark.parametrize(("func", "reason"), LEFT)
def test_counts_are_lost(func: PrimFunc, reason: str) -> None:
    with pytest.raises(ExtentsLost, match=reason):
        passed_counts(func, {func.inputs[0]: {0: "n"}})


def test_two_tensors_must_be_counted_alike() -> None:
    func = elementwise.binary("add", (3, 4), (3, 4))
    one, other = func.inputs
    assert passed_counts(func, {one: {0: "n"}, other: {0: "n"}}) == {func.outputs[0]: {0: "n"}}
    with pytest.raises(ExtentsLost, match="as many elements as"):
        passed_counts(func, {one: {0: "n"}, other: {0: "m"}})
    both = {0: "n", 1: "m"}
    assert passed_counts(func, {one: both, other: both}) == {func.outputs[0]: both}


def test_all_counts_that_differ_in_a_statement_are_named() -> None:
    func = elementwise.binary("add", (3, 4), (3, 4))
    one, other = func.inputs
    with pytest.raises(CountsDiffer) as caught:
        passed_counts(func, {one: {0: "n", 1: "k"}, other: {0: "m", 1: "l"}})
    assert caught.value.pairs == (("m", "n"), ("l", "k"))


def test_there_is_no_room_for_any_number_of_elements() -> None:
    func = linear.matmul((5000, 4), (4, 5000))
    one, other = func.inputs
    counts = {one: {0: "n"}, other: {1: "n"}}
    with pytest.raises(ExtentsLost, match="there may be 25000000 elements of y, more than"):
        passed_counts(func, counts)


# Readers of what suppression picks ----------------------------------------------------------------

PAIRS = (
    "c = Gather<axis=1>(picked, two)  r = Squeeze(boxes, first)  b = Gather(r, c)"
    "  t = Transpose(b)  p = MatMul(b, t)"
)
"""A number for each pair of picked boxes."""

READERS = [
    "y = Shape(picked) -> int64[2] y",
    "n = Shape(picked)  y = ConstantOfShape(n) -> float[N,3] y",
    "y = Identity(picked)  c = Gather<axis=1>(picked, two)  n = Shape(c)"
    "  v, z = TopK<axis=0>(c, n) -> int64[N,3] y, int64[N] z",
    "n = Size(picked)  y = Cast<to=1>(n) -> float y",
    "n = Shape<start=0, end=1>(picked)  m = Concat<axis=0>(ones, n)"
    "  c = Gather<axis=1>(picked, two)  y = Reshape(c, m) -> int64[1,1,1,N] y",
    "n = Shape<start=0, end=1>(picked)  m = Squeeze(n)  y = Range(zero, m, one) -> int64[N] y",
    "n = Shape<start=0, end=1>(picked)  m = Squeeze(n)  q = Div(m, seven)  y = Range(zero, q, one)"
    " -> int64[N] y",
    "n = Shape<start=0, end=1>(picked)  m = Concat<axis=0>(four, n)  k = ReduceMin<keepdims=0>(m)"
    "  q = Reshape(k, flat)  c = Gather<axis=1>(picked, two)  f = Reshape(c, flat)"
    "  v, i = TopK(f, q) -> int64[N] v, int64[N] i",
    "m = Reshape(picked, flat)  y = Neg(m) -> int64[N] y",
    f"{PAIRS}  y = Slice(p, origin, corner) -> float[N,M] y",
    "y = Neg(picked) -> int64[N,3] y",
    "t = Transpose<perm=[1,0]>(picked)  y = Cast<to=1>(t) -> float[3,N] y",
    "c = Gather<axis=1>(picked, two)  b = Squeeze(boxes, first)  y = Gather(b, c) -> float[N,4] y",
    "y = Slice(picked, first, last, last) -> int64[N,1] y",
    "y = Slice(picked, first, four) -> int64[N,3] y",
    "z = Slice(picked, first, four)  c = Gather<axis=1>(z, two)  b = Squeeze(boxes, first)"
    "  y = Gather(b, c) -> float[N,4] y",
    "a, c, k = Split<axis=1>(picked, ones)  p = Concat<axis=1>(a, c, k)"
    "  y = GatherND(scores, p) -> float[N] y",
    "c = Gather<axis=1>(picked, two)  r = Reshape(c, flat)  y = Unsqueeze(r, first)"
    " -> int64[1,N] y",
    "r = Reshape(picked, rows)  y = ReduceSum<keepdims=0>(r, last) -> int64[N] y",
    "c = Gather<axis=1>(picked, two)  k = Gather<axis=1>(picked, zero)  b = Squeeze(boxes, first)"
    "  r = Gather(b, c)  y = RoiAlign<sampling_ratio=2,output_height=2>(image, r, k)"
    "  z = RoiAlign<output_width=2>(image, r, k) -> float[N,3,2,1] y, float[N,3,1,2] z",
    "g = Slice(picked, first, four)  h = Slice(picked, first, four)  y = Add(g, h) -> int64[N,3] y",
    "h = Slice(picked, first, four)  j = Concat<axis=-2>(h, six, picked)"
    "  c = Gather<axis=1>(j, two)  y = Neg(c) -> int64[N] y",
    "e = Expand(picked, shape)  c = Equal(e, e)  y = Where(c, e, picked) -> int64[N,3] y",
    "y = ReduceMax<keepdims=0>(picked) -> int64 y",
    "c = Cast<to=1>(picked)  y = ReduceL2<axes=[0]>(c) -> float[1,3] y",
    "c = Cast<to=1>(picked)  y = Softmax<axis=0>(c) -> float[N,3] y",
    "y = CumSum(picked, zero) -> int64[N,3] y",
    "y = Slice(picked, first, minus) -> int64[N,3] y",
    "y = Gather(picked, first) -> int64[1,3] y",
    "c = Gather<axis=1>(picked, two)  d = Sub(c, seven)  r = Squeeze(boxes, first)"
    "  b = Gather(r, d)  t = Transpose(b)  y = MatMul(b, t)  z = Identity(picked)"
    " -> float[N,N] y, int64[N,3] z",
]
"""Those that become kernels; the last one has rows for each pair of boxes."""

OTHERS = [
    f"{PAIRS}  y = Expand(p, square) -> float[N,M] y",
    "y = Add(picked, six) -> int64[N,3] y",
    "y = Reshape(picked, stated) -> int64[6,3] y",
    "y = Expand(picked, stated) -> int64[N,3] y",
]
"""Those whose results depend on how many boxes there are: onnxruntime runs them."""

WEIGHTS = {
    "zero": np.array(0), "one": np.array(1), "image": noise(1, 3, 9, 9),
    "two": np.array(2), "seven": np.array(7), "first": np.array([0]), "last": np.array([1]),
    "four": np.array([4]), "ones": np.array([1, 1, 1]), "flat": np.array([-1]),
    "minus": np.array([-1]), "rows": np.array([-1, 3]), "shape": np.array([1, 3]),
    "origin": np.array([0, 0]), "corner": np.array([4, -1]), "square": np.array([1, 6]),
    "stated": np.array([6, 3]), "six": np.arange(18).reshape(6, 3),
}  # fmt: skip


def after_suppression(text: str) -> Any:
    """A model in which suppression picks at most three boxes of each of two classes, and more
    nodes."""
    nodes, results = text.rsplit("->", 1)
    limits = {"most": np.array([3]), "overlap": np.array([0.4], F32), "least": np.array([0.2], F32)}
    used = {name: array for name, array in WEIGHTS.items() if re.search(rf"\b{name}\b", nodes)}
    return parsed(
        f"""g (float[1,8,4] boxes, float[1,2,8] scores) => ({results}) {{
            picked = NonMaxSuppression (boxes, scores, most, overlap, least)
            {nodes}
        }}""",
        **limits,
        **used,
    )


def assert_runs(exe: Any, model: Any, counts: tuple[float, ...] = (0.0, 0.6, 2.0)) -> None:
    """The results are onnxruntime's for many boxes, few, and none."""
    rng = np.random.default_rng(5)
    found = set()
    for less in counts:
        scores = F32(rng.random((1, 2, 8)) - less)
        feeds = {"boxes": F32(rng.integers(0, 9, (1, 8, 4))), "scores": scores}
        try:
            wanted = peer(model, feeds)
        except Exception:  # onnxruntime has no maximum of nothing, and refuses some regions
            with suppress(gf.GraphflowError):
                exe.run(feeds)
            continue
        made = exe.run(feeds)
        for name, array in wanted.items():
            assert (made[name].dtype, made[name].shape) == (array.dtype, array.shape)
            np.testing.assert_allclose(made[name], array, rtol=1e-5)
            found.add(array.shape)
    assert found


@pytest.mark.parametrize("text", READERS)
def test_what_suppression_picks_is_read_by_kernels(text: str) -> None:
    model = after_suppression(text)
    assert_runs(gf.compile(model, threads=1, options=gf.Options(workers=0, fallback=None)), model)


@pytest.mark.parametrize("text", OTHERS)
def test_what_depends_on_how_many_boxes_are_picked_is_left_to_onnxruntime(text: str) -> None:
    model = after_suppression(text)
    with pytest.raises(UnsupportedOp, match="how many elements its input"):
        import_model(model)
    if not {"stated)", "square)"} & set(text.split()):  # onnxruntime wants six boxes
        assert_runs(gf.compile(model, threads=1, options=gf.Options(workers=0)), model)


def test_indices_of_boxes_that_are_not_there_are_not_checked() -> None:
    """Behind the last box stand zeros, from which the node below makes an index outside."""
    text = READERS[-1]
    model = after_suppression(text)
    exe = gf.compile(model, threads=1, options=gf.Options(workers=0, fallback=None))
    boxes = np.tile(F32([0, 0, 1, 1]), (1, 8, 1)) + 3 * np.arange(8, dtype=F32)[:, None]
    scores = np.zeros((1, 2, 8), F32)
    assert exe.run({"boxes": boxes, "scores": scores})["y"].shape == (0, 0)
    scores[0, 1, 2] = 1
    assert exe.run({"boxes": boxes, "scores": scores})["z"].tolist() == [[0, 1, 2]]


def test_a_reader_inside_a_function_is_left_to_onnxruntime() -> None:
    model = after_suppression("c = Cast<to=1>(picked)  y = Relu(c) -> float[N,3] y")
    nodes = [
        helper.make_node("Constant", [], ["k"], value_ints=[0]),
        helper.make_node("Gather", ["x", "k"], ["r"]),
        helper.make_node("Sub", ["x", "r"], ["z"]),
    ]
    opsets = [helper.make_opsetid("", 17)]
    model.functions.append(helper.make_function("own", "less", ["x"], ["z"], nodes, opsets))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node[-1].CopyFrom(helper.make_node("less", ["c"], ["y"], domain="own"))
    assert_runs(gf.compile(model, threads=1, options=gf.Options(workers=0)), model, (0.0, 0.3))


def kept_rows(op: str, operand: Any, **attributes: Any) -> onnx.ModelProto:
    """Rows that a run keeps, and a node that reads them beside a constant."""
    nodes = [
        helper.make_node("Compress", ["x", "keep"], ["rows"], axis=0),
        helper.make_node(op, ["c", "rows"] if op == "Gemm" else ["rows", "c"], ["y"], **attributes),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 3)),
            helper.make_tensor_value_info("keep", TensorProto.BOOL, (4,)),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ("a", "b"))],
        [numpy_helper.from_array(operand, "c")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


BESIDE = [
    ("Reshape", np.array([3, 2]), {}),
    ("Reshape", np.array([-1, 6]), {}),
    ("Add", noise(2, 3), {}),
    ("Concat", noise(2, 3), {"axis": 1}),
    ("Gemm", noise(5, 2), {}),
]


@pytest.mark.parametrize("case", BESIDE, ids=lambda case: case[0])
def test_nodes_that_know_how_many_elements_there_are_run_in_onnxruntime(case: Any) -> None:
    """They fit what a run gives, and not the room for it; the model is not a wrong one."""
    op, operand, attributes = case
    model = kept_rows(op, operand, **attributes)
    with pytest.raises(ExtentsLost, match="is only known at run time"):
        gf.compile(model, options=gf.Options(fallback=None))
    feeds = {"x": noise(4, 3), "keep": np.array([True, False, False, True])}
    np.testing.assert_allclose(gf.compile(model).run(feeds)["y"], peer(model, feeds)["y"], 1e-6)


@pytest.mark.parametrize("case", BESIDE, ids=lambda case: case[0])
def test_what_a_constant_condition_keeps_has_known_extents(case: Any) -> None:
    op, operand, attributes = case
    model = kept_rows(op, operand, **attributes)
    keep = numpy_helper.from_array(np.array([True, False, False, True, True]), "keep")
    model.graph.initializer.append(keep)
    del model.graph.input[1:]
    exe = gf.compile(model, options=gf.Options(fallback=None, workers=0))
    feeds = {"x": noise(4, 3)}
    np.testing.assert_allclose(exe.run(feeds)["y"], peer(model, feeds)["y"], 1e-6)
