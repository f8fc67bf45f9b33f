"""Tests of the table of `graphflow inspect`: its width, its groups, filters and orders."""

import io
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pytest
from rich.console import Console

import graphflow as gf
from graphflow.api.compiled_model import Decided
from graphflow.cli import main, profile_command
from graphflow.cli.decision_table import show_table
from graphflow.codegen import named_target
from graphflow.models import ModelBuilder
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest

pytestmark = pytest.mark.usefixtures("code_is_left_out")


@cache
def layers() -> onnx.ModelProto:
    """Four equal layers with long names, then channels that no vector length divides."""
    build = ModelBuilder(seed=1)
    x = build.input("a/long/name/as/exporters/write/it/x[0]", (1, 32, 8, 8))
    for layer in range(4):
        y = build.node("MaxPool", [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        y = build.conv(y, 32, 1)
        x = build.node("Relu", [y], [f"/model/layers.{layer}/activation/Relu_output_0"])
    build.output(build.relu(build.conv(x, 58, 1)))
    return build.model()


@cache
def decided() -> Decided:
    """For a named processor, so that the decisions are the same on each machine."""
    request = CompileRequest(layers(), target=named_target("zen5"), layouts={"relu_1": "NCHW16c"})
    return Decided(compile_graph(request))


def printed(exe: Any, width: int | None = 160, **wanted: Any) -> list[str]:
    """The lines of the table on a terminal of that width, without styles."""
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    show_table(exe, console=console, **wanted)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_the_table_fits_80_columns_and_groups_blocks() -> None:
    for width in (80, 60, 200):
        assert max(map(len, printed(decided(), width))) <= width
    assert any("variant of its producer" in line for line in printed(decided(), 200))
    text = " ".join(" ".join(printed(decided(), 80)).split())
    for word in ("tensor", "operator", "shape", "layout and padding", "µs", "Conv", "1×32×8×8"):
        assert word in text
    assert "block 1, 1 of 4, " in text and ": MaxPool, Conv+Relu" in text
    assert "alike but for names and prices: maxpool_" in text
    assert "converted to NCHW for graph output, " in text and "25 tensors; " in text


def test_a_pipe_gets_a_line_for_each_tensor(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(decided(), constants=True)
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("/model/layers.1/activation/Relu_out")]
    assert line.split()[1:3] == ["Relu", "1×32×8×8"]
    assert any(line.startswith("weight_10 ") and " constant, " in line for line in lines)
    assert not any("\x1b" in line or "│" in line for line in lines)
    assert max(map(len, lines)) < 500


def rows_of(lines: list[str]) -> list[list[str]]:
    """The words of each row, without the lines below a row."""
    return [line.split() for line in lines[3 : lines.index("", 3)] if not line.startswith(" ")]


@pytest.mark.parametrize(
    ("only", "names"), [("conversions", ["relu_1"]), ("padding", ["relu_1"]), ("foreign", [])]
)
def test_only(only: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(decided(), only=only)
    if names:
        assert [row[0] for row in rows_of(lines)] == names
        assert "NCHW16c, pinned, costs " in lines[3] and ": pad(1) = undef" in lines[3]
    else:
        assert " for zen5: onnxruntime writes and reads no tensor" in capsys.readouterr().out


@pytest.mark.parametrize("order", ["bytes", "price"])
def test_sorted_rows_have_all_operators_of_their_nodes(order: str) -> None:
    rows = rows_of(printed(decided(), order=order))
    numbers = [float(row[-1]) for row in rows]
    assert numbers == sorted(numbers, reverse=True) and len(rows) == 9 + (order == "bytes")
    assert all(row[1] in ("Conv+Relu", "MaxPool", "input") for row in rows)
    (own,) = [row for row in decided().decisions().rows if row.tensor == "relu_1"]
    (number,) = [float(row[-1]) for row in rows if row[0] == "relu_1"]
    assert own.price is not None and own.seconds is not None and own.price > own.seconds
    assert number == (own.bytes if order == "bytes" else round(1e6 * own.price, 1))


def test_sorted_by_measured_times(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for row in decided().decisions().rows if row.seconds is not None]
    times = {row.place: 1e-6 * number for number, row in enumerate(rows)}
    monkeypatch.setattr(profile_command, "measured_seconds", lambda exe: times)
    lines = printed(decided(), order="time")
    assert "measured µs" in lines[2]
    shown = [float(row[-1]) for row in rows_of(lines)]
    assert shown == sorted(range(len(rows)), reverse=True)


def test_the_table_of_a_saved_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exe = gf.compile(layers(), threads=1)
    exe.save(tmp_path / "m.gfx")
    loaded = gf.load(tmp_path / "m.gfx")
    wanted: dict[str, Any]
    for wanted in ({}, {"constants": True}, {"order": "bytes"}, {"only": "conversions"}):
        assert printed(loaded, **wanted) == printed(exe, **wanted)
    assert main(["inspect", str(tmp_path / "m.gfx"), "--sort", "time"]) == 1
    assert "compile the ONNX model for those" in capsys.readouterr().err
    measured = profile_command.measured_seconds(exe)
    written = {row.place for row in exe.decisions().rows if row.seconds is not None}
    assert written <= measured.keys() and min(measured.values()) > 0


@pytest.mark.parametrize("option", [["--only", "padding"], ["--sort", "bytes"], ["--all"]])
@pytest.mark.parametrize("other", [["--json"], ["--edge", "relu_1"], ["--html", "page.html"]])
def test_options_of_the_table_ask_for_the_table(
    option: list[str], other: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", "missing.onnx", *option, *other]) == 1
    error = capsys.readouterr().err
    assert f"{option[0]} says what the table shows, and {other[0]} asks for" in error


@pytest.mark.parametrize("option", [["--only", "pading"], ["--sort", "size"], ["--only"]])
def test_values_that_are_not_offered(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["inspect", "model.onnx", *option])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert option[0] in error and ("choose from" in error or "expected one argument" in error)
