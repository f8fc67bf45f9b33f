"""Tests of the request of a compilation: what its defaults are, and which arguments it refuses."""

from typing import Any

import pytest

from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.codegen import host_target
from graphflow.cost import NO_TIMINGS
from graphflow.frontends import open_model
from graphflow.graph import graph_of
from graphflow.models import ModelBuilder
from graphflow.pipeline.request import CompileRequest
from graphflow.runtime import default_threads
from graphflow.tir import parse


def test_a_model_alone_is_a_request() -> None:
    request = CompileRequest(b"")
    assert request.target == host_target() and request.threads == default_threads()
    assert request.timings() is NO_TIMINGS and not request.layouts and not request.input_shapes
    assert CompileRequest(b"", options=Options(threads=3)).threads == 3


def test_a_target_permits_what_flushes_denormals_where_the_options_do() -> None:
    target = CompileRequest(b"", options=Options(flush_denormals=True)).target
    assert target == replace(host_target(), flushes_denormals=True)
    assert not CompileRequest(b"").target.flushes_denormals


def test_reports_call_a_model_by_its_name() -> None:
    build = ModelBuilder(seed=1, name="small")
    build.output(build.relu(build.input("x", (3,))))
    proto = build.model()
    double = parse("""@primfunc
def double(x: f32[14], y: out[f32[14]]):
    for i in serial(0, 14):
        y[i] = f32(2.0) * x[i]
""")
    assert CompileRequest(proto).title == CompileRequest(open_model(proto)).title == "small"
    assert CompileRequest("folder/model.onnx").title == "folder/model.onnx"
    assert CompileRequest(b"").title == "model"
    assert CompileRequest(graph_of(double)).title == "double"
    assert CompileRequest(proto, name="mine").title == "mine"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"input_shapes": None}, "input_shapes is of type NoneType"),
        ({"layouts": ["NHWC"]}, "layouts is of type list"),
        ({"target": "zen4"}, "target is of type str"),
        ({"overridable": "w"}, "overridable is 'w'"),
        ({"sketches": ["tile"]}, "sketch"),
        ({"offers": 3}, "offers is of type int; give a function"),
        ({"progress": "bar"}, "progress is of type str"),
        (
            {"operators": {"com.example.Twice": 2}},
            r"operators\['com.example.Twice'\] is of type int",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_arguments_of_other_types_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        CompileRequest(b"", **wrong)
