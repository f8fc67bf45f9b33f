"""Tests of sessions: the same code runs with onnxruntime and with graphflow."""

import json
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import graphflow as gf
from graphflow.base.errors import GraphflowError, InvalidModel, UnsupportedOp
from support.exporters import Exporter
from support.fresh_interpreters import run_fresh
from support.models.session_models import (
    MODULES,
    rows,
    session,
    small_net,
    strings_and_sequences,
    where_nonzero,
    with_default,
)

with_both = pytest.mark.parametrize("ort", MODULES, ids=lambda module: module.__name__)
MODELS = (small_net, with_default, where_nonzero, strings_and_sequences)


@pytest.mark.parametrize("model", MODELS, ids=lambda make: make.__name__)
def test_a_session_describes_its_model_as_onnxruntime_does(model: Any) -> None:
    theirs, ours = (session(module, model()) for module in MODULES)
    for ask in ("get_inputs", "get_outputs", "get_overridable_initializers"):
        expected, found = (
            [(arg.name, arg.type, arg.shape) for arg in getattr(one, ask)()]
            for one in (theirs, ours)
        )
        assert found == expected
    expected, found = theirs.get_modelmeta(), ours.get_modelmeta()
    for name in dir(found):
        if not name.startswith("_"):
            assert getattr(found, name) == getattr(expected, name), name
    assert ours.get_providers() == theirs.get_providers() == ["CPUExecutionProvider"]
    assert ours.get_provider_options() == theirs.get_provider_options()
    assert ours.get_session_options().intra_op_num_threads == 1


@with_both
def test_outputs_come_in_the_order_of_the_names(ort: Any) -> None:
    sess, x = session(ort, small_net()), rows(3)
    y, z = sess.run(None, {"x": x})
    assert np.array_equal(y, np.maximum(z, 0)) and y.shape == (3, 8)
    assert np.array_equal(sess.run(["z", "y"], {"x": x}), [z, y])
    assert np.array_equal(sess.run(["z"], {"x": x.tolist()}), [z])
    assert np.array_equal(sess.run([], {"x": rows(5)})[0].shape, (5, 8))
    np.testing.assert_allclose(z, session(onnxruntime, small_net()).run(["z"], {"x": x})[0], 1e-5)


@with_both
def test_an_initializer_among_the_inputs_may_be_given(ort: Any) -> None:
    sess, x = session(ort, with_default()), np.float32([1, 1, 1])
    assert [arg.name for arg in sess.get_inputs()] == ["x"]
    assert sess.run(None, {"x": x})[0].tolist() == [2, 3, 4]
    assert sess.run(None, {"x": x, "b": x})[0].tolist() == [2, 2, 2]
    assert sess.run(None, {"x": x})[0].tolist() == [2, 3, 4]


@with_both
def test_a_script_may_write_into_the_shapes_that_it_asks_for(ort: Any) -> None:
    sess = session(ort, small_net())
    for asked in (sess.get_inputs, sess.get_outputs):
        wanted = asked()[0].shape
        wanted[0] = 2
        assert asked()[0].shape[0] == "N"


@with_both
def test_strings_and_sequences_are_passed_on(ort: Any) -> None:
    sess, x = session(ort, strings_and_sequences()), np.float32([1, 2])
    s, e = sess.run(None, {"x": x, "t": np.array(["a", "b"], object)})
    assert np.array_equal(s, [x, x]) and e.tolist() == ["a", "b", "a", "b"]
    if ort is onnxruntime:  # which binds numbers only
        return
    binding = sess.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_input("t", np.array(["a", "b"], object))
    binding.bind_output("s")
    binding.bind_output("e")
    sess.run_with_iobinding(binding)
    s, e = binding.get_outputs()
    assert s.is_tensor_sequence() and s.data_type() == "seq(tensor(float))"
    assert e.data_type() == "tensor(string)" and e.shape() == [4]


@with_both
def test_wrong_names_and_arrays_are_refused(ort: Any) -> None:
    sess, x = session(ort, small_net()), rows(2)
    with pytest.raises(ValueError, match=r"Required inputs \(\['x'\]\) are missing"):
        sess.run(None, {"q": x})
    for names, feeds, message in (
        (["w"], {"x": x}, "Invalid output name: ?w"),
        (None, {"x": x, "q": x}, "Invalid input name: q"),
        (None, {"x": x.astype(np.float64)}, "double|float64"),
        (None, {"x": x[:, :3]}, "invalid dimensions|only symbolic"),
    ):
        with pytest.raises(Exception, match=message):
            sess.run(names, feeds)
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(Exception, match="terminate flag"):
        sess.run(None, {"x": x}, options)


