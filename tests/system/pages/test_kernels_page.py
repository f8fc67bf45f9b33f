"""Tests that run each code block of docs/kernels.md and docs/schedules.md, in order."""

import inspect
import re
from collections.abc import Callable

import pytest

from graphflow import codegen, schedule
from graphflow.base.target import Target
from support.pages import run_page, with_output
from support.paths import ROOT

KERNELS = ROOT / "docs" / "kernels.md"
SCHEDULES = ROOT / "docs" / "schedules.md"
TARGETS = (codegen.host_target(), codegen.avx2_target())


def test_every_block_of_the_page_runs() -> None:
    assert len(run_page(KERNELS)) > 15


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_schedules_by_hand_compute_what_numpy_does(
    target: Target, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """The page compares each step; what it prints, and --update-golden writes, is for 16 lanes."""
    monkeypatch.setattr(codegen, "host_target", lambda: target)
    outputs = [output for _, output in run_page(SCHEDULES)]
    if target.vector_bytes != 64:
        return
    text = with_output(SCHEDULES, outputs, all_outputs=True)
    if request.config.getoption("--update-golden"):
        SCHEDULES.write_text(text, encoding="utf-8")
    assert text == SCHEDULES.read_text(encoding="utf-8")


def test_the_page_has_the_row_of_each_primitive(request: pytest.FixtureRequest) -> None:
    """The parameters behind the kernel, and the first paragraph of the docstring, which
    --update-golden writes."""
    functions = (
        value for name in schedule.__all__ if inspect.isfunction(value := getattr(schedule, name))
    )
    primitives = sorted(
        (
            function
            for function in functions
            if inspect.signature(function).return_annotation == "Rewrite"
        ),
        key=lambda function: function.__name__,
    )
    assert len(primitives) > 70
    page = KERNELS.read_text(encoding="utf-8")
    head, rows, rest = re.split(r"((?:^\| `\w+` \|.*\n)+)(?=\n## Which)", page, flags=re.MULTILINE)
    wanted = "".join(map(row_of, primitives))
    if request.config.getoption("--update-golden"):
        KERNELS.write_text(head + wanted + rest, encoding="utf-8")
        return
    assert rows == wanted


def row_of(primitive: Callable[..., object]) -> str:
    """The row of a primitive in the table of docs/kernels.md."""
    parameters = ", ".join(f"`{name}`" for name in [*inspect.signature(primitive).parameters][1:])
    paragraph = str(inspect.getdoc(primitive)).split("\n\n", maxsplit=1)[0]
    return f"| `{primitive.__name__}` | {parameters} | {' '.join(paragraph.split())} |\n"
