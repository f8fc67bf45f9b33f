"""Tests that the rows of docs/rfc77.md name what exists, and that their states are counted."""

import importlib
import inspect
import re
from collections import Counter

import pytest

from graphflow.base.fields import replace
from graphflow.schedule import Schedule
from graphflow.schedule.user.methods import Method
from support.paths import TESTS
from support.primitives.all_cases import ALL_CASES
from support.primitives.rfc77 import ALWAYS_SAFE, PAGE, PRIMITIVES, ROWS, SECTIONS, Row, row_of

STATES = ("built", "in part", "not built")
RANDOM = "test_primitive_on_random_kernels"
REFUSED = "test_a_clause_that_fails_is_named_with_a_witness"
CATALOGUE = """
reorder_loops divide_loop divide_with_recompute mult_loops cut_loop join_loops shift_loop
fission remove_loop add_loop unroll_loop
reorder_stmts commute_expr
specialize fuse lift_scope
inline replace call_eqv extract_subproc
lift_alloc sink_alloc delete_buffer reuse_buffer resize_dim expand_dim rearrange_dim divide_dim
mult_dim unroll_buffer bind_expr stage_mem
simplify eliminate_dead_code rewrite_expr merge_writes inline_window inline_assign
set_memory set_precision parallelize_loop set_window
bind_config delete_config write_config
"""
"""The 45 primitives of the catalogue, in its order."""
LETTERED = (
    *(f"A{k}" for k in range(1, 7)),
    *(f"B{k}" for k in range(1, 8)),
    *(f"C{k}" for k in range(1, 8)),
    *(f"split {k}" for k in range(1, 5)),
    *(f"D{k}" for k in range(1, 7)),
)


def faults(row: Row) -> list[str]:
    """What is wrong with a row: names that do not exist, or a claim that nothing shows."""
    found = [f"no function {name}" for name in row.functions if not is_function(name)]
    for path, names in row.tests:
        file = TESTS / path
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        defined = set(re.findall(r"^def (test_\w+)", text, re.MULTILINE))
        found += [f"no test {name} in {path}" for name in names if name not in defined]
        found += [] if names else [f"no test is named in {path}"]
    if not row.missing and not (row.functions and row.tests):
        found.append("neither shown by a function and a test, nor said to be missing")
    if row.functions and not row.tests:
        found.append("a function without a test")
    if row.state != ("built" if not row.missing else "in part" if row.tests else "not built"):
        found.append(f"{row.state}, which is not what its tests show")
    return found


def is_function(dotted: str) -> bool:
    """Whether a dotted name below graphflow is that of a function, method or class."""
    parts = ["graphflow", *dotted.split(".")]
    found: object = None
    for depth, name in enumerate(parts):
        if depth and hasattr(found, name):
            found = getattr(found, name)
            continue
        try:
            found = importlib.import_module(".".join(parts[: depth + 1]))
        except ImportError:
            return False
    return callable(found) or isinstance(found, property)


def test_the_first_table_counts_the_rows_by_section_and_state() -> None:
    lines = []
    for title, rows in (*SECTIONS.items(), ("all", ROWS)):
        counts = Counter(row.state for row in rows)
        lines.append(f"| {title} | {' | '.join(str(counts[state]) for state in STATES)} |")
    head = PAGE.partition("\n## ")[0].splitlines()
    assert [line for line in head if line.startswith("|")][2:] == lines


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_a_row_names_exists(row: Row) -> None:
    assert faults(row) == []


def test_no_row_is_left_out() -> None:
    primitives = CATALOGUE.split()
    assert len(primitives) == len(set(primitives)) == 45
    assert [row.name for row in PRIMITIVES] == primitives
    assert [row.name for row in ROWS] == [*LETTERED, *primitives, "F"]


def test_every_primitive_is_tried_on_random_kernels_and_refused_for_each_condition() -> None:
    for row in PRIMITIVES:
        shown = {name for _, names in row.tests for name in names}
        assert f"schedule.{row.name}" in row.functions
        assert RANDOM in shown and (REFUSED in shown) != (row.name in ALWAYS_SAFE), row.name


def test_every_primitive_runs_on_random_kernels() -> None:
    """Those of the catalogue, and all others that are methods of a schedule."""
    on_random_kernels = {case.primitive.__name__ for case in ALL_CASES}
    assert [row.name for row in PRIMITIVES if row.name not in on_random_kernels] == []
    methods = [name for name, method in vars(Schedule).items() if isinstance(method, Method)]
    assert [name for name in methods if name not in on_random_kernels] == []


def test_lettered_rows_have_tests_of_their_name() -> None:
    lettered = [row for row in ROWS if row not in PRIMITIVES]
    for row in lettered:
        prefix = f"test_{row.name.lower().replace(' ', '_')}_"
        names = [name for _, found in row.tests for name in found]
        assert any(name.startswith(prefix) for name in names), row.name


def test_a_primitive_that_is_built_has_its_name_and_states_its_rewrite() -> None:
    schedule = importlib.import_module("graphflow.schedule")
    for row in PRIMITIVES:
        if row.state == "built":
            text = inspect.getdoc(getattr(schedule, row.name)) or ""
            assert "→" in text, row.name


def test_faults_are_noticed() -> None:
    """A trap for the tests themselves."""
    row = row_of(
        "| x | . | `schedule.fuse` | `schedule/loops/test_loops.py`: `test_fuse` | built |"
    )
    ((path, _),) = row.tests
    assert faults(row) == []
    assert faults(replace(row, functions=("schedule.fusion",))) == ["no function schedule.fusion"]
    assert faults(replace(row, functions=("schedule",))) == ["no function schedule"]
    assert faults(replace(row, tests=((path, ("test_melt",)),)))
    assert faults(replace(row, tests=(("schedule/test_fuse.py", ("test_fuse",)),)))
    assert faults(replace(row, tests=((path, ()),)))
    assert faults(replace(row, state="in part")) and faults(replace(row, missing="a part"))
    assert faults(replace(row, tests=(), missing="tests"))
    assert faults(row_of("| x | . | – | – | built |"))
    partial = row_of(
        "| x | . | `schedule.fuse` | `schedule/loops/test_loops.py`: `test_fuse` | in part: a |"
    )
    assert faults(partial) == [] == faults(row_of("| x | . | – | – | not built: all |"))
