"""Tests of what executables say of themselves, at a prompt and in a notebook."""

import pickle
import re

import numpy as np

import graphflow as gf
from graphflow.models import ModelBuilder
from support.small_program import small


def rows(extent: int | str, sizes: dict[str, tuple[int, int]] | None = None) -> gf.Executable:
    build = ModelBuilder(name="net<1>")
    build.output(build.relu(build.input("x", (extent, 4))))
    return gf.compile(build.model(), threads=1, sizes=sizes)


def test_the_repr_says_what_an_executable_is() -> None:
    text = repr(small())
    assert re.fullmatch(
        r"<Executable small for \S+: x: float32\[1, 5, 6, 6\] → relu_1: float32\[1, 7, 6, 6\]; "
        r"1 thread>",
        text,
    )
    again = pickle.loads(pickle.dumps(small()))
    assert repr(again) == text and again._repr_html_() == small()._repr_html_()


def test_programs_for_open_shapes_are_counted() -> None:
    exe = rows("rows")
    assert repr(exe) == (
        "<Executable net<1>: x: float32[rows, 4] → relu_1: float32[rows, 4]; "
        "no program yet, runs compile them>"
    )
    assert "no program yet" in exe._repr_html_()
    for extent in (2, 3):
        exe.run({"x": np.zeros((extent, 4), np.float32)})
    assert repr(exe).endswith("; 1 thread, 2 programs>")
    html = exe._repr_html_()
    assert "net&lt;1&gt; for" in html and html.count("<details>") == 2
    assert "x: float32[2, 4]" in html and "rows×4" in html
    exe = rows("rows", {"rows": (1, 8)})
    assert repr(exe).endswith("; 1 thread, 1 program, one for rows from 1 to 8>")


def test_a_line_names_few_of_many_inputs() -> None:
    build = ModelBuilder()
    names = [build.input(f"x{k}", (2,)) for k in range(5)]
    build.output(build.node("Sum", names))
    assert "x2: float32[2], … and 2 more → " in repr(gf.compile(build.model(), threads=1))


def test_notebooks_show_decisions_plans_and_explanations() -> None:
    html = small()._repr_html_()
    for text in ("<td>input</td><td>x</td><td>float32</td><td>1×5×6×6</td>", "<td>relu_1</td>"):
        assert text in html
    plan = small().compiled.plan
    html = plan._repr_html_()
    assert all(f"<td>{node}</td>" in html for node in plan.choices)
    assert all(f"<td>{value}</td>" in html for value in plan.edges)
    story = small().explain("relu_1")
    assert story.startswith("relu_1 is stored as ")
    assert "<pre>" in story._repr_html_()
    assert "no run has brought them" in rows("n").explain("x")._repr_html_()