@with_both
def test_a_callback_gets_the_results_or_the_error(ort: Any) -> None:
    # Of one thread, onnxruntime has none for this.
    sess, x = session(ort, small_net(), 2), rows(2)
    for feeds, fails in (({"x": x}, False), ({"x": x[:, :3]}, True)):
        done = threading.Event()
        told: list[Any] = []
        sess.run_async(["y"], feeds, lambda *a, t=told, d=done: (t.append(a), d.set()), "mine")
        assert done.wait(60)
        ((results, user_data, error),) = told
        assert user_data == "mine" and bool(error) == fails and len(results) == (not fails)


@with_both
def test_values_and_tensors_of_others_are_inputs(ort: Any) -> None:
    sess, x = session(ort, small_net()), rows(2)
    value = ort.OrtValue.ortvalue_from_numpy(x)
    (y,) = sess.run(["y"], {"x": value})
    (found,) = sess.run_with_ort_values(["y"], {"x": value})
    assert np.array_equal(found.numpy(), y) and found.shape() == [2, 8]
    if ort is gf:
        assert np.array_equal(sess.run(["y"], {"x": Exporter(x)})[0], y)


@with_both
def test_providers_that_are_not_there_are_named(ort: Any) -> None:
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available"):
        sess = ort.InferenceSession(
            small_net(),
            providers=[("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"],
        )
    assert sess.get_providers() == ["CPUExecutionProvider"]
    assert "CPUExecutionProvider" in ort.get_available_providers() and ort.get_device() == "CPU"
    with pytest.raises(TypeError, match="Unable to load"):
        ort.InferenceSession(3)


def test_wrong_arguments_about_providers_are_refused() -> None:
    """onnxruntime prints what is wrong, and goes on without them."""
    for wrong in (
        {"providers": "CPUExecutionProvider", "provider_options": [{}]},
        {"providers": ["CPUExecutionProvider"], "provider_options": [{}, {}]},
        {"providers": [1]},
    ):
        with pytest.raises(ValueError, match="provider"):
            gf.InferenceSession(small_net(), **wrong)


def test_a_saved_model_needs_no_compiler(tmp_path: Path) -> None:
    options = gf.SessionOptions()
    options.intra_op_num_threads = 1
    options.optimized_model_filepath = str(tmp_path / "small.gfx")
    with pytest.raises(InvalidModel, match="add_free_dimension_override_by_name"):
        gf.InferenceSession(small_net(), options)
    options.add_free_dimension_override_by_name("N", 2)
    (y,) = gf.InferenceSession(small_net(), options).run(["y"], {"x": rows(2)})
    np.save(tmp_path / "x.npy", rows(2))
    code = (
        "import sys, numpy as np, graphflow as ort\n"
        "sess = ort.InferenceSession('small.gfx')\n"
        "x = ort.OrtValue.ortvalue_from_numpy(np.load('x.npy'))\n"
        "np.save('y.npy', sess.run(['y'], {'x': x})[0])\n"
        "assert not {'onnx', 'onnxruntime', 'llvmlite', 'graphflow.flow'} & set(sys.modules)\n"
        "print([(a.name, a.type, a.shape) for a in sess.get_inputs() + sess.get_outputs()])\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(tmp_path / "y.npy"), y)
    assert done.stdout.strip() == str(
        [("x", "tensor(float)", [2, 4]), *((n, "tensor(float)", [2, 8]) for n in "yz")]
    )


@pytest.mark.parametrize("model", [small_net, where_nonzero], ids=lambda make: make.__name__)
def test_a_cached_model_needs_no_compiler(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHFLOW_CACHE", str(tmp_path / "cache"))
    (tmp_path / "m.onnx").write_bytes(model())
    code = f"""
        import sys, numpy as np, graphflow as ort
        sess = ort.InferenceSession({str(tmp_path / "m.onnx")!r})
        args = [(a.name, a.type, a.shape) for a in sess.get_inputs() + sess.get_outputs()]
        kind = sess.get_inputs()[0]
        sess.run(None, {{kind.name: np.ones([n if n != "N" else 3 for n in kind.shape], "f4")}})
        compiler = {{"onnx", "onnxruntime", "llvmlite", "graphflow.frontends", "graphflow.flow"}}
        found = str((compiler & set(sys.modules) == compiler - {{"onnxruntime"}}, args,
            sess.get_modelmeta()))
    """
    told = tmp_path / "first.txt"
    run_fresh(f"{textwrap.dedent(code)}\nopen({str(told)!r}, 'w').write(found)")
    expected = told.read_text().replace("(True", "(False", 1)
    assert expected != told.read_text(), "the first process compiles"
    run_fresh(
        f"{textwrap.dedent(code)}\nassert found == {expected!r}, found"
        "\nassert not compiler & set(sys.modules)"
    )


def test_a_run_gives_what_overrides_an_initializer_of_a_cached_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHFLOW_CACHE", str(tmp_path))
    x, b = np.float32([1, 2, 3]), np.float32([5, 6, 7])
    for _ in range(2):
        sess = session(gf, with_default())
        assert np.array_equal(sess.run(["y"], {"x": x})[0], x + np.float32([1, 2, 3]))
        assert np.array_equal(sess.run(["y"], {"x": x, "b": b})[0], x + b)


def test_metadata_are_saved_and_pickled(tmp_path: Path) -> None:
    proto = onnx.load_model_from_string(small_net(2))
    proto.metadata_props.add(key="names", value="{0: 'cat'}")
    proto.model_version = -3
    exe = gf.compile(proto, threads=1)
    exe.save(tmp_path / "small.gfx")
    theirs = session(onnxruntime, proto.SerializeToString()).get_modelmeta()
    for source in (exe, pickle.loads(pickle.dumps(exe)), str(tmp_path / "small.gfx")):
        found = gf.InferenceSession(source).get_modelmeta()
        assert (
            found.custom_metadata_map
            == theirs.custom_metadata_map
            == {
                "kind": "net",
                "names": "{0: 'cat'}",
            }
        )
        assert (found.producer_name, found.version) == (theirs.producer_name, -3)
        assert found.description == theirs.description


def test_an_executable_becomes_a_session() -> None:
    exe = gf.compile(small_net(), threads=1, sizes={"N": (1, 4)})
    sess = gf.InferenceSession(exe)
    assert sess.executable is exe and sess.get_inputs()[0].shape == ["N", 4]
    assert sess.run(["y"], {"x": rows(3)})[0].shape == (3, 8)
    assert len(exe.specializations) == 1 and sess.get_modelmeta().graph_name.startswith("small")
    assert repr(sess) == f"<InferenceSession of {exe!r}>"


def test_outputs_that_a_file_declares_without_types(tmp_path: Path) -> None:
    """Their types follow from the model, for the session of a saved model too."""
    model = onnx.load_from_string(small_net())
    for info in model.graph.output:
        info.ClearField("type")
    exe = gf.compile(model, threads=1)
    for count in (2, 3):
        exe.run({"x": rows(count)})
    exe.save(tmp_path / "small.gfx")
    theirs = session(onnxruntime, model.SerializeToString()).get_outputs()
    for source in (exe, tmp_path / "small.gfx", model.SerializeToString()):
        for found, wanted in zip(gf.InferenceSession(source).get_outputs(), theirs, strict=True):
            assert (found.name, found.type) == (wanted.name, wanted.type)
            assert found.shape == wanted.shape


def test_what_is_compiled_is_not_changed_by_options(tmp_path: Path) -> None:
    exe = session(gf, small_net(2)).executable
    exe.save(tmp_path / "small.gfx")
    for entry in ("session.set_denormal_as_zero", "session.graphflow.size.N"):
        options = gf.SessionOptions()
        options.add_session_config_entry(entry, "1")
        for source in (exe, tmp_path / "small.gfx"):
            with pytest.raises(GraphflowError, match=f"compiled already, and {entry}"):
                gf.InferenceSession(source, options)
    options = gf.SessionOptions()
    options.intra_op_num_threads = 2
    assert gf.InferenceSession(tmp_path / "small.gfx", options).executable.threads == 2


def test_a_session_pickles() -> None:
    for model, feeds in ((small_net(2), {"x": rows(2)}), (with_default(), {"x": np.ones(3, "f")})):
        sess = session(gf, model)
        again = pickle.loads(pickle.dumps(sess))
        assert np.array_equal(again.run(None, feeds), sess.run(None, feeds))
        assert again.get_inputs() == sess.get_inputs()


def test_a_profile_of_the_last_run_is_written(tmp_path: Path) -> None:
    options = gf.SessionOptions()
    options.enable_profiling, options.intra_op_num_threads = True, 1
    options.profile_file_prefix = str(tmp_path / "trace")
    sess = gf.InferenceSession(small_net(), options)
    with pytest.raises(GraphflowError, match="nothing was profiled"):
        sess.end_profiling()
    sess.run(None, {"x": rows(2)})
    sess.run(None, {"x": rows(3)})
    path = Path(sess.end_profiling())
    assert path.parent == tmp_path and json.loads(path.read_text())["traceEvents"]
    assert sess.get_profiling_start_time_ns() > 0


def test_what_a_session_cannot_do_is_refused_with_what_to_do() -> None:
    options = gf.SessionOptions()
    for call, message in (
        (lambda: options.register_custom_ops_library("lib.so"), "operators="),
        (lambda: options.add_initializer("w", None), "write it into the model"),
        (lambda: options.add_external_initializers(["w"], [None]), "external data"),
        (lambda: options.add_free_dimension_override_by_denotation("B", 1), "by its name"),
        (lambda: options.add_provider("CUDAExecutionProvider", {}), "runs on processors"),
        (lambda: gf.RunOptions().add_active_adapter(None), "adapted weights"),
    ):
        with pytest.raises(UnsupportedOp, match=message):
            call()
    with pytest.raises(TypeError, match="takes no arguments wrong"):
        gf.InferenceSession(small_net(), wrong=1)
    with pytest.raises(AttributeError):
        options.intra_op_threads = 2  # type: ignore[attr-defined]


SCRIPT = """
import numpy
import onnxruntime as rt
from onnxruntime.datasets import get_example

sess = rt.InferenceSession(get_example("sigmoid.onnx"), providers=rt.get_available_providers())
print("input", sess.get_inputs()[0].name, sess.get_inputs()[0].shape, sess.get_inputs()[0].type)
print("output", sess.get_outputs()[0].name, sess.get_outputs()[0].shape)
x = numpy.random.default_rng(0).random((3, 4, 5)).astype(numpy.float32)
(res,) = sess.run([sess.get_outputs()[0].name], {sess.get_inputs()[0].name: x})
print(res.round(4).tolist())

sess = rt.InferenceSession(get_example("logreg_iris.onnx"), providers=["CPUExecutionProvider"])
meta = sess.get_modelmeta()
print(meta.producer_name, meta.graph_name, meta.version)
try:
    sess.run(["wrong"], {"float_input": numpy.ones((3, 2), numpy.float32)})
except Exception as error:
    print("wrong" in str(error))
labels, probabilities = sess.run(None, {"float_input": numpy.ones((3, 2), numpy.float32)})
print(labels, [{k: round(p, 5) for k, p in row.items()} for row in probabilities])

X_ortvalue = rt.OrtValue.ortvalue_from_numpy(x)
sess = rt.InferenceSession(get_example("sigmoid.onnx"), rt.SessionOptions())
io_binding = sess.io_binding()
io_binding.bind_input(name="x", device_type=X_ortvalue.device_name(), device_id=0,
                      element_type=numpy.float32, shape=X_ortvalue.shape(),
                      buffer_ptr=X_ortvalue.data_ptr())
io_binding.bind_output("y")
sess.run_with_iobinding(io_binding)
print(numpy.abs(io_binding.copy_outputs_to_cpu()[0] - res).max() < 1e-6)
"""
"""What the examples of onnxruntime's documentation do: load and predict, metadata, common errors,
bound inputs and outputs."""


def test_a_script_of_onnxruntime_changes_its_import(tmp_path: Path) -> None:
    told = []
    for module in MODULES:
        name = module.__name__
        script = SCRIPT.replace("import onnxruntime as rt", f"import {name} as rt")
        (tmp_path / f"with_{name}.py").write_text(script)
        done = subprocess.run(
            [sys.executable, "-P", f"with_{name}.py"], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        told.append(done.stdout)
    assert told[0] == told[1] and "True" in told[1]
