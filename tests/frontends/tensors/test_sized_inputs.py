"""Tests of inputs whose extents are sizes: the graph gets an integer input for each size."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.base.sizes import Size
from graphflow.frontends import sized_axes, stating_inputs
from support.models.sized_runs import parsed_model

N, M = Size("n", 1, 4), Size("m", 2, 3)


def model() -> onnx.ModelProto:
    return parsed_model("g (float[n,m] x, float[n,k,n] n) => (float y) { y=Relu(x) }")


def test_all_axes_with_the_name_of_a_size_have_it() -> None:
    found = sized_axes(model(), [N, M])
    assert found == {N: (("x", 0), ("n", 0), ("n", 2)), M: (("x", 1),)}
    assert sized_axes(model(), []) == {}


def test_a_size_that_no_dimension_has_the_name_of_is_refused() -> None:
    with pytest.raises(InvalidModel, match=r"sizes names 'b'; the symbolic dim.* are n, m, k"):
        sized_axes(model(), [Size("b", 1, 2)])
    fixed = parsed_model("g (float[2] x) => (float y) { y=Relu(x) }")
    with pytest.raises(InvalidModel, match="the symbolic dimensions of the inputs are none"):
        sized_axes(fixed, [N])


STATED = "g (float[4,n] x, int32[1] n, float[1] f) => (float y) { y=Relu(x) }"


def test_an_input_of_one_integer_may_have_the_name_of_a_size() -> None:
    proto = parsed_model(
        "g (float[n] x, int32[1] k, int64 n, float[1] f) => (float y) { y=Relu(x) }"
    )
    assert stating_inputs(proto) == ["k", "n"]
    assert sized_axes(proto, [N, Size("k", 1, 2)]) == {N: (("x", 0),), Size("k", 1, 2): ()}
    wanted = "dimensions of the inputs are n, and their single integers k, n"
    with pytest.raises(InvalidModel, match=wanted):
        sized_axes(proto, [Size("f", 1, 2)])
    with pytest.raises(InvalidModel, match="leaves 'k' open, and the value of this input is given"):
        gf.compile(proto, sizes={"k": (1, 4)}, input_values={"k": [2]})


def test_a_constant_input_states_no_size() -> None:
    text = "g (float[4,n] x, int64 k) => (float y) <int64 one={1}> { r=Range(one,k,one) "
    proto = parsed_model(text + "f=Cast<to=1>(r) s=ReduceSum<keepdims=0>(f) y=Mul(x,s) }")
    proto.graph.initializer.append(numpy_helper.from_array(np.array(3), "k"))
    assert stating_inputs(proto) == [] and stating_inputs(proto, ["k"]) == ["k"]
    with pytest.raises(InvalidModel, match=r"the symbolic dimensions of the inputs are n$"):
        gf.compile(proto, sizes={"k": (1, 4)})
    exe = gf.compile(proto, sizes={"n": (1, 4), "k": (1, 4)}, overridable=["k"])
    x = np.ones((4, 2), np.float32)
    assert (exe.run({"x": x})["y"] == 3).all()
    assert (exe.run({"x": x, "k": np.array(4)})["y"] == 6).all()
    assert len(exe.specializations) == 1


def test_a_program_has_the_size_from_the_axes_and_the_integer() -> None:
    exe = gf.compile(parsed_model(STATED), sizes={"n": (1, 4)})
    (size,) = exe.program.spec.sizes
    assert (size.axes, size.element, size.hi) == (((0, 1),), 1, 4)
    one = np.ones(1, np.float32)
    x = np.ones((4, 3), np.float32)
    assert exe.run({"x": x, "n": np.array([3], np.int32), "f": one})["y"].shape == (4, 3)


def test_a_size_of_an_input_whose_shape_is_given_is_refused() -> None:
    proto = parsed_model("g (float[n,2] x) => (float y) { y=Relu(x) }")
    with pytest.raises(InvalidModel, match="leaves 'n' open, the extent of input x along axis 0"):
        gf.compile(proto, sizes={"n": (1, 4)}, input_shapes={"x": (2, 2)})


def test_a_program_holds_each_size_behind_the_models_own_inputs() -> None:
    """Also where an input has the name of the size."""
    text = "g (float[n,m] n) => (float y) { y=Relu(n) }"
    exe = gf.compile(parsed_model(text), sizes={"n": (1, 4), "m": (2, 3)})
    spec = exe.program.spec
    assert [(t.dtype, t.shape) for t in spec.inputs] == [
        ("float32", (4, 3)), ("int64", ()), ("int64", ()),
    ]  # fmt: skip
    assert len({t.name for t in spec.inputs}) == 3
    assert [(s.name, s.input, s.lo, s.hi, s.axes) for s in spec.sizes] == [
        ("n", 1, 1, 4, ((0, 0),)), ("m", 2, 2, 3, ((0, 1),)),
    ]  # fmt: skip
    assert spec.input_names == ["n"]
