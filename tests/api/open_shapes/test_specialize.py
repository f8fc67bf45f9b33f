"""Tests of inputs whose values decide shapes: one program is compiled for each value, whether
import finds the input or the caller names it."""

import gc
from collections import Counter
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.api import program_maker
from graphflow.base.errors import InvalidModel, UnsupportedOp, ValuesNeeded
from graphflow.frontends import OPERATORS, import_model
from graphflow.frontends.tensors.values import VALUE_LIMIT
from graphflow.kernels.lowering import LoweredKernel
from graphflow.models import ModelBuilder
from graphflow.pipeline.clearing import caches
from graphflow.pipeline.compiler import Compiled, Shared, compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.schedule import Schedule
from support.models.peer_sessions import peer_session
from support.models.sized_runs import parsed_model
from support.texts import parsed

STRICT = gf.Options(threads=1, fallback=None)
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def model(
    op: str, inputs: Sequence[tuple[str, np.ndarray]], rank: int, **attributes: Any
) -> onnx.ModelProto:
    """One node with a result of this rank; inputs called `x` are data, all others decide shapes."""
    build = ModelBuilder(opset=18)
    for name, array in inputs:
        build.input(name, array.shape, array.dtype.name)
    names = [name for name, _ in inputs]
    dtype = "int64" if op == "Range" else "float32"
    build.output(build.node(op, names, **attributes), shape=open_shape(rank), dtype=dtype)
    return build.model()


def open_shape(rank: int) -> list[str]:
    return [f"n{axis}" for axis in range(rank)]


def peer(proto: onnx.ModelProto, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = peer_session(proto)
    return list(session.run(None, arrays))


def assert_as_peer(exe: gf.Executable, proto: onnx.ModelProto, arrays: dict[str, Any]) -> None:
    for found, expected in zip(exe.run(arrays).values(), peer(proto, arrays), strict=True):
        assert found.dtype == expected.dtype and found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-6)


X1 = X[:1, :, :1]
ONE, TWO = np.array(3, np.float32), np.array(-1, np.float32)
CASES: dict[str, tuple[int, list[dict[str, np.ndarray]]]] = {
    "Reshape": (2, [{"x": X, "shape": ints(4, 6)}, {"x": X, "shape": ints(0, -1)}]),
    "Expand": (3, [{"x": X1, "shape": ints(5, 3, 4)}, {"x": X1, "shape": ints(2, 1, 1)}]),
    "Tile": (3, [{"x": X, "repeats": ints(1, 2, 1)}, {"x": X, "repeats": ints(2, 1, 3)}]),
    "Pad": (
        3,
        [
            {"x": X, "pads": ints(0, 1, 0, 0, 0, 2), "value": ONE},
            {"x": X, "pads": ints(1, 0, 0, 0, 0, 0), "value": TWO},
        ],
    ),
    "Slice": (
        3,
        [
            {"x": X, "starts": ints(0, 1), "ends": ints(2, 3), "axes": ints(1, 2)},
            {"x": X, "starts": ints(-1, 0), "ends": ints(9, 9), "axes": ints(0, 1)},
        ],
    ),
    "ReduceSum": (2, [{"x": X, "axes": ints(1)}, {"x": X, "axes": ints(-1)}]),
    "Squeeze": (2, [{"x": X1, "axes": ints(0)}, {"x": X1, "axes": ints(2)}]),
    "Unsqueeze": (4, [{"x": X, "axes": ints(0)}, {"x": X, "axes": ints(3)}]),
    "ConstantOfShape": (2, [{"shape": ints(2, 3)}, {"shape": ints(4, 1)}]),
    "Range": (
        1,
        [
            {"start": np.array(1), "limit": np.array(9), "delta": np.array(3)},
            {"start": np.array(5), "limit": np.array(0), "delta": np.array(-2)},
        ],
    ),
}
"""The rank of the result, and what two runs are given."""


@pytest.mark.parametrize("op", CASES)
def test_what_a_node_is_given_decides_its_shape(op: str) -> None:
    rank, runs = CASES[op]
    attributes = {"keepdims": 0} if op == "ReduceSum" else {}
    proto = model(op, list(runs[0].items()), rank, **attributes)
    exe = gf.compile(proto, threads=1)
    for inputs in runs:
        assert_as_peer(exe, proto, inputs)
    assert set(exe.deciding) == runs[0].keys() - {"x", "value"}
    assert len(exe.specializations) == len(runs)


