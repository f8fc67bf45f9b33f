"""Tests of models whose inputs and outputs are sequences or optionals of tensors, all native."""

import pickle

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

import graphflow as gf
from graphflow.base.errors import GraphflowError, InvalidModel, RunError
from support.single import noise

NATIVE = gf.Options(fallback=None, workers=0)
TENSOR = helper.make_tensor_type_proto(TensorProto.FLOAT, None)


def model_of(text: str, inputs: dict[str, onnx.TypeProto], outputs: dict[str, onnx.TypeProto]):
    model = parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>\n' + text)
    for infos, types in ((model.graph.input, inputs), (model.graph.output, outputs)):
        for info in infos:
            if info.name in types:
                info.type.CopyFrom(types[info.name])
    return model


@pytest.fixture(scope="module")
def doubled() -> gf.Executable:
    sequence = helper.make_sequence_type_proto(TENSOR)
    text = """g (float[n] s, float[2] x) => (float[k] count, float[m] t, float[2] y) {
        one = Constant <value = int64 {-1}> () last = SequenceAt(s, one) twice = Add(last, last)
        t = SequenceInsert(s, twice) count = SequenceLength(t) y = Neg(x) }"""
    model = model_of(text, {"s": sequence}, {"t": sequence})
    model.graph.output[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.INT64, ()))
    return gf.compile(model, options=NATIVE)


def test_sequences_are_lists_of_arrays(doubled):
    for shapes in ([(2, 3)], [(2,), (3, 1)], [(4,), (4,), (4,)]):
        given = [noise(*shape, seed=k) for k, shape in enumerate(shapes)]
        x = noise(2)
        found = doubled.run({"s": given, "x": x})
        assert list(found) == ["count", "t", "y"] and found["count"] == len(shapes) + 1
        for array, expected in zip(found["t"], [*given, given[-1] * 2], strict=True):
            np.testing.assert_array_equal(array, expected)
        np.testing.assert_array_equal(found["y"], -x)
    assert doubled.foreign == ()


def test_the_program_of_a_list_can_be_saved_and_it_returns_lists(doubled, tmp_path):
    given = {"s": [noise(3)], "x": noise(2)}
    expected = doubled.run(given)
    with pytest.raises(GraphflowError, match="cannot be saved"):
        doubled.save(tmp_path / "lists.gfx")
    with pytest.raises(GraphflowError, match="cannot be saved"):
        pickle.dumps(doubled)
    (one,) = doubled.specializations
    one.save(tmp_path / "one.gfx")
    found = gf.load(tmp_path / "one.gfx").run({"s[0]": given["s"][0], "x": given["x"]})
    assert len(found["t"]) == 2
    np.testing.assert_array_equal(found["t"][1], expected["t"][1])


def test_what_is_no_list_is_refused(doubled):
    x = noise(2)
    for given, error in (
        ({"s": noise(3), "x": x}, "give a list of arrays"),
        ({"s": None, "x": x}, "is None, and no optional"),
        ({"x": x}, "'s' is missing"),
        ({"s": [noise(3)]}, "'x' is missing"),
    ):
        with pytest.raises(InvalidModel, match=error):
            doubled.run(given)


def test_nothing_is_known_before_the_first_run():
    text = "g (float[n] s) => (int64 n) { n = SequenceLength(s) }"
    model = model_of(text, {"s": helper.make_sequence_type_proto(TENSOR)}, {})
    exe = gf.compile(model, options=NATIVE)
    with pytest.raises(InvalidModel, match="before the first run"):
        exe.report()
    assert exe.run({"s": []})["n"] == 0
    assert exe.report()["summary"]["sections"] == 0


def test_optionals_hold_a_tensor_or_nothing():
    optional = helper.make_optional_type_proto(TENSOR)
    text = (
        "g (float[n] o) => (bool has, float[m] p) { has = OptionalHasElement(o) p = Identity(o) }"
    )
    exe = gf.compile(model_of(text, {"o": optional}, {"p": optional}), options=NATIVE)
    x = noise(2, 3)
    found = exe.run({"o": x})
    assert found["has"] and np.array_equal(found["p"], x)
    found = exe.run({"o": None})
    assert not found["has"] and found["p"] is None


def test_a_run_takes_one_of_several_tensors_of_a_sequence():
    text = """g (float[2,3] x, float[2,3] z, int64 k) => (float[2,3] y) {
        s = SequenceConstruct(x, z) y = SequenceAt(s, k) }"""
    exe = gf.compile(model_of(text, {}, {}), options=NATIVE)
    x, z = noise(2, 3), noise(2, 3, seed=1)
    for k in (0, 1, -1, -2):
        np.testing.assert_array_equal(exe.run({"x": x, "z": z, "k": np.array(k)})["y"], (x, z)[k])
    with pytest.raises(RunError, match="is 2"):
        exe.run({"x": x, "z": z, "k": np.array(2)})
