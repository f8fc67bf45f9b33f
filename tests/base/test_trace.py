"""Tests of the options and of the trace: what each debug level prints, what is dumped and timed."""

import io
import json
from pathlib import Path

import pytest

from graphflow.base.errors import GraphflowError
from graphflow.base.options import Options
from graphflow.base.trace import Trace


def never() -> str:
    raise AssertionError("a text that nobody reads was made")


def run(options: Options, stream: io.StringIO) -> Trace:
    trace = Trace(options, stream)
    with trace.stage("import"):
        trace.result("import", "graph of 3 nodes", level=2)
    with trace.stage("group and fuse"), trace.timer("schedule", "k1"):
        trace.event("group and fuse", "refusal", "k1 stays alone", level=2)
        trace.event("group and fuse", "constraint", "x is NHWC", level=3)
        trace.kernel("k1", "ll", "define void @k1")
    trace.close()
    return trace


@pytest.mark.parametrize(
    ("level", "seen", "hidden"),
    [
        (0, [], ["01-import"]),
        (1, ["01-import: 0."], ["graph of 3", "refusal"]),
        (2, ["graph of 3 nodes", "k1 stays alone"], ["x is NHWC"]),
        (3, ["x is NHWC"], ["define"]),
        (4, ["define void @k1"], []),
    ],
)
def test_each_debug_level_prints_its_own_events(
    level: int, seen: list[str], hidden: list[str]
) -> None:
    stream = io.StringIO()
    run(Options(debug=level), stream)
    assert all(text in stream.getvalue() for text in seen)
    assert not any(text in stream.getvalue() for text in hidden)


def test_dumps_are_numbered_and_hold_the_texts(tmp_path: Path) -> None:
    run(Options(dump=str(tmp_path / "deep" / "dir")), io.StringIO())
    folder = tmp_path / "deep" / "dir"
    assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*.*")) == [
        "01-import.txt",
        "kernels/k1.ll.txt",
        "timings.json",
    ]
    assert (folder / "01-import.txt").read_text() == "graph of 3 nodes\n"
    times = json.loads((folder / "timings.json").read_text())
    assert list(times["stages"]) == ["import", "group and fuse"]
    assert list(times["steps"]["schedule"]) == ["k1"]


def test_times_are_kept_when_nothing_is_printed_and_texts_are_not_made() -> None:
    trace = Trace(Options())
    with trace.stage("flow"), trace.timer("proofs", "a"), trace.timer("proofs", "b"):
        trace.event("flow", "plan", never, level=3)
        trace.result("flow", never)
        trace.kernel("k", "s", never)
    times = trace.timings()
    assert times["stages"]["flow"] >= times["steps"]["proofs"] / 2 > 0


def test_a_stage_that_fails_is_timed_and_the_error_passes() -> None:
    stream = io.StringIO()
    trace = Trace(Options(debug=1), stream)
    with pytest.raises(ZeroDivisionError), trace.stage("flow"):
        raise ZeroDivisionError
    assert stream.getvalue().startswith("01-flow: ")


def test_progress_hears_each_stage() -> None:
    heard: list[str] = []
    trace = Trace(Options(), progress=heard.append)
    for name in ("import", "flow"):
        with trace.stage(name):
            pass
    assert heard == ["import", "flow"]


def test_a_dump_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GraphflowError, match="cannot make the dump folder"):
        Trace(Options(dump=str(tmp_path / "file" / "dir")))


@pytest.mark.parametrize(
    ("text", "level"), [(None, 0), ("", 0), ("3", 3), (" 1 ", 1), ("5", None), ("yes", None)]
)
def test_options_read_the_environment(
    monkeypatch: pytest.MonkeyPatch, text: str | None, level: int | None
) -> None:
    monkeypatch.delenv("GRAPHFLOW_DEBUG", raising=False)
    if text is not None:
        monkeypatch.setenv("GRAPHFLOW_DEBUG", text)
    if level is None:
        with pytest.raises(GraphflowError, match="GRAPHFLOW_DEBUG"):
            Options.from_environment()
    else:
        assert Options.from_environment() == Options(debug=level)


@pytest.mark.parametrize("wrong", [{"threads": 0}, {"debug": 5}, {"debug": -1}])
def test_options_refuse_values_out_of_range(wrong: dict[str, int]) -> None:
    with pytest.raises(GraphflowError, match="must be"):
        Options(**wrong)