def test_the_outputs_of_a_split_have_the_extents_that_a_run_gives() -> None:
    build = ModelBuilder(opset=18)
    x, parts = build.input("x", (2, 6)), build.input("parts", (2,), "int64")
    build.node("Split", [x, parts], ["first", "second"], axis=1)
    build.output("first", "second", shape=open_shape(2))
    proto = build.model()
    exe = gf.compile(proto, threads=1)
    x_values = np.arange(12, dtype=np.float32).reshape(2, 6)
    for first in (1, 4):
        assert_as_peer(exe, proto, {"x": x_values, "parts": ints(first, 6 - first)})


def test_how_many_a_topk_gives_is_decided_by_a_run() -> None:
    build = ModelBuilder(opset=18)
    x, k = build.input("x", (2, 6)), build.input("k", (1,), "int64")
    build.node("TopK", [x, k], ["values", "places"], axis=1)
    build.output("values", shape=open_shape(2))
    build.output("places", shape=open_shape(2), dtype="int64")
    exe = gf.compile(build.model(), threads=1)
    x_values = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    for count in (1, 4):
        assert_as_peer(exe, build.model(), {"x": x_values, "k": ints(count)})
    assert exe.deciding == ("k",)


def test_a_program_for_all_values_of_an_integer_needs_none_to_be_compiled() -> None:
    build = ModelBuilder(opset=18)
    x, k = build.input("x", ("n", 6)), build.input("k", (1,), "int64")
    build.node("TopK", [x, k], ["values", "places"], axis=1)
    build.output("values", shape=open_shape(2))
    build.output("places", shape=open_shape(2), dtype="int64")
    sizes = {"n": (1, None), "k": (1, 5)}
    exe = gf.compile(build.model(), threads=1, sizes=sizes)
    exe.precompile({"x": (2, 6)})
    x_values = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    for count in (1, 4, 5):
        assert_as_peer(exe, build.model(), {"x": x_values, "k": ints(count)})
    assert len(exe.specializations) == 1


def test_where_each_value_has_a_program_precompile_needs_one() -> None:
    build = ModelBuilder(opset=18)
    x, k = build.input("x", (2, 6)), build.input("k", (1,), "int64")
    build.output(build.node("ReduceSum", [x, k], keepdims=0), shape=open_shape(1))
    with pytest.warns(UserWarning, match="no program"):
        exe = gf.compile(build.model(), threads=1, sizes={"k": (0, 1)})
    with pytest.raises(InvalidModel, match="the value of input 'k' is missing"):
        exe.precompile({})
    exe.precompile({}, {"k": [1]})
    x_values = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    assert_as_peer(exe, build.model(), {"x": x_values, "k": ints(1)})
    assert len(exe.specializations) == 1


def test_an_integer_that_states_a_size_without_a_bound_is_named_as_missing() -> None:
    build = ModelBuilder(opset=18)
    x, k = build.input("x", (2, 6)), build.input("k", (1,), "int64")
    build.node("TopK", [x, k], ["values", "places"], axis=1)
    build.output("values", shape=open_shape(2))
    build.output("places", shape=open_shape(2), dtype="int64")
    exe = gf.compile(build.model(), threads=1, sizes={"k": (1, None)})
    with pytest.raises(InvalidModel, match="the values of k decide shapes, and nothing"):
        exe.decisions()
    exe.precompile({}, {"k": [3]})
    x_values = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    for count in (3, 1):
        assert_as_peer(exe, build.model(), {"x": x_values, "k": ints(count)})


def test_indices_decide_no_shape() -> None:
    build = ModelBuilder(opset=18)
    x, ids = build.input("x", (5, 2)), build.input("ids", (3,), "int64")
    build.output(build.node("Gather", [x, ids]))
    exe = gf.compile(build.model(), threads=1)
    x_values = np.arange(10, dtype=np.float32).reshape(5, 2)
    for values in (ints(0, 4, 1), ints(-1, 2, 2)):
        assert_as_peer(exe, build.model(), {"x": x_values, "ids": values})
    assert exe.deciding == () and len(exe.specializations) == 1


