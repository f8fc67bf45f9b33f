"""Tests of refusals as users see them: reports, `explain --full`, saved models, the command
line."""

import json
from pathlib import Path

import numpy as np
import pytest

import graphflow as gf
from graphflow.cli import main
from graphflow.layout import IndexMap, Layout

SCAN = """
def scan(x: f32[33], y: out[f32[33]]):
    for i in serial(0, 33):
        if i == 0:
            y[i] = x[i]
        else:
            y[i] = y[i - 1] + x[i]
"""
SWAP = """
def swap(x: f32[5, 5], y: out[f32[5, 5]]):
    with block("copy"):
        for i in serial(0, 5):
            for j in serial(0, 5):
                y[i, j] = x[i, j]
    with block("swap"):
        for k in serial(0, 5):
            for l in serial(0, 5):
                y[k, l] = y[l, k]
"""
DOUBLE = """
def double(x: f32[14], y: out[f32[14]]):
    for i in serial(0, 14):
        y[i] = x[i] + x[i]
"""


def test_steps_that_the_chosen_variant_goes_on_without_are_told_in_full() -> None:
    exe = gf.build(SCAN)
    story = exe.explain("y", full=True)
    (refused,) = (r for r in exe.report()["refusals"] if r["reason"].startswith("parallelize"))
    assert refused["chosen"] is True
    assert f"  refused   a step of variant {refused['variant']}: {refused['reason']}" in story
    assert story.startswith(exe.explain("y") + "\n")
    assert "parallelize_loop" not in exe.explain("y")
    assert "refused" not in exe.explain("x", full=True)  # an input has no variant


def test_variants_that_a_step_refused_are_told_in_full() -> None:
    exe = gf.build(SWAP)
    (choice,) = exe.compiled.plan.choices.values()
    assert [item.variant for item in choice.refused] == ["tiles of registers"]
    assert "variant tiles of registers: reverse_compute_at('swap', 'copy')" in exe.explain(
        "y", full=True
    )
    (refused,) = (r for r in exe.report()["refusals"] if not r["chosen"])
    assert (refused["nodes"], refused["variant"]) == (["swap"], "tiles of registers")
    np.testing.assert_array_equal(exe(np.eye(5, dtype="float32")), np.eye(5))


def test_nothing_is_told_where_nothing_was_refused() -> None:
    exe = gf.build(DOUBLE.replace("14", "16"))
    assert exe.report()["refusals"] == []
    assert exe.explain("y", full=True) == exe.explain("y")


def test_reasons_are_short_and_name_no_proof() -> None:
    reasons = [r["reason"] for r in (*gf.build(SCAN).report()["refusals"],
                                     *gf.build(SWAP).report()["refusals"])]  # fmt: skip
    assert reasons
    assert all(len(reason) < 300 and "\n" not in reason for reason in reasons)


def test_a_saved_model_tells_the_same(tmp_path: Path) -> None:
    exe = gf.build(SWAP)
    exe.save(tmp_path / "swap.gfx")
    loaded = gf.load(tmp_path / "swap.gfx")
    assert loaded.report()["refusals"] == exe.report()["refusals"]
    for name in ("x", "y"):
        assert loaded.explain(name, full=True) == exe.explain(name, full=True)


def test_the_command_line_tells_it_on_demand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "swap.gfx")
    gf.build(SWAP).save(path)
    assert main(["explain", path, "y"]) == 0
    assert "refused" not in capsys.readouterr().out
    assert main(["explain", path, "y", "--full"]) == 0
    assert "refused   variant tiles of registers" in capsys.readouterr().out
    assert main(["inspect", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["refusals"]


def test_a_tile_that_a_pinned_layout_refuses_is_told_with_the_step() -> None:
    """Elements of a row begin at 1, so stores of the row's padding would wrap around."""
    rows = Layout.of(IndexMap.from_function(1, lambda i: (i // 3, i % 3 + 1), (8,)), (8,), (3, 4))
    exe = gf.build(DOUBLE.replace("14", "8"), layouts={"y": rows})
    (refused,) = (r for r in exe.report()["refusals"] if not r["chosen"])
    assert refused["nodes"] == ["double"]
    assert refused["reason"].startswith("absorb_padding(")
    assert "stage by stage" in exe.explain("y", full=True)
    x = np.arange(8, dtype="float32")
    np.testing.assert_array_equal(exe(x), 2 * x)
