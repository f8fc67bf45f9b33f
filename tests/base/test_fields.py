"""Dataclasses as rows of JSON: what comes back is equal, and other rows are refused."""

import json
from typing import Any

import pytest

from graphflow.base.fields import of_row, row_of
from graphflow.base.sizes import Relation, SizeFormula, SizeRelation, SizeStep
from graphflow.program import BufferRef, InputSize, PackedOutput, Portion, PortionDigit, ProgramStep
from graphflow.program.program_steps import StepJump

PORTION = Portion((PortionDigit(4), PortionDigit(3, 1, 9)))
VALUES: list[tuple[Any, Any]] = [
    (ProgramStep, ProgramStep("k", (BufferRef("arena", 64, 8), BufferRef("input", 0)), 5, 2)),
    (ProgramStep, ProgramStep("k", (), 5, 0, PORTION, StepJump(BufferRef("arena", 0), True, -3))),
    (InputSize, InputSize("n", 2, 1, 9, ((0, 1), (1, 0)))),
    (PackedOutput, PackedOutput("p", 1, (2, 3), True)),
    (SizeFormula, SizeFormula("quotient", (-2, 3, 4))),
    (Relation, SizeRelation("n", (("m", -2),), -1, False)),
    (Relation, SizeStep("n", 32)),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_what_was_written_comes_back(kind: Any, value: Any) -> None:
    row = json.loads(json.dumps(row_of(value)))
    assert of_row(kind, row) == value


@pytest.mark.parametrize(
    ("kind", "row", "reason"),
    [
        (BufferRef, ["arena", 0], "2 values are given instead of 3"),
        (BufferRef, ["heap", 0, 0], "'heap' is none of arena, constant"),
        (BufferRef, ["arena", -64, 0], "is not from 0"),
        (BufferRef, ["arena", True, 0], "not an integer"),
        (PortionDigit, [1, "n", 1, None], "not an integer"),
        (PackedOutput, ["p", 1, [2], 1], "neither true nor false"),
        (SizeFormula, ["product", [1 << 63]], "is not from"),
        (tuple[tuple[int, int], ...], [[1, 2, 3]], "3 values are given instead of 2"),
        (tuple[str, ...], "text", "not a list"),
        (Relation, ["n"], "1"),
        (dict, {}, "is no type of a field in rows"),
    ],
)
def test_rows_of_other_values_are_refused(kind: Any, row: Any, reason: str) -> None:
    with pytest.raises((TypeError, ValueError, KeyError), match=reason):
        of_row(kind, row)