@pytest.mark.parametrize("linear", [False, True])
def test_a_resize_to_sizes_that_a_run_gives(linear: bool) -> None:
    build = ModelBuilder(opset=18)
    x, sizes = build.input("x", (1, 2, 3, 4)), build.input("sizes", (4,), "int64")
    mode = "linear" if linear else "nearest"
    build.output(build.node("Resize", [x, "", "", sizes], mode=mode))
    proto = build.model()
    exe = gf.compile(proto, threads=1)
    image = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)
    for size in ((6, 8), (3, 5)):
        assert_as_peer(exe, proto, {"x": image, "sizes": ints(1, 2, *size)})


def flattened(batch: int | str = 2) -> onnx.ModelProto:
    """x to [first extent of x, tail…], where `tail` is an input, and doubled."""
    build = ModelBuilder(opset=18)
    x, tail = build.input("x", (batch, 3, 4)), build.input("tail", (1,), "int64")
    shape = build.node("Shape", [x])
    first = build.node("Slice", [shape, *(build.constant(ints(k)) for k in (0, 1))])
    parts = [first, build.node("Mul", [tail, tail]), build.constant(ints(-1))]
    wanted = build.node("Concat", parts, axis=0)
    build.output(build.add(x, x))
    build.output(build.node("Reshape", [x, wanted]), shape=open_shape(3))
    return build.model()


def test_values_go_through_shape_arithmetic() -> None:
    exe = gf.compile(flattened(), threads=1)
    for tail in (1, 2):
        assert_as_peer(exe, flattened(), {"x": X, "tail": ints(tail)})
    assert exe.deciding == ("tail",)


def test_shapes_and_values_decide_together() -> None:
    proto = flattened("N")
    exe = gf.compile(proto, threads=1)
    assert exe.deciding == ("x",)  # nobody has asked for the other one yet
    for x, tail in ((X, 2), (X[:1], 2), (X, 1), (X, 2)):
        assert_as_peer(exe, proto, {"x": x, "tail": ints(tail)})
    assert exe.deciding == ("x", "tail") and len(exe.specializations) == 3


def test_an_input_of_open_length_may_be_a_shape() -> None:
    build = ModelBuilder(opset=18)
    build.input("x", (2, 3, 4))
    shape = build.input("shape", ("rank",), "int64")
    y = build.node("Reshape", ["x", shape])
    build.output(build.node("ReduceSum", [y], keepdims=0), shape=[])
    build.output(build.node("Shape", [y]), shape=["rank"], dtype="int64")
    proto = build.model()
    exe = gf.compile(proto, threads=1)
    for shape in (ints(24), ints(4, 6), ints(2, 2, 6)):
        assert_as_peer(exe, proto, {"x": X, "shape": shape})


def test_an_input_that_decides_is_an_operand_too() -> None:
    build = ModelBuilder(opset=18)
    x, shape = build.input("x", (2, 3, 4)), build.input("shape", (2,), "int64")
    build.output(build.node("Reshape", [x, shape]), shape=open_shape(2))
    build.output(build.node("Add", [shape, shape]))
    exe = gf.compile(build.model(), threads=1)
    assert_as_peer(exe, build.model(), {"x": X, "shape": ints(6, 4)})


def test_the_default_of_an_input_decides_where_a_run_gives_none() -> None:
    build = ModelBuilder(opset=18)
    x, shape = build.input("x", (2, 3, 4)), build.input("shape", (2,), "int64")
    build.constant(ints(4, 6), "shape")
    build.output(build.node("Reshape", [x, shape]), shape=open_shape(2))
    proto = build.model()
    for axis, dim in enumerate(proto.graph.output[0].type.tensor_type.shape.dim):
        dim.dim_param = f"n{axis}"  # inference believes the default
    exe = gf.compile(proto, threads=1, overridable=["shape"])
    assert exe(X).shape == (4, 6)  # type: ignore[union-attr]
    assert_as_peer(exe, proto, {"x": X, "shape": ints(3, 8)})


# Values that are given when a model is compiled ---------------------------------------------------


def reshaping() -> onnx.ModelProto:
    return model("Reshape", [("x", X), ("shape", ints(4, 6))], 2)


