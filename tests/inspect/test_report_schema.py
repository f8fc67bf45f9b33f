"""Reports of all kinds satisfy the JSON Schema that `graphflow inspect --schema` prints."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.decisions import REPORT_SCHEMA
from graphflow.cli import main
from graphflow.cli.command_parsers import REPORT_SCHEMA_FILE
from graphflow.models import ModelBuilder


@cache
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(REPORT_SCHEMA_FILE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def require_valid(report: Any) -> None:
    """Through strict JSON, which has no NaN and no infinity."""
    text = json.dumps(report, allow_nan=False)
    kinds = ("program_report", "open_report", "edge")
    plain = json.loads(text)
    kind = kinds[0] if "edges" in plain else kinds[1] if "deciding" in plain else kinds[2]
    one = {"$ref": f"#/$defs/{kind}", "$defs": validator().schema["$defs"]}
    # The errors of one kind say what is wrong; those of "one of" only that none fits.
    found = jsonschema.Draft202012Validator(one).iter_errors(plain)
    assert [f"{error.json_path}: {error.message:.200}" for error in found] == []
    validator().validate(plain)


def channels(count: int = 17) -> onnx.ModelProto:
    """Padding, a conversion at the end, a mask and a constant that is folded."""
    b = ModelBuilder(3)
    x = b.relu(b.conv(b.input("x", (1, 3, 4, 4)), count, 3))
    e = b.node("Exp", [b.conv(x, count, 1)], ["e"])
    total = b.node("ReduceSum", [e, b.constant(np.array([1]))], keepdims=1)
    b.output(b.node("Div", [e, total]), total)
    return b.model()


def rows(*extents: int | str) -> onnx.ModelProto:
    b = ModelBuilder(3)
    x = b.input("x", extents)
    b.output(b.node("Softmax", [b.relu(x)], axis=1))
    return b.model()


def test_a_report_with_pins_assumptions_and_validation() -> None:
    exe = gf.compile(
        channels(),
        layouts={"relu_1": "NHWC", "e": "blocked"},
        assume={"x": "finite"},
        options=gf.Options(threads=1, validate=True),
    )
    report = exe.report()
    require_valid(report)
    assert report["schema"] == REPORT_SCHEMA
    assert report["pinned"] and report["assumed"] and report["validation"] and report["refused"]
    for found in report["edges"]:
        require_valid(found)


def test_a_report_with_sections_of_onnxruntime_and_one_of_a_saved_model(tmp_path: Path) -> None:
    b = ModelBuilder(3)
    x = b.relu(b.input("x", (4, 6)))
    y = b.node("RandomNormalLike", [x], seed=1.0)
    b.output(b.relu(b.add(x, y)))
    exe = gf.compile(b.model(), threads=2)
    require_valid(exe.report())
    assert exe.report()["foreign"]
    assert {node["kind"] for node in exe.report()["program"]["nodes"]} >= {"section", "kernel"}
    exe.save(tmp_path / "m.gfx")
    require_valid(gf.load(tmp_path / "m.gfx").report())


def test_a_report_with_several_programs_with_none_and_with_sizes(tmp_path: Path) -> None:
    exe = gf.compile(rows("n", 4), threads=1)
    require_valid(exe.report())
    for count in (1, 3):
        exe.run({"x": np.zeros((count, 4), np.float32)})
    require_valid(exe.report())
    exe.save(tmp_path / "m.gfx")
    require_valid(gf.load(tmp_path / "m.gfx").report())
    sized = gf.compile(rows("n", 4), threads=1, sizes={"n": (1, 8)})
    require_valid(sized.report())
    require_valid(gf.compile(rows("n", 4), threads=1, sizes={"n": (1, None)}).report())
    (one,) = sized.specializations
    (edge,) = [edge for edge in one.report()["edges"] if edge["name"] == "x"]
    assert edge["sizes"] == [{"axis": 0, "name": "n", "least": 1, "most": 8}]
    assert one.decisions().rows[0].shape == "n×4"


@pytest.mark.parametrize(
    "change",
    [
        lambda report: report.update(schema=REPORT_SCHEMA + 1),
        lambda report: report.update(unknown=1),
        lambda report: report.pop("program"),
        lambda report: report["edges"][0].update(where="elsewhere"),
        lambda report: report["edges"][0].pop("operator"),
        lambda report: report["program"]["nodes"][0].update(kind="thing"),
        lambda report: report["summary"].update(fills=-1),
    ],
)
def test_other_structures_are_refused(change: Any) -> None:
    report = plain_report()
    change(report)
    with pytest.raises(jsonschema.ValidationError):
        validator().validate(report)


@cache
def _text() -> str:
    return json.dumps(gf.compile(rows(2, 4), threads=1).report())


def plain_report() -> Any:
    return json.loads(_text())


def test_the_command_prints_the_schema_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["inspect", "--schema"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out) == validator().schema
