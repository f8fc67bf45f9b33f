"""Tests of products that end at a count: which have such an expansion, and what they compute."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphflow as gf
from graphflow import tir
from graphflow.base.target import Target
from graphflow.graph import (
    ENDS_AT_COUNT,
    Expansions,
    Node,
    OperatorGraph,
    Value,
    ending_at_counts,
    interpret_graph,
)
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent import compaction
from graphflow.kernels.definitions.linear_algebra import linear
from support.planning.decoders import Decoder
from support.targets import in_turn

PAST = 130

FULL = {"x": (5, 40), "w": (40, 7), "z": (5, 40)}


def copies_left(exe: gf.Executable) -> list[str]:
    """The calls of a program that copy a tensor with zeros behind a count."""
    return [c.name for c in exe.compiled.physical.calls if ".given" in c.name]


def check(decoder: Decoder, exe: gf.Executable, new: int, past: int) -> None:
    """Runs behind one whose longer rooms are NaN."""
    most = {n: np.full_like(a, np.nan) for n, a in decoder.feeds(_most_new(exe), PAST).items()}
    exe.run(most)
    feeds = decoder.feeds(new, past, seed=past + new)
    found = exe.run(feeds)
    np.testing.assert_allclose(found["y"], decoder.want(feeds), rtol=1e-4, atol=1e-5)
    for name in "kv":
        whole = np.concatenate([feeds[f"past_{name}"], feeds[name]], 2)
        np.testing.assert_array_equal(found["keys" if name == "k" else "values"], whole)


def _most_new(exe: gf.Executable) -> int:
    return int(exe.report()["sizes"]["new"]["most"])


@in_turn("head mask", [32, 33, 64, 128], [None, "selected", "added"])
def test_a_step_reads_the_values_up_to_the_length_of_the_run(
    head: int, mask: str | None, target: Target
) -> None:
    decoder = Decoder(4, 4, head, mask)
    exe = gf.compile(
        decoder.model, sizes={"new": (1, 1), "past": (0, PAST)}, target=target, threads=2
    )
    assert not copies_left(exe)
    for past in (0, 1, 6, 7, 15, 16, 17, 63, 64, 127, 128, PAST - 1, PAST):
        check(decoder, exe, 1, past)


@in_turn("groups threads", [1, 2, 4], [1, 2])
def test_several_tokens_behind_any_past(groups: int, threads: int, target: Target) -> None:
    decoder = Decoder(4, groups, 32, "selected")
    exe = gf.compile(
        decoder.model, sizes={"new": (1, 40), "past": (0, PAST)}, target=target, threads=threads
    )
    assert not copies_left(exe)
    runs = [(40, PAST), (1, 0), (40, 0), (1, PAST), (2, 14), (16, 16), (17, 15), (33, 64)]
    for new, past in runs:
        check(decoder, exe, new, past)


def test_the_explanation_says_so(code_is_left_out: None) -> None:
    exe = gf.compile(Decoder(4, 4, 32, None).model, sizes={"new": (1, 1), "past": (0, 40)})
    assert "reads values up to the count of a run, and no copy" in exe.explain("y")


def product(dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """A product of two inputs along an open length."""
    x = helper.make_tensor_value_info("x", dtype, [5, "n"])
    w = helper.make_tensor_value_info("w", dtype, ["n", 7])
    y = helper.make_tensor_value_info("y", dtype, [5, 7])
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x, w], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@in_turn("dtype", ["float32", "float64"])
def test_both_factors_are_read_where_they_are(dtype: str, target: Target) -> None:
    model = product(int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype))))
    exe = gf.compile(model, sizes={"n": (0, 70)}, target=target, threads=1)
    assert not copies_left(exe)
    rng = np.random.default_rng(0)
    for n in (70, 0, 1, 15, 16, 17, 64, 69):
        exe.run({"x": np.full((5, 70), np.nan, dtype), "w": np.full((70, 7), np.inf, dtype)})
        feeds = {"x": rng.standard_normal((5, n)), "w": rng.standard_normal((n, 7))}
        feeds = {name: array.astype(dtype) for name, array in feeds.items()}
        np.testing.assert_allclose(
            exe.run(feeds)["y"], feeds["x"] @ feeds["w"], rtol=1e-4, atol=1e-5
        )


def test_special_values_before_the_count_come_out() -> None:
    exe = gf.compile(product(), sizes={"n": (1, 40)}, threads=1)
    x, w = np.ones((5, 9), np.float32), np.ones((9, 7), np.float32)
    x[1, 8], w[8, 2], w[0, 3] = np.inf, np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(exe.run({"x": x, "w": w})["y"], x @ w)


def test_integers_keep_their_copies(code_is_left_out: None) -> None:
    exe = gf.compile(product(TensorProto.INT32), sizes={"n": (1, 40)}, threads=1)
    (choice,) = (c for c in exe.compiled.plan.choices.values() if c.node == "MatMul_0")
    (reason,) = (str(r.reason) for r in choice.refused if r.variant == ENDS_AT_COUNT)
    assert reason == "its factors are of int32, of which several are multiplied at once"


@pytest.mark.parametrize("rows", [40, 41])
def test_a_copy_of_the_first_rows_of_more_is_kept(rows: int) -> None:
    """The product reads a tensor of its own shape."""
    graph = OperatorGraph()
    for name, shape, dtype in (
        ("x", (5, 40), "float32"),
        ("w", (rows, 7), "float32"),
        ("n", (), "int64"),
    ):
        graph.add_value(Value(name, dtype, shape))
    graph.set_inputs("xwn")
    w, made = (tir.Buffer(n, (k, 7), "float32") for n, k in (("w", rows), ("y", 40)))
    copied = compaction.counted_slices((40, 7), 0, 0.0, "float32")
    count, loops = copied.inputs[1], stages.loops_over("i", made.shape)
    element = stages.element(w, loops)
    value = tir.kept_below_count(loops[0][0], count, element, stages.literal(0, "float32"))
    first = stages.elementwise_kernel("first", (w, count), made, loops, value)
    ahead = compaction.counted_slices((5, 40), 1, 0.0, "float32")
    product = linear.matmul((5, 40), (40, 7))
    graph.add(Node("a", "Counted", ahead, ("x", "n"), ("left",)))
    graph.add(Node("b", "Counted", first, ("w", "n"), ("right",)))
    graph.add(Node("c", "MatMul", product, ("left", "right"), ("y",)))
    graph.set_outputs(["y"])
    graph.validate()
    ((expansion,),) = ending_at_counts(Expansions(graph)).of_node.values()
    assert expansion.absorbed == (("left", "right") if rows == 40 else ("left",))
    expanded = Expansions(graph).take([expansion], {*expansion.absorbed})
    expanded.validate()
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(graph.values[n].shape, np.float32) for n in "xw"}
    feeds["n"] = np.array(9)
    want = feeds["x"][:, :9] @ feeds["w"][:9]
    np.testing.assert_allclose(interpret_graph(expanded, feeds)["y"], want, rtol=1e-4, atol=1e-5)


def test_two_products_of_one_factor_read_it_where_it_is() -> None:
    x, w, z = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [5, "n"]), ("w", ["n", 7]), ("z", [5, "n"]))
    )
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [5, 7]) for name in "ab"]
    nodes = [helper.make_node("MatMul", [n, "w"], [y]) for n, y in (("x", "a"), ("z", "b"))]
    graph = helper.make_graph(nodes, "g", [x, w, z], made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    exe = gf.compile(model, sizes={"n": (1, 40)}, threads=1)
    assert not copies_left(exe)
    exe.run({name: np.full(shape, np.nan, np.float32) for name, shape in FULL.items()})
    feeds = {name: np.ones([min(n, 9) for n in shape], np.float32) for name, shape in FULL.items()}
    for array in exe.run(feeds).values():
        np.testing.assert_array_equal(array, np.full((5, 7), 9, np.float32))