@pytest.mark.parametrize("value", [ints(4, 6), [4, 6]], ids=["array", "list"])
def test_given_values_make_a_model_definite(value: Any) -> None:
    stages: list[str] = []
    exe = gf.compile(reshaping(), threads=1, input_values={"shape": value}, progress=stages.append)
    compiled = len(stages)
    assert exe.deciding == () and exe.outputs[0].shape == (4, 6)
    assert [tensor.name for tensor in exe.inputs] == ["x", "shape"]
    assert_as_peer(exe, reshaping(), {"x": X, "shape": ints(4, 6)})
    assert np.array_equal(exe(X), X.reshape(4, 6))
    assert len(stages) == compiled
    with pytest.raises(InvalidModel, match=r"'shape' is int64\[2\] \[6, 4\], and the program was"):
        exe.run({"x": X, "shape": ints(6, 4)})
    with pytest.raises(InvalidModel, match=r"'shape' is int32\[2\]"):
        exe.run({"x": X, "shape": np.int32([4, 6])})
    for way in (exe.program.run, exe.program.bind):
        with pytest.raises(InvalidModel, match="was compiled for"):
            way({"x": X, "shape": ints(6, 4)})


def test_given_values_stay_in_files(tmp_path: Path) -> None:
    exe = gf.compile(reshaping(), threads=1, input_values={"shape": [4, 6]})
    exe.save(tmp_path / "fixed.gfx")
    loaded = gf.load(tmp_path / "fixed.gfx")
    assert np.array_equal(loaded(X), X.reshape(4, 6))
    assert {name: value.tolist() for name, value in loaded.values.items()} == {"shape": [4, 6]}
    with pytest.raises(InvalidModel, match="was compiled for"):
        loaded.run({"x": X, "shape": ints(6, 4)})


def test_a_file_has_a_program_for_each_value(tmp_path: Path) -> None:
    exe = gf.compile(flattened("N"), threads=1)
    for x, tail in ((X, 2), (X, 1), (X[:1], 2)):
        exe.run({"x": x, "tail": ints(tail)})
    exe.save(tmp_path / "open.gfx")
    loaded = gf.load(tmp_path / "open.gfx")
    for x, tail in ((X[:1], 2), (X, 1), (X, 2)):
        assert_as_peer(loaded, flattened("N"), {"x": x, "tail": ints(tail)})
    with pytest.raises(InvalidModel, match=r"tail: int64\[1\] = \[2\].*none for x: \[1, 3, 4\]"):
        loaded.run({"x": X[:1], "tail": ints(1)})
    with pytest.raises(InvalidModel, match="'tail' is missing"):
        loaded.run({"x": X})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shap": [4, 6]}, "values are given for shap; the model's inputs are x, shape"),
        ({"shape": np.float32([4, 6])}, r"float32\[2\], the model declares int64"),
        ({"shape": [4.5, 6]}, r"float64\[2\], the model declares int64"),
        ({"shape": [4, 6, 1]}, r"has shape \[3\], the model declares \[2\]"),
    ],
)
def test_values_that_do_not_fit_the_model_are_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidModel, match=message):
        gf.compile(reshaping(), input_values=given)


def test_a_value_and_a_shape_that_contradict_each_other_are_refused() -> None:
    build = ModelBuilder(opset=18)
    shape = build.input("shape", ("rank",), "int64")
    x = build.input("x", (2, 3, 4))
    build.output(build.node("Reshape", [x, shape]), shape=open_shape(2))
    with pytest.raises(InvalidModel, match=r"shape \(3,\) and a value of shape \(2,\)"):
        gf.compile(build.model(), input_shapes={"shape": (3,)}, input_values={"shape": [4, 6]})


def test_values_are_compiled_for_before_the_first_run() -> None:
    stages: list[str] = []
    exe = gf.compile(reshaping(), threads=1, progress=stages.append)
    exe.precompile(values={"shape": [4, 6]})
    compiled = len(stages)
    assert_as_peer(exe, reshaping(), {"x": X, "shape": ints(4, 6)})
    assert len(stages) == compiled
    with pytest.raises(InvalidModel, match="value of input 'shape' is missing"):
        exe.precompile()


# Refusals -----------------------------------------------------------------------------------------


def test_a_shape_of_something_that_is_no_input_is_refused_at_once() -> None:
    with pytest.raises(InvalidModel, match="shapes are given for X; the model's inputs are x"):
        gf.compile(reshaping(), input_shapes={"X": (2, 3, 4)})


