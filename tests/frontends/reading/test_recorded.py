"""Tests of shapes that a model records of its tensors and that its nodes contradict."""

import warnings

import numpy as np
import onnx
import pytest
from onnx import helper

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.frontends import import_model
from support.single import noise
from support.texts import parsed

X = {"x": noise(2, 3, 4)}

OPEN = """g (float[2,3,4] x) => ({result} y) {{
    q = Shape (x) f = Cast <to = 1> (q) e = ReduceMax <keepdims = 1> (f) i = Cast <to = 7> (e)
    a = Div (i, i) count = Sub (i, a) d = Slice (extents, zero, count)
    r = Reshape (x, d) u = Exp (r) {rest} }}"""
"""A Reshape to [4, 3, 2]; ONNX's inference knows neither the rank nor the extents."""
REST = "v = Neg (u) y = Softmax <axis = 2> (v)"


def model(rest: str = REST, result: str = "float[a,b,c]", **recorded: list[int]) -> onnx.ModelProto:
    given = parsed(
        OPEN.format(rest=rest, result=result), extents=np.array([4, 3, 2, 7]), zero=np.array([0])
    )
    infos = [helper.make_tensor_value_info(name, 1, shape) for name, shape in recorded.items()]
    given.graph.value_info.extend(infos)
    return given


@pytest.mark.parametrize(
    "recorded",
    [
        {"r": [2, 3, 4]},
        {"r": [12, 2]},
        {"u": [2, 3, 4]},
        {"v": [24]},
        {"r": [2, 3, 4], "v": [3, 3, 2]},
    ],
)
def test_what_is_computed_wins_with_one_warning(recorded: dict[str, list[int]]) -> None:
    name, shape = next(iter(recorded.items()))
    with pytest.warns(UserWarning) as caught:
        exe = gf.compile(model(**recorded), options=gf.Options(threads=1, workers=0))
    (text,) = (str(warning.message) for warning in caught)
    assert caught[0].filename == __file__  # where the caller's code is
    assert f"{shape} of tensor {name}, which is [4, 3, 2]" in text
    found = exe.run(X)["y"]
    parts = np.exp(-np.exp(X["x"].reshape(4, 3, 2)))
    np.testing.assert_allclose(found, parts / parts.sum(2, keepdims=True), rtol=1e-5)
    assert not exe.foreign


def test_shapes_that_follow_from_a_wrong_one_are_not_used() -> None:
    rest = "s = Shape (u) z = Relu (x) y = Reshape (z, s)"
    with pytest.warns(UserWarning, match=r"tensor r, which is"):
        graph = import_model(model(rest, r=[2, 3, 4]))
    assert graph.values["y"].shape == (4, 3, 2)


def test_a_wrong_shape_that_onnx_refuses_gives_way_too() -> None:
    given = parsed("g (float[2,3] x) => (float[a,b] y) { r = Relu (x) y = Neg (r) }")
    given.graph.value_info.append(helper.make_tensor_value_info("r", 1, [1, 3]))
    with pytest.warns(UserWarning, match=r"\[1, 3\] of tensor r, which is \[2, 3\]"):
        assert import_model(given).values["y"].shape == (2, 3)


def test_right_and_open_shapes_are_no_contradiction() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import_model(model(r=[4, 3, 2], u=[-1, 3, 2]))


@pytest.mark.parametrize("recorded", [{}, {"r": [2, 3, 4]}])
def test_the_shape_of_an_output_is_binding(recorded: dict[str, list[int]]) -> None:
    given = model("y = Neg (u)", "float[2,3,4]", **recorded)
    with pytest.raises(InvalidModel, match=r"output y is float32\(4, 3, 2\) .*says float32\(2, 3"):
        import_model(given)


def test_the_shape_of_an_output_gives_way_where_extents_of_inputs_were_chosen() -> None:
    """Its exporter traced an input of five columns, and wrote the shape that the output had."""
    given = parsed("g (float[2,w] x) => (float[5,2] y) { r = Exp (x) y = Transpose (r) }")
    x = noise(2, 7)
    with pytest.warns(UserWarning, match=r"\[5, 2\] of tensor y, which is \[7, 2\]"):
        exe = gf.compile(given, input_shapes={"x": (2, 7)}, options=gf.Options(threads=1))
    np.testing.assert_allclose(exe.run({"x": x})["y"], np.exp(x).T, rtol=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        import_model(given, input_shapes={"x": (2, 5)})
    flat = parsed(
        "g (float[2,w] x) => (float[1,a] y) { r = Exp (x) s = Shape (r) y = Reshape (r, s) }"
    )
    with pytest.warns(UserWarning, match=r"\[1, None\] of tensor y, which is \[2, 7\]"):
        assert import_model(flat, input_shapes={"x": (2, 7)}).values["y"].shape == (2, 7)
    static = parsed("g (float[2,7] x) => (float[5,2] y) { y = Transpose (x) }")
    with pytest.raises(InvalidModel, match="differ in dimension 0"):
        import_model(static)


@pytest.mark.parametrize("rest", ["y = MaxPool", "p = MaxPool"])
def test_the_shape_of_an_output_gives_way_where_onnx_infers_a_wrong_one(rest: str) -> None:
    """Before opset 22 ONNX counts a window that begins behind the image, and exporters state it."""
    pool = f"{rest} <kernel_shape = [2], strides = [3], pads = [1, 1], ceil_mode = 1> (x)"
    text = "g (float[1,1,5] x) => (float[1,1,{0}] y) {{ " + pool
    text += " }}" if rest[0] == "y" else " y = Exp (p) }}"
    with pytest.warns(UserWarning, match=r"\[1, 1, 3\] of tensor y, which is \[1, 1, 2\]"):
        assert import_model(parsed(text.format(3))).values["y"].shape == (1, 1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert import_model(parsed(text.format(2))).values["y"].shape == (1, 1, 2)
    with pytest.raises(InvalidModel, match=r"output y is float32\(1, 1, 2\) .*says float32"):
        import_model(parsed(text.format(4)))


def test_the_shape_of_an_output_is_binding_in_a_branch() -> None:
    text = """g (float[2,3] x) => (float[2,3] y) { y = If (c) <
        then_branch = t () => (float[a,b] p) { p = Transpose (x) },
        else_branch = e () => (float[a,b] q) { q = Neg (x) } > }"""
    with pytest.raises(InvalidModel, match=r"output y is float32\(3, 2\)"):
        import_model(parsed(text, c=np.array(True)))
