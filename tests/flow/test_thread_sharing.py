"""Tests of the decision whether the threads of a run share its kernels."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphflow as gf
from graphflow.inspect import summary_line
from graphflow.plan import ThreadSharing


def added(elements: int) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [elements]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "added", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def shared(exe: gf.Executable) -> bool:
    return any(step.workers(2) > 1 for step in exe.program.spec.run)


@pytest.mark.decisions
@pytest.mark.parametrize(("elements", "pays"), [(4096, False), (4_000_000, True)])
def test_a_run_is_shared_where_that_saves_more_than_waking(elements: int, pays: bool) -> None:
    exe = gf.compile(added(elements), threads=2)
    report = exe.report()["sharing"]
    assert report["pays"] == pays == (report["saved"] > report["waking"])
    assert shared(exe) == pays
    assert ("one thread runs it" in summary_line(exe.compiled)) != pays
    x = np.arange(elements, dtype=np.float32)
    np.testing.assert_array_equal(exe.run({"x": x})["y"], x + x)


def test_there_is_no_decision_for_one_thread() -> None:
    exe = gf.compile(added(4096), threads=1)
    assert exe.report()["sharing"] is None
    # Loaded for more threads it is shared: nothing was decided about these.
    assert shared(exe)


def test_the_reason_names_both_sides() -> None:
    assert str(ThreadSharing(4, 2e-6, 5e-6)) == (
        "4 threads would save at most 2.0 µs, and waking them takes 5.0 µs"
    )