def test_runs_that_do_not_fit_are_refused_before_anything_is_compiled() -> None:
    stages: list[str] = []
    exe = gf.compile(reshaping(), threads=1, progress=stages.append)
    stages.clear()
    for inputs, message in (
        ({"x": X}, "'shape' is missing; the inputs are x: float32"),
        ({"x": X, "shape": np.int32([4, 6])}, "'shape' is int32, the model expects shape: int64"),
        ({"x": X, "shape": ints(4, 6), "y": X}, "there is no input 'y'"),
        ({"shape": ints(4, 6)}, "'x' is missing"),
        ({"X": X, "x": X}, "'shape' is missing, there is no input 'X'"),
    ):
        with pytest.raises(InvalidModel, match=message):
            exe.run(inputs)
    assert stages == []


def test_a_value_that_the_operator_refuses_is_refused_at_its_run_alone() -> None:
    exe = gf.compile(reshaping(), threads=1)
    for _ in range(2):
        with pytest.raises(InvalidModel, match="24 elements do not determine the shape"):
            exe.run({"x": X, "shape": ints(5, -1)})
    assert exe.run({"x": X, "shape": ints(4, 6)})["reshape_1"].shape == (4, 6)


def test_the_import_names_the_inputs_that_decide() -> None:
    with pytest.raises(ValuesNeeded, match="depends on the values of tail") as caught:
        import_model(flattened())
    assert caught.value.inputs == ("tail",)
    assert import_model(flattened(), input_values={"tail": [2]}).inputs == ("x", "tail")


def test_values_of_a_large_input_decide_nothing() -> None:
    build = ModelBuilder(opset=18)
    x = build.input("x", (2 * VALUE_LIMIT,), "int64")
    shape = build.node("ReduceMax", [x], keepdims=1)
    build.output(build.node("Reshape", [x, shape]), shape=open_shape(1), dtype="int64")
    with pytest.raises(UnsupportedOp, match=f"graph input x, and that has {2 * VALUE_LIMIT}") as e:
        gf.compile(build.model(), options=STRICT)
    assert not isinstance(e.value, ValuesNeeded)


def test_values_that_take_too_much_to_compute_decide_nothing() -> None:
    build = ModelBuilder(opset=18)
    x, shape = build.input("x", (1, 1)), build.input("shape", (1,), "int64")
    large = build.node("Expand", [shape, build.constant(ints(10**9))])
    largest = build.node("ReduceMax", [large], keepdims=1)
    build.output(build.node("Reshape", [x, largest]), shape=open_shape(1))
    with pytest.raises(UnsupportedOp, match="touches 1000000002 elements"):
        gf.compile(build.model(), options=STRICT).run({"x": X[:1, 0, :1], "shape": ints(1)})


