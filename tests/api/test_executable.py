"""Tests of `Executable`: its inputs, runs, symbolic shapes, poison mode and refusals."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper, numpy_helper

import graphflow as gf
from graphflow.api.compiled_model import prepares_alike
from graphflow.base.errors import (
    GraphflowError,
    InvalidModel,
    LayoutConflict,
    UnsupportedOp,
    VerifyError,
)
from graphflow.layout import channels_last, row_major
from graphflow.models import ModelBuilder
from graphflow.pipeline.compiler_stages import STAGES
from graphflow.program import random_inputs
from graphflow.runtime import Program
from support.models.peer_sessions import peer_session
from support.models.sized_runs import parsed_model
from support.small_program import padded, small, small_model


def peer(model: onnx.ModelProto, **inputs: NDArray[Any]) -> list[NDArray[Any]]:
    session = peer_session(model)
    return list(session.run(None, inputs))


def image(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_a_path_bytes_and_a_proto_give_the_same_program(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    onnx.save(small_model(), path)
    x = image(1, 5, 6, 6)
    expected = small()(x)
    for model in (path, str(path), path.read_bytes()):
        assert np.array_equal(gf.compile(model, threads=1)(x), expected)
    assert gf.compile(path, threads=1).report()["model"] == str(path)
    assert small().report()["model"] == "small"


def test_results_agree_with_onnxruntime_for_any_strides() -> None:
    x = image(1, 6, 6, 5).transpose(0, 3, 1, 2)
    (expected,) = peer(small_model(), x=np.ascontiguousarray(x))
    np.testing.assert_allclose(small().run({"x": x})["relu_1"], expected, atol=1e-5)
    np.testing.assert_allclose(small()(x), expected, atol=1e-5)


def test_several_outputs_come_as_a_dict_or_a_tuple() -> None:
    build = ModelBuilder()
    x = build.input("x", (3,))
    build.output(build.relu(x), build.node("Neg", [x]))
    exe = gf.compile(build.model(), threads=1)
    values = np.float32([-1, 0, 2])
    assert list(exe.run({"x": values})) == ["relu_1", "neg_1"]
    positive, negated = exe(values)
    assert positive.tolist() == [0, 0, 2] and negated.tolist() == [1, 0, -2]


def test_a_call_needs_a_model_of_one_input() -> None:
    build = ModelBuilder()
    build.output(build.add(build.input("a", (2,)), build.input("b", (2,))))
    with pytest.raises(InvalidModel, match="takes the inputs a, b"):
        gf.compile(build.model(), threads=1)(np.float32([1, 2]))


def model_with_default() -> onnx.ModelProto:
    build = ModelBuilder()
    x = build.input("x", (2,))
    build.input("offset", (2,))
    build.constant(np.float32([10, 20]), "offset")
    build.output(build.add(x, "offset"))
    return build.model()


def test_a_constant_among_the_inputs_is_not_given(tmp_path: Path) -> None:
    exe = gf.compile(model_with_default(), threads=1)
    exe.save(tmp_path / "frozen.gfx")
    ones = np.float32([1, 1])
    for one in (exe, gf.load(tmp_path / "frozen.gfx")):
        assert one(ones).tolist() == [11, 21]
        for value in (ones, np.float32([10, 20])):
            with pytest.raises(InvalidModel, match=r"constants; .*overridable=\['offset'\]"):
                one.run({"x": ones, "offset": value})
    with pytest.raises(InvalidModel, match=r"overridable names \['x'\]"):
        gf.compile(model_with_default(), overridable=["x"])
    (found,) = gf.backend.prepare(model_with_default()).run([ones])
    assert found.tolist() == [11, 21]


def test_inputs_with_a_default_may_be_left_out() -> None:
    exe = gf.compile(model_with_default(), threads=1, overridable=["offset"])
    ones = np.float32([1, 1])
    assert exe(ones).tolist() == [11, 21]
    assert exe.run({"x": ones, "offset": ones})["add_1"].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "'x' is missing"),
        ({"y": image(1, 5, 6, 6)}, "no input 'y'"),
        ({"x": image(1, 5, 6, 7)}, r"float32\[1, 5, 6, 7\]"),
        ({"x": image(1, 5, 6, 6).astype(np.float64)}, "float64"),
    ],
)
def test_wrong_inputs_are_refused(inputs: dict[str, NDArray[Any]], message: str) -> None:
    with pytest.raises(InvalidModel, match=message):
        small().run(inputs)


# Symbolic shapes --------------------------------------------------------------------------------


def test_a_symbolic_batch_compiles_at_the_first_run_and_is_kept() -> None:
    stages: list[str] = []
    exe = gf.compile(small_model("N"), threads=1, progress=stages.append)
    assert stages == []
    for batch in (2, 3, 2):
        x = image(batch, 5, 6, 6)
        (expected,) = peer(small_model("N"), x=x)
        np.testing.assert_allclose(exe(x), expected, atol=1e-5)
    assert len(stages) == 2 * len(STAGES)


def test_programs_for_several_shapes_share_packed_constants() -> None:
    exe = gf.compile(small_model("N"), threads=1)
    for batch in (9, 10, 12):  # fewer images may have weights in other panels
        x = image(batch, 5, 6, 6)
        (expected,) = peer(small_model("N"), x=x)
        np.testing.assert_allclose(exe(x), expected, atol=1e-5)
    made = [one.program.prepared for one in exe.specializations]
    assert made[0].nbytes > 0
    assert len({block.ctypes.data for block in made}) == 1


@pytest.mark.parametrize("change", [lambda w: w + 1, lambda w: np.where(w == 0, -0.0, w)])
def test_other_constants_are_not_shared(change: Callable[[Any], Any]) -> None:
    model, other = small_model(), small_model()
    for proto in (model, other):
        tensor = next(t for t in proto.graph.initializer if len(t.dims) == 4)
        weight = numpy_helper.to_array(tensor).copy()
        weight[0] = 0
        changed = change(weight).astype(np.float32) if proto is other else weight
        tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
    one, same, another = (gf.compile(m, threads=1).compiled for m in (model, model, other))
    assert prepares_alike(one, same)
    assert not prepares_alike(one, another)


def test_constants_in_another_layout_are_not_shared() -> None:
    model = small_model()
    one, other = (
        gf.compile(model, threads=1, layouts={"weight_1": layout})
        for layout in (row_major((7, 5, 3, 3)), channels_last((7, 5, 3, 3)))
    )
    assert one.program.prepared.tobytes() != other.program.prepared.tobytes()
    assert not prepares_alike(one.compiled, other.compiled)


def test_a_program_refuses_constants_of_another_size() -> None:
    build = ModelBuilder(seed=1, name="larger")
    build.output(build.conv(build.input("x", (1, 5, 6, 6)), 70, 3))
    with pytest.raises(VerifyError, match="cannot share"):
        Program(gf.compile(build.model()).compiled.spec, 1, alike=small().program)


def test_before_the_shapes_are_known_questions_ask_for_them() -> None:
    exe = gf.compile(small_model("N"), threads=1)
    for question in (exe.decisions, lambda: exe.compiled, lambda: exe.layouts):
        with pytest.raises(InvalidModel, match="input_shapes="):
            question()
    with pytest.raises(InvalidModel, match="'x' is missing"):
        exe.run({})


def test_what_is_open_is_shown_with_the_names_of_dimensions() -> None:
    exe = gf.compile(small_model("N"), threads=1)
    assert [str(tensor) for tensor in exe.inputs] == ["x: float32[N, 5, 6, 6]"]
    assert [str(tensor) for tensor in exe.outputs] == ["relu_1: float32[N, 7, 6, 6]"]
    assert exe.specializations == ()
    with pytest.raises(InvalidModel, match=r"the shape of x: float32.N, 5, 6, 6. is symbolic"):
        random_inputs(exe.inputs)


def test_each_program_that_there_is_answers() -> None:
    exe = gf.compile(small_model("N"), threads=1)
    assert exe.report()["specializations"] == [] and "nothing is decided" in exe.report()["note"]
    assert "nothing is decided yet" in exe.explain("x")
    with pytest.raises(InvalidModel, match="no tensor 'y'"):
        exe.explain("y")
    exe(image(2, 5, 6, 6))
    assert exe.layouts["relu_1"].logical_shape == (2, 7, 6, 6)
    exe(image(3, 5, 6, 6))
    with pytest.raises(InvalidModel, match="this needs a single one"):
        _ = exe.layouts
    one, other = exe.specializations
    assert one.layouts["relu_1"].logical_shape == (2, 7, 6, 6)
    assert other.inputs[0].shape == (3, 5, 6, 6)
    first, second = exe.report()["specializations"]
    assert first == {"for": "x: float32[2, 5, 6, 6]", **one.report()}
    assert second["for"] == "x: float32[3, 5, 6, 6]"
    assert exe.explain("x").count("for x: float32[") == 2


def test_what_no_shape_makes_right_is_refused_before_the_shapes_are_known() -> None:
    model = small_model("N")
    model.graph.node[-1].domain = "com.example"
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(UnsupportedOp, match=r"not built: com\.example\.Relu"):
        gf.compile(model, options=gf.Options(fallback=None))
    build = ModelBuilder()
    build.output(build.node("Identity", [build.input("x", ("N",), "complex64")]))
    with pytest.raises(UnsupportedOp, match="graph input x has dtype complex64"):
        gf.compile(build.model(), options=gf.Options(fallback=None))


def test_given_input_shapes_make_a_symbolic_model_definite() -> None:
    exe = gf.compile(small_model("N"), threads=1, input_shapes={"x": (4, 5, 6, 6)})
    assert exe.inputs[0].shape == (4, 5, 6, 6)
    assert exe.layouts["relu_1"].logical_shape == (4, 7, 6, 6)
    with pytest.raises(InvalidModel, match="expects"):
        exe(image(2, 5, 6, 6))


def test_a_given_shape_that_does_not_fit_is_refused_while_others_are_open() -> None:
    model = parsed_model("g (float[b,4] x, float[b,4] z) => (float y) { y = Mul(x, z) }")
    with pytest.raises(InvalidModel, match=r"\(3, 5\) is given for x, the model says"):
        gf.compile(model, input_shapes={"x": (3, 5)})


def test_two_threads_share_one_compilation() -> None:
    stages: list[str] = []
    exe = gf.compile(small_model("N"), threads=1, progress=stages.append)
    x = image(2, 5, 6, 6)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(exe, (x, x))
    assert np.array_equal(first, second)
    assert len(stages) == len(STAGES)


def test_shapes_are_compiled_before_the_first_run() -> None:
    stages: list[str] = []
    exe = gf.compile(small_model("N"), threads=1, progress=stages.append)
    exe.precompile([{"x": (2, 5, 6, 6)}, {"x": (3, 5, 6, 6)}, {"x": (2, 5, 6, 6)}])
    assert len(stages) == 2 * len(STAGES)
    for batch in (2, 3):
        exe(image(batch, 5, 6, 6))
    assert len(stages) == 2 * len(STAGES)
    for shapes, message in (
        ({}, "shape of input 'x' is missing"),
        ({"y": (2,)}, "there is no input 'y'"),
        ({"x": (2, 6, 6, 6)}, "only symbolic dimensions can be chosen"),
    ):
        with pytest.raises(InvalidModel, match=message):
            exe.precompile(shapes)


def test_a_model_that_is_compiled_takes_its_own_shape_alone() -> None:
    exe = gf.compile(small_model(), threads=1)
    exe.precompile({"x": (1, 5, 6, 6)})
    with pytest.raises(InvalidModel, match="does not fit the inputs: x"):
        exe.precompile({"x": (2, 5, 6, 6)})


# Options ----------------------------------------------------------------------------------------


def test_outputs_do_not_depend_on_poison() -> None:
    plain, poisoned = padded()
    inputs = random_inputs(plain.inputs)
    assert poisoned.inputs == plain.inputs
    assert poisoned.poisoned > 0 == plain.poisoned
    expected = plain.run(inputs)
    for value in (float("nan"), -42.0):
        found = poisoned.run(inputs, poison=value)
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_a_pinned_layout_is_taken_or_refused() -> None:
    pinned = gf.compile(small_model(), threads=1, layouts={"x": "NCHW"})
    assert pinned.layouts["x"].describe() == "NCHW"
    with pytest.raises(LayoutConflict, match="cannot pin nothing"):
        gf.compile(small_model(), threads=1, layouts={"nothing": "NHWC"})


def test_threads_are_an_argument_and_an_option() -> None:
    assert small().threads == 1
    assert gf.compile(small_model(), options=gf.Options(threads=2)).threads == 2
    with pytest.raises(GraphflowError, match="threads"):
        gf.compile(small_model(), threads=0)


def test_a_dump_has_a_file_for_each_stage_and_kernel(tmp_path: Path) -> None:
    exe = gf.compile(small_model(), options=gf.Options(threads=1, dump=str(tmp_path)))
    stages = {path.name.split("-", 1)[1] for path in tmp_path.glob("*.txt")}
    assert {"import.txt", "fuse.txt", "flow.txt", "convert.txt", "lower.txt"} <= stages
    for symbol in exe.compiled.lowered.kernels:
        for kind in ("definition", "schedule", "tir", "ll", "s"):
            assert (tmp_path / "kernels" / f"{symbol}.{kind}.txt").read_text().strip()
    assert (tmp_path / "timings.json").exists()


def test_errors_name_the_stage() -> None:
    build = ModelBuilder()
    build.output(build.node("RandomNormalLike", [build.input("x", (2, 2))]))
    with pytest.raises(UnsupportedOp, match="RandomNormalLike") as caught:
        gf.compile(build.model(), options=gf.Options(fallback=None))
    assert "in stage import" in caught.value.__notes__


# The backend API --------------------------------------------------------------------------------


def test_the_backend_runs_models_and_nodes() -> None:
    x = image(1, 5, 6, 6)
    prepared = gf.backend.prepare(small_model())
    (found,) = prepared.run([x])
    assert np.array_equal(found, small()(x))
    assert np.array_equal(gf.backend.run_model(small_model(), [x])[0], found)
    node = helper.make_node("Add", ["a", "b"], ["c"])
    (total,) = gf.backend.run_node(node, [np.float32([1, 2]), np.float32([3, 4])])
    assert total.tolist() == [4, 6]


def test_the_backend_knows_its_limits() -> None:
    assert gf.backend.supports_device("CPU") and not gf.backend.supports_device("CUDA:0")
    with pytest.raises(UnsupportedOp, match="CUDA"):
        gf.backend.prepare(small_model(), "CUDA")
    with pytest.raises(InvalidModel, match="2 arrays"):
        gf.backend.prepare(small_model()).run([image(1), image(1)])
    with pytest.raises(UnsupportedOp, match="RandomNormalLike"):
        gf.backend.run_node(helper.make_node("RandomNormalLike", ["a"], ["b"]), [image(2, 2)])


def test_the_plan_is_printed_one_level_above_the_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    gf.compile(small_model(), options=gf.Options(threads=1, debug=2))
    graphs = capsys.readouterr().err
    gf.compile(small_model(), options=gf.Options(threads=1, debug=3))
    plans = capsys.readouterr().err
    assert "conv_1_node: Conv" in graphs and "optimality gap" not in graphs
    assert "optimality gap" in plans and "@primfunc" in plans and "define void" not in plans


def test_float64_is_computed_in_float64() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 3, 5, 5)), rng.standard_normal((4, 3, 1, 1))
    build = ModelBuilder()
    build.output(build.node("Conv", [build.input("x", x.shape, "float64"), build.constant(w)]))
    found = gf.compile(build.model(), threads=1)(x)
    expected = np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0])
    assert isinstance(found, np.ndarray) and found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


def test_a_run_is_awaited_while_others_are_under_way() -> None:
    exe, x = gf.compile(small_model("batch"), threads=2), image(1, 5, 6, 6)
    batches = [np.concatenate([x + k] * (1 + k % 2)) for k in range(6)]
    buffer = np.empty((1, 7, 6, 6), np.float32)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def serve() -> list[dict[str, NDArray[Any]]]:
        clock = asyncio.create_task(tick())
        found = await asyncio.gather(*(exe.run_async({"x": batch}) for batch in batches))
        clock.cancel()
        written = await exe.run_async({"x": x}, out={"relu_1": buffer})
        assert written["relu_1"] is buffer
        with pytest.raises(InvalidModel, match="'x' is missing"):
            await exe.run_async({})
        return found

    for batch, found in zip(batches, asyncio.run(serve()), strict=True):
        assert np.array_equal(found["relu_1"], exe(batch))
    assert np.array_equal(buffer, exe(x)) and ticks > 1
