"""One program for every extent of a symbolic dimension: its results are those of onnxruntime,
whatever lies behind the elements that a run gives."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnxruntime import InferenceSession

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.models import named, with_open_batch
from support.sized_fuzz import MOST, NAME, outcomes

OPSET = '<ir_version: 8, opset_import: ["" : 17]>'
ONE_PROGRAM = {
    "elementwise": "y = Relu(x)",
    "two readers": "a = Relu(x) b = Neg(x) y = Add(a, b)",
    "softmax of rows": "y = Softmax<axis = 2>(x)",
    "mean of rows": "y = ReduceMean<axes = [2]>(x)",
    "transposed": "y = Transpose<perm = [0, 2, 1]>(x)",
    "moved inwards": "y = Transpose<perm = [2, 1, 0]>(x)",
    "concat": "a = Relu(x) y = Concat<axis = 1>(a, x)",
    "split": "a, b = Split<axis = 2>(x) y = Mul(a, b)",
    "a shape that is moved": """
        s = Shape(x) i = Constant<value_ints = [0]>() n = Gather(s, i)
        r = Constant<value_ints = [-1]>() t = Concat<axis = 0>(n, r) y = Reshape(x, t)""",
}
EACH_SHAPE = {
    "sum of the axis": "y = ReduceSum<keepdims = 1>(x)",
    "softmax along it": "y = Softmax<axis = 0>(x)",
    "the number": "s = Size(x) y = Cast<to = 1>(s)",
    "a shape as data": "s = Shape(x) y = Cast<to = 1>(s)",
    "merged": "r = Constant<value_ints = [-1]>() y = Reshape(x, r)",
    "running sums": "a = Constant<value_int = 0>() y = CumSum(x, a)",
}


def model_of(nodes: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{OPSET} g (float[{NAME},3,8] x) => (float[] y) {{{nodes}}}")


def compiled(model: onnx.ModelProto, most: int = MOST) -> gf.Executable:
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    options = gf.Options(cache="off", workers=0, threads=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return gf.compile(model, sizes={NAME: (1, most)}, options=options)


def require_right(exe: gf.Executable, model: onnx.ModelProto, extents: tuple[int, ...]) -> None:
    """Compare runs of these extents with onnxruntime, each behind one that leaves NaN."""
    peer = InferenceSession(model.SerializeToString())
    rng = np.random.default_rng(0)
    tails = {tensor.name: tensor.shape[1:] for tensor in exe.inputs}
    for n in extents:
        feeds = {k: rng.standard_normal((n, *t)).astype(np.float32) for k, t in tails.items()}
        exe.run({k: np.full((MOST, *t), np.nan, np.float32) for k, t in tails.items()})
        results = exe.run(feeds)
        for name, wanted in zip(results, peer.run(None, feeds), strict=True):
            np.testing.assert_allclose(results[name], wanted, 1e-4, 1e-4)


@pytest.mark.parametrize("name", ONE_PROGRAM)
def test_one_program_serves_every_extent(name: str) -> None:
    model = model_of(ONE_PROGRAM[name])
    exe = compiled(model)
    require_right(exe, model, (1, 3, MOST, 2))
    assert exe.report()["programs"]["compiled"] == 1
    assert exe.report()["sizes"][NAME]["one_program"]


@pytest.mark.parametrize("name", EACH_SHAPE)
def test_what_depends_on_the_number_is_compiled_for_each_shape(name: str) -> None:
    model = model_of(EACH_SHAPE[name])
    exe = compiled(model)
    require_right(exe, model, (1, 3, 2))
    about = exe.report()["sizes"][NAME]
    assert not about["one_program"] and "only known at run time" in about["why_not"]


def test_a_shape_is_an_output_of_programs_for_one_shape() -> None:
    text = f"{OPSET} g (float[{NAME},3] x) => (int64[2] y) {{y = Shape(x)}}"
    exe = compiled(onnx.parser.parse_model(text))
    for n in (1, 4):
        assert exe.run({"x": np.ones((n, 3), np.float32)})["y"].tolist() == [n, 3]


@pytest.mark.parametrize("network", ["zoo:probe:squeeze_excite:20", "zoo:mobilenet_v3_small"])
def test_networks_run_in_proportion_to_their_batch(network: str) -> None:
    model = named(network)
    assert model is not None
    model = with_open_batch(model, NAME)
    exe = compiled(model)
    require_right(exe, model, (1, 3))
    shared = [step for step in exe.specializations[0].program.spec.run if step.extent >= MOST]
    assert 2 * sum(step.portion is not None for step in shared) > len(shared)


@pytest.mark.parametrize("seed", range(10))
def test_a_random_model(seed: int) -> None:
    assert not [text for text in outcomes(seed) if text.startswith("seed")]


def test_inputs_of_one_size_agree() -> None:
    text = f"{OPSET} g (float[{NAME},3] x, float[{NAME},3] z) => (float[] y) {{y = Add(x, z)}}"
    exe = compiled(onnx.parser.parse_model(text))
    x = np.ones((2, 3), np.float32)
    assert exe.run({"x": x, "z": x})["y"].shape == (2, 3)
    with pytest.raises(InvalidModel, match=r"input 'z' has 3 .* input 'x' has 2 .* the size n"):
        exe.specializations[0].program.run({"x": x, "z": np.ones((3, 3), np.float32)})


def test_an_extent_beyond_the_bounds_has_a_program_of_its_own() -> None:
    exe = compiled(model_of("y = Relu(x)"))
    assert exe.run({"x": np.ones((MOST + 1, 3, 8), np.float32)})["y"].shape[0] == MOST + 1
    assert exe.report()["programs"]["compiled"] == 2


def test_a_saved_program_serves_every_extent(tmp_path: Path) -> None:
    model = model_of(ONE_PROGRAM["softmax of rows"])
    compiled(model).save(tmp_path / "model.gfx")
    loaded = gf.load(tmp_path / "model.gfx")
    require_right(loaded, model, (1, 3, MOST))
    with pytest.raises(InvalidModel, match=f"n from 1 to {MOST}"):
        loaded.run({"x": np.ones((MOST + 1, 3, 8), np.float32)})


@pytest.mark.parametrize("sizes", [{NAME: (0, 3)}, {NAME: (3, 2)}, {"other": (1, 2)}])
def test_sizes_that_no_run_can_have_are_refused(sizes: dict[str, tuple[int, int]]) -> None:
    with pytest.raises(InvalidModel, match="sizes"):
        gf.compile(model_of("y = Relu(x)"), sizes=sizes)


def test_an_index_outside_of_its_axis_is_found_among_what_a_run_gives() -> None:
    text = f"""{OPSET} g (int64[{NAME},2] ids) => (float[] y)
        <float[3,2] table = {{1, 2, 3, 4, 5, 6}}> {{y = Gather(table, ids)}}"""
    exe = compiled(onnx.parser.parse_model(text))
    exe.run({"ids": np.full((MOST, 2), 2)})
    assert exe.run({"ids": np.zeros((1, 2), np.int64)})["y"].shape == (1, 2, 2)
    with pytest.raises(gf.GraphflowError, match="the largest index of tensor ids is 7"):
        exe.run({"ids": np.full((2, 2), 7)})
