"""Tests that run each code block of docs/kernels.md and docs/schedules.md, in order."""

from __future__ import annotations

import inspect
import re

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
    printed = run_page(SCHEDULES)
    if target.vector_bytes != 64:
        return
    text = with_output(SCHEDULES, printed)
    if request.config.getoption("--update-golden"):
        SCHEDULES.write_text(text, encoding="utf-8")
    assert text == SCHEDULES.read_text(encoding="utf-8")


def test_the_page_lists_each_primitive_with_its_arguments() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]*) \|", KERNELS.read_text(encoding="utf-8"), re.MULTILINE
    )
    listed = {name: re.findall(r"`(\w+)`", arguments) for name, arguments in rows}
    functions = {
        name: inspect.signature(value)
        for name in schedule.__all__
        if inspect.isfunction(value := getattr(schedule, name))
    }
    primitives = {
        name: list(signature.parameters)[1:]
        for name, signature in functions.items()
        if signature.return_annotation == "Rewrite"
    }
    assert listed == primitives
