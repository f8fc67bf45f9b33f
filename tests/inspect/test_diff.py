"""Tests of `diff`: reports of real compilations, and files that are not reports."""

import copy
import functools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.cli import main
from graphflow.codegen import avx2_target
from graphflow.inspect import Change, changes
from graphflow.models import ModelBuilder

pytestmark = pytest.mark.usefixtures("code_is_left_out")


@functools.cache
def compiled(pin: str | None = None) -> dict[str, Any]:
    b = ModelBuilder(3)
    x = b.relu(b.conv(b.input("x", (1, 3, 8, 8)), 17, 3))
    b.output(b.relu(b.conv(x, 18, 3)))
    layouts = {"relu_2": "NCHW"} if pin is None else {"relu_1": pin, "relu_2": "NHWC"}
    exe = gf.compile(b.model(), threads=1, target=avx2_target(), layouts=layouts)
    return exe.report()


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    paths = tmp_path / "before.json", tmp_path / "after.json"
    for path, report in zip(paths, (compiled(), compiled("channels_last_padded")), strict=True):
        path.write_text(json.dumps(report))
    return str(paths[0]), str(paths[1])


def test_a_report_does_not_differ_from_itself() -> None:
    for pin in (None, "channels_last_padded"):
        assert changes(compiled(pin), json.loads(json.dumps(compiled(pin)))) == ()


def test_what_a_pin_changes() -> None:
    before, after = compiled(), compiled("channels_last_padded")
    found = changes(before, after)
    layouts = {r["name"]: (r["layout"], s["layout"])
               for r, s in zip(before["edges"], after["edges"], strict=True)}  # fmt: skip
    assert {(c.name, c.before, c.after) for c in found if c.kind == "layout"} == {
        (name, was, now) for name, (was, now) in layouts.items() if was != now
    }
    assert Change("padding", "relu_1", "-", "pad(1) = undef") in found
    assert any(c.kind == "conversion" and c.name == "relu_2" and c.before is None and c.after
               for c in found)  # fmt: skip
    assert any(c.kind == "cancelled" and c.name == "relu_1" for c in found)
    assert {c.name for c in found if c.kind == "pinned"} == {"relu_1", "relu_2"}
    summary = {c.name: (c.before, c.after) for c in found if c.kind == "summary"}
    counts = before["summary"], after["summary"]
    assert "conversions" in summary
    assert all((key in summary) == (counts[0][key] != counts[1][key]) for key in counts[0])
    assert summary["seconds"] == (f"{before['seconds']:.6g}", f"{after['seconds']:.6g}")


def test_the_other_way_round_before_and_after_are_exchanged() -> None:
    reports = compiled(), compiled("channels_last_padded")
    there, back = changes(*reports), changes(*reports[::-1])
    assert set(back) == {Change(c.kind, c.name, c.after, c.before) for c in there}
    assert len(back) == len(there) == len(set(there))


def test_tensors_that_come_and_go() -> None:
    without = copy.deepcopy(compiled())
    gone = without["edges"].pop()
    (change,) = changes(compiled(), without)
    assert change == Change("tensor", gone["name"], f"{gone['where']}, {gone['layout']}", None)


def test_names_of_models_and_reasons_are_not_compared() -> None:
    other = copy.deepcopy(compiled())
    other["model"] = "another"
    for edge in other["edges"]:
        edge["reason"] = "another"
    assert changes(compiled(), other) == ()


def test_what_is_assumed_of_inputs_and_what_uses_it() -> None:
    other = copy.deepcopy(compiled())
    use = {"node": "conv_1", "value": "x", "fact": "[0, 1]"}
    other["assumed"] = [{"tensor": "x", "assumption": "x in [0, 1]", "used_by": [use]}]
    text = "x in [0, 1], used by conv_1: [0, 1]"
    assert changes(compiled(), other) == (Change("assumed", "x", None, text),)


def test_two_conversions_that_are_alike_are_two() -> None:
    once = compiled("channels_last_padded")
    twice = copy.deepcopy(once)
    (edge,) = (edge for edge in twice["edges"] if edge["conversions"])
    edge["conversions"] *= 2
    (change,) = changes(once, twice)
    assert (change.kind, change.before) == ("conversion", None)
    assert change.after is not None and change.after.startswith("convert for graph output, ")


def test_the_command_says_by_its_exit_code_whether_anything_differs(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", files[0], files[0]]) == 0
    assert capsys.readouterr().out == "no difference\n"
    assert main(["diff", *files]) == 1
    out = capsys.readouterr().out
    assert "relu_1" in out and "NHWC padded to 24" in out and "before" in out
    assert main(["diff", *files, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    padding = {"kind": "padding", "name": "relu_1", "before": "-", "after": "pad(1) = undef"}
    assert padding in found
    assert main(["diff", files[1], files[1], "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot read the report"),
        ("{", "is not JSON"),
        ("[]", "is no report"),
        ("{}", "is no report: no 'edges'"),
        ('{"edges": [], "cancelled": [], "refused": []}', "is no report: no 'summary'"),
        ("one edge", "is no report"),
        ("twice", "two edges have one name"),
        (b"\xff\xfe", "is not JSON"),
    ],
)
def test_what_is_no_report(
    text: str | bytes | None,
    message: str,
    files: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "other.json"
    report = copy.deepcopy(compiled())
    if text == "one edge":  # what `inspect --edge NAME --json` prints
        text = json.dumps(report["edges"][0])
    elif text == "twice":
        report["edges"] *= 2
        text = json.dumps(report)
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for arguments in ([str(path), files[0]], [files[0], str(path)]):
        assert main(["diff", *arguments]) == 2
        streams = capsys.readouterr()
        assert message in streams.err and str(path) in streams.err and not streams.out


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.data())
def test_a_damaged_report_is_refused_or_compared(data: st.DataObject) -> None:
    """Whatever stands where something else should: no other error comes out."""
    damaged = copy.deepcopy(compiled())
    place: Any = damaged
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if not (isinstance(inner, (dict, list)) and inner) or data.draw(st.integers(0, 3)) == 0:
            place[key] = data.draw(values)
            break
        place = inner
    try:
        changes(damaged, compiled())
    except InvalidModel as error:
        assert "the first is no report" in str(error)
