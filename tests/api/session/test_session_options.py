"""Tests of the options of sessions: onnxruntime's names and defaults, and what has an effect."""

from typing import Any

import numpy as np
import onnxruntime
import pytest

import graphflow as gf
from graphflow.base.errors import GraphflowError, UnsupportedOp
from support.models.session_models import MODULES, rows, small_net

with_both = pytest.mark.parametrize("ort", MODULES, ids=lambda module: module.__name__)

LATER = {
    "add_external_initializers_from_files_in_memory", "add_provider_for_devices",
    "clear_ep_context_data_read_func", "set_ep_context_data_read_func",
    "set_load_cancellation_flag", "set_provider_selection_policy",
    "set_provider_selection_policy_delegate",
}  # fmt: skip
"""Methods for onnxruntime's plugins of devices, which graphflow's options do not have."""


@pytest.mark.parametrize("kind", ["SessionOptions", "RunOptions"])
def test_fields_and_defaults_are_those_of_onnxruntime(kind: str) -> None:
    theirs, ours = (getattr(module, kind)() for module in MODULES)
    for name in dir(theirs):
        if name.startswith("_") or name in LATER:
            continue
        if callable(getattr(theirs, name)):
            assert callable(getattr(ours, name)), name
            continue
        expected, found = getattr(theirs, name), getattr(ours, name)
        assert getattr(expected, "name", expected) == getattr(found, "name", found), name
        setattr(ours, name, found)


@pytest.mark.parametrize("kind", ["GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder"])
def test_enumerations_have_the_members_of_onnxruntime(kind: str) -> None:
    theirs, ours = (getattr(module, kind) for module in MODULES)
    assert {m.name: m.value for m in ours} == {n: int(m) for n, m in theirs.__members__.items()}


@with_both
def test_options_of_a_script_are_taken(ort: Any) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    options.enable_mem_pattern = options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_free_dimension_override_by_name("N", 2)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    with pytest.raises(RuntimeError, match="key: absent"):
        options.get_session_config_entry("absent")
    ort.set_default_logger_severity(3)
    sess = ort.InferenceSession(small_net(), options)
    assert sess.get_inputs()[0].shape == [2, 4] and sess.get_outputs()[0].shape == [2, 8]
    with pytest.raises(Exception, match=r"invalid dimensions|expects"):
        sess.run(None, {"x": rows(3)})


def test_threads_denormals_and_sizes_have_an_effect() -> None:
    options = gf.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.add_session_config_entry("session.graphflow.size.N", "1:4")
    sess = gf.InferenceSession(small_net(), options)
    assert sess.executable.threads == 1 and sess.executable.program.flush_denormals
    for count in (1, 2, 4):
        (found,) = sess.run(["z"], {"x": rows(count)})
        (z,) = onnxruntime.InferenceSession(small_net()).run(["z"], {"x": rows(count)})
        np.testing.assert_allclose(found, z, rtol=1e-5, atol=1e-6)
    assert len(sess.executable.specializations) == 1


@pytest.mark.parametrize(
    "key, value, error, message",
    [
        ("session.graphflow.sizes.N", "1:4", GraphflowError, "there is no entry .*sizes.N'"),
        ("session.graphflow.size.N", "few", GraphflowError, "the least and the greatest extent"),
        ("session.load_model_format", "ORT", UnsupportedOp, "ONNX models only"),
    ],
)
def test_entries_that_mean_nothing_here_are_refused(
    key: str, value: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        gf.SessionOptions().add_session_config_entry(key, value)


def test_a_dimension_that_the_model_lacks_is_warned_of() -> None:
    options = gf.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    with pytest.warns(UserWarning, match="no dimensions batch to fix"):
        gf.InferenceSession(small_net(2), options)
