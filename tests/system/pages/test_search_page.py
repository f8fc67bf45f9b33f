"""Test that runs each code block of docs/search.md, in order, in one namespace."""

from pathlib import Path

import pytest

from support.pages import run_page
from support.paths import ROOT


def test_every_block_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the table of the page is a relative path
    blocks = run_page(ROOT / "docs" / "search.md")
    assert len(blocks) == 4
    tuned, explained = (printed for _, printed in blocks[2:])
    assert "add_transposed, sketch in_tiles: 4 schedules timed" in tuned
    assert "searched  sketch in_tiles with rows=" in explained or "not " in explained