def test_values_that_onnxruntime_computes_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a kernel of Det, the Reshape behind it has none either; the rest is as ever."""
    monkeypatch.delitem(OPERATORS, "Det")
    build = ModelBuilder(opset=18)
    x, square = build.input("x", (2, 3, 4)), build.input("square", (1, 1, 1))
    size = build.node("Cast", [build.node("Det", [square])], to=onnx.TensorProto.INT64)
    wanted = build.node("Concat", [size, build.constant(ints(-1))], axis=0)
    build.output(build.node("Reshape", [x, wanted]), shape=open_shape(2))
    exe = gf.compile(build.model(), threads=1)
    assert exe.deciding == () and {node.op for node in exe.foreign} >= {"Det", "Reshape"}
    for rows in (2, 4):
        inputs = {"x": X, "square": np.full((1, 1, 1), rows, np.float32)}
        assert_as_peer(exe, build.model(), inputs)


def test_a_model_with_foreign_nodes_is_specialized_too(tmp_path: Path) -> None:
    build = ModelBuilder(opset=18)
    x, shape = build.input("x", (4, 4)), build.input("shape", (3,), "int64")
    y = build.node("Reshape", [build.add(x, x), shape])
    build.output(build.node("Det", [y]), shape=open_shape(1))
    proto = build.model()
    exe = gf.compile(proto, threads=1)
    x_values = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    for count, size in ((1, 4), (4, 2)):
        assert_as_peer(exe, proto, {"x": x_values, "shape": ints(count, size, size)})
    assert len(exe.specializations) == 2
    exe.save(tmp_path / "foreign.gfx")
    loaded = gf.load(tmp_path / "foreign.gfx")
    assert_as_peer(loaded, proto, {"x": x_values, "shape": ints(4, 2, 2)})


def test_a_small_integer_input_selects_a_branch_natively() -> None:
    """A sample rate selects between branches of other shapes; nothing runs in a section."""
    given = parsed(
        """g (float[2,3] x, int64 rate) => (float[n,3] y) { c = Equal(rate, high)
            y = If (c) <
                then_branch = t () => (float[2,3] a) { a = Neg(x) },
                else_branch = e () => (float[4,3] b) { b = Concat <axis = 0> (x, x) } > }""",
        high=np.array(16000),
    )
    exe = gf.compile(given, options=gf.Options(threads=1))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for rate, expected in ((16000, -x), (8000, np.concatenate([x, x])), (16000, -x)):
        found = exe.run({"x": x, "rate": np.array(rate)})["y"]
        np.testing.assert_array_equal(found, expected)
    assert len(exe.specializations) == 2
    assert not any(one.foreign for one in exe.specializations)


def doubling() -> onnx.ModelProto:
    build = ModelBuilder(name="doubling")
    build.output(build.add(build.input("x", ("n",)), "x"), shape=("n",))
    return build.model()


def test_the_number_of_programs_that_are_kept_is_an_option_and_is_counted() -> None:
    exe = gf.compile(doubling(), options=gf.Options(threads=1, programs=2))
    for n in (1, 2, 1, 3, 1):
        np.testing.assert_array_equal(exe.run({"x": np.ones(n, "f")})["add_1"], 2 * np.ones(n))
    counts = exe.report()["programs"]
    assert counts == {"compiled": 3, "kept": 2, "most": 2, "dropped": 1}
    assert [one.inputs[0].shape for one in exe.specializations] == [(3,), (1,)]
    with pytest.raises(gf.GraphflowError, match=r"Options\.programs is 0"):
        gf.Options(programs=0)


def test_what_dropped_programs_had_is_freed() -> None:
    """Kernels, with their code and proofs, and what compilations remember."""
    build = ModelBuilder(seed=1)
    x = build.input("x", (1, 16, 7, "n"))
    build.output(build.relu(build.conv(x, 32, 3, pads=[1, 1, 1, 1])))
    exe = gf.compile(build.model(), options=gf.Options(threads=1, workers=0, programs=2))

    def run(width: int) -> tuple[int, int, int]:
        exe.run({"x": np.ones((1, 16, 7, width), np.float32)})
        gc.collect()
        left = Counter(map(type, gc.get_objects()))
        kept = sum(cache.cache_info().currsize for cache in caches())
        return left[LoweredKernel], left[Schedule], kept

    after_two = [run(width) for width in (9, 11)][-1]
    assert all(after_two)
    for width in (13, 15, 17, 19):
        assert all(now <= 1.25 * then for now, then in zip(run(width), after_two, strict=True))


def test_a_warning_says_once_that_every_run_compiles(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    exe = gf.compile(doubling(), options=gf.Options(threads=1, programs=2))
    exe.precompile([{"x": (n,)} for n in (7, 8, 9)])  # asked for, so nothing to warn of
    for n in (1, 2, 2, 3, 4):
        exe.run({"x": np.ones(n, "f")})
    assert not recwarn.list
    for n in (1, 2, 3, 1, 2, 3, 1):
        exe.run({"x": np.ones(n, "f")})
    (warned,) = recwarn.list
    assert "each of the last 3 runs of doubling compiled a program" in str(warned.message)
    assert "Options(programs=" in str(warned.message)
    assert warned.filename == __file__
    exe.save(tmp_path / "doubling.gfx")
    assert gf.load(tmp_path / "doubling.gfx").report()["programs"] is None


# Sizes --------------------------------------------------------------------------------------------

ROWS = "g (float[n,4] x) => (float y) { y = Softmax(x) }"
REVERSED = """g (float[n,4] x) => (float[k,4] y) {
    a = Constant<value=int64[1] {-3}>() e = Constant<value=int64[1] {-9}>()
    z = Constant<value=int64[1] {0}>() t = Constant<value=int64[1] {-1}>() y = Slice(x, a, e, z, t)
}"""


def rows(count: int) -> dict[str, np.ndarray]:
    return {"x": np.arange(4 * count, dtype=np.float32).reshape(count, 4)}


def test_sizes_are_compiled_for_at_once_and_have_one_program() -> None:
    exe = gf.compile(parsed_model(ROWS), sizes={"n": (2, 6)}, options=STRICT)
    assert len(exe.specializations) == 1
    for count in (2, 6, 3):
        assert_as_peer(exe, parsed_model(ROWS), rows(count))
    assert len(exe.specializations) == 1
    said = {"least": 2, "most": 6, "one_program": True, "why_not": ""}
    assert exe.report()["sizes"] == {"n": said}


def test_a_run_beyond_the_bounds_has_a_program_for_its_shape() -> None:
    exe = gf.compile(parsed_model(ROWS), sizes={"n": (2, 6)}, options=STRICT)
    for count in (1, 7, 7, 3):
        assert_as_peer(exe, parsed_model(ROWS), rows(count))
    assert len(exe.specializations) == 3


def test_a_model_that_no_program_serves_says_so_once_and_names_the_node() -> None:
    with pytest.warns(UserWarning, match=r"no program .* \(n from 1 to 6\): Slice node") as said:
        exe = gf.compile(parsed_model(REVERSED), sizes={"n": (1, 6)}, options=STRICT)
        for count in (1, 6, 3):
            assert_as_peer(exe, parsed_model(REVERSED), rows(count))
    assert len(said) == 1
    about = exe.report()["sizes"]["n"]
    assert not about["one_program"] and "Slice" in about["why_not"]


def test_programs_for_sizes_count_among_those_that_are_kept() -> None:
    options = gf.Options(threads=1, fallback=None, programs=1)
    exe = gf.compile(parsed_model(ROWS), sizes={"n": (1, 3)}, options=options)
    for count in (2, 5, 1, 6, 3):
        assert_as_peer(exe, parsed_model(ROWS), rows(count))
    assert len(exe.specializations) == 1


def test_precompiling_within_the_bounds_finds_the_program() -> None:
    exe = gf.compile(parsed_model(ROWS), sizes={"n": (1, 6)}, options=STRICT)
    exe.precompile({"x": (3, 4)})
    assert len(exe.specializations) == 1
    exe.precompile({"x": (8, 4)})
    assert len(exe.specializations) == 2


def test_a_size_beside_an_extent_that_is_open() -> None:
    """A program for each of the other extents, and for all of the size."""
    text = "g (float[n,k] x) => (float y) { y = Softmax(x) }"
    exe = gf.compile(parsed_model(text), sizes={"n": (1, 6)}, options=STRICT)
    for shape in ((2, 4), (5, 4), (1, 3), (6, 3)):
        x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
        assert_as_peer(exe, parsed_model(text), {"x": x})
    assert len(exe.specializations) == 2


def test_a_size_beside_a_value_that_decides_a_shape() -> None:
    text = "g (float[n,4] x, int64[3] shape) => (float y) { y = Reshape(x,shape) }"
    proto = parsed_model(text)
    exe = gf.compile(proto, sizes={"n": (1, 6)}, options=STRICT)
    for count, last in ((2, (0, 2, 2)), (5, (0, 2, 2)), (3, (-1, 4, 1))):
        assert_as_peer(exe, proto, {**rows(count), "shape": ints(*last)})
    assert len(exe.specializations) == 2
    with pytest.warns(UserWarning, match="the node states the extents of its output"):
        assert_as_peer(exe, proto, {**rows(6), "shape": ints(6, 2, 2)})
    assert_as_peer(exe, proto, {**rows(2), "shape": ints(2, 2, 2)})


def with_initializers(wrong: str) -> onnx.ModelProto:
    """A sum of an input of open length and `w`, which is stored in a way that is refused."""
    proto = parsed_model("g (float[n, 2] x) => (float[n, 2] y) { y = Add(x, w) }")
    w = onnx.numpy_helper.from_array(np.ones(2, np.float32), "w")
    if wrong == "sparse":
        at = onnx.numpy_helper.from_array(np.arange(2), "at")
        proto.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(w, at, [2]))
    else:
        proto.graph.initializer.extend((w, w))
    return proto


@pytest.mark.parametrize("sizes", [None, {"n": (1, 4)}])
@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ("double", InvalidModel, "^the ONNX checker refuses the model: w initializer name"),
        ("sparse", UnsupportedOp, r"^sparse initializers \['w'\] are not built"),
    ],
)
def test_what_no_shape_makes_valid_is_refused_before_the_first_run(
    wrong: str, error: type[Exception], message: str, sizes: dict[str, tuple[int, int]] | None
) -> None:
    with pytest.raises(error, match=message):
        gf.compile(with_initializers(wrong), sizes=sizes)


def test_the_length_of_an_input_whose_value_decides_is_that_of_each_run() -> None:
    """The shape of its value cannot have room for more; other sizes of the model stay open."""
    proto = parsed_model(
        "g (float[batch,2] x, int64[rank] shape) => (float[batch,2] y, float[] filled)"
        " { y=Relu(x) filled=ConstantOfShape(shape) }"
    )
    exe = gf.compile(proto, sizes={"rank": (1, 4), "batch": (1, 8)})
    for batch, extents in [(2, [3]), (5, [3]), (8, [4, 1, 5]), (1, [2, 2])]:
        found = exe.run({"x": np.ones((batch, 2), np.float32), "shape": np.array(extents)})
        np.testing.assert_array_equal(found["y"], np.ones((batch, 2), np.float32))
        np.testing.assert_array_equal(found["filled"], np.zeros(extents, np.float32))
    assert len(exe.specializations) == 3


ROWS_OF_TWO = "g (float[n,2] x) => (float[k,2] y) <float[2,2] w = {1.,2.,3.,4.}> { y = Add(x,w) }"
IN_FUNCTION = (
    f"{ROWS_OF_TWO.replace('Add(', 'own.Sum(')} "
    '<domain: "own", opset_import: ["": 17]> Sum (a, b) => (c) { c = Add(a, b) }'
)
INNER_OF_TWO = "g (float[3,n] x) => (float[3,2] y) <float[2,2] w = {1.,2.,3.,4.}> { y=MatMul(x,w) }"


@pytest.mark.parametrize(
    ("text", "shapes", "wrong"),
    [
        pytest.param(ROWS_OF_TWO, [(1, 2), (2, 2), (1, 2)], (4, 2), id="broadcast"),
        pytest.param(IN_FUNCTION, [(1, 2), (2, 2)], (4, 2), id="node by node"),
        pytest.param(INNER_OF_TWO, [(3, 2)], (3, 4), id="shape inference"),
    ],
)
def test_what_is_valid_for_some_extents_alone_is_compiled_for_each(
    text: str, shapes: list[tuple[int, int]], wrong: tuple[int, int]
) -> None:
    """The most of a size is none of these."""
    proto = parsed_model(text)
    with pytest.warns(UserWarning, match="no program of g serves all sizes .* is compiled for"):
        exe = gf.compile(proto, sizes={"n": (1, 8)})
    for shape in shapes:
        assert_as_peer(exe, proto, {"x": np.arange(prod(shape), dtype=np.float32).reshape(shape)})
    with pytest.raises(InvalidModel):
        exe.run({"x": np.zeros(wrong, np.float32)})
    assert len(exe.specializations) == len({*shapes})


def test_a_size_of_the_shape_of_a_value_leaves_others_unsure() -> None:
    """Of an Expand to 3 rows, the most of a batch is refused: each batch has its own program, and
    one warning says why."""
    text = "g (float[batch,n] x, int64[n] shape) => (float y) { y = Expand(x,shape) }"
    proto = parsed_model(text)
    exe = gf.compile(proto, sizes={"batch": (1, 6), "n": (1, 4)})
    with pytest.warns(UserWarning, match="it is refused") as warned:
        for batch in (1, 3, 1):
            assert_as_peer(exe, proto, {"x": np.ones((batch, 2), np.float32), "shape": ints(3, 2)})
    assert len(warned) == 1 and len(exe.specializations) == 2


def test_what_no_program_beyond_the_bounds_of_a_size_serves_is_tried_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program of 9 rows for all extents of `m` is refused, and the one of a run is found again
    without another import."""
    proto = parsed_model("g (float[n,2] x, float[m,2] z) => (float y) { y = Add(x,z) }")
    compiled: list[CompileRequest] = []

    def counted(request: CompileRequest, shared: Shared, earlier: Sequence[Compiled]) -> Compiled:
        compiled.append(request)
        return compile_graph(request, shared, earlier)

    monkeypatch.setattr(program_maker, "compile_graph", counted)
    exe = gf.compile(proto, sizes={"n": (1, 8), "m": (1, 4)}, options=STRICT)
    for n, m in [(3, 3), (9, 1)] * 3:
        x, z = np.ones((n, 2), np.float32), np.ones((m, 2), np.float32)
        assert_as_peer(exe, proto, {"x": x, "z": z})
    assert len(compiled) == 3 and len(exe.specializations) == 2
