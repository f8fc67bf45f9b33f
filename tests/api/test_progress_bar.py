"""Tests of the progress bar: on a terminal, in a notebook, and where nobody looks."""

import builtins
import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import graphflow as gf
from graphflow.models import ModelBuilder


def compile_something(bar: gf.ProgressBar) -> None:
    build = ModelBuilder()
    build.output(build.relu(build.input("x", (2, 4))))
    gf.compile(build.model(), threads=1, progress=bar.stage, counting=bar.count)


def test_a_terminal_shows_one_line_and_removes_it() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, force_interactive=True, width=80)
    with gf.ProgressBar("compiling [red]m", console) as bar:
        compile_something(bar)
        bar.stage("codegen")
        bar.count(3, 8)
    text = file.getvalue()
    assert "compiling [red]m: codegen" in text and "3/8 kernels" in text
    assert text.rstrip().endswith("\x1b[2K")  # erases the line


def test_nothing_is_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with gf.ProgressBar("compiling") as bar:
        compile_something(bar)
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err == ""


class ZMQInteractiveShell:
    """The class by whose name a notebook is known."""


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a notebook shows, with `IPython.display` as IPython has it."""
    outputs: list[str] = []

    def display(html: str, display_id: bool) -> Any:
        assert display_id
        outputs.append(html)
        return SimpleNamespace(update=outputs.append)

    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display, HTML=str))
    return outputs


def test_a_notebook_has_a_line_below_the_cell(
    shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with gf.ProgressBar("compiling <b>") as bar:
        compile_something(bar)
        bar.stage("codegen")
        bar.count(8, 8)
    assert shown[0].startswith("compiling &lt;b&gt; <progress></progress> ")
    assert any("compiling &lt;b&gt;: codegen" in html for html in shown)
    assert '<progress value="8" max="8"></progress> 8/8 kernels' in shown[-2]
    assert shown[-1] == "" and capsys.readouterr() == ("", "")


def test_a_notebook_is_not_flooded(shown: list[str]) -> None:
    with gf.ProgressBar("compiling") as bar:
        bar.stage("codegen")
        for done in range(5_000):
            bar.count(done, 5_000)
    assert len(shown) < 50
