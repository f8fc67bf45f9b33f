"""Tests of ranges that the form of indices shows, and of what is left to integer sets."""

import pytest

from graphflow import effects, tir
from graphflow.schedule import Schedule
from graphflow.schedule.facts.stage_ranges import stage_ranges_of
from support.kernels.stage_graphs import scheduled, stage_graph
from support.schedule_checks import kernel

EXACT = "graphflow.schedule.stages.attach.stage_ranges_of"


def _ranges(stage: str, reader: str) -> dict[str, str] | None:
    """The ranges at the loop o of a reader over `t`, as text."""
    func = kernel(
        f"""
t = alloc(i32[12, 6])
with block("stage"):
    for a in serial(0, 12):
        for b in serial(0, 6):
{_indented(stage, 12)}
with block("reader"):
    for o in serial(0, 4):
        for i in serial(0, 3):
{_indented(reader, 12)}
""",
        "x: i32[12, 6], y: out[i32[12, 6]]",
    )
    model = effects.statements_of(func)
    touched = [access for access in model.accesses if access.access.buffer.name == "t"]
    at = next(one for one in model.statements if one.title == "the loop o")
    assert isinstance(at.stmt, tir.For)
    place = at.domain.inside(at.stmt.var, at.stmt.start, at.stmt.stop)
    stage_of = [a.access for a in model.accesses if not at.holds(a.statement)]
    reads = [a.access for a in touched if at.holds(a.statement)]
    found = stage_ranges_of(stage_of, reads, place)
    return found and {
        str(var): f"{start}, {stop}" + " narrowed" * (var in found.narrowed)
        for var, (start, stop) in found.ranges.items()
    }


def _indented(text: str, by: int) -> str:
    return "\n".join(" " * by + line for line in text.split("\n"))


STORE = "t[a, b] = x[a, b]"
BORDERS = "t[a, b] = i32(0)\nif a >= 1 and b < 5:\n    t[a, b] = x[a - 1, b + 1]"
SUMS = "t[a, b] = i32(0)\nfor k in serial(0, 3):\n    if a + k >= 1:\n        t[a, b] += x[a, k]"
READ = "y[3*o + i, 0] = t[3*o + i, 0]"
ROW = "for j in serial(0, 6):\n    y[3*o + i, j] = t[3*o + i, j]"


@pytest.mark.parametrize(
    ("stage", "reader", "ranges"),
    [
        (STORE, READ, {"a": "3*o, 3*o + 3", "b": "0, 1"}),
        (STORE, ROW, {"a": "3*o, 3*o + 3", "b": "0, 6"}),
        (STORE, "y[o, i] = t[o, i] + t[o + 1, i] + t[o + 2, i]", {"a": "o, o + 3", "b": "0, 3"}),
        (STORE, "y[o, i] = t[11 - 3*o - i, i + o]", None),  # one loop for both
        (STORE, "y[o, i] = t[2*i + o, o]", None),  # gaps
        (STORE, "y[o, i] = t[o, i] + t[o + 2, i]", None),
        (STORE, "y[o, i] = t[o, i] + t[o + 1, i + 1]", None),  # no box
        (STORE, "y[o, i] = t[(o + i) // 2, o]", None),
        (STORE, "if i > 0:\n    y[o, i] = t[o, i]", None),
        (STORE, "for j in serial(0, i):\n    y[o, i] = t[o, 0]", None),  # not in every iteration
        (STORE, "y[o, i] = t[3*o + i + 1, i]", None),  # behind what the stage stores
        (BORDERS, ROW, {"a": "3*o, 3*o + 3", "b": "0, 6"}),
        (
            BORDERS.replace("t[a, b] = i32(0)\n", ""),
            ROW,
            {"a": "3*o, 3*o + 3 narrowed", "b": "0, 6 narrowed"},
        ),
        (SUMS, ROW, {"a": "3*o, 3*o + 3", "b": "0, 6", "k": "0, 3 narrowed"}),
        (
            SUMS.replace("a + k >= 1", "a >= 20"),
            ROW,
            {"a": "3*o, 3*o + 3", "b": "0, 6", "k": "0, 3 narrowed"},
        ),
        (SUMS.replace("a + k", "a"), ROW, {"a": "3*o, 3*o + 3", "b": "0, 6", "k": "0, 3"}),
        (f"{STORE}\nt[a, b] = t[a, b] * i32(2)", ROW, None),
        (f"{STORE}\nt[a, 0] = i32(1)", READ, None),  # stores less with b than beside it
    ],
)
def test_ranges_of_boxes(stage: str, reader: str, ranges: dict[str, str] | None) -> None:
    assert _ranges(stage, reader) == ranges


@pytest.mark.parametrize("seed", range(7000, 7040))
def test_ranges_are_those_of_integer_sets(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    func = stage_graph(seed)
    by_form = scheduled(func, seed)
    monkeypatch.setattr(EXACT, lambda *_: None)
    by_sets: Schedule = scheduled(func, seed)
    assert tir.to_text(by_form.func) == tir.to_text(by_sets.func)
